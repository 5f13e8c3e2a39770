"""Datasets in a folder: `<name>/v1`, `<name>/v2`, … A version is whole from the moment it is there."""

from __future__ import annotations

import os
import re
import shutil
import uuid
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from agentworld.contract.errors import IntegrityError, InvalidInput
from agentworld.platform.batches import BatchReader
from agentworld.platform.datasets.files import pyarrow, read_rows, sha256_of, sync
from agentworld.platform.datasets.manifest import Manifest, decode_manifest, encode_manifest
from agentworld.platform.datasets.rows import json_line
from agentworld.platform.datasets.selection import Chosen, Selection, choose
from agentworld.platform.datasets.writing import DATA, MANIFEST, Written, provenance_of, write_data

Format = Literal["parquet", "jsonl"]

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_REFERENCE = re.compile(r"(?P<name>[^@]+)(@v(?P<version>[1-9]\d*))?")
_VERSION = re.compile(r"v([1-9]\d*)")


class DatasetStore:
    """The datasets in `folder`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def create(
        self, name: str, selection: Selection, reader: BatchReader, *, only_trained: bool = False
    ) -> tuple[Manifest, bool]:
        """Make the next version, or find that the newest has the same content; True where it is new.

        Raises what `choose` and `write_data` raise; then there is no new version, nor a part of one.
        """
        if not _NAME.fullmatch(name):
            raise InvalidInput(
                f"{name!r} is not a dataset's name: use letters, digits, '.', '_' and '-'",
                code="invalid_name",
            )
        pyarrow()
        chosen = choose(reader.list(run_id=selection.run_id, channel=selection.channel), selection)
        home = self._folder / name
        home.mkdir(parents=True, exist_ok=True)
        partial = home / f".partial-{uuid.uuid4().hex}"
        partial.mkdir()
        try:
            written = write_data(partial, chosen, reader, only_trained=only_trained)
            versions = self.versions(name)
            newest = self.manifest(f"{name}@v{versions[-1]}") if versions else None
            if newest is not None and newest.content_digest == written.content_digest:
                return newest, False
            manifest = _manifest(
                name, versions[-1] + 1 if versions else 1, chosen, selection, written, only_trained
            )
            self._publish(partial, manifest)
            return self.manifest(manifest.reference), True
        finally:
            shutil.rmtree(partial, ignore_errors=True)
            if not any(home.iterdir()):
                home.rmdir()

    def _publish(self, partial: Path, manifest: Manifest) -> None:
        home = partial.parent
        (partial / MANIFEST).write_bytes(encode_manifest(manifest))
        sync(partial / MANIFEST)
        sync(partial)
        try:
            # Fails where the version is there: a version is never replaced.
            os.rename(partial, home / f"v{manifest.version}")
        except OSError as exc:
            raise InvalidInput(
                f"{manifest.reference} was made meanwhile by another create: try again",
                code="version_taken",
                status=409,
            ) from exc
        for folder in (home, self._folder):
            sync(folder)

    def names(self) -> list[str]:
        """Datasets that have a version."""
        if not self._folder.is_dir():
            return []
        return [name for name in sorted(os.listdir(self._folder)) if self.versions(name)]

    def versions(self, name: str) -> list[int]:
        """Versions of a dataset, oldest first; none where there is no such dataset."""
        home = self._folder / name
        if not home.is_dir():
            return []
        return sorted(int(match[1]) for entry in home.iterdir() if (match := _VERSION.fullmatch(entry.name)))

    def manifest(self, reference: str) -> Manifest:
        """What `NAME` (its newest version) or `NAME@vN` holds.

        Raises `InvalidInput` (404) where it is not there, and `IntegrityError` where its manifest was
        changed or is another version's.
        """
        folder, name, version = self._find(reference)
        try:
            manifest = decode_manifest((folder / MANIFEST).read_bytes())
        except FileNotFoundError:
            raise IntegrityError(f"{name}@v{version}: {MANIFEST} is missing") from None
        except IntegrityError as exc:
            raise IntegrityError(f"{name}@v{version}: {exc}") from exc
        if (manifest.name, manifest.version) != (name, version):
            raise IntegrityError(f"{name}@v{version}: the manifest there is of {manifest.reference}")
        return manifest

    def _find(self, reference: str) -> tuple[Path, str, int]:
        match = _REFERENCE.fullmatch(reference)
        name = match["name"] if match else reference
        versions = self.versions(name) if _NAME.fullmatch(name) else []
        if not match or not versions:
            raise InvalidInput(
                f"no dataset {reference!r} in {self._folder}: `agentworld dataset list` shows what there is",
                code="unknown_dataset",
                status=404,
            )
        version = int(match["version"]) if match["version"] else versions[-1]
        if version not in versions:
            raise InvalidInput(
                f"{name} has no version v{version}: it has {', '.join(f'v{v}' for v in versions)}",
                code="unknown_version",
                status=404,
            )
        return self._folder / name / f"v{version}", name, version

    def data(self, manifest: Manifest) -> Path:
        """The Parquet file."""
        return self._folder / manifest.name / f"v{manifest.version}" / DATA

    def changed_files(self, manifest: Manifest) -> list[str]:
        """Files of the version that are missing or are not what was written."""
        folder = self.data(manifest).parent
        return [
            name
            for name, digest in sorted(manifest.files.items())
            if not (folder / name).is_file() or sha256_of(folder / name) != digest
        ]

    def export(self, reference: str, to: Path, *, form: Format, force: bool = False) -> Manifest:
        """Write the version's rows to the file `to`, whole or not at all.

        Raises `InvalidInput` where `to` is there and not `force`, or cannot be written, and
        `IntegrityError` where the version's files were changed.
        """
        manifest = self.manifest(reference)
        if changed := self.changed_files(manifest):
            raise IntegrityError(f"{manifest.reference}: {', '.join(changed)} was changed or is missing")
        if to.is_dir() or (to.exists() and not force):
            advice = "name a file" if to.is_dir() else "--force replaces it"
            raise InvalidInput(f"{to} is there already: {advice}", code="target_exists", status=409)
        partial = to.with_name(f".{to.name}-{uuid.uuid4().hex}")
        try:
            if form == "parquet":
                shutil.copyfile(self.data(manifest), partial)
            else:
                with partial.open("wb") as lines:
                    lines.writelines(map(json_line, read_rows(self.data(manifest))))
            sync(partial)
            os.replace(partial, to)
        except OSError as exc:
            raise InvalidInput(f"{to} cannot be written: {exc.strerror}", code="target_refused") from exc
        finally:
            partial.unlink(missing_ok=True)
        return manifest


def _manifest(
    name: str, version: int, chosen: Chosen, selection: Selection, written: Written, only_trained: bool
) -> Manifest:
    groups = [group for batch in chosen.batches for group in batch.groups]
    return Manifest(
        name=name,
        version=version,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        rows=written.rows,
        trajectories=sum(len(group.members) for group in groups),
        groups=len(groups),
        batches=len(chosen.batches),
        content_digest=written.content_digest,
        files={DATA: written.data_sha256},
        provenance=provenance_of(chosen, selection, only_trained=only_trained),
    )
