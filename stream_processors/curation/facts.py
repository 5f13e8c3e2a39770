"""What curation rules may look at: numbers, never payloads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from agentworld.contract.events import Outcome, TrajectorySealed
from agentworld.platform.trained import trained_in

NGRAM = 8
"""Tokens of which a repetition is made (`MemberFacts.repeated_share`)."""


class MemberFacts(msgspec.Struct, frozen=True, kw_only=True):
    """One trajectory of a group. Steps are those of its trained branch."""

    trajectory_id: str
    outcome: Outcome
    policy: str
    reward: float | None = None
    policy_version_min: int | None = None
    """Oldest version that a step was sampled under; None where the engine named none."""
    steps: int = 0
    longest_prompt_tokens: int = 0
    longest_response_tokens: int = 0
    response_tokens: int = 0
    """Sampled tokens, all steps."""
    empty_responses: int = 0
    """Steps that sampled nothing."""
    repeated_share: float = 0.0
    """Greatest share of a response's 8-grams that stood in it before (0: none, near 1: a loop)."""
    token_sources: dict[str, int] = {}
    """Steps by who produced their ids."""
    gaps: dict[str, int] = {}
    """As in `IntegrityReport.gaps`, of all steps; late steps as `late`."""


class GroupFacts(msgspec.Struct, frozen=True, kw_only=True):
    """A complete group, as its rules see it."""

    group_id: str
    prompt_id: str
    round: int
    rollouts: int
    members: Sequence[MemberFacts]
    policy_versions: Mapping[str, int] = {}
    """Newest published version by policy, when the group was first decided."""
    earlier_groups: Sequence[str] = ()
    """Groups of the same run, channel and prompt that were released before."""


def member_facts(sealed: TrajectorySealed, reward: float | None) -> MemberFacts:
    """The facts of a sealed trajectory, `reward` being the one that trains."""
    trained = trained_in(sealed)
    steps = [placed.step for placed in sealed.steps if placed.step.step_id in trained]
    sources: dict[str, int] = {}
    for step in steps:
        sources[step.token_source] = sources.get(step.token_source, 0) + 1
    versions = [
        step.engine.policy_version_start for step in steps if step.engine.policy_version_start is not None
    ]
    responses = [step.response_ids for step in steps]
    return MemberFacts(
        trajectory_id=sealed.trajectory_id,
        outcome=sealed.outcome,
        policy=sealed.policy,
        reward=reward,
        policy_version_min=min(versions, default=None),
        steps=len(steps),
        longest_prompt_tokens=max((step.prompt.prompt_tokens for step in steps), default=0),
        longest_response_tokens=max(map(len, responses), default=0),
        response_tokens=sum(map(len, responses)),
        empty_responses=sum(not ids for ids in responses),
        repeated_share=max(map(repeated_share, responses), default=0.0),
        token_sources=sources,
        gaps=dict(sealed.integrity.gaps),
    )


def repeated_share(ids: Sequence[int], size: int = NGRAM) -> float:
    """Share of the n-grams of `ids` that stood in it before; 0.0 where it is no longer than one."""
    total = len(ids) - size + 1
    if total <= 1:
        return 0.0
    distinct = set(_ngrams(ids, size))
    return 1.0 - len(distinct) / total


def _ngrams(ids: Sequence[int], size: int) -> Iterable[tuple[int, ...]]:
    return zip(*(ids[start:] for start in range(size)), strict=False)
