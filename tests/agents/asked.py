"""What a client asked against what its step holds. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from agentworld.contract.delta import Prompt
from agentworld.contract.errors import InvalidInput
from agentworld.contract.events import StepCaptured, raw_json
from gateway.dialects import Dialect

_SHOWN_CHARS = 300

_fields = msgspec.json.Decoder(dict[str, msgspec.Raw])


@dataclass(slots=True)
class ClientForms:
    """What clients make of sampled turns, as the steps of a trajectory tell it."""

    turns: dict[bytes, set[bytes | None]] = field(default_factory=dict)
    """By the sampled turn, the forms it came back in; None: it was left out."""
    ids: dict[str, str] = field(default_factory=dict)
    """The engine's ids of tool calls, by the letters and digits of the client's."""

    @classmethod
    def of(cls, steps: Sequence[StepCaptured], prompts: Mapping[str, Prompt]) -> ClientForms:
        """Gather them."""
        forms = cls()
        for step in steps:
            sampled = raw_json(step.message)
            own = _call_ids(sampled)
            seen = _call_ids(raw_json(step.client_message)) or own
            forms.ids.update(zip(map(_letters, seen), own, strict=True))
            for turn in step.metadata.get("restored", ()):
                prompt = prompts.get(step.step_id)
                if prompt is not None:
                    put_back = bytes(prompt.messages[turn["index"]])
                    forms.turns.setdefault(put_back, set()).add(_plain(turn["client"]))
        return forms

    def came_as(self, captured: bytes, sent: bytes) -> bool:
        """Whether the captured message is what stands for the one that was sent."""
        if captured == sent or _plain_of(sent) in self.turns.get(captured, ()):
            return True
        fields, given = _fields.decode(captured), _fields.decode(sent)
        if "tool_call_id" not in given:
            return False
        answers = msgspec.json.decode(given.pop("tool_call_id"), type=str)
        named = msgspec.json.decode(fields.pop("tool_call_id", b'""'), type=str)
        return fields == given and named == self.ids.get(_letters(answers), answers)


def request_problems(
    dialect: Dialect, body: bytes, step: StepCaptured, prompt: Prompt, forms: ClientForms
) -> list[str]:
    """Where the step's expanded prompt is not what the client sent. `forms` says what was put back."""
    found = []
    if hashlib.sha256(body).hexdigest() != step.request.fingerprint:
        found.append("a step's fingerprint is not of the client's request")
    try:
        call = dialect.parse(body)
    except InvalidInput as exc:
        return [*found, f"a request that was answered cannot be read: {exc}"]
    if (call.model, call.stream) != (step.request.model, step.request.stream):
        found.append("a step names another model or way of streaming than the client did")
    if call.tools != prompt.tools:
        found.append("a step's tools are not the client's")
    return [*found, *_message_problems(call.messages, prompt.messages, forms)]


def _message_problems(sent: Sequence[bytes], captured: Sequence[bytes], forms: ClientForms) -> Iterator[str]:
    left = list(sent)
    for place, message in enumerate(captured):
        if left and forms.came_as(message, left[0]):
            left.pop(0)
        elif None not in forms.turns.get(message, ()):
            given = left[0].decode() if left else "nothing"
            yield (
                f"message {place} of a captured prompt is not what the client sent: it has "
                f"{message.decode()[:_SHOWN_CHARS]}, the client sent {given[:_SHOWN_CHARS]}"
            )
            return
    if left:
        yield f"{len(left)} messages of the client are not in the captured prompt"


def _plain(value: Any) -> bytes | None:
    """JSON in one spelling: what a step tells in its metadata keeps fields and order, not blanks."""
    return None if value is None else msgspec.json.encode(value)


def _plain_of(message: bytes) -> bytes | None:
    return _plain(msgspec.json.decode(message))


def _call_ids(message: bytes | None) -> list[str]:
    calls = msgspec.json.decode(message).get("tool_calls") if message else None
    return [call["id"] for call in calls or ()]


def _letters(name: str) -> str:
    return "".join(filter(str.isalnum, name))[:40]
