"""Faust's consumer, with a delivery that skips no record.

Faust's own loop hands the set of active partitions to the fetch by reference. When recovery empties
that set while a fetch is under way, the fetch takes records of every partition, moves their positions
and drops them; the gap is then counted as read and committed. And it sets positions while records
fetched before are still being delivered. Here a fetch keeps the partitions it was asked for, positions
move only while nothing is fetched or delivered, and a gap is believed only when reading it again
shows it again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Any

from aiokafka.errors import ConsumerStoppedError
from faust.transport.drivers.aiokafka import Consumer

logger = logging.getLogger(__name__)

_FETCH_S = 0.25
"""Longest wait of one fetch; also how long positions may have to wait for it."""
_NOTHING_ACTIVE_S = 0.02
_DELIVERED_IN_A_ROW = 100


class ContiguousConsumer(Consumer):
    """Delivers the records of active partitions in offset order, each once between two seeks.

    `_read_offset` holds the next offset to deliver, as Faust's seeks set it.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._at_rest = asyncio.Event()
        self._at_rest.set()
        self._doubted: dict[Any, int] = {}

    async def perform_seek(self) -> None:
        """Move to the committed offsets, once nothing is on its way."""
        await self._come_to_rest()
        await super().perform_seek()

    async def seek_wait(self, partitions: Mapping[Any, int]) -> None:
        """Move to these offsets, once nothing is on its way."""
        await self._come_to_rest()
        await super().seek_wait(partitions)

    async def _come_to_rest(self) -> None:
        # While the flow is on, only the delivery itself moves positions.
        if not self.flow_active:
            await self._at_rest.wait()

    async def _drain_messages(self, fetcher: Any) -> None:
        try:
            while not (self.should_stop or fetcher.should_stop):
                if not self.flow_active:
                    self._at_rest.set()
                    await self.wait(self.can_resume_flow)  # type: ignore[arg-type]
                    continue
                self._at_rest.clear()
                if active := frozenset(self._get_active_partitions()):
                    records = await self._getmany(active_partitions=active, timeout=_FETCH_S)  # type: ignore[arg-type]
                    await self._deliver_while_flowing(records)
                else:
                    await asyncio.sleep(_NOTHING_ACTIVE_S)
        except (ConsumerStoppedError, asyncio.CancelledError):
            if not self.app.should_stop:
                raise
        finally:
            self._at_rest.set()

    async def _deliver_while_flowing(self, records: Any) -> None:
        """Whoever stops the flow seeks before resuming it: what is left here is fetched again."""
        delivery = asyncio.ensure_future(self._deliver(records))
        suspended = asyncio.ensure_future(self.suspend_flow.wait())
        try:
            await asyncio.wait({delivery, suspended}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            suspended.cancel()
            delivery.cancel()
            await asyncio.wait({delivery})
        if not delivery.cancelled():
            delivery.result()

    async def _deliver(self, records: Any) -> None:
        left_out = set()
        for count, (tp, record) in enumerate(self.scheduler.iterate(records)):
            if count % _DELIVERED_IN_A_ROW == 0:
                await asyncio.sleep(0)
            expected = self._read_offset[tp]
            if tp in left_out or (expected is not None and record.offset < expected):
                continue
            if (
                expected is not None
                and record.offset > expected
                and self.app.topics.acks_enabled_for(tp.topic)
                and not await self._is_gap(tp, expected, record.offset)
            ):
                left_out.add(tp)
                continue
            await self.callback(self._to_message(tp, record))
            self._read_offset[tp] = record.offset + 1
            if self._commit_every is not None and self._n_acked >= self._commit_every:
                self._n_acked = 0
                await self.commit()

    async def _is_gap(self, tp: Any, expected: int, found: int) -> bool:
        """Whether the log holds nothing in between; where in doubt, the partition is read again."""
        if self._doubted.get(tp) != expected:
            self._doubted[tp] = expected
            logger.warning("%s/%d: %d follows %d; reading again", tp.topic, tp.partition, found, expected - 1)
            await super().seek_wait({tp: expected})
            return False
        del self._doubted[tp]
        logger.warning("%s/%d has no records %d to %d", tp.topic, tp.partition, expected, found - 1)
        await self._add_gap(tp, expected, found - 1)
        return True
