"""What is asked in each protocol, and what must be true of the step and of what the client sees."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import aiohttp

from agentworld.contract.delta import Prompt
from agentworld.contract.events import StepCaptured
from tests.e2e.vllm.tap import Tap, Told
from tests.unit.gateway.streams.client_streams import ClientReader

What = Literal["text", "tool", "n=2", "ids"]
TOKENS = 64
SCHEMA = {"type": "object", "properties": {"a": {"type": "boolean"}}, "required": ["a"]}
SAY = "Add one and two."


@dataclass(frozen=True)
class Case:
    """One call."""

    path: str
    what: What
    stream: bool

    @property
    def body(self) -> dict[str, Any]:
        if self.path == "generate":
            return {"prompt_ids": [40, 41, 42], "sampling_params": {"max_tokens": TOKENS, "logprobs": True}}
        chat = [{"role": "user", "content": SAY}]
        bodies: dict[str, dict[str, Any]] = {
            "chat/completions": {"messages": chat, "max_tokens": TOKENS},
            "responses": {"input": SAY, "max_output_tokens": TOKENS},
            "messages": {"messages": chat, "max_tokens": TOKENS},
            "completions": {"prompt": [40, 41] if self.what == "ids" else SAY, "max_tokens": TOKENS},
        }
        body = {"model": "default", **bodies[self.path], "stream": self.stream}
        if self.what == "n=2":
            body |= {"n": 2}
        return body | (_TOOL[self.path] if self.what == "tool" else {})


_TOOL: dict[str, dict[str, Any]] = {
    "chat/completions": {
        "tools": [{"type": "function", "function": {"name": "add", "parameters": SCHEMA}}],
        "tool_choice": {"type": "function", "function": {"name": "add"}},
    },
    "responses": {
        "tools": [{"type": "function", "name": "add", "parameters": SCHEMA, "strict": False}],
        "tool_choice": {"type": "function", "name": "add"},
    },
    "messages": {
        "tools": [{"name": "add", "input_schema": SCHEMA}],
        "tool_choice": {"type": "tool", "name": "add"},
    },
}
CASES = [
    *(Case(path, "text", stream) for path in (*_TOOL, "completions") for stream in (False, True)),
    *(Case(path, "tool", stream) for path in _TOOL for stream in (False, True)),
    *(Case(path, "n=2", stream) for path in ("chat/completions", "completions") for stream in (False, True)),
    *(Case("completions", "ids", stream) for stream in (False, True)),
    Case("generate", "ids", stream=False),
]


@dataclass
class Row:
    """A call's result, as it stands in the report."""

    protocol: str
    what: What
    stream: bool
    steps: int = 0
    ids_exact: bool = False
    logprobs_exact: bool = False
    prompt_rendered: bool | None = None
    """The prompt's ids are what vLLM's `/tokenize` says; None where it is not asked."""
    first_delta_first: bool | None = None
    """The client had the first delta while vLLM's last token was held back; None without a stream."""
    problems: list[str] = field(default_factory=list)

    @property
    def passed(self) -> bool:
        checks = (self.ids_exact, self.logprobs_exact, self.prompt_rendered, self.first_delta_first)
        return self.steps > 0 and not self.problems and False not in checks


async def call(http: aiohttp.ClientSession, url: str, case: Case, tap: Tap) -> Row:
    """Make the call; the row still lacks what the log says."""
    row = Row(case.path, case.what, case.stream)
    # One choice ends while another goes on, so a last token is held back only where there is one choice.
    held = case.stream and case.what != "n=2"
    tap.client_has_delta = asyncio.Event() if held else None
    async with asyncio.timeout(240), http.post(f"{url}/v1/{case.path}", json=case.body) as response:
        if response.status != 200:
            row.problems.append(f"answered {response.status}: {(await response.text())[:300]}")
            return row
        if not case.stream:
            await response.read()
            return row
        reader = ClientReader(case.path)
        async for part in response.content.iter_any():
            if reader.feed(part) and tap.client_has_delta is not None:
                row.first_delta_first = row.first_delta_first or not reader.ended
                tap.client_has_delta.set()
    if not reader.ended:
        row.problems.append("the stream ended without its last event")
    return row


async def judge(
    row: Row, told: Told, steps: Sequence[StepCaptured], prompts: Mapping[str, Prompt], tap: Tap
) -> None:
    """Hold the call's steps against vLLM's own answer."""
    row.steps = len(steps)
    choices = told.choices()
    found = {step.choice_index: step for step in steps}
    if found.keys() != choices.keys():
        row.problems.append(f"choices {sorted(choices)} were sampled, {sorted(found)} captured")
        return
    for step in steps:
        if (step.status, step.integrity, step.token_source) != ("ok", [], "engine"):
            row.problems.append(f"a step is {step.status}, {step.integrity}, {step.token_source}")
    row.ids_exact = all(
        ids and found[i].response_ids == ids and list(prompts[found[i].step_id].ids) == told.prompt_ids
        for i, (ids, _) in choices.items()
    )
    row.logprobs_exact = all(
        len(ids) == len(logprobs) and found[i].response_logprobs == logprobs
        for i, (ids, logprobs) in choices.items()
    )
    if row.first_delta_first is not None:
        row.first_delta_first = row.first_delta_first and told.held_last
    asked = told.request
    if row.what == "text":
        names = ("model", "messages") if "messages" in asked else ("model", "prompt")
        counted = await tap.ask("POST", "/tokenize", {name: asked[name] for name in names})
        row.prompt_rendered = counted["tokens"] == told.prompt_ids
