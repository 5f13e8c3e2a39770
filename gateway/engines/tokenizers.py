"""Where an engine gives no ids: the gateway's own reading of the text, marked as such."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import msgspec

from agentworld.contract.errors import ContractViolation
from gateway.canonical import ChatCall
from gateway.engine import Answer

_INSTALL = "install it with: pip install 'agentworld[retokenize]'"


class Tokenizer(Protocol):
    """A model's tokenizer and chat template. Calls may come from any thread."""

    def prompt_ids(self, messages: list[dict[str, Any]], tools: list[Any] | None) -> list[int] | None:
        """Ids of the prompt up to where the model begins to speak; None where that cannot be told."""
        ...

    def response_ids(
        self, messages: list[dict[str, Any]], tools: list[Any] | None, turn: dict[str, Any]
    ) -> list[int] | None:
        """Ids of the sampled turn that follows `messages`; None where that cannot be told."""
        ...


def retokenize(call: ChatCall, answer: Answer, tokenizer: Tokenizer) -> None:
    """Give `answer` the ids that it lacks. Does nothing where the engine gave the ids of all choices."""
    if all(choice.ids is not None for choice in answer.choices.values()):
        return
    messages = [msgspec.json.decode(message) for message in call.messages]
    tools = msgspec.json.decode(call.tools) if call.tools is not None else None
    prompt = tokenizer.prompt_ids(messages, tools)
    turns = {index: choice.message for index, choice in answer.choices.items()}
    ids = {
        index: tokenizer.response_ids(messages, tools, msgspec.json.decode(turn))
        for index, turn in turns.items()
        if turn is not None
    }
    answer.retokenized = True
    answer.prompt_ids = prompt
    for index, choice in answer.choices.items():
        choice.ids = ids.get(index)


class TokenizerFile:
    """A `tokenizer.json` of HF tokenizers, with or without the model's chat template (Jinja).

    Without a template only plain text turns have ids, and prompts have none.
    """

    def __init__(self, path: Path, chat_template: Path | None = None) -> None:
        try:
            from tokenizers import Tokenizer as HfTokenizer  # noqa: PLC0415
        except ImportError as exc:
            raise ContractViolation(f"a tokenizer needs the package `tokenizers`: {_INSTALL}") from exc
        try:
            self._tokenizer = HfTokenizer.from_file(str(path))
        except Exception as exc:  # the package raises bare Exceptions
            raise ContractViolation(f"{path} is no tokenizer file of HF tokenizers: {exc}") from exc
        self._render = None if chat_template is None else _template(chat_template)

    def prompt_ids(self, messages: list[dict[str, Any]], tools: list[Any] | None) -> list[int] | None:
        """Ids of the rendered prompt."""
        if self._render is None:
            return None
        return self._ids(self._render(messages=messages, tools=tools, add_generation_prompt=True))

    def response_ids(
        self, messages: list[dict[str, Any]], tools: list[Any] | None, turn: dict[str, Any]
    ) -> list[int] | None:
        """Ids of what the template adds for the turn; of its text where there is no template."""
        if self._render is None:
            plain = turn.get("content") if turn.keys() <= {"role", "content"} else None
            return self._ids(plain) if isinstance(plain, str) else None
        prompt = self._render(messages=messages, tools=tools, add_generation_prompt=True)
        whole = self._render(messages=[*messages, turn], tools=tools, add_generation_prompt=False)
        return self._ids(whole[len(prompt) :]) if whole.startswith(prompt) else None

    def _ids(self, text: str) -> list[int]:
        return list(self._tokenizer.encode(text, add_special_tokens=False).ids)


def load_tokenizer(where: str, chat_template: Path | None = None) -> Tokenizer:
    """From `package.module:factory`, called without arguments, or from a `tokenizer.json`.

    Raises `ContractViolation` that says what to change.
    """
    if where.endswith(".json"):
        return TokenizerFile(Path(where), chat_template)
    module, _, name = where.partition(":")
    try:
        factory = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as exc:
        raise ContractViolation(
            f"tokenizer {where!r} is neither a path to a tokenizer.json nor `module:factory`: {exc}"
        ) from exc
    tokenizer: Tokenizer = factory()
    return tokenizer


def _template(path: Path) -> Callable[..., str]:
    try:
        from jinja2 import TemplateError  # noqa: PLC0415
        from jinja2.sandbox import ImmutableSandboxedEnvironment  # noqa: PLC0415
    except ImportError as exc:
        raise ContractViolation(f"a chat template needs the package `jinja2`: {_INSTALL}") from exc

    def refuse(message: str) -> None:
        raise TemplateError(message)

    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    environment.globals["raise_exception"] = refuse
    environment.filters["tojson"] = lambda value, **options: json.dumps(value, ensure_ascii=False, **options)
    try:
        template = environment.from_string(path.read_text())
    except (OSError, TemplateError) as exc:
        raise ContractViolation(f"the chat template {path} cannot be used: {exc}") from exc
    return template.render
