"""Curation: rules that look at a complete group and say whether it may train. One rule per file, all pure."""

from stream_processors.curation.duplicate_prompt import DuplicatePrompt
from stream_processors.curation.empty_response import EmptyResponse
from stream_processors.curation.facts import GroupFacts, MemberFacts
from stream_processors.curation.gaps import Gaps
from stream_processors.curation.length import Length
from stream_processors.curation.outcome import OutcomeRule
from stream_processors.curation.policy_lag import PolicyLag
from stream_processors.curation.repetition import Repetition
from stream_processors.curation.review import Review
from stream_processors.curation.rule import Finding, Judgement, judge
from stream_processors.curation.token_source import TokenSourceRule
from stream_processors.curation.zero_variance import ZeroVariance

CurationRule = (
    DuplicatePrompt
    | EmptyResponse
    | Gaps
    | Length
    | OutcomeRule
    | PolicyLag
    | Repetition
    | Review
    | TokenSourceRule
    | ZeroVariance
)
"""One `[[default.curation]]` or `[[run.curation]]` table; `rule` names which."""

__all__ = ["CurationRule", "Finding", "GroupFacts", "Judgement", "MemberFacts", "judge"]
