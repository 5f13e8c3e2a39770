"""Whether the broker answers, asked for `/health`."""

from __future__ import annotations

import threading
import time

from confluent_kafka import KafkaException

from agentworld.contract.errors import Unavailable
from agentworld.platform.kafka import admin_client
from agentworld.platform.settings import KafkaSettings

_TIMEOUT_S = 2.0
_FRESH_S = 1.0


class BrokerProbe:
    """Asks the broker for its metadata, at most once a second."""

    def __init__(self, settings: KafkaSettings) -> None:
        self._settings = settings
        self._admin = admin_client(settings)
        self._lock = threading.Lock()
        self._asked = float("-inf")
        self._trouble: str | None = None

    def __call__(self) -> None:
        """Raise `Unavailable` unless it answers."""
        with self._lock:
            if time.monotonic() - self._asked > _FRESH_S:
                self._trouble = self._ask()
                self._asked = time.monotonic()
            if self._trouble:
                raise Unavailable(self._trouble)

    def _ask(self) -> str | None:
        try:
            # Not by topic: some brokers create a topic that is asked for by name.
            self._admin.list_topics(timeout=_TIMEOUT_S)
        except KafkaException as exc:
            return f"Kafka at {self._settings.bootstrap} does not answer: {exc.args[0].str()}"
        return None
