"""Dead letters: the original bytes on `<topic>-dlq`, with the error in headers."""

from __future__ import annotations

from agentworld.contract.topics import TOPICS_BY_NAME
from agentworld.platform.log import OutRecord, Record
from agentworld.platform.metrics import counter

_MAX_DETAIL_CHARS = 1000

REPLAYED = "dlq-replayed"
"""Header of a marker on a dead-letter topic: the place of the letter that was replayed."""
REPLAYED_TO = "dlq-replayed-to"
"""Header of a marker: where the repeated record stands."""
REPLAYED_FROM = "dlq-replayed-from"
"""Header of a repeated record: the place of the letter that it repeats."""


def dead_letter(record: Record, *, reason: str, detail: str, consumer: str) -> OutRecord:
    """The record for the dead-letter topic: same key and value, error and origin in headers.

    `reason` is a stable code (`malformed`, `unknown_trajectory`, `step_after_seal`, …). A record whose
    place was not kept (negative offset) has no `dlq-offset`.
    """
    counter("dead_letters", "topic", "reason").labels(record.topic, reason).inc()
    return OutRecord(
        topic=TOPICS_BY_NAME[record.topic].dlq_name,
        key=record.key,
        value=record.value or b"",
        headers=(
            *record.headers,
            ("dlq-reason", reason.encode()),
            ("dlq-detail", detail[:_MAX_DETAIL_CHARS].encode()),
            ("dlq-consumer", consumer.encode()),
            ("dlq-topic", record.topic.encode()),
            ("dlq-partition", str(record.partition).encode()),
            *([("dlq-offset", str(record.offset).encode())] if record.offset >= 0 else []),
        ),
    )
