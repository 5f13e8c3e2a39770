"""`python -m gateway` as a process of its own, and what it left in the log."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import aiohttp

from agentworld.contract.codec import decode
from agentworld.contract.errors import Unavailable
from agentworld.contract.events import StepCaptured
from agentworld.contract.topics import TRAJECTORY_EVENTS
from agentworld.platform.scan import scan_topic
from agentworld.platform.settings import KafkaSettings

ROOT = Path(__file__).parents[2]
HI = {"model": "tiny", "messages": [{"role": "user", "content": "hi"}]}


class GatewayProcess:
    """Start, call, kill."""

    def __init__(self, kafka: KafkaSettings, engine_url: str, spool: Path, **settings: Any) -> None:
        names = {
            "AGENTWORLD_KAFKA_BOOTSTRAP": kafka.bootstrap,
            "AGENTWORLD_KAFKA_TOPIC_PREFIX": kafka.topic_prefix,
            "AGENTWORLD_KAFKA_PARTITIONS": str(kafka.partitions),
            "AGENTWORLD_KAFKA_TOPIC_CONFIG": json.dumps(kafka.topic_config),
            "AGENTWORLD_KAFKA_IDLE_FETCH_MS": str(kafka.idle_fetch_ms),
            "AGENTWORLD_GATEWAY_PORT": "0",
            "AGENTWORLD_GATEWAY_UPSTREAM_URL": engine_url,
            "AGENTWORLD_GATEWAY_SPOOL_DIR": str(spool),
        }
        names |= {f"AGENTWORLD_GATEWAY_{name.upper()}": str(value) for name, value in settings.items()}
        self._environment = os.environ | names
        self.spool_folder = spool / "0"
        """Of the only instance."""
        self._log = spool.with_name(f"{spool.name}-gateway.log")
        self._process: subprocess.Popen[bytes] | None = None
        self.url = ""
        self.http: aiohttp.ClientSession | None = None

    async def start(self) -> GatewayProcess:
        before = self._log.stat().st_size if self._log.exists() else 0
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "gateway"], cwd=ROOT, env=self._environment, stderr=log, stdout=log
            )
        async with asyncio.timeout(60):
            while "listening on " not in (text := self._log.read_bytes()[before:].decode()):
                assert self._process.poll() is None, text
                await asyncio.sleep(0.05)
        self.url = text.split("listening on ")[1].split()[0]
        self.http = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=60))
        return self

    async def post(self, path: str, body: Any = None) -> tuple[int, Any]:
        assert self.http is not None
        async with self.http.post(self.url + path, json=body) as response:
            return response.status, await response.json()

    async def get(self, path: str) -> tuple[int, Any]:
        assert self.http is not None
        async with self.http.get(self.url + path) as response:
            return response.status, await response.json()

    async def register(self, trajectory: str, prompt: str = "p1") -> None:
        status, reply = await self.post(f"/{trajectory}/{prompt}/v1/register_trajectory", {})
        assert status == 200, reply

    async def chat(self, trajectory: str, prompt: str = "p1") -> str:
        """One answered call; its step id."""
        assert self.http is not None
        url = f"{self.url}/{trajectory}/{prompt}/v1/chat/completions"
        async with self.http.post(url, json=HI) as response:
            assert response.status == 200, await response.text()
            return response.headers["x-agentworld-step-id"]

    async def until_broker(self, state: str) -> None:
        """Wait until `/health` says so of the broker."""
        async with asyncio.timeout(60):
            while (await self.get("/health"))[1]["broker"] != state:
                await asyncio.sleep(0.05)

    def rss_bytes(self) -> int:
        """Memory of the process that is in RAM."""
        assert self._process is not None
        status = Path(f"/proc/{self._process.pid}/status").read_text()
        return int(status.split("VmRSS:")[1].split()[0]) * 1024

    async def kill(self) -> None:
        await self._end(signal.SIGKILL)

    async def stop(self) -> int:
        """SIGTERM; the exit code."""
        return await self._end(signal.SIGTERM)

    def terminate(self) -> None:
        """SIGTERM, without waiting."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)

    def end_now(self) -> None:
        """SIGKILL if it still runs; for the end of a test that failed."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait(10)

    async def _end(self, number: signal.Signals) -> int:
        assert self._process is not None
        if self._process.poll() is None:
            self._process.send_signal(number)
        code = await asyncio.to_thread(self._process.wait, 60)
        if self.http is not None:
            await self.http.close()
        return code


def steps_in(kafka: KafkaSettings) -> list[StepCaptured]:
    """Every captured step in the log, partition by partition."""
    for _ in range(60):
        try:
            events = [
                decode(TRAJECTORY_EVENTS, record.value) for record in scan_topic(kafka, TRAJECTORY_EVENTS)
            ]
        except Unavailable:  # a broker that has just started may not lead its partitions yet
            time.sleep(0.5)
        else:
            return [event for event in events if isinstance(event, StepCaptured)]
    raise Unavailable("the log could not be read")


def first_seen(kafka: KafkaSettings) -> list[str]:
    """Step ids in the order in which they first stand in the log."""
    return list(dict.fromkeys(step.step_id for step in steps_in(kafka)))


async def until_in_log(kafka: KafkaSettings, step_ids: list[str]) -> list[str]:
    """Wait until all are in the log; the step ids there, in order of first appearance."""
    async with asyncio.timeout(60):
        while not set(step_ids) <= set(found := await asyncio.to_thread(first_seen, kafka)):
            await asyncio.sleep(0.2)
    return found
