"""Evaluators that a rules file may name: one `[[default.evaluator]]` or `[[run.evaluator]]` table each."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal
from urllib.parse import urlsplit

import msgspec

from agentworld.contract.errors import InvalidInput
from agentworld.contract.events import Outcome
from agentworld.contract.events.trajectory_events import Decision
from agentworld.contract.ids import check_name
from stream_processors.evaluators.template import check_template

Positive = Annotated[int, msgspec.Meta(ge=1)]
NotNegative = Annotated[int, msgspec.Meta(ge=0)]

_FUNCTION = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")


class Evaluator(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind"):
    """What every kind has."""

    _operational: ClassVar[frozenset[str]] = frozenset()
    """Fields that change how an answer is got and never the answer."""

    name: str = ""
    """Stands as `given_by` in its events; empty: its kind. Different within a run."""
    reward: str = ""
    """Name of the reward that it gives; empty: its own name."""
    outcomes: tuple[Outcome, ...] = ("succeeded", "failed")
    """Trajectories with other outcomes are passed over; the default is what ends by the agent's word."""
    reject_below: float | None = None
    """Rewards under it give the verdict `reject`."""
    hold_below: float | None = None
    """Else, rewards under it give the verdict `hold`."""
    accept_from: float | None = None
    """Else, rewards of it or more give the verdict `accept`."""
    verdict_on: Literal["trajectory", "group"] = "trajectory"
    """What the verdict is about. On a group, the strictest of its trajectories' verdicts counts."""

    def __post_init__(self) -> None:
        """Refuse what makes no sense."""
        try:
            check_name(evaluator_name(self), "evaluator")
            check_name(reward_name(self), "reward")
        except InvalidInput as exc:
            raise ValueError(str(exc)) from exc
        if wrong := [f for f in self.__struct_fields__ if _not_finite(getattr(self, f))]:
            raise ValueError(f"{', '.join(wrong)}: must be finite")
        limits = [x for x in (self.reject_below, self.hold_below, self.accept_from) if x is not None]
        if limits != sorted(limits):
            raise ValueError("the thresholds must rise: reject_below, hold_below, accept_from")


class ExactMatch(Evaluator, frozen=True, kw_only=True, tag="exact_match"):
    """Compares the last answer of the trained branch with the ground truth in the metadata."""

    ground_truth: str = "reward_model.ground_truth"
    """Where the truth stands in the registration's metadata: names with dots between. A list there: any."""
    extract: Literal["whole", "last_line", "number", "boxed", "hashes", "pattern"] = "whole"
    """What of the answer is compared: all of it, its last line, its last number, the last `\\boxed{}`,
    what stands behind the last `####`, or what `pattern` finds."""
    pattern: str = ""
    """Regular expression for `extract = "pattern"`; its first group of its last match, or all of that."""
    compare: Literal["text", "number"] = "text"
    """`text`: equal but for white space. `number`: equal as numbers (`1,000.0` is `1000`, `1/2` is `0.5`)."""
    ignore_case: bool = False
    tolerance: float = 0.0
    """`number`: greatest difference that still counts as equal."""
    hit: float = 1.0
    miss: float = 0.0

    def __post_init__(self) -> None:
        """Refuse what makes no sense."""
        super().__post_init__()
        if bool(self.pattern) != (self.extract == "pattern"):
            raise ValueError('pattern and extract = "pattern" go together: set both, or neither')
        try:
            re.compile(self.pattern)
        except re.error as exc:
            raise ValueError(f"pattern {self.pattern!r} is no regular expression: {exc}") from exc


class Judge(Evaluator, frozen=True, kw_only=True, tag="judge"):
    """Asks a language model for `{"score": number, "reason": string}`."""

    _operational: ClassVar[frozenset[str]] = frozenset(
        {"api_key_env", "timeout_ms", "tries", "retry_ms", "concurrency", "max_calls", "max_tokens_spent"}
    )

    url: str
    """Base URL of an OpenAI-compatible API, with its `/v1`."""
    model: str
    rubric: str
    """The prompt. `{{messages}}`, `{{answer}}`, `{{ground_truth}}` and `{{metadata.NAME}}` are filled in."""
    ground_truth: str = "reward_model.ground_truth"
    """As in `exact_match`; needed only where the rubric names it. A value that is no text stands as JSON."""
    min: float = 0.0
    """Least score."""
    max: float = 1.0
    """Greatest score."""
    api_key_env: str = ""
    """Environment variable that holds the API key; empty: none is sent."""
    response_format: Literal["json_schema", "json_object", "none"] = "json_schema"
    """What is asked of the endpoint. The answer is checked here in any case."""
    max_answer_tokens: Positive = 1024
    """`max_tokens` of each call."""
    max_prompt_chars: Positive = 200_000
    """Longest filled-in value; the middle of a longer one is left out, and the prompt says so."""
    request: dict[str, Any] = {}
    """Further fields of the request; they win over what stands there."""
    timeout_ms: Positive = 60_000
    """For one call, whole."""
    tries: Positive = 4
    """Calls for one trajectory: again after 429, 5xx, timeouts, lost connections and unusable answers."""
    retry_ms: Positive = 1_000
    """Pause before the second try, doubled for each further one; at least `Retry-After`, at most 30 s."""
    concurrency: Positive = 8
    """Calls at a time, all runs together."""
    max_calls: NotNegative = 0
    """Budget of each run in one evaluators process, tries counted; 0: no limit."""
    max_tokens_spent: NotNegative = 0
    """The same in prompt and answer tokens, as the endpoint counts them; 0: no limit."""

    def __post_init__(self) -> None:
        """Refuse what makes no sense."""
        super().__post_init__()
        check_template(self.rubric)
        parts = urlsplit(self.url)
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise ValueError("url must be an http or https URL, such as http://127.0.0.1:8000/v1")
        if parts.username is not None or parts.query or parts.fragment:
            raise ValueError("url must end with its path and hold no password: name it with api_key_env")
        if not self.min < self.max:
            raise ValueError(f"min ({self.min:g}) must be less than max ({self.max:g})")


class Plugin(Evaluator, frozen=True, kw_only=True, tag="plugin"):
    """Calls a Python function with the `ResolvedTrajectory`."""

    _operational: ClassVar[frozenset[str]] = frozenset({"timeout_ms", "concurrency"})

    function: str
    """`package.module:function`, plain or `async`."""
    timeout_ms: Positive = 60_000
    """After which an evaluation has failed."""
    concurrency: Positive = 4
    """Calls at a time; plain functions run in threads."""

    def __post_init__(self) -> None:
        """Refuse what makes no sense."""
        super().__post_init__()
        if not _FUNCTION.fullmatch(self.function):
            raise ValueError(f"function {self.function!r} must look like package.module:function")


def _not_finite(value: object) -> bool:
    return isinstance(value, float) and not math.isfinite(value)


AnyEvaluator = ExactMatch | Judge | Plugin


def evaluator_name(evaluator: Evaluator) -> str:
    """The name under which it answers."""
    return evaluator.name or str(evaluator.__struct_config__.tag)


def reward_name(evaluator: Evaluator) -> str:
    """The name of its reward."""
    return evaluator.reward or evaluator_name(evaluator)


def config_digest(evaluator: Evaluator) -> str:
    """`sha256:<hex>` over the fields that its answers depend on; equal ones have equal digests."""
    fields: Mapping[str, Any] = msgspec.to_builtins(evaluator)
    asked = {name: value for name, value in fields.items() if name not in evaluator._operational}
    return f"sha256:{hashlib.sha256(msgspec.json.encode(asked, order='sorted')).hexdigest()}"


def decision_of(evaluator: Evaluator, reward: float) -> Decision | None:
    """The verdict that the thresholds give; None where they say nothing."""
    if evaluator.reject_below is not None and reward < evaluator.reject_below:
        return "reject"
    if evaluator.hold_below is not None and reward < evaluator.hold_below:
        return "hold"
    if evaluator.accept_from is not None and reward >= evaluator.accept_from:
        return "accept"
    return None
