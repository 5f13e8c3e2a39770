"""Where commands read batches from: Kafka, and ClickHouse for what Kafka no longer holds."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from functools import partial

import typer

from agentworld.contract.errors import Unavailable
from agentworld.contract.topics import READY_BATCHES, TRAJECTORIES
from agentworld.platform.batch_archive import BatchArchive
from agentworld.platform.batches import BatchReader
from agentworld.platform.clickhouse import connect
from agentworld.platform.reader import KafkaPlaceReader
from agentworld.platform.scan import scan_topic
from agentworld.platform.settings import ClickHouseSettings, KafkaSettings


@contextlib.contextmanager
def batch_reader(kafka: KafkaSettings) -> Iterator[BatchReader]:
    """A reader of batches, with ClickHouse where it answers."""
    places = KafkaPlaceReader(kafka, TRAJECTORIES, client_id="batches-show")
    try:
        yield BatchReader(places, partial(scan_topic, kafka, READY_BATCHES), _archive())
    finally:
        places.close()


def _archive() -> BatchArchive | None:
    """The log alone serves what it still holds, so ClickHouse may be away."""
    for name in ("clickhouse_connect", "urllib3"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    try:
        client = connect(ClickHouseSettings(connect_timeout_s=2.0))
    except Unavailable:
        typer.echo("note: ClickHouse does not answer, reading from Kafka alone", err=True)
        return None
    return BatchArchive(client)
