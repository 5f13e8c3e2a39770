"""The Faust app: three agents, their tables, and what to do when partitions come and go."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import faust

from agentworld.contract.errors import Unavailable
from agentworld.platform.kafka import group_name, topic_name
from agentworld.platform.settings import KafkaSettings
from stream_processors.feedback.service import repeat_feedback
from stream_processors.outbox import Outbox, Submitter
from stream_processors.processors import PROCESSORS
from stream_processors.recovery import PromptTables
from stream_processors.rules import RuleSource
from stream_processors.settings import ProcessorSettings
from stream_processors.stage import Stage, to_record
from stream_processors.state_table import StateTable
from stream_processors.topics import APP_NAME, TABLES, changelog_name
from stream_processors.transport import PacedTransport, credentials_of

logger = logging.getLogger(__name__)

_DRAIN_TIMEOUT_S = 10.0


class _RebalancingApp(faust.App):
    """Lets us finish what is in hand before partitions are given away."""

    logger = logging.getLogger("faust.app")
    before_revoke: Callable[[], Awaitable[None]]

    def _new_transport(self) -> Any:
        return PacedTransport(self.conf.broker_consumer, self)

    async def _on_partitions_revoked(self, revoked: set[Any]) -> None:
        await self.before_revoke()
        await super()._on_partitions_revoked(revoked)


class Worker:
    """Runs the processors until stopped; `failed` holds what ended it otherwise."""

    def __init__(
        self,
        settings: ProcessorSettings,
        kafka: KafkaSettings,
        *,
        partitions: int,
        rules: RuleSource,
        submitter: Submitter,
    ) -> None:
        self._settings = settings
        self._kafka = kafka
        self._partitions = partitions
        self._submitter = submitter
        self._rules = rules
        self._tasks: list[asyncio.Task[None]] = []
        self._stopping = False
        self.failed: asyncio.Future[BaseException] = asyncio.get_running_loop().create_future()
        self.ready = False
        """All assigned partitions are loaded and records flow."""
        self.app = self._create_app(partitions)
        self.stages = [self._create_stage(name, partitions) for name in PROCESSORS]
        self.app.before_revoke = self._release
        self.app.on_rebalance_complete.connect(self._load)

    async def start(self) -> None:
        """Start Faust and the background work."""
        for stage in self.stages:
            self._tasks.append(asyncio.create_task(self._guarded(stage.outbox.run())))
        self._tasks.append(asyncio.create_task(self._guarded(self._tick())))
        feedback = repeat_feedback(
            self._kafka,
            self._submitter,
            partitions=self._partitions,
            instance=self._settings.instance,
        )
        self._tasks.append(asyncio.create_task(self._guarded(feedback)))
        self.app.finalize()
        try:
            await self.app.maybe_start()
        except Exception as exc:
            self.fail(exc)
            return
        self._tasks.append(asyncio.create_task(self._watch_faust()))

    async def stop(self) -> None:
        """Finish what is in hand, commit, leave."""
        self._stopping = True
        try:
            if not self.failed.done():
                await self._release()
            await asyncio.wait_for(self.app.stop(), _DRAIN_TIMEOUT_S)
        except TimeoutError:
            logger.warning("Faust did not stop in time")
        finally:
            for task in self._tasks:
                task.cancel()

    def fail(self, error: BaseException) -> None:
        """End the process: its supervisor restarts it at the committed offsets."""
        self.ready = False
        if not self.failed.done():
            logger.error("stopping: %s", error, exc_info=error)
            self.failed.set_result(error)

    def _create_app(self, partitions: int) -> _RebalancingApp:
        settings, kafka = self._settings, self._kafka
        data_dir = Path(settings.data_dir) / settings.instance
        data_dir.mkdir(parents=True, exist_ok=True)
        return _RebalancingApp(
            topic_name(kafka, APP_NAME),
            broker=[f"kafka://{address.strip()}" for address in kafka.bootstrap.split(",")],
            broker_credentials=credentials_of(kafka),
            store="memory://",
            processing_guarantee="at_least_once",
            datadir=str(data_dir),
            web_enabled=False,
            topic_partitions=partitions,
            topic_allow_declare=False,
            topic_disable_leader=True,
            consumer_auto_offset_reset="earliest",
            consumer_group_instance_id=f"{group_name(kafka, APP_NAME, 'worker')}-{settings.instance}",
            consumer_max_fetch_size=4 * 1024 * 1024,
            stream_buffer_maxsize=256,
            stream_wait_empty=False,
            stream_publish_on_commit=False,
            broker_session_timeout=settings.session_timeout_ms / 1000,
            broker_heartbeat_interval=settings.session_timeout_ms / 3000,
            broker_request_timeout=15.0,
            broker_commit_interval=1.0,
            reply_create_topic=False,
            TableManager=PromptTables,
            table_cleanup_interval=3600.0,
        )

    def _create_stage(self, name: str, partitions: int) -> Stage:
        table = StateTable(
            self.app.Table(TABLES[name], partitions=partitions, key_type=bytes, value_type=bytes),
            changelog=changelog_name(TABLES[name]),
            changelog_full_name=topic_name(self._kafka, changelog_name(TABLES[name])),
        )
        create = PROCESSORS[name]
        source = create(0, self._rules).source
        stage = Stage(
            name=name,
            source=source,
            create=lambda partition: create(partition, self._rules),
            table=table,
            outbox=Outbox(self._submitter, table),
        )
        topic = self.app.topic(
            topic_name(self._kafka, source.name),
            partitions=partitions,
            key_type=bytes,
            value_type=bytes,
            key_serializer="raw",
            value_serializer="raw",
        )

        async def consume(stream: Any) -> None:
            # Records are acknowledged to Faust by the outbox, once their effects are durable.
            stream.enable_acks = False
            async for event in stream.events():
                try:
                    record = to_record(source, event.message)
                    await stage.take(record, lambda event=event: stream.ack(event))  # type: ignore[misc]
                except Exception as exc:  # Faust would lose the record and go on.
                    self.fail(exc)
                    await asyncio.Event().wait()

        self.app.agent(topic, name=f"{APP_NAME}.{name}")(consume)
        return stage

    async def _release(self) -> None:
        """Take no more records, and make durable what was taken."""
        self.ready = False
        for stage in self.stages:
            stage.release()
        try:
            async with asyncio.timeout(_DRAIN_TIMEOUT_S):
                for stage in self.stages:
                    await stage.outbox.drained()
        except TimeoutError:
            self.fail(Unavailable("partitions are revoked, and the broker does not take what is in hand"))

    async def _load(self, *_: Any, **__: Any) -> None:
        """Take over the partitions that Faust has recovered."""
        try:
            assignment = self.app.consumer.assignment()
            for stage in self.stages:
                name = topic_name(self._kafka, stage.source.name)
                await stage.load(tp.partition for tp in assignment if tp.topic == name)
        except Exception as exc:
            self.fail(exc)
            return
        self.ready = not self.failed.done()
        counts = {stage.name: sorted(stage.partitions) for stage in self.stages}
        logger.info("partitions assigned: %s", counts)

    async def _tick(self) -> None:
        """Carry time forward where something is open."""
        pending: list[Awaitable[Any]] = []
        while True:
            await asyncio.sleep(self._settings.clock_interval_ms / 1000)
            for ack in pending:
                await ack
            now_ms = time.time_ns() // 1_000_000
            pending = [
                self._submitter.submit(record) for stage in self.stages for record in stage.ticks(now_ms)
            ]

    async def _watch_faust(self) -> None:
        await self.app.wait_until_stopped()
        if self._stopping:
            return
        reason = getattr(self.app, "_crash_reason", None)
        self.fail(reason or RuntimeError("Faust stopped by itself"))

    async def _guarded(self, work: Awaitable[None]) -> None:
        try:
            await work
        except Exception as exc:
            self.fail(exc)
