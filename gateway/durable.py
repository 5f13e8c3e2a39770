"""The durable publisher: acknowledged by the broker, or fsynced in the spool; nothing in between."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Sequence

from agentworld.contract.errors import InvalidInput, Unavailable
from agentworld.contract.events import Place
from agentworld.contract.topics import TOPICS_BY_NAME, MiB
from agentworld.platform.log import OutRecord
from agentworld.platform.metrics import counter, gauge, histogram
from gateway.broker import Broker
from gateway.spool import Position, Spool
from gateway.tail import Tail

logger = logging.getLogger(__name__)

_BATCH_BYTES = 4 * MiB
_ENVELOPE_BYTES = 64 * 1024
"""Left free below a topic's limit for headers and framing."""
_DRAIN_ACK_S = 30.0


def check_size(record: OutRecord) -> None:
    """Raise `InvalidInput` for a record its topic would refuse for ever."""
    limit = TOPICS_BY_NAME[record.topic].max_message_bytes - _ENVELOPE_BYTES
    if len(record.value) > limit:
        raise InvalidInput(
            f"{record.topic}: the event has {len(record.value)} bytes, the topic takes {limit}: "
            "send a shorter prompt, or ask for a shorter reply",
            code="record_too_large",
            status=413,
        )


class DurablePublisher:
    """`Publisher` that survives the broker. Call `start` before use.

    Records go straight to the broker while it acknowledges. Once one is not acknowledged in
    time, or the broker is known to be away, all go to the spool, until the drainer has
    published what is there in order. A record may be published twice, never not at all.
    """

    def __init__(
        self,
        broker: Broker,
        spool: Spool,
        *,
        tail: Tail | None = None,
        ack_timeout_ms: int = 2_000,
        probe_interval_ms: int = 300,
    ) -> None:
        self._broker = broker
        self._spool = spool
        self._tail = tail
        self._ack_timeout_s = ack_timeout_ms / 1000
        self._probe_interval_s = probe_interval_ms / 1000
        self._replay_due = tail is not None and tail.replayable
        self._direct = spool.pending_bytes == 0 and not self._replay_due
        """Whether records go straight to the broker."""
        self._waiting: set[asyncio.Future[Place]] = set()
        self._gate = asyncio.Event()
        self._gate.set()
        self._wake = asyncio.Event()
        self._drainer: asyncio.Task[None] | None = None
        broker.on_away(self._went_away)

    @property
    def state(self) -> dict[str, object]:
        """For health: how records are made durable now."""
        return {
            "broker": "up" if self._direct else "away or catching up",
            "spool_bytes": self._spool.pending_bytes,
        }

    @property
    def refusing(self) -> bool:
        """Whether a record could be made durable nowhere now."""
        return not self._direct and self._spool.full

    @property
    def caught_up(self) -> bool:
        """Whether the broker has acknowledged every record, those of earlier processes included."""
        return self._direct and not self._replay_due and self._spool.pending_bytes == 0

    def check_room(self) -> None:
        """Raise `Unavailable` where a record could be made durable nowhere now."""
        if self.refusing:
            raise self._spool.refusal()

    async def start(self) -> None:
        """Begin to drain what an earlier process left."""
        gauge("gateway_spool_bytes").set(self._spool.pending_bytes)
        self._drainer = asyncio.create_task(self._keep_draining(), name="spool-drainer")
        if not self._direct:
            self._wake.set()

    async def publish(self, record: OutRecord) -> Place | None:
        """The record's place once acknowledged, or None once it is fsynced in the spool.

        Raises `Unavailable` where neither was possible, `InvalidInput` for one too large.
        """
        check_size(record)
        started = time.perf_counter()
        try:
            while not self._gate.is_set():
                await self._gate.wait()
            if self._direct:
                try:
                    return await self._acknowledged(record, self._ack_timeout_s)
                except Unavailable as exc:
                    self._fall_back(str(exc))
            await self._spool.append(record)
            counter("gateway_spooled_records").inc()
            gauge("gateway_spool_bytes").set(self._spool.pending_bytes)
            self._wake.set()
            return None
        finally:
            histogram("gateway_capture_ack_seconds").observe(time.perf_counter() - started)

    async def _acknowledged(self, record: OutRecord, timeout_s: float) -> Place:
        future = self._broker.submit(record)
        timer = asyncio.get_running_loop().call_later(timeout_s, _give_up, future)
        self._waiting.add(future)
        try:
            place = await future
        finally:
            timer.cancel()
            self._waiting.discard(future)
        self._keep(record)
        return place

    def _keep(self, record: OutRecord) -> None:
        if self._tail is None:
            return
        try:
            self._tail.append(record)
        except OSError:
            # The record itself is acknowledged; only its second line of defence is missing.
            logger.exception("an acknowledged record was not kept: check the disk")
            self._tail.rotate()

    def _fall_back(self, why: str) -> None:
        if self._direct:
            logger.warning("records go to the spool in %s: %s", self._spool.folder, why)
        self._direct = False
        self._wake.set()

    def _went_away(self) -> None:
        self._fall_back("the broker is away")
        if self._tail is not None:
            self._tail.hold()
            self._replay_due = True
        for future in self._waiting:
            if not future.done():
                future.set_exception(Unavailable("the broker went away"))

    async def _keep_draining(self) -> None:
        complaint = ""
        while True:
            await self._wake.wait()
            self._wake.clear()
            while not self._direct:
                try:
                    if await self._broker.probe():
                        await self._replay()
                        await self._drain()
                        continue
                except Unavailable as exc:
                    if str(exc) != complaint:
                        complaint = str(exc)
                        logger.info("the spool is not drained yet: %s", complaint)
                except Exception:
                    logger.exception("the drainer failed and tries again")
                self._spool.rewind()
                await asyncio.sleep(self._probe_interval_s)

    async def _replay(self) -> None:
        """Publish the acknowledged tail again, oldest first."""
        if self._tail is None or not self._replay_due:
            return
        self._replay_due = False
        self._tail.hold()
        repeated = 0
        try:
            for number in self._tail.closed():
                records = await asyncio.to_thread(self._tail.read, number)
                await self._acknowledge_all(records)
                self._tail.forget(number)
                repeated += len(records)
        except BaseException:
            self._replay_due = True
            raise
        counter("gateway_republished_records").inc(repeated)
        if repeated:
            logger.info("published %d acknowledged records again after the broker's return", repeated)

    async def _drain(self) -> None:
        """Publish what is in the spool; on the last batch, let new records go direct behind it."""
        drained = 0
        while not self._direct:
            last = self._spool.unread_bytes <= _BATCH_BYTES
            try:
                if last:
                    self._gate.clear()
                    await self._spool.settle()
                batch = await self._next_batch(whole=last)
                acks = self._submit_all([record for record, _ in batch])
                if last and not self._spool.unread_bytes and not self._replay_due:
                    self._direct = True
            finally:
                self._gate.set()
            try:
                await acks
            except BaseException:
                self._direct = False
                raise
            if batch:
                self._spool.drained(batch[-1][1])
                drained += len(batch)
            gauge("gateway_spool_bytes").set(self._spool.pending_bytes)
            if self._replay_due:
                return
        logger.info("the broker takes records again; %d drained from the spool", drained)

    async def _next_batch(self, *, whole: bool) -> list[tuple[OutRecord, Position]]:
        """The next records of the spool; `whole`: all that are left."""
        batch = await self._spool.read(_BATCH_BYTES)
        # A read ends with its segment. Were the next one left for later, calls could go on filling
        # segments behind it for ever, and the spool would never be caught up with.
        while whole and (more := await self._spool.read(_BATCH_BYTES)):
            batch += more
        return batch

    def _submit_all(self, records: Sequence[OutRecord]) -> asyncio.Future[None]:
        """Submit in order, now; the result waits for every acknowledgement."""
        return asyncio.ensure_future(self._settled(records, [self._submit(record) for record in records]))

    def _submit(self, record: OutRecord) -> asyncio.Future[Place]:
        try:
            return self._broker.submit(record)
        except (Unavailable, InvalidInput) as exc:
            failed: asyncio.Future[Place] = asyncio.get_running_loop().create_future()
            failed.set_exception(exc)
            return failed

    async def _settled(self, records: Sequence[OutRecord], futures: Sequence[asyncio.Future[Place]]) -> None:
        self._waiting.update(futures)
        try:
            async with asyncio.timeout(_DRAIN_ACK_S):
                results = await asyncio.gather(*futures, return_exceptions=True)
        except TimeoutError as exc:
            raise Unavailable("the broker did not acknowledge in time") from exc
        finally:
            self._waiting.difference_update(futures)
        for record, result in zip(records, results, strict=True):
            if isinstance(result, InvalidInput):
                logger.error("a record waits in %s for a person: %s", self._spool.refused_path, result)
                await self._spool.set_aside(record)
            elif isinstance(result, BaseException):
                raise result
            else:
                self._keep(record)

    async def _acknowledge_all(self, records: Sequence[OutRecord]) -> None:
        await self._submit_all(records)

    async def close(self) -> None:
        """Finish what is under way; what is spooled stays for the next start."""
        if self._drainer is not None:
            self._drainer.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._drainer
        await self._broker.close()
        await self._spool.close()
        if self._tail is not None:
            self._tail.close()


def _give_up(future: asyncio.Future[Place]) -> None:
    if not future.done():
        future.set_exception(Unavailable("not acknowledged in time"))
