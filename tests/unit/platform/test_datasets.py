"""Datasets: the same data gives the same bytes, a version is whole or not there, and others can load it."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import msgspec
import pytest

from agentworld.contract.delta import expand
from agentworld.contract.errors import IntegrityError, InvalidInput
from agentworld.contract.events import BatchReady
from agentworld.contract.topics import READY_BATCHES, TRAJECTORIES
from agentworld.platform.batches import BatchReader
from agentworld.platform.datasets.files import read_rows, sha256_of
from agentworld.platform.datasets.rows import COLUMNS
from agentworld.platform.datasets.selection import Selection
from agentworld.platform.datasets.store import DatasetStore
from agentworld.platform.log import OutRecord
from agentworld.platform.memory import InMemoryLog
from tests.contract.examples import sealed_tree
from tests.support import builders as b

RUN = Selection(run_id=b.RUN)


@pytest.fixture
def store(tmp_path: Path) -> DatasetStore:
    return DatasetStore(tmp_path / "datasets")


def batch_of(log: InMemoryLog, names: list[str], *, sequence: int = 0) -> BatchReady:
    sealed = [b.sealed(b.rollout(name), reward=0.5) for name in names]
    members = [b.member(event, log.append(OutRecord.of(TRAJECTORIES, event))) for event in sealed]
    batch = msgspec.structs.replace(
        b.batch_ready([b.group_ready(members)], sequence=sequence), details={"rules": f"sha256:{sequence}"}
    )
    log.append(OutRecord.of(READY_BATCHES, batch))
    return batch


def reader_of(log: InMemoryLog) -> BatchReader:
    return BatchReader(log, lambda: log.records(READY_BATCHES.name))


def test_the_same_data_gives_the_same_bytes_in_any_order_and_no_second_version(tmp_path, memory_log) -> None:
    batches = [batch_of(memory_log, [f"t-{n}-0", f"t-{n}-1"], sequence=n) for n in range(3)]
    one, two = DatasetStore(tmp_path / "one"), DatasetStore(tmp_path / "two")
    first, new = one.create("words", RUN, reader_of(memory_log))
    assert new
    backwards = BatchReader(memory_log, lambda: memory_log.records(READY_BATCHES.name)[::-1])
    other, _ = two.create("words", RUN, backwards)
    assert one.data(first).read_bytes() == two.data(other).read_bytes()
    assert first.content_digest == other.content_digest
    again, new = one.create("words", RUN, reader_of(memory_log))
    assert (again, new) == (first, False)
    assert one.versions("words") == [1]
    assert first.provenance.batch_ids == [batch.batch_id for batch in batches]
    assert first.provenance.rules == ["sha256:0", "sha256:1", "sha256:2"]
    assert sum(place.records for place in first.provenance.places) == 6


def test_new_data_makes_a_new_version_and_leaves_the_old_one(store, memory_log) -> None:
    batch_of(memory_log, ["t-1"])
    first, _ = store.create("words", RUN, reader_of(memory_log))
    old = store.data(first).read_bytes()
    batch_of(memory_log, ["t-2"], sequence=1)
    second, new = store.create("words", RUN, reader_of(memory_log))
    assert (second.version, new) == (2, True)
    assert store.manifest("words") == second
    assert store.manifest("words@v1") == first
    assert store.data(first).read_bytes() == old
    assert (first.rows, second.rows) == (3, 6)


def test_a_missing_trajectory_fails_by_name_and_leaves_nothing(store, memory_log, tmp_path) -> None:
    batch_of(memory_log, ["t-1"])
    event = b.sealed(b.rollout("t-2"))
    place = memory_log.append(OutRecord.of(TRAJECTORIES, event))
    gone = b.member(event, msgspec.structs.replace(place, offset=place.offset + 100))
    memory_log.append(OutRecord.of(READY_BATCHES, b.batch_ready([b.group_ready([gone])], sequence=1)))
    with pytest.raises(IntegrityError, match=r"t-2.*no longer in the log"):
        store.create("words", RUN, reader_of(memory_log))
    assert store.names() == []
    assert not (tmp_path / "datasets" / "words").exists()


def test_only_trained_leaves_out_the_other_branches(store, memory_log) -> None:
    event = sealed_tree()
    member = b.member(event, memory_log.append(OutRecord.of(TRAJECTORIES, event)))
    memory_log.append(OutRecord.of(READY_BATCHES, b.batch_ready([b.group_ready([member])])))
    whole, _ = store.create("whole", RUN, reader_of(memory_log))
    trained, _ = store.create("trained", RUN, reader_of(memory_log), only_trained=True)
    rows = list(read_rows(store.data(whole)))
    assert [row["trained"] for row in rows] == [True, False, True, False, False, False]
    assert [row["superseded"] for row in rows] == [False, True, False, False, False, False]
    assert [row["relation"] for row in rows] == [placed.relation for placed in event.steps]
    assert list(read_rows(store.data(trained))) == [row for row in rows if row["trained"]]


def test_a_selection_of_trajectories_takes_those_alone(store, memory_log) -> None:
    batch = batch_of(memory_log, ["t-1", "t-2"])
    ids = frozenset({"t-2", "never batched"})
    manifest, _ = store.create("some", Selection(trajectory_ids=ids), reader_of(memory_log))
    assert {row["trajectory_id"] for row in read_rows(store.data(manifest))} == {"t-2"}
    assert manifest.provenance.selected_not_batched == 1
    with pytest.raises(InvalidInput, match="'nope'"):
        store.create("other", Selection(batch_ids=frozenset({"nope", batch.batch_id})), reader_of(memory_log))
    with pytest.raises(InvalidInput, match="no batch holds"):
        store.create("other", Selection(run_id="no such run"), reader_of(memory_log))
    assert store.names() == ["some"]


@pytest.mark.parametrize("file", ["data.parquet", "manifest.json"])
def test_a_changed_file_is_found_and_not_exported(store, memory_log, tmp_path, file) -> None:
    batch_of(memory_log, ["t-1"])
    manifest, _ = store.create("words", RUN, reader_of(memory_log))
    assert store.changed_files(manifest) == []
    path = store.data(manifest).with_name(file)
    path.write_bytes(path.read_bytes().replace(b"t-1", b"t-2").replace(b'"rows": 3', b'"rows": 4'))
    with pytest.raises(IntegrityError, match="changed"):
        store.export("words", tmp_path / "out.jsonl", form="jsonl")
    assert not (tmp_path / "out.jsonl").exists()


def test_export_replaces_nothing_without_force(store, memory_log, tmp_path) -> None:
    batch_of(memory_log, ["t-1"])
    store.create("words", RUN, reader_of(memory_log))
    target = tmp_path / "out.jsonl"
    target.write_text("mine")
    with pytest.raises(InvalidInput, match="--force"):
        store.export("words", target, form="jsonl")
    assert target.read_text() == "mine"
    store.export("words", target, form="jsonl", force=True)
    assert len(target.read_bytes().splitlines()) == 3
    assert sha256_of(target) == store.manifest("words").content_digest
    with pytest.raises(InvalidInput, match="cannot be written"):
        store.export("words", tmp_path / "nowhere" / "out", form="parquet")


@pytest.mark.parametrize("name", ["", "../up", "a/b", ".hidden", "a@v1", "x" * 101])
def test_a_name_that_is_no_file_name_is_refused(store, memory_log, name) -> None:
    with pytest.raises(InvalidInput, match="not a dataset's name"):
        store.create(name, RUN, reader_of(memory_log))


@pytest.mark.parametrize("reference", ["nope", "words@v9", "words@2", "../x", "words@"])
def test_an_unknown_reference_says_what_there_is(store, memory_log, reference) -> None:
    batch_of(memory_log, ["t-1"])
    store.create("words", RUN, reader_of(memory_log))
    with pytest.raises(InvalidInput, match=r"dataset list|it has v1"):
        store.manifest(reference)


def test_without_pyarrow_the_extra_is_named(store, memory_log, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(InvalidInput, match=r"agentworld\[datasets\]"):
        store.create("words", RUN, reader_of(memory_log))


@pytest.mark.parametrize("loader", ["pandas parquet", "pandas json", "datasets parquet", "datasets json"])
def test_other_libraries_read_the_token_ids_that_were_captured(
    store, memory_log, tmp_path, monkeypatch, loader
) -> None:
    monkeypatch.setenv("HF_DATASETS_OFFLINE", "1")
    names = ["t-1", "t-2"]
    batch_of(memory_log, names)
    store.create("words", RUN, reader_of(memory_log))
    library, form = loader.split()
    path = tmp_path / f"words.{form}"
    store.export("words", path, form="parquet" if form == "parquet" else "jsonl")
    if library == "pandas":
        import pandas

        frame = pandas.read_parquet(path) if form == "parquet" else pandas.read_json(path, lines=True)
        rows = frame.to_dict("records")
    else:
        import datasets

        rows = list(
            datasets.load_dataset(
                form, data_files=str(path), split="train", cache_dir=str(tmp_path / "cache")
            )
        )
    steps = {step.step_id: step for name in names for step in b.rollout(name)}
    prompts = {k: v for name in names for k, v in expand(b.rollout(name)).items()}
    assert [row["step_id"] for row in rows] == list(steps)
    for row in rows:
        step = steps[row["step_id"]]
        assert list(row) == list(COLUMNS)
        assert list(row["prompt_ids"]) == list(prompts[step.step_id].ids)
        assert list(row["response_ids"]) == step.response_ids
        assert list(row["logprobs"]) == step.response_logprobs
        assert json.loads(row["messages"]) == [json.loads(m) for m in prompts[step.step_id].messages]
