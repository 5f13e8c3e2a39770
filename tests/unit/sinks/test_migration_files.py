"""Migrations as files: numbered without gaps, statements split where they end."""

from __future__ import annotations

from sinks.schema import Migration, shipped_migrations


def test_shipped_migrations_are_numbered_from_one() -> None:
    found = shipped_migrations()
    assert [migration.number for migration in found] == list(range(1, len(found) + 1))


def test_statements_end_at_a_semicolon_at_the_end_of_a_line_only() -> None:
    sql = "-- a; b\nCREATE TABLE x (a String COMMENT 'one; two')\nENGINE = Memory;\n\nSELECT 1;\n"
    assert len(Migration(1, "0001_x.sql", sql).statements) == 2
