"""Any other OpenAI-compatible API: logprobs where it allows them, never ids."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import msgspec

from gateway.canonical import ChatCall
from gateway.engine import Answer
from gateway.engines.base import TRUE, PlainReading, Reading, merged, with_reasoning_as, with_usage

ENGINE_ONLY = frozenset(
    {
        "return_token_ids",
        "return_tokens_as_token_ids",
        "return_weight_versions",
        "return_meta_info",
        "return_input_ids_in_sglext",
        "return_output_ids_in_sglext",
        "include_reasoning",
        "chat_template_kwargs",
        "add_generation_prompt",
        "continue_final_message",
        "top_k",
        "min_p",
        "repetition_penalty",
    }
)
"""Fields of inference engines that strict APIs answer with 400."""


class OpenAiAdapter:
    """Sends what OpenAI knows. Steps get `token_source` none, or `retokenized` with a tokenizer."""

    def __init__(self, *, logprobs: bool = True) -> None:
        self._logprobs = logprobs

    def added(self, call: ChatCall) -> dict[str, Any]:
        """Logprobs and usage."""
        added: dict[str, Any] = {"logprobs": TRUE} if self._logprobs else {}
        if call.stream:
            added["stream_options"] = with_usage(call)
        return added

    def body(self, call: ChatCall, *, model: str, without: Collection[str] = ()) -> bytes:
        """The request, without fields of inference engines and without reasoning in the history."""
        fields = merged(call, self.added(call), model=model, without=without, dropped=ENGINE_ONLY)
        fields["messages"] = with_reasoning_as(call.fields["messages"], None)
        return msgspec.json.encode(fields)

    def reading(self, call: ChatCall, answer: Answer) -> Reading:
        """OpenAI's names are the canonical ones."""
        hidden = call.sampling.get("include_reasoning") is False
        return PlainReading(answer, hides_reasoning=hidden)
