"""The running gateway: builds the edges, serves, drains on SIGTERM and SIGINT."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import signal
import socket
import threading
from collections.abc import Callable, Iterator

import uvicorn

from agentworld.contract.errors import ContractViolation, Unavailable
from agentworld.contract.topics import ALL_TOPICS
from agentworld.platform.kafka import ensure_topics
from agentworld.platform.settings import KafkaSettings
from gateway.app import create_app
from gateway.broker import KafkaBroker
from gateway.durable import DurablePublisher
from gateway.follower import FollowedDirectory
from gateway.http_server import bounded_http
from gateway.policies import PolicyVersions
from gateway.settings import GatewaySettings
from gateway.spool import Spool
from gateway.tail import Tail
from gateway.upstream import Upstream

logger = logging.getLogger(__name__)

_BACKLOG = 4096
_LAST_WORDS_S = 10
"""For calls that were stopped to be captured and told."""
_TOPICS_TRY_S = 10.0
_TOPICS_WAIT_S = 3.0
"""How long serving waits for the topics; then the spool takes over."""


class _Server(uvicorn.Server):
    """uvicorn that leaves signals to us: it would otherwise die of the signal after its drain."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def _nothing() -> None:
    """There is no call yet."""


class _StopSignals:
    """SIGTERM and SIGINT from now on: the first asks for a drain, the second for an end at once.

    Calls that the drain does not see to their end are stopped, so that they are captured.
    """

    def __init__(self, drain_s: float) -> None:
        self._asked = 0
        self._drain_s = drain_s
        self._server: uvicorn.Server | None = None
        self._stop_calls: Callable[[], None] = _nothing
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, self._stop)

    def attach(self, server: uvicorn.Server, stop_calls: Callable[[], None]) -> None:
        self._server, self._stop_calls = server, stop_calls
        server.should_exit = self._asked > 0

    def _stop(self) -> None:
        self._asked += 1
        if self._server is not None:
            self._server.should_exit = True
            self._server.force_exit = self._asked > 1
        if self._asked == 1:
            asyncio.get_running_loop().call_later(self._drain_s, self._stop_calls)


def _listen(settings: GatewaySettings) -> socket.socket:
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((settings.host, settings.port))
    except OSError as exc:
        listener.close()
        raise ContractViolation(
            f"cannot listen on {settings.host}:{settings.port}: {exc.strerror}. "
            "Set AGENTWORLD_GATEWAY_HOST and AGENTWORLD_GATEWAY_PORT (0 takes a free port)"
        ) from exc
    listener.listen(_BACKLOG)
    return listener


def _ensure_topics(kafka: KafkaSettings, done: Callable[[], None]) -> None:
    while True:
        try:
            ensure_topics(kafka, ALL_TOPICS, timeout_s=_TOPICS_TRY_S)
        except Unavailable as exc:
            logger.warning("%s Calls are captured in the spool meanwhile.", exc)
        else:
            done()
            return


async def _topics_then_follow(kafka: KafkaSettings, directory: FollowedDirectory) -> None:
    loop, exist = asyncio.get_running_loop(), asyncio.Event()

    def done() -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: the gateway has stopped
            loop.call_soon_threadsafe(exist.set)

    # A daemon thread: a stop must not wait for a broker that is away.
    threading.Thread(target=_ensure_topics, args=(kafka, done), name="topics", daemon=True).start()
    await exist.wait()
    directory.start()


async def serve(settings: GatewaySettings, kafka: KafkaSettings) -> None:
    """Serve until told to stop. Raises `ContractViolation` for a port or spool in use."""
    stop_signals = _StopSignals(settings.drain_timeout_ms / 1000)
    listener = _listen(settings)
    client_id = f"agentworld-gateway-{settings.instance}"
    folder = settings.spool_dir / settings.instance
    publisher = DurablePublisher(
        KafkaBroker(kafka, client_id=client_id, delivery_timeout_ms=2 * settings.ack_timeout_ms),
        Spool(folder, max_bytes=settings.spool_max_bytes),
        tail=Tail(folder, keep_ms=settings.spool_keep_ms) if settings.spool_keep_ms else None,
        ack_timeout_ms=settings.ack_timeout_ms,
    )
    policies = PolicyVersions()
    directory = FollowedDirectory(
        kafka,
        policies,
        client_id=client_id,
        max_trajectories=settings.directory_max_trajectories,
        caught_up=lambda: publisher.caught_up,
    )
    upstream = Upstream(settings)
    policies.tell(upstream.published)

    def health() -> tuple[bool, dict[str, object]]:
        able = not publisher.refusing
        status = "ok" if able else "the broker is away and the spool is full: calls get 503"
        return able, {
            "status": status,
            "directory_followed": directory.following,
            **publisher.state,
            "engines": upstream.state(),
        }

    app = create_app(
        settings,
        publisher=publisher,
        directory=directory,
        upstream=upstream,
        policies=policies,
        health=health,
        check_room=publisher.check_room,
    )
    await publisher.start()
    preparing = asyncio.create_task(_topics_then_follow(kafka, directory))
    await asyncio.wait({preparing}, timeout=_TOPICS_WAIT_S)
    server = _Server(
        uvicorn.Config(
            app,
            http=bounded_http(settings.max_header_bytes),
            ws="none",
            log_config=None,
            access_log=False,
            server_header=False,
            lifespan="off",
            timeout_graceful_shutdown=settings.drain_timeout_ms // 1000 + _LAST_WORDS_S,
        )
    )
    stop_signals.attach(server, app.stop_calls)
    logger.info("listening on http://%s:%d", settings.host, listener.getsockname()[1])
    gc.collect()
    gc.freeze()
    try:
        await server.serve(sockets=[listener])
    finally:
        preparing.cancel()
        await publisher.close()
        await directory.stop()
        await upstream.close()
        logger.info("stopped")
