"""vLLM's own server as a child process, on a free port of loopback, with a model that needs no download."""

from __future__ import annotations

import os
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from infra.local.child import Child
from infra.local.ports import LOOPBACK, free_port
from tests.e2e.vllm.tiny_model import write_tiny_model

_READY_S = 900.0
_STOP_S = 60.0


@contextmanager
def vllm_server(folder: Path) -> Iterator[str]:
    """Its URL, with `/v1`. `AGENTWORLD_E2E_VLLM_URL` names one that runs already.

    Else `AGENTWORLD_E2E_VLLM_PYTHON` (default: this interpreter) must have vLLM, for CPUs or GPUs;
    `AGENTWORLD_E2E_VLLM_MODEL` is a model's folder (default: a tiny one of random weights).
    """
    if url := os.environ.get("AGENTWORLD_E2E_VLLM_URL"):
        yield url
        return
    given = os.environ.get("AGENTWORLD_E2E_VLLM_MODEL")
    model = given or str(write_tiny_model(folder / "model"))
    port = free_port()
    python = os.environ.get("AGENTWORLD_E2E_VLLM_PYTHON", sys.executable)
    argv = [
        *(python, "-m", "vllm.entrypoints.openai.api_server", "--model", model),
        *("--host", LOOPBACK, "--port", str(port), "--served-model-name", "tiny"),
        *("--dtype", "float32", "--enforce-eager", "--max-model-len", "2048", "--max-num-seqs", "8"),
        *("--enable-auto-tool-choice", "--tool-call-parser", "hermes"),
        *(() if given else ("--load-format", "dummy")),
    ]
    offline = {
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "DO_NOT_TRACK": "1",
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "OMP_NUM_THREADS": "1",
    }
    child = Child(argv, env=os.environ | offline, log_path=folder / "vllm.log", cwd=folder)
    child.start()
    try:
        child.wait_ready("vLLM", lambda: _healthy(f"http://{LOOPBACK}:{port}"), timeout_s=_READY_S)
        yield f"http://{LOOPBACK}:{port}/v1"
    finally:
        child.stop(timeout_s=_STOP_S)


def _healthy(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/health", timeout=5) as reply:
            return bool(reply.status == 200)
    except (urllib.error.URLError, OSError):
        return False
