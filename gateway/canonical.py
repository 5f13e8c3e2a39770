"""A client's call in canonical form, whatever dialect it came in: a chat completions request."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec

from agentworld.contract.events import Json, TokenId


@dataclass(frozen=True, slots=True)
class EarlierStep:
    """The step whose turn a call's messages extend."""

    step_id: str
    ids: Sequence[TokenId]
    """Its prompt and response."""
    prompt_tokens: int
    """How many of them are its prompt."""
    messages: int
    """How many of the call's messages are its prompt's and its turn."""
    end_id: int
    """The token that ended its turn."""
    rendered_tokens: int
    """What the engine's template gives for its prompt: length and digest."""
    rendered_digest: str


@dataclass(frozen=True, slots=True)
class Continued:
    """A prompt that begins with exactly the ids of an earlier step."""

    earlier: EarlierStep
    ids: list[int]
    rendered: list[int]
    """The engine's own rendering of the whole call."""
    kept: int
    """How many of `rendered` stand for the earlier step's ids."""

    @property
    def drifted(self) -> bool:
        """Whether the rendering has other ids in the place of the earlier step's."""
        return self.rendered[: self.kept] != list(self.earlier.ids)

    def turns(self) -> tuple[list[int], list[int]]:
        """The earlier step's turn: as sampled, as rendered."""
        earlier = self.earlier
        return list(earlier.ids[earlier.prompt_tokens :]), self.rendered[earlier.rendered_tokens : self.kept]


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
    """The prompt as ids: a text completion's, as the client sent it; a chat's, as it continues."""
    is_chat: bool = True
    """False: goes to the engine's text completions instead."""
    raw: bool = False
    """The sampled text is wanted as it is: tools stand in the prompt, calls of them stay in the text."""
    continuing: bool = False
    """The engine that was asked takes prompts as ids."""
    earlier: EarlierStep | None = None
    """What the call could continue."""
    continued: Continued | None = None
    """The prompt that was made of it."""
    declined: str = ""
    """Why there is none."""
    place: tuple[str, str] | None = None
    """Ids of trajectory and prompt, where the body has them."""

    def seen_ids(self) -> list[str]:
        """Ids of the answer's tool calls as the client saw them, in order; none: it saw the engine's."""
        return []
