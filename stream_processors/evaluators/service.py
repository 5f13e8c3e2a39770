"""The loop: read sealed trajectories, have them evaluated, publish what is said, commit.

The order is the guarantee: a trajectory counts as done when the broker has acknowledged each evaluator's
answer or dead letter, and a partition's position is committed up to the first trajectory that is not. A
crash in between repeats evaluations, whose events have the ids that they had.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import deque
from collections.abc import Sequence
from typing import Protocol

from agentworld.contract.codec import decode
from agentworld.contract.errors import InvalidInput, MalformedEvent, Retryable
from agentworld.contract.events import TrajectoryRevised, TrajectorySealed
from agentworld.contract.topics import TRAJECTORIES, TRAJECTORY_EVENTS
from agentworld.platform.dead_letters import dead_letter
from agentworld.platform.log import REPLAY_OF, OutRecord, PlacedReader, Publisher, Record
from agentworld.platform.metrics import counter, gauge, histogram
from stream_processors.evaluators.answers import FAILED, SOURCE, events_of, letter_of
from stream_processors.evaluators.evaluation import BudgetSpent, Evaluates, EvaluationFailed
from stream_processors.evaluators.kinds import AnyEvaluator, evaluator_name
from stream_processors.evaluators.progress import Progress
from stream_processors.evaluators.settings import EvaluatorSettings
from stream_processors.evaluators.standing import Standing
from stream_processors.rules import RuleSource

logger = logging.getLogger(__name__)

_FIRST_RETRY_MS = 100
_MEMBERSHIP_S = 5.0
"""A consumer that polls less often than its group allows is put out of it: one record more is read so often
while evaluations are slow."""


class Stopping(Exception):
    """Asked to stop while the broker was away; the trajectory is not done."""


class Ready(Protocol):
    """Gives each table its evaluator (`ReadyEvaluators`)."""

    def of(self, table: AnyEvaluator) -> Evaluates:
        """The evaluator of that table."""
        ...


class EvaluatorService:
    """One consumer. Edges are passed in; `run` returns when `stop` is set."""

    def __init__(
        self,
        settings: EvaluatorSettings,
        *,
        rules: RuleSource,
        ready: Ready,
        reader: PlacedReader,
        publisher: Publisher,
        stop: asyncio.Event,
    ) -> None:
        self._settings = settings
        self._rules = rules
        self._ready = ready
        self._reader = reader
        self._publisher = publisher
        self._stop = stop
        self._progress = Progress()
        self._standing = Standing()
        self._waiting: deque[Record] = deque()
        self._open: set[asyncio.Task[None]] = set()
        self._next_poll_s = 0.0
        self.trouble = ""
        """Why nothing goes on now; empty while all is well."""

    @property
    def open(self) -> int:
        """Trajectories being evaluated."""
        return len(self._open)

    async def run(self) -> None:
        """Until stopped; then evaluations under way have `drain_ms` to end."""
        try:
            while not self._stop.is_set():
                if not await self.advance():
                    await asyncio.sleep(0.02)
        finally:
            await self._drain()

    async def advance(self) -> bool:
        """Read, begin, reap and commit once; whether anything was read or ended."""
        read = await self._read()
        self._begin()
        ended = await self._reap()
        await self._commit()
        return bool(read or ended)

    async def _read(self) -> int:
        now = time.monotonic()
        if self._waiting and now < self._next_poll_s:
            return 0
        self._next_poll_s = now + _MEMBERSHIP_S
        most = 1 if self._waiting else self._settings.read_ahead
        wait_s = 0.0 if self._waiting else 0.1 if self._open else 0.25
        # A reader that cannot go on ends the process: a new one starts from what is committed.
        polled = await asyncio.to_thread(self._reader.poll, max_records=most, timeout_s=wait_s)
        for record in polled:
            if dict(record.headers).get("type") == b"trajectory_revised":
                with contextlib.suppress(MalformedEvent):
                    revised = decode(TRAJECTORIES, record.value)
                    if isinstance(revised, TrajectoryRevised):
                        self._standing.read(revised)
        self._waiting += polled
        return len(polled)

    def _begin(self) -> None:
        while self._waiting and len(self._open) < self._settings.max_open:
            record = self._waiting.popleft()
            if self._progress.begin(record.place):
                self._open.add(asyncio.create_task(self._deal_with(record)))
        gauge("evaluator_open_trajectories").set(len(self._open))

    async def _reap(self) -> int:
        if self._open and self._waiting:
            patience_s = max(0.0, min(1.0, self._next_poll_s - time.monotonic()))
            await asyncio.wait(self._open, timeout=patience_s, return_when=asyncio.FIRST_COMPLETED)
        else:
            await asyncio.sleep(0)
        ended = {task for task in self._open if task.done()}
        self._open -= ended
        for task in ended:
            with contextlib.suppress(Stopping):
                task.result()
        return len(ended)

    async def _commit(self) -> None:
        positions = self._progress.positions()
        if not positions:
            return
        # Not retried here: a rebalance may have taken the partitions away, and only polling tells.
        try:
            await asyncio.to_thread(self._reader.commit_to, positions)
        except Retryable as exc:
            self.trouble = str(exc)
            logger.warning("%s; trying again", exc)
            await self._pause(_FIRST_RETRY_MS)
        else:
            self.trouble = ""
            self._progress.committed(positions)

    async def _drain(self) -> None:
        if self._open:
            await asyncio.wait(self._open, timeout=self._settings.drain_ms / 1000)
        left = [task for task in self._open if not task.done()]
        for task in left:
            task.cancel()
        if left:
            logger.info("%d evaluations are left for the next start", len(left))
        await asyncio.gather(*self._open, return_exceptions=True)
        self._open.clear()
        await self._commit()

    async def _deal_with(self, record: Record) -> None:
        """Everything that one record asks for; done once all of it is acknowledged."""
        headers = dict(record.headers)
        if headers.get("type", b"trajectory_sealed") == b"trajectory_sealed" and REPLAY_OF not in headers:
            try:
                event = decode(TRAJECTORIES, record.value)
            except MalformedEvent as exc:
                letter = dead_letter(record, reason=exc.reason, detail=str(exc), consumer=SOURCE)
                await self._publish(letter)
            else:
                if isinstance(event, TrajectorySealed):
                    again = headers.get(FAILED, b"").decode(errors="replace")
                    await self._evaluate(record, event, self._asked(event, again))
        self._progress.done(record.place)

    def _asked(self, sealed: TrajectorySealed, again: str) -> list[AnyEvaluator]:
        """Who is to evaluate it; `again` names the only one that a replayed dead letter is for."""
        return [
            evaluator
            for evaluator in self._rules.of(sealed.run_id, sealed.channel).evaluators
            if sealed.outcome in evaluator.outcomes and again in {"", evaluator_name(evaluator)}
        ]

    async def _evaluate(
        self, record: Record, sealed: TrajectorySealed, evaluators: Sequence[AnyEvaluator]
    ) -> None:
        results = await asyncio.gather(
            *(self._answer(record, sealed, evaluator) for evaluator in evaluators), return_exceptions=True
        )
        for result in results:
            if isinstance(result, BaseException):
                raise result

    async def _answer(self, record: Record, sealed: TrajectorySealed, evaluator: AnyEvaluator) -> None:
        name = evaluator_name(evaluator)
        outcome = "stands"
        if not self._standing.stands(evaluator, sealed.trajectory_id):
            began_s = time.monotonic()
            try:
                await self._publish_answer(sealed, evaluator)
                outcome = "answered"
            except EvaluationFailed as exc:
                outcome = "budget_spent" if isinstance(exc, BudgetSpent) else "failed"
                logger.log(
                    logging.DEBUG if isinstance(exc, BudgetSpent) else logging.WARNING,
                    "trajectory %s has no answer: %s",
                    sealed.trajectory_id,
                    exc,
                )
                await self._publish(letter_of(record, evaluator, exc))
            histogram("evaluator_seconds", "evaluator").labels(name).observe(time.monotonic() - began_s)
        counter("evaluator_evaluations", "evaluator", "outcome").labels(name, outcome).inc()

    async def _publish_answer(self, sealed: TrajectorySealed, evaluator: AnyEvaluator) -> None:
        """Raises `EvaluationFailed`, also for what an evaluator should not have raised."""
        try:
            evaluation = await self._ready.of(evaluator).evaluate(sealed)
            outputs = [
                OutRecord.of(TRAJECTORY_EVENTS, event) for event in events_of(evaluator, sealed, evaluation)
            ]
            for output in outputs:
                await self._publish(output)
        except (EvaluationFailed, Stopping):
            raise
        except InvalidInput as exc:
            raise EvaluationFailed(f"the broker refuses the answer: {exc}") from exc
        except Exception as exc:
            logger.exception("evaluator %s failed in a way of its own", evaluator_name(evaluator))
            raise EvaluationFailed(f"{type(exc).__name__}: {exc}") from exc
        self._standing.published(evaluator, sealed.trajectory_id)

    async def _publish(self, record: OutRecord) -> None:
        """Return once it is acknowledged. Raises `Stopping` where that cannot be waited for."""
        pause_ms = _FIRST_RETRY_MS
        while True:
            try:
                await self._publisher.publish(record)
            except Retryable as exc:
                self.trouble = str(exc)
                logger.warning("%s; next try in %d ms", exc, pause_ms)
                if self._stop.is_set():
                    raise Stopping from exc
                await self._pause(pause_ms)
                pause_ms = min(2 * pause_ms, self._settings.retry_max_ms)
            else:
                self.trouble = ""
                return

    async def _pause(self, pause_ms: float) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._stop.wait(), pause_ms / 1000)
