"""vLLM, and the local policy server, which speaks its dialect."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import msgspec

from gateway.canonical import ChatCall
from gateway.engine import Answer
from gateway.engines.base import TRUE, PlainReading, Reading, merged, with_reasoning_as, with_usage


class VllmAdapter:
    """Ids with `return_token_ids`; top level `prompt_token_ids`, per choice `token_ids` as deltas."""

    def __init__(self, *, logprobs: bool = True) -> None:
        self._logprobs = logprobs

    def added(self, call: ChatCall) -> dict[str, Any]:
        """Ids, logprobs, weight versions, usage."""
        added: dict[str, Any] = {"return_token_ids": TRUE, "return_weight_versions": TRUE}
        if self._logprobs:
            added["logprobs"] = TRUE
        if call.stream:
            added["stream_options"] = with_usage(call)
        if _no_reasoning(call):
            # vLLM leaves ids and logprobs out together with the reasoning; it is hidden here instead.
            added["include_reasoning"] = TRUE
        if call.prompt_ids is not None:
            given = call.sampling.get("kv_transfer_params")
            own = {"prompt_token_ids": call.prompt_ids}
            added["kv_transfer_params"] = {**(given if isinstance(given, dict) else {}), **own}
        return added

    def body(self, call: ChatCall, *, model: str, without: Collection[str] = ()) -> bytes:
        """The request; reasoning in the history is called `reasoning`."""
        fields = merged(call, self.added(call), model=model, without=without, dropped=())
        fields["messages"] = with_reasoning_as(call.fields["messages"], "reasoning")
        if call.raw and call.tools is not None:
            fields["tool_choice"] = "none"  # the tools stay in the prompt, their calls in the text
        return msgspec.json.encode(fields)

    def reading(self, call: ChatCall, answer: Answer) -> Reading:
        """vLLM's names are the canonical ones."""
        return PlainReading(answer, hides_reasoning=_no_reasoning(call))


def _no_reasoning(call: ChatCall) -> bool:
    return call.sampling.get("include_reasoning") is False
