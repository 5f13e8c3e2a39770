"""Batches resolve to token-exact trajectories, or say what is missing; never to a part."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest

from agentworld.contract.delta import expand
from agentworld.contract.errors import IntegrityError, InvalidInput
from agentworld.contract.events import BatchReady, TrajectorySealed
from agentworld.contract.topics import READY_BATCHES, TRAJECTORIES
from agentworld.platform.batches import BatchReader, tail
from agentworld.platform.log import OutRecord
from agentworld.platform.memory import InMemoryLog
from agentworld.platform.resolved import PROMPT_UNRESOLVED
from tests.support import builders as b


def publish(log: InMemoryLog, events: Sequence[TrajectorySealed], *, sequence: int = 0) -> BatchReady:
    members = [b.member(event, log.append(OutRecord.of(TRAJECTORIES, event))) for event in events]
    batch = b.batch_ready([b.group_ready(members)], sequence=sequence)
    log.append(OutRecord.of(READY_BATCHES, batch))
    return batch


def reader_of(log: InMemoryLog) -> BatchReader:
    return BatchReader(log, lambda: log.records(READY_BATCHES.name))


def test_batch_resolves_to_whole_prompts_and_aligned_logprobs(memory_log: InMemoryLog) -> None:
    rollouts = [b.rollout("t-1"), b.rollout("t-2", turns=1)]
    batch = publish(memory_log, [b.sealed(rollouts[0], reward=0.5), b.sealed(rollouts[1])])
    resolved = reader_of(memory_log).resolve(batch)
    found = list(resolved.trajectories)
    assert [trajectory.trajectory_id for trajectory in found] == ["t-1", "t-2"]
    assert [trajectory.reward for trajectory in found] == [0.5, 1.0]
    for trajectory, steps in zip(found, rollouts, strict=True):
        prompts = expand(steps)
        for got, step in zip(trajectory.steps, steps, strict=True):
            assert got.prompt_ids == list(prompts[step.step_id].ids)
            assert got.response_ids == step.response_ids
            assert got.logprobs == step.response_logprobs
            assert len(got.messages) == len(prompts[step.step_id].messages)
            assert got.tools is not None


def test_revised_reward_in_the_batch_is_the_one_that_trains(memory_log: InMemoryLog) -> None:
    event = b.sealed(b.rollout("t-1"), reward=None)
    member = b.member(event, memory_log.append(OutRecord.of(TRAJECTORIES, event)))
    batch = b.batch_ready([b.group_ready([msgspec.structs.replace(member, reward=0.75)])])
    (trajectory,) = reader_of(memory_log).resolve(batch).trajectories
    assert trajectory.reward == 0.75


def test_failed_rollout_without_steps_is_part_of_its_batch(memory_log: InMemoryLog) -> None:
    batch = publish(memory_log, [b.sealed([], trajectory_id="t-0", outcome="failed", reward=None)])
    (trajectory,) = reader_of(memory_log).resolve(batch).trajectories
    assert trajectory.steps == ()
    assert trajectory.outcome == "failed"


def test_expired_trajectory_is_named_and_nothing_is_returned(memory_log: InMemoryLog) -> None:
    batch = publish(memory_log, [b.sealed(b.rollout("t-1")), b.sealed(b.rollout("t-2"))])
    place = batch.groups[0].members[0].place
    memory_log.expire(TRAJECTORIES.name, place.partition, place.offset + 1)
    with pytest.raises(IntegrityError, match=r"1 of 2 .*t-1.*no longer in the log"):
        reader_of(memory_log).resolve(batch)


def test_another_trajectory_in_its_place_is_refused(memory_log: InMemoryLog) -> None:
    event = b.sealed(b.rollout("t-1"))
    member = b.member(event, memory_log.append(OutRecord.of(TRAJECTORIES, b.sealed(b.rollout("t-9")))))
    with pytest.raises(IntegrityError, match=r"t-1.*holds another event"):
        reader_of(memory_log).resolve(b.batch_ready([b.group_ready([member])]))


def test_trajectory_with_other_steps_than_the_batch_says_is_refused(memory_log: InMemoryLog) -> None:
    event = b.sealed(b.rollout("t-1"))
    member = b.member(event, memory_log.append(OutRecord.of(TRAJECTORIES, event)))
    short = msgspec.structs.replace(member, steps=2)
    with pytest.raises(IntegrityError, match="has 3 steps, the batch says 2"):
        reader_of(memory_log).resolve(b.batch_ready([b.group_ready([short])]))


def test_trainable_step_with_misaligned_logprobs_is_refused(memory_log: InMemoryLog) -> None:
    (step,) = b.rollout("t-1", turns=1)
    batch = publish(memory_log, [b.sealed([msgspec.structs.replace(step, response_logprobs=[-1.0])])])
    with pytest.raises(IntegrityError, match="5 response ids and 1 logprobs"):
        reader_of(memory_log).resolve(batch)


def test_step_with_a_missing_base_comes_marked_and_not_trainable(memory_log: InMemoryLog) -> None:
    steps = b.rollout("t-1")
    batch = publish(memory_log, [b.sealed([steps[0], steps[2]])])
    (trajectory,) = reader_of(memory_log).resolve(batch).trajectories
    assert [step.trainable for step in trajectory.steps] == [True, False]
    assert trajectory.steps[1].integrity == (PROMPT_UNRESOLVED,)
    assert trajectory.steps[1].prompt_ids == []


def test_batch_is_found_by_id_and_an_unknown_one_says_where_to_look(memory_log: InMemoryLog) -> None:
    batch = publish(memory_log, [b.sealed(b.rollout("t-1"))])
    assert reader_of(memory_log).find(batch.batch_id) == batch
    with pytest.raises(InvalidInput, match="batches tail"):
        reader_of(memory_log).find("nope")


def test_batches_are_listed_once_each_in_sequence(memory_log: InMemoryLog) -> None:
    second = publish(memory_log, [b.sealed(b.rollout("t-2"))], sequence=1)
    first = publish(memory_log, [b.sealed(b.rollout("t-1"))], sequence=0)
    memory_log.append(OutRecord.of(READY_BATCHES, first))
    memory_log.append(OutRecord(topic=READY_BATCHES.name, key=b"k", value=b"broken"))
    assert reader_of(memory_log).list(run_id=b.RUN, channel=b.CHANNEL) == [first, second]
    assert reader_of(memory_log).list(channel="val") == []


def test_tail_gives_batches_again_from_what_was_committed(memory_log: InMemoryLog) -> None:
    batches = [publish(memory_log, [b.sealed(b.rollout(f"t-{n}"))], sequence=n) for n in range(3)]
    reader = memory_log.reader([READY_BATCHES], group="trainer")
    taken = tail(reader)
    assert next(taken) == batches[0]
    reader.commit()
    assert next(taken) == batches[1]
    again = tail(memory_log.reader([READY_BATCHES], group="trainer"))
    assert [next(again), next(again)] == batches[1:]
