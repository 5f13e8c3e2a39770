"""A consumer that librdkafka gave up says so once, as an event: its reader must not go on in silence."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import KafkaError

from agentworld.contract.errors import Unavailable
from agentworld.contract.topics import TRAJECTORIES
from agentworld.platform.reader import KafkaReader
from agentworld.platform.settings import KafkaSettings


class Event:
    """What a poll returns beside records."""

    def __init__(self, code: int) -> None:
        self._error = KafkaError(code, "fenced by other consumer with same group.instance.id")

    def error(self) -> KafkaError:
        return self._error


def reader_that_hears(code: int) -> KafkaReader:
    reader = KafkaReader(KafkaSettings(bootstrap="127.0.0.1:1"), [TRAJECTORIES], group="g", client_id="test")
    heard: list[Any] = [Event(code)]
    reader._fetch.consume = lambda *_: heard  # type: ignore[method-assign,assignment]
    return reader


def test_a_fatal_event_ends_the_reader_although_it_does_not_call_itself_fatal() -> None:
    assert not KafkaError(KafkaError._FATAL).fatal()
    reader = reader_that_hears(KafkaError._FATAL)
    with pytest.raises(Unavailable, match="fenced"):
        reader.poll(timeout_s=0)
    reader.close()


def test_a_passing_trouble_does_not() -> None:
    reader = reader_that_hears(KafkaError._TRANSPORT)
    assert reader.poll(timeout_s=0) == []
    reader.close()
