"""Every recorded conversation through the gateway: its deltas expand to what was sent, byte for byte."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest

from agentworld.contract.delta import expand
from gateway.dialects import DIALECTS, Dialect
from tests.agents.asked import ClientForms, request_problems
from tests.unit.gateway.harness import running_gateway
from tests.unit.gateway.token_engine import Turn, rendered, sampling

RECORDED = sorted(Path(__file__).with_name("recorded").glob("*.jsonl"))


@dataclass(frozen=True)
class Request:
    path: str
    body: bytes

    @property
    def dialect(self) -> Dialect:
        return DIALECTS[self.path]

    @property
    def messages(self) -> list[bytes]:
        return self.dialect.parse(self.body).messages


class _Line(msgspec.Struct):
    path: str
    body: msgspec.Raw


class _EngineRequest(msgspec.Struct):
    messages: list[msgspec.Raw]
    tools: msgspec.Raw = msgspec.Raw(b"null")


def requests_of(recording: Path) -> list[Request]:
    lines = [msgspec.json.decode(line, type=_Line) for line in recording.read_bytes().splitlines()]
    return [Request(line.path, bytes(line.body)) for line in lines]


def turns_of(requests: Sequence[Request]) -> list[Turn]:
    """What was sampled at each request: the turn that is new in the next one, where there is one."""
    turns = [Turn("The end.", "Nothing is left.")] * len(requests)
    for place, (before, after) in enumerate(pairwise(requests)):
        sent = before.messages
        fresh = [json.loads(message) for message in after.messages if message not in sent]
        turn = next((message for message in fresh if message["role"] == "assistant"), None)
        if turn is not None:
            calls = [(c["id"], *c["function"].values()) for c in turn.get("tool_calls") or ()]
            turns[place] = Turn(text_of(turn.get("content")), turn.get("reasoning") or "", tuple(calls))
    return turns


def text_of(content: object) -> str | None:
    return "".join(part.get("text", "") for part in content) if isinstance(content, list) else content


@pytest.mark.parametrize("recording", RECORDED, ids=lambda path: path.stem)
@pytest.mark.parametrize("restore", [True, False], ids=["restoring", "as-sent"])
async def test_a_recorded_conversation_expands_to_what_was_sent(recording: Path, restore: bool) -> None:
    requests = requests_of(recording)
    async with (
        sampling(*turns_of(requests)) as engine,
        running_gateway(engine.url, restore=restore) as gateway,
    ):
        await gateway.register()
        for request in requests:
            url = f"{gateway.url}/t1/p1/v1/{request.path}"
            async with gateway.http.post(url, data=request.body) as reply:
                assert (reply.status, (await reply.read())[:0]) == (200, b"")
        steps = gateway.steps
        prompts = expand(reversed(steps))
        forms = ClientForms.of(steps, prompts)
        for request, step, raw in zip(requests, steps, engine.bodies, strict=True):
            prompt, had = prompts[step.step_id], msgspec.json.decode(raw, type=_EngineRequest)
            assert step.status == "ok"
            assert bytes(had.tools) == (prompt.tools or b"null")
            assert list(prompt.ids) == [i for m in had.messages for i in rendered(json.loads(bytes(m)))]
            assert request_problems(request.dialect, request.body, step, prompt, forms) == []
            if restore:
                assert [bytes(message) for message in had.messages] == prompt.messages
            else:  # the engine then gets `reasoning_content` under its own name
                assert prompt.messages == request.messages
        # They are deltas in truth: of what was sent again and again, most is kept.
        assert any(step.prompt.keep_messages for step in steps[1:])
        appended = sum(len(step.prompt.append_ids) for step in steps)
        assert appended < sum(step.prompt.prompt_tokens for step in steps)


def test_the_recordings_are_of_every_client() -> None:
    clients = ("claude", "codex", "mini-swe-agent", "openai-agents", "openclaw", "opencode", "qwen")
    names = [path.stem for path in RECORDED]
    assert all(any(name.startswith(client) for name in names) for client in clients)
