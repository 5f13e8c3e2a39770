"""ClickHouse clients over HTTP, embedded engine or cluster alike."""

from __future__ import annotations

from urllib.parse import urlsplit

import clickhouse_connect
from clickhouse_connect.driver.client import Client
from clickhouse_connect.driver.exceptions import ClickHouseError

from agentworld.contract.errors import Unavailable
from agentworld.platform.settings import ClickHouseSettings


def connect(settings: ClickHouseSettings, *, database: str | None = None) -> Client:
    """A client. Raises `Unavailable` with the address when the server does not answer."""
    parts = urlsplit(settings.url)
    secure = parts.scheme == "https"
    try:
        return clickhouse_connect.get_client(
            host=parts.hostname or "127.0.0.1",
            port=parts.port or (8443 if secure else 8123),
            secure=secure,
            username=settings.user,
            password=settings.password,
            database=settings.database if database is None else database,
            connect_timeout=settings.connect_timeout_s,
            send_receive_timeout=settings.query_timeout_s,
            autogenerate_session_id=False,
        )
    except (ClickHouseError, OSError) as exc:
        raise Unavailable(
            f"ClickHouse at {settings.url} does not answer: {exc}. "
            "Check AGENTWORLD_CLICKHOUSE_URL, user and password."
        ) from exc
