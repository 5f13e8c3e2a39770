"""From what is known of a run to what was wrong with it. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from agentworld.contract.delta import Prompt
from agentworld.contract.events import StepCaptured
from gateway.dialects import DIALECTS, Dialect
from tests.agents.asked import ClientForms, request_problems
from tests.agents.comparison import PREFIX_CLASSES, PrefixClass, compare
from tests.agents.engine_log import Served
from tests.agents.told import read_reply
from tests.agents.wire import Exchange


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a run through the gateway came to."""

    calls: int
    """Model calls of the client whose answer it had whole."""
    captured: int
    """Those of them that stand in the log."""
    ids_exact: bool
    logprobs_aligned: bool
    expansions_exact: bool
    """Every captured prompt expands to what the client sent and the engine got, byte for byte."""
    replies_exact: bool
    """The client got what was sampled, whole, and nothing of the engine's data for capturing."""
    prefix_class: PrefixClass | None
    prefix_kept: float | None
    """See `Comparison`."""
    problems: Sequence[str] = field(default_factory=list)


def judge(
    exchanges: Sequence[Exchange],
    served: Sequence[Served],
    steps: Sequence[StepCaptured],
    *,
    streams: bool,
    prefix_class: PrefixClass = "exact",
) -> Verdict:
    """`streams`: whether the client asks for streams. `prefix_class`: the worst that it may have."""
    calls = [(dialect_of(exchange), exchange) for exchange in exchanges]
    asked = [(dialect, exchange) for dialect, exchange in calls if dialect is not None]
    left = {_fingerprint(exchange) for _, exchange in asked if not exchange.whole}
    compared = compare(served, steps, left=left)
    problems = list(compared.problems)
    problems += [f"the client got status {e.status} at {e.path}" for e in exchanges if e.whole and e.refused]
    answered = [(dialect, exchange) for dialect, exchange in asked if exchange.answered]
    by_id = {step.step_id: step for step in steps}
    matched = [(d, e, by_id[e.step_id]) for d, e in answered if e.step_id in by_id]
    if len(matched) != len(answered) or len({e.step_id for _, e, _ in matched}) != len(answered):
        problems.append(f"{len(matched)} of {len(answered)} answered calls are in the log, once each")
    in_prompts = _prompt_problems(matched, steps, compared.prompts)
    in_replies, keepalives = _reply_problems(matched, served)
    if streams and not keepalives:
        in_replies.append("no keep-alive came in the engine's silences")
    if not compared.prompts_exact:
        in_prompts.append("prompts do not expand to what the engine got")
    problems += in_prompts + in_replies
    found = compared.prefix_class
    if found and PREFIX_CLASSES.index(found) > PREFIX_CLASSES.index(prefix_class):
        problems.append(f"the prefix class is {found}: this client's was {prefix_class}")
    problems += [] if compared.ids_exact else ["ids are not the engine's"]
    problems += [] if compared.logprobs_aligned else ["log-probabilities are not the engine's"]
    return Verdict(
        calls=len(answered),
        captured=len(matched),
        ids_exact=compared.ids_exact,
        logprobs_aligned=compared.logprobs_aligned,
        expansions_exact=bool(matched) and not in_prompts,
        replies_exact=bool(matched) and not in_replies,
        prefix_class=compared.prefix_class,
        prefix_kept=compared.prefix_kept,
        problems=list(dict.fromkeys(problems)),
    )


def dialect_of(exchange: Exchange) -> Dialect | None:
    """The protocol of a model call; none of what is no model call."""
    path = exchange.path.partition("?")[0].partition("/v1/")[2]
    return DIALECTS.get(path) if exchange.method == "POST" else None


def _fingerprint(exchange: Exchange) -> str:
    return hashlib.sha256(exchange.body).hexdigest()


def _prompt_problems(
    matched: Sequence[tuple[Dialect, Exchange, StepCaptured]],
    steps: Sequence[StepCaptured],
    prompts: Mapping[str, Prompt],
) -> list[str]:
    forms = ClientForms.of(steps, prompts)
    found = []
    for dialect, exchange, step in matched:
        if step.step_id in prompts:
            found += request_problems(dialect, exchange.body, step, prompts[step.step_id], forms)
    return found


def _reply_problems(
    matched: Sequence[tuple[Dialect, Exchange, StepCaptured]], served: Sequence[Served]
) -> tuple[list[str], int]:
    """What was wrong with the replies, and how many keep-alives were in them."""
    sampled = {reply.id: reply.message for reply in served}
    found, keepalives = [], 0
    for dialect, exchange, step in matched:
        try:
            told = read_reply(dialect.protocol, exchange.reply, stream=step.request.stream)
        except ValueError as exc:
            found.append(f"a reply cannot be read: {exc}")
            continue
        keepalives += told.keepalives
        found += told.problems(sampled.get(step.engine.request_id, {}))
    return found, keepalives
