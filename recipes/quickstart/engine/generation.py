"""The decoding loop of one choice: sample, parse, stop."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from recipes.quickstart.engine.chat_request import ChatRequest
from recipes.quickstart.engine.model import Decoding
from recipes.quickstart.engine.parsing import Piece, ReplyParser
from recipes.quickstart.engine.sampling import Sampled, distribution, draw
from recipes.quickstart.engine.vocabulary import END_IDS


@dataclass(slots=True)
class Choice:
    """One reply: what was sampled, and what the client reads of it."""

    index: int
    sampled: list[Sampled] = field(default_factory=list)
    pieces: list[Piece] = field(default_factory=list)
    finish_reason: str | None = None
    """None until the reply is over; `abort` where the client went away."""

    @property
    def ids(self) -> list[int]:
        """The sampled ids, the end token included."""
        return [token.token_id for token in self.sampled]

    @property
    def logprobs(self) -> list[float]:
        """The log-probability of each sampled id."""
        return [token.logprob for token in self.sampled]


@dataclass(frozen=True, slots=True)
class Progress:
    """One token's worth of a reply."""

    choice: Choice
    token: Sampled
    pieces: list[Piece]


def generate(
    choice: Choice,
    prompt_ids: Sequence[int],
    request: ChatRequest,
    *,
    rng: np.random.Generator,
    max_tokens: int,
) -> Iterator[Progress]:
    """Sample `choice` token by token; its `finish_reason` is set with the last one."""
    decoding = Decoding(prompt_ids)
    parser = ReplyParser(parse_calls=request.parse_calls, stop=request.stop)
    while choice.finish_reason is None:
        probabilities = distribution(decoding.logits(), temperature=request.temperature, top_p=request.top_p)
        token = draw(probabilities, rng, top=request.top_logprobs if request.logprobs else 0)
        choice.sampled.append(token)
        pieces = parser.feed(token.token_id)
        ended = token.token_id in END_IDS
        if ended or parser.stopped is not None or len(choice.sampled) >= max_tokens:
            pieces += parser.finish()
            if parser.called:
                choice.finish_reason = "tool_calls"
            else:
                choice.finish_reason = "stop" if ended or parser.stopped is not None else "length"
        else:
            decoding.accept(token.token_id)
        choice.pieces += pieces
        yield Progress(choice, token, pieces)
