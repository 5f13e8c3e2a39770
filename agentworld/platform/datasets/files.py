"""Rows as Parquet and as JSON lines. Needs pyarrow, the extra `datasets`."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any, Self

from agentworld.contract.errors import IntegrityError, InvalidInput
from agentworld.platform.datasets.rows import COLUMNS

_BLOCK_BYTES = 1 << 20


def pyarrow() -> ModuleType:
    """The library. Raises `InvalidInput` naming the extra where it is not installed."""
    try:
        import pyarrow  # noqa: PLC0415
        import pyarrow.parquet  # noqa: PLC0415
    except ImportError as exc:
        raise InvalidInput(
            "datasets need pyarrow: pip install 'agentworld[datasets]'", code="extra_missing"
        ) from exc
    found: ModuleType = pyarrow
    return found


def schema(pa: ModuleType) -> Any:
    """The Arrow schema of a dataset."""
    types = {
        "text": pa.string(),
        "flag": pa.bool_(),
        "count": pa.uint64(),
        "version": pa.int64(),
        "real": pa.float64(),
        "ids": pa.list_(pa.uint32()),
        "logprobs": pa.list_(pa.float32()),
        "texts": pa.list_(pa.string()),
    }
    return pa.schema([(name, types[kind]) for name, kind in COLUMNS.items()])


class ParquetFile:
    """Writes rows, one row group a call; the same rows in the same calls give the same bytes."""

    def __init__(self, path: Path) -> None:
        self._pa = pyarrow()
        self._schema = schema(self._pa)
        self._writer = self._pa.parquet.ParquetWriter(
            path,
            self._schema,
            version="2.6",
            data_page_version="1.0",
            compression="zstd",
            compression_level=3,
            use_dictionary=True,
            write_statistics=True,
        )

    def __enter__(self) -> Self:
        return self

    def write(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Append a row group; none for no rows."""
        if rows:
            self._writer.write_table(self._pa.Table.from_pylist(list(rows), schema=self._schema))

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._writer.close()


def read_rows(path: Path) -> Iterator[dict[str, Any]]:
    """The rows of a Parquet file, a row group at a time. Raises `IntegrityError` where it is none."""
    pa = pyarrow()
    try:
        with pa.parquet.ParquetFile(path) as file:
            for group in range(file.num_row_groups):
                yield from file.read_row_group(group).to_pylist()
    except (pa.ArrowInvalid, OSError) as exc:
        raise IntegrityError(f"{path} cannot be read: {exc}") from exc


def sha256_of(path: Path) -> str:
    """The file's SHA-256, as hexadecimal digits."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(_BLOCK_BYTES):
            digest.update(block)
    return digest.hexdigest()


def sync(path: Path) -> None:
    """Return when the file or folder is on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
