"""The faults: what is done to the engine, the clients, the broker and the gateway, while calls go on."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field

from tests.faults import plays
from tests.faults.judgement import Judgement, judge
from tests.faults.load import Load
from tests.faults.plays import Play
from tests.faults.stack import Stack
from tests.faults.wire import KINDS
from tests.support.gateway_process import GatewayProcess

_ENGINE_TIMEOUT_MS = 1_500
_FULL_BYTES = 128 * 1024
_ACK_TIMEOUT_MS = 500
"""In rows that take the broker away often."""
_CALM_CALLS = 2
"""Answers that each kind must get before and after a fault."""


@dataclass(frozen=True, slots=True)
class Options:
    """How much of it."""

    clients: int
    calls: int
    """Least number of calls in a row whose fault is the engine's or the client's."""
    outage_s: float
    kills: int
    rng: random.Random


@dataclass(slots=True)
class Finding:
    """One row as it happened."""

    judgement: Judgement
    figures: dict[str, object] = field(default_factory=dict)
    """Of this fault alone."""


@dataclass(slots=True)
class Bench:
    """One row under way: a gateway under load."""

    row: str
    stack: Stack
    options: Options
    gateway: GatewayProcess
    load: Load

    @classmethod
    def of(cls, fault: Fault, stack: Stack, options: Options) -> Bench:
        """Nothing is started yet."""
        gateway = stack.gateway(fault.name, **fault.settings)
        load = Load(
            fault.name,
            lambda: gateway.url,
            clients=options.clients,
            rng=options.rng,
            turns=fault.turns,
            faults=fault.plays,
            engine_began=stack.watch.began,
        )
        return cls(fault.name, stack, options, gateway, load)

    async def judged(self, **figures: object) -> Finding:
        """Stop the gateway and compare. What was not as it must be in every row stands in `problems`."""
        await self.gateway.until_broker("up")
        noted, open_calls = await self.stack.watch.settled()
        code = await self.gateway.stop()
        events = await asyncio.to_thread(self.stack.events, self.row)
        found = judge(self.load.calls, self.load.registered, noted, events)
        if code:
            found.problems.append(f"the gateway ended with code {code}")
        if open_calls:
            found.problems.append(f"{open_calls} calls go on at the engine that nobody waits for any more")
        for kind in map(str, KINDS):
            if not self.load.count("answered")[kind]:
                found.problems.append(f"{kind}: no call was answered")
        return Finding(found, figures)

    async def health(self) -> dict[str, object]:
        return (await self.gateway.get("/health"))[1]


async def engine_fails(bench: Bench) -> Finding:
    """The engine fails half of its calls."""
    await bench.gateway.start()
    load = bench.load
    async with load.running():
        await load.until(lambda: len(load.calls) >= bench.options.calls, what="enough calls")
        await load.until_each_kind(_CALM_CALLS, "answered")
        await load.until_each_kind(_CALM_CALLS, "failed", "left")
    finding = await bench.judged()
    _nothing_but(finding.judgement, "answered", "failed")
    return finding


async def clients_leave(bench: Bench) -> Finding:
    """Clients close half of their connections, in the middle of a stream or while they wait."""
    finding = await engine_fails(bench)
    row = finding.judgement
    if row.engine_cancelled != row.left:
        row.problems.append(f"{row.left} clients left, {row.engine_cancelled} calls were cancelled")
    return finding


async def broker_frozen(bench: Bench) -> Finding:
    """The broker is stopped with SIGSTOP for a while: connections stand, nothing is answered."""

    async def freeze() -> None:
        bench.stack.freeze_broker()

    async def thaw() -> None:
        bench.stack.thaw_broker()

    return await _broker_away(bench, freeze, thaw)


async def broker_stopped(bench: Bench) -> Finding:
    """The broker is shut down, and started again after a while."""
    broker = bench.stack.broker
    return await _broker_away(
        bench, lambda: asyncio.to_thread(broker.stop), lambda: asyncio.to_thread(broker.start)
    )


async def _broker_away(
    bench: Bench, leave: Callable[[], Awaitable[None]], come_back: Callable[[], Awaitable[None]]
) -> Finding:
    await bench.gateway.start()
    load = bench.load
    async with load.running():
        await load.until_each_kind(_CALM_CALLS, "answered")
        await leave()
        left_s = time.monotonic()
        await asyncio.sleep(bench.options.outage_s)
        spooled = (await bench.health())["spool_bytes"]
        back_s = time.monotonic()
        await come_back()
        await bench.gateway.until_broker("up")
        await load.until_each_kind(_CALM_CALLS, "answered", since=len(load.calls))
    away = [call for call in load.calls if call.began_s > left_s and call.ended_s < back_s]
    finding = await bench.judged(
        outage_s=round(back_s - left_s, 1),
        answered_while_away=sum(call.outcome == "answered" for call in away),
        slowest_while_away_ms=round(1000 * max((c.ended_s - c.began_s for c in away), default=0)),
        spooled_bytes=spooled,
    )
    _nothing_but(finding.judgement, "answered")
    for kind in KINDS:
        if not any(call.kind is kind and call.outcome == "answered" for call in away):
            finding.judgement.problems.append(f"{kind}: no call was answered while the broker was away")
    return finding


async def gateway_killed(bench: Bench) -> Finding:
    """The gateway is killed with -9 at random moments, and started again."""
    await bench.gateway.start()
    open_calls = []
    async with bench.load.running():
        for _ in range(bench.options.kills):
            open_calls.append(await _kill_under_load(bench))
            await bench.gateway.start()
        await bench.load.until_each_kind(_CALM_CALLS, "answered", since=len(bench.load.calls))
    finding = await bench.judged(kills=len(open_calls), open_calls_at_kills=sum(open_calls))
    return finding


async def gateway_killed_broker_away(bench: Bench) -> Finding:
    """The same with the broker frozen, so that kills hit the spool as it is written and as it drains."""
    await bench.gateway.start()
    open_calls = []
    load = bench.load
    async with load.running():
        for _ in range(max(1, bench.options.kills // 10)):
            await load.until_each_kind(1, "answered", since=len(load.calls))
            bench.stack.freeze_broker()
            await load.until(_is_spooling(bench), what="steps in the spool")
            open_calls.append(await _kill_under_load(bench))
            await bench.gateway.start()
            await load.until_each_kind(1, "answered", since=len(load.calls))
            bench.stack.thaw_broker()
            open_calls.append(await _kill_under_load(bench))
            await bench.gateway.start()
            await bench.gateway.until_broker("up")
        await load.until_each_kind(_CALM_CALLS, "answered", since=len(load.calls))
    finding = await bench.judged(kills=len(open_calls), open_calls_at_kills=sum(open_calls))
    return finding


def _is_spooling(bench: Bench) -> Callable[[], bool]:
    folder = bench.gateway.spool_folder
    return lambda: any(path.stat().st_size for path in folder.glob("pending-*.log"))


async def _kill_under_load(bench: Bench) -> int:
    """Kill at a random moment; how many calls were open then."""
    load = bench.load
    await load.until(lambda: load.open_calls > load.clients // 2, what="load")
    await asyncio.sleep(bench.options.rng.random())
    open_calls = load.open_calls
    await bench.gateway.kill()
    return open_calls


async def spool_full(bench: Bench) -> Finding:
    """The broker is away until the spool is full: calls are refused with 503 until it is back."""
    await bench.gateway.start()
    load = bench.load
    async with load.running():
        await load.until_each_kind(_CALM_CALLS, "answered")
        bench.stack.freeze_broker()
        await load.until_each_kind(5, "refused")
        spooled = (await bench.health())["spool_bytes"]
        bench.stack.thaw_broker()
        await bench.gateway.until_broker("up")
        await load.until_each_kind(_CALM_CALLS, "answered", since=len(load.calls))
    refused = [call for call in load.calls if call.outcome == "refused"]
    plain = [call for call in refused if call.http_status == 503]
    finding = await bench.judged(refused_503=len(plain), spooled_bytes=spooled)
    row = finding.judgement
    _nothing_but(row, "answered", "refused")
    for kind in KINDS:
        if not any(call.kind is kind for call in plain):
            row.problems.append(f"{kind}: no call was refused with status 503 and Retry-After")
    return finding


def _nothing_but(row: Judgement, *outcomes: str) -> None:
    for outcome in {"answered", "failed", "refused", "broken"} - set(outcomes):
        if count := getattr(row, outcome):
            row.problems.append(f"{count} calls were {outcome}")


@dataclass(frozen=True, slots=True)
class Fault:
    """A row of the report."""

    name: str
    run: Callable[[Bench], Awaitable[Finding]]
    plays: Sequence[Play] = ()
    settings: Mapping[str, object] = field(default_factory=dict)
    """Of the gateway."""
    turns: int = 5
    """Of a conversation."""


_OFTEN_AWAY = {"ack_timeout_ms": _ACK_TIMEOUT_MS}
ALL = (
    Fault("engine-cut", engine_fails, (plays.CUT, plays.CUT_BEFORE, plays.EARLY_END)),
    Fault("engine-429", engine_fails, (plays.STATUS_429,)),
    Fault("engine-500", engine_fails, (plays.STATUS_500, plays.PAGE_500, plays.ERROR_INSIDE)),
    Fault(
        "engine-timeout",
        engine_fails,
        (plays.SILENT, plays.STALLED),
        {"upstream_timeout_ms": _ENGINE_TIMEOUT_MS},
    ),
    Fault("engine-malformed", engine_fails, (plays.PAGE_200, plays.GARBAGE, plays.NO_CHOICES)),
    Fault("client-gone", clients_leave, (plays.LINGER,)),
    Fault("broker-frozen", broker_frozen),
    Fault("broker-stopped", broker_stopped),
    Fault("gateway-killed", gateway_killed),
    Fault("gateway-killed-broker-away", gateway_killed_broker_away, settings=_OFTEN_AWAY),
    Fault(
        "spool-full",
        spool_full,
        settings={**_OFTEN_AWAY, "spool_max_bytes": _FULL_BYTES},
        turns=1_000,  # a new conversation could not be registered while the spool is full
    ),
)
