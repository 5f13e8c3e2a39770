"""Recovery reads changelogs whole, whatever an earlier one had read."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from types import SimpleNamespace
from typing import Any

from faust.types import TP

from stream_processors.recovery import OrderedRecovery

ONE, TWO, FRESH = (TP("state-changelog", number) for number in range(3))


class Consumer:
    """Knows where changelogs begin."""

    async def earliest_offsets(self, *tps: TP) -> dict[TP, int | None]:
        return {tp: {ONE: 0, TWO: 40, FRESH: None}[tp] for tp in tps}


class Table:
    """What Faust's table holds."""

    def __init__(self) -> None:
        self.data = {b'[0,"trajectory","t"]': b"left by an earlier recovery"}


def test_a_partition_that_came_back_is_read_from_its_beginning_into_an_empty_table() -> None:
    table = Table()
    recovery: Any = SimpleNamespace(
        tp_to_table=dict.fromkeys((ONE, TWO, FRESH), table), buffers=defaultdict(list, {table: ["stale"]})
    )
    offsets: dict[TP, int | None] = {ONE: 1_234, TWO: 1_234, FRESH: None}
    build = OrderedRecovery._build_offsets
    asyncio.run(build(recovery, Consumer(), {ONE, TWO, FRESH}, offsets, "active"))
    assert offsets == {ONE: -1, TWO: 39, FRESH: -1}
    assert table.data == {}
    assert recovery.buffers[table] == []
