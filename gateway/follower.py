"""Follows topics `trajectory-directory` and `policy-versions`, so that gateways share one view."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, TopicPartition

from agentworld.contract.codec import decode
from agentworld.contract.errors import MalformedEvent, Unavailable
from agentworld.contract.events import DirectoryUpdated, PolicyPublished
from agentworld.contract.partitioner import partition_of
from agentworld.contract.topics import POLICY_VERSIONS, TRAJECTORY_DIRECTORY, TopicSpec
from agentworld.platform.kafka import consumer_config, topic_name
from agentworld.platform.settings import KafkaSettings
from gateway.directory import DirectoryAway, Entry, LocalDirectory
from gateway.policies import PolicyVersions

logger = logging.getLogger(__name__)

_RETRY_S = 0.5
_POLL_S = 0.1
_BATCH = 1000
_Positions = dict[tuple[str, int], int]


class FollowedDirectory(LocalDirectory):
    """The directory that all gateways of a deployment share.

    A thread reads the topics from the beginning and hands what it read to the event loop,
    where all state lives. After contact to the broker was lost everything is read again:
    a broker that crashed may have reused offsets.
    """

    def __init__(
        self,
        kafka: KafkaSettings,
        policies: PolicyVersions,
        *,
        client_id: str,
        max_trajectories: int = 500_000,
        wait_s: float = 2.0,
        caught_up: Callable[[], bool] = lambda: True,
    ) -> None:
        """`caught_up`: whether all that this gateway ever said is with the broker.

        What waits in its spool may register the trajectory that the topic does not know.
        """
        super().__init__(max_trajectories=max_trajectories)
        self._kafka = kafka
        self._policies = policies
        self._wait_s = wait_s
        self._caught_up = caught_up
        self._config = consumer_config(kafka, group=f"{client_id}-directory", client_id=client_id) | {
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 500,
        }
        self._specs = {topic_name(kafka, s.name): s for s in (TRAJECTORY_DIRECTORY, POLICY_VERSIONS)}
        self._topic = topic_name(kafka, TRAJECTORY_DIRECTORY.name)
        self._partitions = 0
        """Of the directory topic; 0 while the broker is away."""
        self._positions: _Positions = {}
        self._waiters: list[tuple[int, int, asyncio.Future[None]]] = []
        self._stopping = threading.Event()
        self._lost = threading.Event()
        self._wanted = threading.Event()
        self._idle_s = kafka.idle_fetch_ms / 1000
        self._queries = ThreadPoolExecutor(4, thread_name_prefix="directory-query")
        self._prober: Consumer | None = None
        self._thread: threading.Thread | None = None

    @property
    def following(self) -> bool:
        """Whether the broker answers and its news arrive."""
        return self._partitions > 0

    def start(self) -> None:
        """Begin to follow; call in the event loop, once the topics exist."""
        self._loop = asyncio.get_running_loop()
        self._prober = Consumer(self._config)
        self._thread = threading.Thread(target=self._follow, name="directory-follower", daemon=True)
        self._thread.start()

    async def find(self, trajectory_id: str) -> Entry | None:
        """The trajectory, after everything written before this call has been read."""
        caught_up = self._caught_up()  # asked first: what is published meanwhile is read or not
        await self._read_past(partition_of(trajectory_id.encode(), self._partitions or 1))
        entry = self.get(trajectory_id)
        if entry is None and self.forgot_live:
            raise DirectoryAway("too many trajectories to remember all of them")
        if entry is None and not caught_up:
            raise DirectoryAway("the spool, which may hold its registration, is not drained yet")
        return entry

    async def _read_past(self, partition: int) -> None:
        prober = self._prober
        if not self.following or prober is None:
            raise DirectoryAway("the broker is away")
        at = TopicPartition(self._topic, partition)
        try:
            async with asyncio.timeout(self._wait_s):
                _, end = await self._loop.run_in_executor(
                    self._queries, lambda: prober.get_watermark_offsets(at, timeout=self._wait_s)
                )
        except (KafkaException, TimeoutError) as exc:
            raise DirectoryAway("the broker does not answer") from exc
        if self._positions.get((self._topic, partition), 0) >= end:
            return
        caught_up: asyncio.Future[None] = self._loop.create_future()
        self._waiters.append((partition, end, caught_up))
        self._wanted.set()
        try:
            async with asyncio.timeout(self._wait_s):
                await caught_up
        except TimeoutError as exc:
            raise Unavailable("the trajectory directory is still being read: try again") from exc
        finally:
            self._waiters = [w for w in self._waiters if w[2] is not caught_up]
            if not self._waiters:
                self._wanted.clear()

    def _follow(self) -> None:
        while not self._stopping.is_set():
            self._lost.clear()
            consumer = Consumer(self._config | {"error_cb": self._failed})
            try:
                self._session(consumer)
            except KafkaException as exc:
                logger.info("the directory cannot be followed now: %s", exc.args[0].str())
            except Exception:
                logger.exception("the directory follower failed and starts again")
            finally:
                consumer.close()
                self._tell(self._set_away)
            self._stopping.wait(_RETRY_S)

    def _failed(self, error: KafkaError) -> None:
        if error.code() in {KafkaError._ALL_BROKERS_DOWN, KafkaError._TRANSPORT}:
            self._lost.set()

    def _session(self, consumer: Consumer) -> None:
        partitions: list[TopicPartition] = []
        # Asking for one topic by name makes some brokers create it.
        topics = consumer.list_topics(timeout=2.0).topics
        for topic in self._specs:
            if topic not in topics or not topics[topic].partitions:
                raise KafkaException(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART))
            partitions += [
                TopicPartition(topic, number, OFFSET_BEGINNING) for number in topics[topic].partitions
            ]
        consumer.assign(partitions)
        self._tell(self._set_following, sum(tp.topic == self._topic for tp in partitions))
        positions: _Positions = {}
        at_end: set[tuple[str, int]] = set()
        while not self._stopping.is_set() and not self._lost.is_set():
            messages = consumer.consume(1, _POLL_S)
            if messages:
                messages += consumer.consume(_BATCH - 1, 0)
                events, read = self._read(messages)
                self._tell(self._apply, events, read)
                positions |= read
                at_end |= read.keys()
                if events:
                    at_end.clear()
            quiet = not messages or len(at_end) == len(partitions)
            if self._idle_s and quiet and len(positions) == len(partitions) and not self._wanted.is_set():
                self._rest(consumer, positions)
                at_end.clear()

    def _rest(self, consumer: Consumer, positions: _Positions) -> None:
        """Fetch nothing for a while, or until a call waits for news; see `idle_fetch_ms`."""
        partitions = [TopicPartition(topic, number, at) for (topic, number), at in positions.items()]
        consumer.pause(partitions)
        self._wanted.wait(self._idle_s)
        consumer.resume(partitions)
        for partition in partitions:  # a resumed partition fetches late, one that is sought at once
            consumer.seek(partition)

    def _read(self, messages: list[Message]) -> tuple[list[Any], _Positions]:
        events: list[Any] = []
        positions: _Positions = {}
        for message in messages:
            at = message.topic() or "", message.partition() or 0
            error = message.error()
            if error is None:
                positions[at] = (message.offset() or 0) + 1
                events += self._decode(self._specs[at[0]], message)
            elif error.code() == KafkaError._PARTITION_EOF:
                positions[at] = message.offset() or 0
            else:
                raise KafkaException(error)
        return events, positions

    def _decode(self, spec: TopicSpec, message: Message) -> list[Any]:
        value = message.value()
        if value is None:
            return []
        try:
            return [decode(spec, value)]
        except MalformedEvent as exc:
            logger.warning("skipped %s/%s: %s", message.partition(), message.offset(), exc)
            return []

    def _tell(self, what: Any, *arguments: Any) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(what, *arguments)

    def _set_following(self, partitions: int) -> None:
        self._positions.clear()
        self._partitions = partitions

    def _set_away(self) -> None:
        self._partitions = 0
        for _, _, caught_up in self._waiters:
            if not caught_up.done():
                caught_up.set_exception(DirectoryAway("the broker went away"))

    def _apply(self, events: list[Any], positions: _Positions) -> None:
        for event in events:
            if isinstance(event, DirectoryUpdated):
                self.put(Entry.of(event))
            elif isinstance(event, PolicyPublished):
                self._policies.take(event)
        self._positions.update(positions)
        for partition, end, caught_up in self._waiters:
            if not caught_up.done() and self._positions.get((self._topic, partition), 0) >= end:
                caught_up.set_result(None)

    async def stop(self) -> None:
        """Stop following."""
        self._stopping.set()
        self._wanted.set()
        if self._thread is not None:
            await asyncio.to_thread(self._thread.join, 5)
        self._queries.shutdown(wait=True)
        if self._prober is not None:
            await asyncio.to_thread(self._prober.close)
