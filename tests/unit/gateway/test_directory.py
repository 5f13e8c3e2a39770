"""The local directory and the cache of leaves: bounded, and states only move forward."""

from __future__ import annotations

import pytest

from agentworld.contract.delta import Leaf
from agentworld.contract.errors import InvalidInput
from gateway.capture import token_array
from gateway.directory import Entry, LocalDirectory, known_entry, moved, open_entry
from gateway.leaves import LeafCache


def entry(name: str = "t1", prompt: str = "p1") -> Entry:
    return Entry(name, prompt, run_id="r", channel="train", policy="default")


def test_a_state_only_moves_forward() -> None:
    directory = LocalDirectory()
    directory.put(moved(entry(), "completed"))
    assert directory.put(entry()).state == "completed"
    assert directory.put(moved(entry(), "sealed")).state == "sealed"
    assert directory.put(moved(entry(), "completed")).state == "sealed"
    assert len(directory) == 1


def test_the_first_prompt_of_a_trajectory_stays() -> None:
    directory = LocalDirectory()
    directory.put(entry())
    assert directory.put(moved(entry(prompt="p2"), "sealed")).prompt_id == "p1"


def test_sealed_trajectories_are_forgotten_before_live_ones() -> None:
    directory = LocalDirectory(max_trajectories=3)
    directory.put(entry("live"))
    for number in range(10):
        directory.put(moved(entry(f"sealed{number}"), "sealed"))
    assert len(directory) == 3
    assert directory.get("live") is not None
    assert not directory.forgot_live


def test_a_forgotten_live_trajectory_is_remembered_as_a_gap() -> None:
    directory = LocalDirectory(max_trajectories=2)
    for name in ("a", "b"):
        directory.put(entry(name))
    directory.get("a")
    directory.put(entry("c"))
    assert directory.get("a") is not None
    assert directory.get("b") is None
    assert directory.forgot_live


async def test_a_sealed_trajectory_takes_rewards_and_no_calls() -> None:
    directory = LocalDirectory()
    directory.put(moved(entry(), "sealed"))
    assert (await known_entry(directory, "t1", "p1")).state == "sealed"
    with pytest.raises(InvalidInput, match="sealed") as caught:
        await open_entry(directory, "t1", "p1")
    assert (caught.value.status, caught.value.code) == (409, "trajectory_completed")


def leaf(name: str, size: int = 100) -> Leaf:
    return Leaf(step_id=name, ids=token_array(range(size)), messages=(), tools=None)


def test_leaves_come_newest_first_and_are_bounded_per_trajectory() -> None:
    cache = LeafCache(per_trajectory=2, max_bytes=10_000)
    for name in ("a", "b", "c"):
        cache.add("t", leaf(name))
    assert [one.step_id for one in cache.recent("t")] == ["c", "b"]
    assert cache.size_bytes == 2 * leaf("x").size_bytes()


def test_leaves_are_bounded_in_bytes_and_the_least_used_trajectory_goes_first() -> None:
    cache = LeafCache(per_trajectory=4, max_bytes=3 * leaf("x").size_bytes())
    for name in ("a", "b", "c"):
        cache.add(name, leaf(name))
    cache.recent("a")
    cache.add("d", leaf("d"))
    assert not cache.recent("b")
    assert cache.recent("a")
    cache.add("huge", leaf("huge", 10_000))
    assert cache.size_bytes <= 3 * leaf("x").size_bytes()
