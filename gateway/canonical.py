"""A client's call in canonical form, whatever dialect it came in: a chat completions request."""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec

from agentworld.contract.events import Json


@dataclass(slots=True)
class ChatCall:
    """One parsed request. Fields stay as raw JSON so that unknown ones travel unchanged."""

    fields: dict[str, msgspec.Raw]
    """Every field of the chat completions body, by name, in the client's order."""
    messages: list[bytes]
    """JSON of each message, as the client sent it."""
    tools: bytes | None
    """JSON of the tool list."""
    model: str
    stream: bool
    n: int
    """How many choices were asked for."""
    wants_logprobs: bool = False
    """The client itself asked for log-probabilities."""
    wants_token_ids: bool = False
    wants_usage: bool = False
    """The client itself asked for usage in the stream."""
    sampling: Json = field(default_factory=dict)
    """Parameters as sent, without messages, tools and model."""
    client_ids: dict[str, str] = field(default_factory=dict)
    """Conversation ids found in the body."""

    prompt_ids: list[int] | None = None
    """The prompt of a text completion, where the client sent it as ids."""
    is_chat: bool = True
    """False: goes to the engine's text completions instead."""
    raw: bool = False
    """The sampled text is wanted as it is: tools stand in the prompt, calls of them stay in the text."""
    place: tuple[str, str] | None = None
    """Ids of trajectory and prompt, where the body has them."""

    def seen_ids(self) -> list[str]:
        """Ids of the answer's tool calls as the client saw them, in order; none: it saw the engine's."""
        return []
