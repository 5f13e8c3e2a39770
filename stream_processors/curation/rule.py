"""What every curation rule is, and how their findings become one judgement."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from agentworld.contract.events import Json
from agentworld.contract.events.trajectory_events import Decision
from stream_processors.curation.facts import GroupFacts

STRICTNESS: dict[Decision, int] = {"accept": 0, "hold": 1, "reject": 2}
"""Of several verdicts the strictest counts."""


class Finding(msgspec.Struct, frozen=True):
    """A rule's measured value, where it decides something."""

    value: Json
    """What was measured and the limit it met."""
    trajectory_id: str | None = None
    """None: found of the group as a whole."""


class Rule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="rule"):
    """A small pure function with its limits: one table of the rules file."""

    verdict: Decision = "reject"
    """What a finding means. `accept` ends the asking: later rules are not heard."""
    on: Literal["group", "trajectory"] = "group"
    """`trajectory`: a finding about one trajectory leaves that one out, and the others go on."""
    name: str = ""
    """Under which it decides; empty: its rule's name."""

    def findings(self, group: GroupFacts) -> Sequence[Finding]:
        """What it objects to; empty where it has nothing to say."""
        raise NotImplementedError


class Judgement(msgspec.Struct, frozen=True, kw_only=True):
    """What the rules say together."""

    decision: Decision
    rule: str = ""
    """Name of the rule that decided; empty where none had anything to say."""
    value: Json = {}
    """The finding that decided."""
    excluded: dict[str, Json] = {}
    """Trajectories left out: the rule's name and its finding, by trajectory id."""


def judge(rules: Sequence[Rule], group: GroupFacts) -> Judgement:
    """Ask `rules` in order. The strictest verdict counts; of equal ones the first.

    A trajectory that a rule leaves out is not seen by the rules after it.
    """
    strictest = Judgement(decision="accept")
    excluded: dict[str, Json] = {}
    for rule in rules:
        findings = rule.findings(group)
        if not findings:
            continue
        if rule.on == "trajectory" and rule.verdict == "reject":
            named = [finding for finding in findings if finding.trajectory_id is not None]
            excluded |= {f.trajectory_id or "": {"rule": rule_name(rule)} | f.value for f in named}
            kept = [member for member in group.members if member.trajectory_id not in excluded]
            group = msgspec.structs.replace(group, members=kept)
            findings = [finding for finding in findings if finding.trajectory_id is None]
            if not findings:
                continue
        worse = STRICTNESS[rule.verdict] > STRICTNESS[strictest.decision]
        if worse or (rule.verdict == "accept" and not strictest.rule):
            first = findings[0]
            whose = {"trajectory_id": first.trajectory_id} if first.trajectory_id is not None else {}
            strictest = Judgement(decision=rule.verdict, rule=rule_name(rule), value=whose | first.value)
        if rule.verdict == "accept":
            break
    return msgspec.structs.replace(strictest, excluded=excluded)


def rule_name(rule: Rule) -> str:
    """The name under which a rule decides."""
    return rule.name or str(rule.__struct_config__.tag)
