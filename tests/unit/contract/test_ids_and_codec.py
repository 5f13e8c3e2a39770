"""Ids sort and repeat as promised; bytes become events in one place."""

from __future__ import annotations

import uuid

import pytest

from agentworld.contract.codec import decode, encode, record_headers
from agentworld.contract.errors import InvalidInput, MalformedEvent
from agentworld.contract.ids import check_name, derived_id, group_id, new_id, new_id_time_ms
from agentworld.contract.partitioner import murmur2, partition_of
from agentworld.contract.topics import READY_BATCHES, TRAJECTORY_EVENTS
from tests.contract.examples import all_examples, step


def test_new_ids_are_uuid7_and_increase():
    ids = [new_id() for _ in range(5000)]
    assert ids == sorted(set(ids))
    assert {uuid.UUID(i).version for i in ids} == {7}
    assert new_id_time_ms(ids[0]) <= new_id_time_ms(ids[-1])


def test_derived_ids_depend_on_every_part_and_nothing_else():
    assert derived_id("k", "a", 1) == derived_id("k", "a", 1)
    assert len({derived_id("k", "a", 1), derived_id("k", "a1"), derived_id("l", "a", 1)}) == 3
    assert uuid.UUID(derived_id("k")).variant == uuid.RFC_4122
    assert group_id("r", "train", 0, "p") != group_id("r", "val", 0, "p")


@pytest.mark.parametrize("name", ["a", "gsm8k-17", "a.b:c@d=e+f_g", "x" * 128])
def test_good_names_pass(name):
    assert check_name(name, "prompt id") == name


@pytest.mark.parametrize("name", ["", "a/b", "-a", "a b", "x" * 129, "ä", "..", "a\n"])
def test_bad_names_say_what_is_allowed(name):
    with pytest.raises(InvalidInput, match="1 to 128") as caught:
        check_name(name, "prompt id")
    assert caught.value.status == 422


@pytest.mark.parametrize(
    ("data", "hashed"),
    # From Kafka's own UtilsTest.testMurmur2.
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_murmur2_is_kafkas(data, hashed):
    assert murmur2(data) == hashed % 2**32
    assert 0 <= partition_of(data, 24) < 24


def test_equal_events_give_equal_bytes():
    assert encode(step()) == encode(step())


@pytest.mark.parametrize(
    "value",
    [None, b"", b"{", b"[]", b"{}", b'{"type":"unknown"}', b"\xff\xfe", b'{"type":"step_captured"}'],
)
def test_bytes_that_are_no_event_are_malformed(value):
    with pytest.raises(MalformedEvent, match="trajectory-events"):
        decode(TRAJECTORY_EVENTS, value)


def test_an_event_of_another_topic_is_malformed():
    with pytest.raises(MalformedEvent):
        decode(READY_BATCHES, encode(step()))


def test_a_version_from_the_future_is_malformed_and_an_unknown_field_is_not():
    value = encode(step())
    with pytest.raises(MalformedEvent):
        decode(TRAJECTORY_EVENTS, value.replace(b'"schema_version":1', b'"schema_version":2'))
    grown = value.replace(b'{"type"', b'{"from_the_future":1,"type"')
    assert decode(TRAJECTORY_EVENTS, grown) == step()


def test_headers_repeat_the_hot_fields():
    headers = dict(record_headers(all_examples()["groups"][0]))
    assert headers["type"] == b"group_ready"
    assert set(headers) == {"type", "schema_version", "event_id", "group_id"}


@pytest.mark.parametrize("value", [b"[" * 100_000, b'{"type":"step_captured","x":' + b"[" * 100_000])
def test_what_is_nested_too_deeply_is_malformed(value: bytes) -> None:
    with pytest.raises(MalformedEvent):
        decode(TRAJECTORY_EVENTS, value)
