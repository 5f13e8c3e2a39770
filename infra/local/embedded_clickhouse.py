"""The ClickHouse engine of the chdb wheel as a server process of its own, over HTTP on loopback."""

from __future__ import annotations

import http.client
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import BinaryIO
from urllib.parse import quote

from agentworld.contract.errors import Unavailable
from infra.local.clickhouse_config import server_xml, users_xml

ENGINE_VERSION = "26.9.0"
"""The listen mode is reached through a private API: other versions are not known to have it."""

_HOST = "127.0.0.1"
_START_TIMEOUT_S = 60.0
_STOP_TIMEOUT_S = 30.0


class _PortTaken(Unavailable):
    """Another process listens there."""


class EmbeddedClickHouse:
    """One engine over `data_dir`. A second one over the same directory is refused.

    `start` raises `Unavailable` with what to do. Data survive `stop` and `kill`.
    """

    def __init__(self, data_dir: Path, log_path: Path, http_port: int | None = None) -> None:
        self._root = data_dir.absolute()
        self._log_path = log_path.absolute()
        self._port = http_port
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """HTTP endpoint, once started."""
        if self._port is None:
            raise RuntimeError("the engine has no port before start()")
        return f"http://{_HOST}:{self._port}"

    @property
    def pid(self) -> int | None:
        """Process id while it runs."""
        process = self._process
        return process.pid if process is not None and process.poll() is None else None

    def start(self) -> None:
        """Return when the engine answers over HTTP. Does nothing where it already runs."""
        if self.pid is not None:
            return
        _require_wheel()
        for tries_left in (0,) if self._port is not None else (2, 1, 0):
            try:
                self._start_on(_usable_port(self._port))
            except _PortTaken:
                # Another process was faster to take the port found free.
                if not tries_left:
                    raise
            else:
                return

    def _start_on(self, port: int) -> None:
        self._configure(port)
        self._log_path.parent.mkdir(parents=True, exist_ok=True)
        with self._log_path.open("ab") as log:
            logged_before = log.tell()
            self._process = self._launch(log)
        try:
            self._await_answer(port, logged_before)
        except BaseException:
            self.kill()
            raise
        self._port = port

    def _configure(self, port: int) -> None:
        for directory in (self._root, self._root / "data", self._root / "user_files"):
            directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        _write_private(self._root / "config.xml", server_xml(self._root, http_port=port))
        _write_private(self._root / "users.xml", users_xml(admin_password=self._admin_password()))

    def _admin_password(self) -> str:
        path = self._root / "admin.password"
        if not path.exists():
            _write_private(path, secrets.token_urlsafe(24))
        return path.read_text()

    def _launch(self, log: BinaryIO) -> subprocess.Popen[bytes]:
        # A session of its own: SYSTEM SHUTDOWN signals the whole process group.
        source_root = Path(__file__).resolve().parents[2]
        return subprocess.Popen(
            [sys.executable, "-m", "infra.local.clickhouse_engine", str(self._root)],
            cwd=source_root,
            env={name: os.environ[name] for name in ("PATH", "LANG", "TZ") if name in os.environ}
            | {"PYTHONPATH": str(source_root)},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def _await_answer(self, port: int, logged_before: int) -> None:
        assert self._process is not None
        deadline = time.monotonic() + _START_TIMEOUT_S
        while time.monotonic() < deadline:
            if self._process.poll() is not None:
                raise self._why_it_ended(port, logged_before)
            if _ask(port, "SELECT 1", timeout_s=2.0) == "1\n":
                return
            time.sleep(0.05)
        raise Unavailable(
            f"the ClickHouse engine did not answer on port {port} within {_START_TIMEOUT_S:.0f} s; "
            f"see {self._log_path}"
        )

    def _why_it_ended(self, port: int, logged_before: int) -> Unavailable:
        with self._log_path.open("rb") as log:
            log.seek(logged_before)
            said = log.read().decode(errors="replace").strip()
        if "Cannot lock file" in said:
            return Unavailable(
                f"the ClickHouse directory {self._root} is in use by another engine. "
                "Stop that one (`agentworld down`), or choose another data directory."
            )
        if "Address already in use" in said:
            return _PortTaken(f"port {port} is taken: choose another port for the ClickHouse engine.")
        last = said.splitlines()[-1] if said else "it said nothing"
        return Unavailable(f"the ClickHouse engine ended at start: {last[:500]} (log: {self._log_path})")

    def stop(self) -> None:
        """Shut down in order; killed where that takes more than 30 s."""
        process = self._process
        if process is None or self._port is None:
            return
        deadline = time.monotonic() + _STOP_TIMEOUT_S
        while process.poll() is None and time.monotonic() < deadline:
            _ask(self._port, "SYSTEM SHUTDOWN", timeout_s=5.0, user="admin", password=self._admin_password())
            try:
                process.wait(timeout=5)
            except subprocess.TimeoutExpired:
                continue
        self.kill()

    def kill(self) -> None:
        """kill -9, as a crash does it."""
        process, self._process = self._process, None
        if process is None:
            return
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
        process.wait()


def _require_wheel() -> None:
    try:
        found = version("chdb-core")
    except PackageNotFoundError:
        found = ""
    if not found or find_spec("chdb") is None:
        raise Unavailable(
            "the embedded ClickHouse engine is not installed: its wheel (chdb-core) exists for Linux and "
            "macOS on x86-64 and arm64. Install `agentworld[embedded]`, or use a server with "
            "`--clickhouse URL`."
        )
    if found != ENGINE_VERSION:
        raise Unavailable(
            f"the embedded ClickHouse engine needs chdb-core=={ENGINE_VERSION}, found {found}. "
            "Install `agentworld[embedded]`, or use a server with `--clickhouse URL`."
        )


def _usable_port(wanted: int | None) -> int:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((_HOST, wanted or 0))
        except OSError as exc:
            raise _PortTaken(
                f"port {wanted} is taken: choose another port for the ClickHouse engine."
            ) from exc
        return int(probe.getsockname()[1])


def _write_private(path: Path, text: str) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)


def _ask(port: int, sql: str, *, timeout_s: float, user: str = "default", password: str = "") -> str | None:
    """The engine's answer to one statement, None where there is no good one."""
    connection = http.client.HTTPConnection(_HOST, port, timeout=timeout_s)
    try:
        connection.request(
            "POST",
            f"/?query={quote(sql)}",
            headers={"X-ClickHouse-User": user, "X-ClickHouse-Key": password, "Content-Length": "0"},
        )
        response = connection.getresponse()
        body = response.read().decode(errors="replace")
    except (OSError, http.client.HTTPException):
        return None
    else:
        return body if response.status == 200 else None
    finally:
        connection.close()
