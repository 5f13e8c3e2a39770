"""Applies the SQL migrations and remembers which, with their digests."""

from __future__ import annotations

import hashlib
import logging
import re
from dataclasses import dataclass
from importlib.resources import files

from clickhouse_connect.driver.client import Client
from clickhouse_connect.driver.exceptions import ClickHouseError

from agentworld.contract.errors import ContractViolation, InvalidInput, Unavailable
from agentworld.platform.clickhouse import connect
from agentworld.platform.settings import ClickHouseSettings

logger = logging.getLogger(__name__)

_FILE = re.compile(r"(\d{4})_\w+\.sql")
_DATABASE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
_STATEMENT_END = re.compile(r";[ \t]*$", re.MULTILINE)
_LEDGER = """
CREATE TABLE IF NOT EXISTS schema_migrations
(
    number UInt32,
    name String,
    digest String COMMENT 'SHA-256 of the file',
    applied_at DateTime64(3, 'UTC') DEFAULT now64(3)
)
ENGINE = ReplacingMergeTree
ORDER BY number
COMMENT 'Migrations this database has had'
"""


@dataclass(frozen=True, slots=True)
class Migration:
    """One numbered file. Each of its statements ends with `;` at the end of a line."""

    number: int
    name: str
    sql: str

    @property
    def digest(self) -> str:
        """SHA-256 of the text."""
        return hashlib.sha256(self.sql.encode()).hexdigest()

    @property
    def statements(self) -> list[str]:
        """The statements, without the final `;`."""
        return [text.strip() for text in _STATEMENT_END.split(self.sql) if text.strip()]


def shipped_migrations() -> list[Migration]:
    """The migrations of this version, by number. Raises `ContractViolation` on a gap or double."""
    found = [
        Migration(int(match[1]), entry.name, entry.read_text(encoding="utf-8"))
        for entry in files("sinks.migrations").iterdir()
        if (match := _FILE.fullmatch(entry.name))
    ]
    found.sort(key=lambda migration: migration.number)
    if [migration.number for migration in found] != list(range(1, len(found) + 1)):
        raise ContractViolation(f"migrations are not numbered 1, 2, …: {[m.name for m in found]}")
    return found


def migrate(settings: ClickHouseSettings, migrations: list[Migration] | None = None) -> list[str]:
    """Bring the database up to date; returns the names applied now. Repeating changes nothing.

    Raises `ContractViolation` where an applied migration differs from the shipped one, and
    `Unavailable` when ClickHouse does not answer or refuses.
    """
    wanted = shipped_migrations() if migrations is None else migrations
    _ensure_database(settings)
    client = connect(settings)
    try:
        return _apply(client, wanted)
    except (ClickHouseError, OSError) as exc:
        raise Unavailable(f"migrations not applied to database {settings.database}: {exc}") from exc
    finally:
        client.close()


def _apply(client: Client, wanted: list[Migration]) -> list[str]:
    client.command(_LEDGER)
    rows = client.query("SELECT number, name, digest FROM schema_migrations FINAL").result_rows
    applied = {number: (name, digest) for number, name, digest in rows}
    if newer := sorted(applied.keys() - {migration.number for migration in wanted}):
        logger.warning("the database has migrations this version does not know: %s", newer)
    done = []
    for migration in wanted:
        if migration.number in applied:
            _check_unchanged(migration, *applied[migration.number])
            continue
        for statement in migration.statements:
            client.command(statement)
        client.insert(
            "schema_migrations",
            [[migration.number, migration.name, migration.digest]],
            column_names=["number", "name", "digest"],
        )
        logger.info("applied migration %s", migration.name)
        done.append(migration.name)
    return done


def _check_unchanged(migration: Migration, name: str, digest: str) -> None:
    if digest != migration.digest:
        raise ContractViolation(
            f"migration {migration.name} differs from {name}, which this database has had: "
            "restore the file and put the change into a new migration"
        )


def _ensure_database(settings: ClickHouseSettings) -> None:
    if not _DATABASE.fullmatch(settings.database):
        raise InvalidInput(
            f"{settings.database!r} is not a database name: use letters, digits and _ "
            "(AGENTWORLD_CLICKHOUSE_DATABASE)",
            code="invalid_name",
        )
    client = connect(settings, database="default")
    try:
        found = client.query(
            "SELECT 1 FROM system.databases WHERE name = {name:String}",
            parameters={"name": settings.database},
        ).result_rows
        if not found:
            client.command(f"CREATE DATABASE IF NOT EXISTS {settings.database}")
    except (ClickHouseError, OSError) as exc:
        raise Unavailable(f"database {settings.database} could not be made: {exc}") from exc
    finally:
        client.close()
