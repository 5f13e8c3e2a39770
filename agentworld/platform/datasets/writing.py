"""Writes the files of one version into a folder, a batch at a time."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from agentworld import __version__
from agentworld.contract.errors import InvalidInput
from agentworld.contract.events import BatchReady
from agentworld.platform.batches import BatchReader
from agentworld.platform.datasets.files import ParquetFile, sha256_of, sync
from agentworld.platform.datasets.manifest import OffsetRange, Provenance
from agentworld.platform.datasets.rows import json_line, rows_of
from agentworld.platform.datasets.selection import Chosen, Selection

DATA = "data.parquet"
MANIFEST = "manifest.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """What `data.parquet` holds."""

    rows: int
    content_digest: str
    data_sha256: str


def write_data(folder: Path, chosen: Chosen, reader: BatchReader, *, only_trained: bool) -> Written:
    """Resolve the batches and write their rows.

    Raises `IntegrityError` where a trajectory cannot be resolved and `InvalidInput` for no row at all.
    """
    digest, count = hashlib.sha256(), 0
    with ParquetFile(folder / DATA) as file:
        for batch in chosen.batches:
            rows = list(rows_of(reader.resolve(batch), only_trained=only_trained))
            for row in rows:
                digest.update(json_line(row))
            count += len(rows)
            file.write(rows)
    if not count:
        asked = " on a branch that trains" if only_trained else ""
        raise InvalidInput(f"the batches hold no step{asked}: there is nothing to write", code="no_rows")
    sync(folder / DATA)
    return Written(rows=count, content_digest=digest.hexdigest(), data_sha256=sha256_of(folder / DATA))


def provenance_of(chosen: Chosen, selection: Selection, *, only_trained: bool) -> Provenance:
    """Where the rows of `chosen` come from."""
    batches = chosen.batches
    return Provenance(
        run_ids=sorted({batch.run_id for batch in batches}),
        channels=sorted({batch.channel for batch in batches}),
        batch_ids=[batch.batch_id for batch in batches],
        places=offset_ranges(batches),
        rules=sorted({str(batch.details["rules"]) for batch in batches if "rules" in batch.details}),
        sql=selection.sql,
        only_trained=only_trained,
        selected_not_batched=chosen.not_batched,
        agentworld=__version__,
    )


def offset_ranges(batches: Iterable[BatchReady]) -> list[OffsetRange]:
    """The records that the batches refer to, by topic and partition."""
    offsets: dict[tuple[str, int], set[int]] = {}
    for batch in batches:
        for group in batch.groups:
            for member in group.members:
                place = member.place
                offsets.setdefault((place.topic, place.partition), set()).add(place.offset)
    return [
        OffsetRange(
            topic=topic,
            partition=partition,
            first_offset=min(found),
            last_offset=max(found),
            records=len(found),
        )
        for (topic, partition), found in sorted(offsets.items())
    ]
