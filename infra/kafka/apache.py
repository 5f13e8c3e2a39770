"""Real Apache Kafka, one KRaft node on loopback: broker and controller in one Java process."""

from __future__ import annotations

import base64
import os
import subprocess
import uuid
from pathlib import Path

from infra.kafka.jars import HERE, java, kafka_jars
from infra.local.broker import LocalBroker
from infra.local.child import Child, LaunchError
from infra.local.ports import LOOPBACK, free_port

_FORMAT_TIMEOUT_S = 90.0
_JVM = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto", "-Djava.awt.headless=true")


def server_properties(*, data_dir: Path, port: int, controller_port: int) -> str:
    """The node's configuration. The quorum is static, so ports may differ at the next start."""
    options = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": f"1@{LOOPBACK}:{controller_port}",
        "listeners": f"PLAINTEXT://{LOOPBACK}:{port},CONTROLLER://{LOOPBACK}:{controller_port}",
        "advertised.listeners": f"PLAINTEXT://{LOOPBACK}:{port}",
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        "log.dirs": str(data_dir / "log"),
        "auto.create.topics.enable": "false",
        "message.max.bytes": str(64 * 1024 * 1024),
        "socket.request.max.bytes": str(100 * 1024 * 1024),
        "offsets.topic.replication.factor": "1",
        "offsets.topic.num.partitions": "8",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "transaction.state.log.num.partitions": "4",
        "share.coordinator.state.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
        "group.initial.rebalance.delay.ms": "0",
        "log.cleaner.dedupe.buffer.size": str(16 * 1024 * 1024),
        "log.index.size.max.bytes": str(1024 * 1024),
        # Short, because a broker that was killed must wait for its old session to end.
        "broker.session.timeout.ms": "3000",
        "broker.heartbeat.interval.ms": "500",
    }
    return "".join(f"{name}={value}\n" for name, value in options.items())


def new_cluster_id() -> str:
    """A random cluster id in Kafka's form: 16 bytes, base64url, no padding."""
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode()


class ApacheKafka(LocalBroker):
    """One broker on loopback."""

    title = "Apache Kafka"
    start_timeout_s = 90.0

    def prepare(self) -> Child:
        """Format the storage at the first start. Raises `LaunchError` (Java, Maven)."""
        program = java()
        classpath = f"{kafka_jars()}/*"
        self._data_dir.mkdir(parents=True, exist_ok=True)
        properties = self._data_dir / "server.properties"
        properties.write_text(
            server_properties(
                data_dir=self._data_dir, port=self.port, controller_port=free_port(exclude={self.port})
            )
        )
        self._format(program, classpath, properties)
        return Child(
            [
                program,
                *_JVM,
                "-Xms256m",
                "-Xmx768m",
                f"-Dlog4j2.configurationFile={HERE / 'log4j2.xml'}",
                *("-cp", classpath, "kafka.Kafka", str(properties)),
            ],
            env=_environment(),
            log_path=self._log_path,
            cwd=self._data_dir,
        )

    def _format(self, program: str, classpath: str, properties: Path) -> None:
        if (self._data_dir / "log" / "meta.properties").exists():
            return
        tool = [
            "kafka.tools.StorageTool",
            "format",
            f"--cluster-id={new_cluster_id()}",
            "-c",
            str(properties),
        ]
        done = subprocess.run(
            [program, *_JVM, "-Xmx128m", "-cp", classpath, *tool],
            env=_environment(),
            capture_output=True,
            text=True,
            check=False,
            timeout=_FORMAT_TIMEOUT_S,
        )
        if done.returncode != 0:
            raise LaunchError(
                f"Apache Kafka's storage could not be formatted:\n{(done.stdout + done.stderr)[-2000:]}"
            )


def _environment() -> dict[str, str]:
    kept = ("PATH", "HOME", "JAVA_HOME", "LANG", "TMPDIR")
    return {name: os.environ[name] for name in kept if name in os.environ}
