"""Which engine takes a call. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from gateway.upstreams.breaker import Breaker
from gateway.upstreams.choice import choose


@dataclass
class Busy:
    name: str
    open_calls: int = 0


THREE = [Busy("a"), Busy("b"), Busy("c")]


@given(st.text(min_size=1), st.permutations(THREE))
def test_a_trajectory_stays_at_one_engine_whatever_the_order(trajectory: str, engines: list[Busy]) -> None:
    assert choose(engines, trajectory, spill_calls=4).name == choose(THREE, trajectory, spill_calls=4).name


@given(st.text(min_size=1))
def test_only_the_trajectories_of_a_lost_engine_move(trajectory: str) -> None:
    before = choose(THREE, trajectory, spill_calls=4)
    left = [engine for engine in THREE if engine.name != "b"]
    if before.name != "b":
        assert choose(left, trajectory, spill_calls=4) is before


def test_trajectories_spread_over_all_engines() -> None:
    chosen = [choose(THREE, f"t{i}", spill_calls=4).name for i in range(300)]
    assert min(chosen.count(engine.name) for engine in THREE) > 50


def test_a_call_leaves_an_engine_that_is_too_busy_for_the_least_busy_one() -> None:
    mine = choose(THREE, "t", spill_calls=4).name
    busy = [Busy(e.name, 4 if e.name == mine else i) for i, e in enumerate(THREE)]
    assert choose(busy, "t", spill_calls=4).open_calls in {0, 1}
    busy = [Busy(e.name, 3 if e.name == mine else 0) for e in THREE]
    assert choose(busy, "t", spill_calls=4).name == mine


def test_without_a_trajectory_the_least_busy_engine_takes_the_call() -> None:
    assert choose([Busy("a", 2), Busy("b", 1), Busy("c", 3)], "", spill_calls=9).name == "b"


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_breaker_opens_after_failures_in_a_row_and_lets_one_call_probe() -> None:
    clock = Clock()
    breaker = Breaker(failures=2, open_s=5, clock=clock)
    breaker.failed()
    breaker.succeeded()
    breaker.failed()
    assert breaker.allows
    breaker.failed()
    assert (breaker.state, breaker.allows, breaker.opens_in_s) == ("open", False, 5)
    clock.now = 5
    assert (breaker.state, breaker.allows) == ("half_open", True)
    breaker.began()
    assert not breaker.allows
    breaker.failed()
    assert breaker.state == "open"
    clock.now = 10
    breaker.began()
    breaker.given_up()
    assert breaker.allows
    breaker.began()
    breaker.answered()
    assert breaker.state == "closed"
    breaker.failed()
    assert breaker.state == "open"


def test_a_breaker_without_a_limit_never_opens() -> None:
    breaker = Breaker(failures=0, open_s=5, clock=Clock())
    for _ in range(50):
        breaker.failed()
    assert breaker.allows
