"""`agentworld dataset`: named, versioned files of what batches hold.

Exit codes: 0 done; 1 a server is away or data is missing or changed; 2 what was asked for is not possible.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from agentworld.commands.batch_source import batch_reader
from agentworld.commands.plain_errors import plain_errors
from agentworld.contract.errors import IntegrityError, InvalidInput
from agentworld.platform.clickhouse import connect
from agentworld.platform.datasets.files import pyarrow
from agentworld.platform.datasets.manifest import Manifest
from agentworld.platform.datasets.selection import Selection
from agentworld.platform.datasets.store import DatasetStore, Format
from agentworld.platform.reports import print_table
from agentworld.platform.selected_ids import selected_ids
from agentworld.platform.settings import ClickHouseSettings, KafkaSettings

app = typer.Typer(no_args_is_help=True, help=__doc__)

Dir = Annotated[Path, typer.Option("--dir", help="Folder of the datasets.")]
Reference = Annotated[str, typer.Argument(metavar="NAME[@vN]", help="A dataset; without @vN its newest.")]
_DIR = Path(".agentworld/datasets")


@app.command("create")
@plain_errors(invalid_input=2, interrupted=1)
def create(
    name: Annotated[str, typer.Argument(help="Letters, digits, '.', '_' and '-'.")],
    run: Annotated[str | None, typer.Option("--run", help="Batches of this run.")] = None,
    channel: Annotated[str | None, typer.Option("--channel", help="Batches of this channel.")] = None,
    batch: Annotated[
        list[str] | None, typer.Option("--batch", help="This batch; may be given several times.")
    ] = None,
    sql: Annotated[
        str | None,
        typer.Option("--sql", help="What this query finds: a SELECT of batch_id, trajectory_id or group_id."),
    ] = None,
    only_trained: Annotated[
        bool, typer.Option("--only-trained", help="Only steps of the branch that trains.")
    ] = False,
    directory: Dir = _DIR,
) -> None:
    """Make a new version from batches, unless the newest version holds the same."""
    if not (run or channel or batch or sql):
        raise InvalidInput("say which batches: --run, --channel, --batch or --sql", code="no_selection")
    pyarrow()
    selection = _selection(run, channel, batch, sql)
    with batch_reader(KafkaSettings()) as reader:
        manifest, new = DatasetStore(directory).create(name, selection, reader, only_trained=only_trained)
    if not new:
        typer.echo(f"{manifest.reference} holds exactly this: no new version was made")
        return
    typer.echo(
        f"{manifest.reference}: {manifest.rows} steps of {manifest.trajectories} trajectories, "
        f"{manifest.groups} groups, {manifest.batches} batches in {directory / name / f'v{manifest.version}'}"
    )
    if missed := manifest.provenance.selected_not_batched:
        typer.echo(f"note: {missed} that the query found are in no batch", err=True)


def _selection(run: str | None, channel: str | None, batch: list[str] | None, sql: str | None) -> Selection:
    ids: dict[str, Any] = {}
    if sql:
        columns = ("batch_id", "trajectory_id", "group_id")
        ids = selected_ids(connect(ClickHouseSettings()), sql, columns=columns)
    if batch:
        named = frozenset(batch)
        ids["batch_ids"] = named & ids["batch_ids"] if "batch_ids" in ids else named
    return Selection(run_id=run, channel=channel, sql=sql, **ids)


@app.command("list")
@plain_errors(invalid_input=2)
def list_(directory: Dir = _DIR) -> None:
    """List the datasets there are, with every version."""
    store = DatasetStore(directory)
    versions = [store.manifest(f"{name}@v{n}") for name in store.names() for n in store.versions(name)]
    if not versions:
        typer.echo(f"no dataset in {directory}: `agentworld dataset create` makes one")
        return
    print_table(
        f"{len(versions)} versions in {directory}",
        ("dataset", "created", "batches", "groups", "trajectories", "steps", "runs", "content"),
        [
            (m.reference, m.created, m.batches, m.groups, m.trajectories, m.rows,
             ", ".join(m.provenance.run_ids), m.content_digest[:12])
            for m in versions
        ],
        console=_console(),
    )  # fmt: skip


@app.command("show")
@plain_errors(invalid_input=2)
def show(reference: Reference, directory: Dir = _DIR) -> None:
    """Print what a version holds and where it comes from, and check that its files are as written."""
    store = DatasetStore(directory)
    manifest = store.manifest(reference)
    changed = store.changed_files(manifest)
    print_table(manifest.reference, ("", "value"), _facts(manifest), console=_console())
    print_table(
        "Sealed trajectories in the log",
        ("topic", "partition", "first offset", "last offset", "records"),
        [
            (p.topic, p.partition, p.first_offset, p.last_offset, p.records)
            for p in manifest.provenance.places
        ],
        console=_console(),
    )
    if changed:
        raise IntegrityError(f"{manifest.reference}: {', '.join(changed)} was changed or is missing")
    typer.echo("files are as they were written")


def _facts(manifest: Manifest) -> list[tuple[str, Any]]:
    source = manifest.provenance
    return [
        ("created", manifest.created),
        ("steps", manifest.rows),
        ("trajectories", manifest.trajectories),
        ("groups", manifest.groups),
        ("batches", manifest.batches),
        ("content digest", manifest.content_digest),
        *((f"sha256 of {name}", digest) for name, digest in sorted(manifest.files.items())),
        ("runs", ", ".join(source.run_ids)),
        ("channels", ", ".join(source.channels)),
        ("batch ids", "\n".join(source.batch_ids)),
        ("rules", ", ".join(source.rules) or None),
        ("sql", source.sql),
        ("found by sql, in no batch", source.selected_not_batched),
        ("only trained steps", source.only_trained),
        ("agentworld", source.agentworld),
    ]


@app.command("export")
@plain_errors(invalid_input=2, interrupted=1)
def export(
    reference: Reference,
    to: Annotated[Path, typer.Option("--to", help="The file to write.")],
    form: Annotated[Format, typer.Option("--format", help="parquet or jsonl.")] = "parquet",
    force: Annotated[bool, typer.Option("--force", help="Replace the file if it is there.")] = False,
    directory: Dir = _DIR,
) -> None:
    """Write a version's rows to one file."""
    manifest = DatasetStore(directory).export(reference, to, form=form, force=force)
    typer.echo(f"{manifest.reference}: {manifest.rows} steps in {to}")


def _console() -> Console:
    console = Console()
    return console if console.is_terminal else Console(width=200)
