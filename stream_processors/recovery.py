"""Faust's table recovery: whole, and in an order that loses no record."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from faust.tables.manager import TableManager
from faust.tables.recovery import Recovery
from faust.types import TP


class OrderedRecovery(Recovery):
    """Empties the agents' queues before records may enter them, not after.

    Faust resumes the source partitions while its fetcher runs, seeks, and only then clears the
    queues (`flow_control.resume`). What was fetched in between is gone until the next restart, and
    the gap it leaves stops the partition's commits. And it seeks only where an offset is committed:
    elsewhere reading would go on behind what was fetched and cleared.
    """

    logger = logging.getLogger("faust.recovery")

    async def _build_offsets(self, consumer: Any, tps: set[TP], destination: Any, title: str) -> None:
        """Read the changelogs of `tps` from their beginning into tables that hold nothing of them.

        Faust goes on where an earlier recovery of a partition ended. When partitions come and go in quick
        succession what that recovery had read is gone by then: we keep no state of partitions that
        another worker has. A trajectory without its steps, or one that was sealed, would stand open.
        """
        earliest = await consumer.earliest_offsets(*tps)
        for tp in tps:
            table: Any = self.tp_to_table[tp]
            self.buffers[table].clear()
            table.data.clear()
        for tp in tps:
            first = earliest.get(tp)
            destination[tp] = -1 if first is None else first - 1

    async def on_recovery_completed(self, generation_id: int = 0) -> None:
        """Load state, clear queues, seek to the committed offsets, then let records flow."""
        app, consumer = self.app, self.app.consumer
        await app.on_rebalance_complete.send()
        self._set_recovery_ended()
        for table in self.tables.values():
            await table.on_recovery_completed(self.actives_for_table[table], self.standbys_for_table[table])
        if app.consumer_generation_id != generation_id:
            return
        assignment = consumer.assignment()
        consumer.stop_flow()  # so that the seeks below wait until nothing is on its way
        app.flow_control.resume()
        if assignment:
            await self._wait(consumer.perform_seek(), timeout=app.conf.broker_request_timeout)
            await self._wait(self._seek_uncommitted(), timeout=app.conf.broker_request_timeout)
        consumer.resume_partitions({tp for tp in assignment if not self._is_changelog_tp(tp)})
        self.completed.set()
        consumer.resume_flow()
        await app._fetcher.maybe_start()  # type: ignore[attr-defined]
        self.tables.on_actives_ready()
        if not app.assignor.assigned_standbys():
            self.tables.on_standbys_ready()
        app.on_rebalance_end()

    async def _seek_uncommitted(self) -> None:
        """Read partitions of which nothing was ever committed from their beginning."""
        consumer: Any = self.app.consumer
        sources = {tp for tp in consumer.assignment() if not self._is_changelog_tp(tp)}
        unsought = [tp for tp in sources if not consumer._read_offset.get(tp)]
        if unsought:
            await consumer.seek_wait(dict(await consumer.earliest_offsets(*unsought)))


class PromptTables(TableManager):
    """Starts at once; Faust's own waits a second first, for tables declared late. Ours are not."""

    logger = logging.getLogger("faust.tables")

    @property
    def recovery(self) -> Recovery:
        """The recovery service of the app's tables."""
        if self._recovery is None:
            self._recovery = OrderedRecovery(self.app, self, beacon=self.beacon, loop=self.loop)
        return self._recovery

    async def on_start(self) -> None:
        """Register the tables and recover."""
        await asyncio.sleep(0)
        await self._update_channels()
        await self.recovery.start()
