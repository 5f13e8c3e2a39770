"""What a version of a dataset holds and where it comes from."""

from __future__ import annotations

import hashlib

import msgspec

from agentworld.contract.errors import IntegrityError


class OffsetRange(msgspec.Struct, frozen=True, kw_only=True):
    """Records of one partition that a dataset refers to."""

    topic: str
    partition: int
    first_offset: int
    last_offset: int
    records: int
    """How many of the range; the others belong to other data."""


class Provenance(msgspec.Struct, frozen=True, kw_only=True):
    """Where the rows come from."""

    run_ids: list[str]
    channels: list[str]
    batch_ids: list[str]
    places: list[OffsetRange]
    """The sealed trajectories, as batches name them; also where they were read from ClickHouse."""
    rules: list[str]
    """Digests of the rules the batches were made under, where they say so."""
    sql: str | None
    only_trained: bool
    selected_not_batched: int
    """Trajectories or groups that the SQL filter found and no batch holds."""
    agentworld: str
    """Version that wrote it."""


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """`manifest.json`."""

    name: str
    version: int
    created: str
    """UTC, ISO 8601."""
    rows: int
    """Steps."""
    trajectories: int
    """Those without a step, or without one that was asked for, have no row."""
    groups: int
    batches: int
    content_digest: str
    """SHA-256 of the rows as JSON lines: what `export --format jsonl` writes. Says nothing of when."""
    files: dict[str, str]
    """SHA-256 by file name."""
    provenance: Provenance
    digest: str = ""
    """SHA-256 of this manifest with this field empty."""

    @property
    def reference(self) -> str:
        """`name@vN`."""
        return f"{self.name}@v{self.version}"


def encode_manifest(manifest: Manifest) -> bytes:
    """The file's bytes, with its digest."""
    return _text(msgspec.structs.replace(manifest, digest=_digest(manifest)))


def decode_manifest(content: bytes) -> Manifest:
    """Raises `IntegrityError` where the file is none, or was changed."""
    try:
        manifest = msgspec.json.decode(content, type=Manifest)
    except (msgspec.DecodeError, UnicodeDecodeError) as exc:
        raise IntegrityError(f"manifest.json cannot be read: {exc}") from exc
    if manifest.digest != _digest(manifest):
        raise IntegrityError("manifest.json was changed: it does not have the digest it names")
    return manifest


def _digest(manifest: Manifest) -> str:
    return hashlib.sha256(_text(msgspec.structs.replace(manifest, digest=""))).hexdigest()


def _text(manifest: Manifest) -> bytes:
    return msgspec.json.format(msgspec.json.encode(manifest), indent=1) + b"\n"
