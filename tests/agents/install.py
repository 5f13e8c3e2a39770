"""`python -m tests.agents.install`: Node 24, the CLIs and the Python clients, at pinned versions.

All of it goes to `.agentworld/agents/`, which git ignores; a second run finds it done and ends at once.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

HERE = Path(__file__).parent
HOME = HERE.parents[1] / ".agentworld" / "agents"
"""Where the clients are installed."""
NODE_BIN = HOME / "node_modules" / "node" / "bin"
CLI_BIN = HOME / "node_modules" / ".bin"
PYTHON = HOME / "venv" / "bin" / "python"

_NPM_FILES = ("package.json", "package-lock.json", ".npmrc")
_PYTHON_FILES = ("requirements.txt",)
_STAMP = HOME / "installed.sha256"
_WITH_SCRIPTS = ("@anthropic-ai/claude-code", "opencode-ai")
"""CLIs whose install script puts their native program in place."""


class InstallError(Exception):
    """The clients could not be installed; the message says what to do."""


def _digest() -> str:
    digest = hashlib.sha256()
    for name in (*_NPM_FILES, *_PYTHON_FILES):
        digest.update(name.encode() + b"\0" + (HERE / name).read_bytes())
    return digest.hexdigest()


def installed() -> bool:
    """Whether the clients are there, as pinned."""
    return _STAMP.is_file() and _STAMP.read_text() == _digest()


def _run(argv: Sequence[str], *, env: Mapping[str, str]) -> None:
    done = subprocess.run(argv, cwd=HOME, env=dict(env), capture_output=True, text=True, check=False)
    if done.returncode:
        raise InstallError(f"{' '.join(argv)} failed in {HOME}:\n{(done.stderr or done.stdout)[:2000]}")


def _install_clis() -> None:
    npm = shutil.which("npm")
    if npm is None:
        raise InstallError(
            "npm is missing: install any Node.js with npm (apt-get install nodejs npm). Node 24, which the "
            "clients need, is then fetched by npm itself"
        )
    for name in _NPM_FILES:
        shutil.copy(HERE / name, HOME / name)
    # Install scripts run one by one below: openclaw's refuses any Node but 24, which is not there yet.
    # Not `npm ci`: it gives up where a registry lacks another platform's optional package.
    _run([npm, "install", "--ignore-scripts", "--loglevel=error"], env=os.environ)
    _run([npm, "rebuild", "node"], env=os.environ)
    on_node_24 = os.environ | {"PATH": f"{NODE_BIN}{os.pathsep}{os.environ.get('PATH', '')}"}
    _run([npm, "rebuild", *_WITH_SCRIPTS], env=on_node_24)


def _install_python() -> None:
    uv = [sys.executable, "-m", "uv"]
    _run([*uv, "venv", "-q", "--clear", "-p", sys.executable, str(HOME / "venv")], env=os.environ)
    wanted = str(HERE / "requirements.txt")
    _run([*uv, "pip", "install", "-q", "--compile-bytecode", "-p", str(PYTHON), "-r", wanted], env=os.environ)


def install() -> None:
    """Install what is not there as pinned. Raises `InstallError`."""
    if installed():
        return
    HOME.mkdir(parents=True, exist_ok=True)
    _STAMP.unlink(missing_ok=True)
    print(f"installing Node 24 and the agent clients into {HOME} (about 2 GB, some minutes) …", flush=True)
    _install_clis()
    _install_python()
    _STAMP.write_text(_digest())


if __name__ == "__main__":
    try:
        install()
    except InstallError as exc:
        sys.exit(str(exc))
    print(f"the agent clients are installed in {HOME}")
