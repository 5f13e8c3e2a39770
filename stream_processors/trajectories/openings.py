"""Steps that continue no response: where a conversation begins, is rewritten, or runs beside another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from stream_processors.trajectories.turns import Link, Turn, beginning

_SUB_AGENT_IDS = frozenset(
    {"x-openai-subagent", "x-codex-parent-thread-id", "x-claude-code-agent-id", "x-parent-session-id"}
)
"""Ids that a client sends with the calls of a sub-agent only."""


def with_openings(turns: Sequence[Turn], links: Mapping[str, Link]) -> dict[str, Link]:
    """A link for every turn. `turns` are in causal order, `links` those of `continued`."""
    return _Openings(turns, links).all_links()


class _Openings:
    def __init__(self, turns: Sequence[Turn], links: Mapping[str, Link]) -> None:
        self._turns = turns
        self._continued = links
        self._links: dict[str, Link] = {}
        self._place = {turn.step.step_id: place for place, turn in enumerate(turns)}
        self._conversation: dict[str, str] = {}
        """Step id to the id of the step that opened its conversation; a rewrite stays within it."""
        self._main = main_opening(turns, links)

    def all_links(self) -> dict[str, Link]:
        for turn in self._turns:
            link = self._continued.get(turn.step.step_id) or self._opening(turn)
            self._links[turn.step.step_id] = link
            joined = link.parent is not None and link.relation in {"extends", "rewritten"}
            opened_by = self._conversation.get(link.parent or "") if joined else None
            twin = self._twin(turn) if link.relation in {"root", "sub_agent", "side_call"} else None
            if twin is not None:
                opened_by = self._conversation[twin.step.step_id]
            self._conversation[turn.step.step_id] = opened_by or turn.step.step_id
        return {step_id: self._beside(step_id, link) for step_id, link in self._links.items()}

    def _opening(self, turn: Turn) -> Link:
        if not turn.resolved:
            return self._by_delta(turn)
        if turn is self._main:
            return Link(None, "root")
        if (twin := self._twin(turn)) is not None:
            return self._links[twin.step.step_id]
        if (parent := self._rewritten_from(turn)) is not None:
            return Link(parent.step.step_id, "rewritten")
        return Link(self._main_step_before(turn), "side_call")

    def _by_delta(self, turn: Turn) -> Link:
        """What the delta alone shows of a prompt that cannot be expanded."""
        delta = turn.step.prompt
        if delta.base_step_id is None or delta.base_step_id not in self._place:
            return Link(None, "rewritten")
        base = self._turns[self._place[delta.base_step_id]].step
        whole = base.prompt.prompt_tokens + len(base.response_ids)
        kept = bool(base.prompt.prompt_tokens) and delta.keep_tokens == whole
        return Link(base.step_id, "extends" if kept else "rewritten")

    def _twin(self, turn: Turn) -> Turn | None:
        """An earlier attempt at the same prompt."""
        return next((other for other in self._before(turn) if _same_prompt(other, turn)), None)

    def _rewritten_from(self, turn: Turn) -> Turn | None:
        """The step whose history this prompt rewrites: what shares most of it, the newest first.

        Where only an opening is shared, and the other conversation goes on beside this one, nothing
        was rewritten: agents of one kind begin alike.
        """
        alike = [other for other in self._before(turn) if other.tools == turn.tools and _alike(other, turn)]
        best = max(
            alike,
            key=lambda other: (
                _shared(other, turn),
                self._main is not None and self._conversation[other.step.step_id] == self._main.step.step_id,
                self._place[other.step.step_id],
            ),
            default=None,
        )
        if best is None or marked_sub_agent(turn) != marked_sub_agent(best):
            return None
        holds_turns = "assistant" in turn.prompt.roles[: _shared(best, turn)]
        return best if holds_turns or not self._goes_on_after(best, turn) else None

    def _goes_on_after(self, other: Turn, turn: Turn) -> bool:
        """Whether a step after `turn` continues what `other`'s conversation had before `turn`.

        It does so too where it has more of that history than `turn` has, though it broke the prefix.
        """
        place, conversation = self._place, self._conversation[other.step.step_id]
        for later in self._turns[place[turn.step.step_id] + 1 :]:
            if later.tools == other.tools and _shared(later, other) > _shared(turn, other):
                return True
            link = self._continued.get(later.step.step_id)
            if (
                link is not None
                and link.parent is not None
                and place[link.parent] < place[turn.step.step_id]
                and self._conversation[link.parent] == conversation
            ):
                return True
        return False

    def _main_step_before(self, turn: Turn) -> str | None:
        if self._main is None:
            return None
        for other in reversed(self._before(turn)):
            if self._conversation[other.step.step_id] == self._main.step.step_id:
                return other.step.step_id
        return None

    def _beside(self, step_id: str, link: Link) -> Link:
        """A conversation beside the main one: an agent where it takes turns or says so, else one call."""
        if link.relation != "side_call":
            return link
        opener = self._conversation[step_id]
        turns = [t for t in self._turns if self._conversation[t.step.step_id] == opener]
        takes_turns = any(self._links[t.step.step_id].relation != "side_call" for t in turns)
        says_so = marked_sub_agent(self._turns[self._place[step_id]])
        return Link(link.parent, "sub_agent") if takes_turns or says_so else link

    def _before(self, turn: Turn) -> Sequence[Turn]:
        return [t for t in self._turns[: self._place[turn.step.step_id]] if t.resolved]


def main_opening(turns: Sequence[Turn], links: Mapping[str, Link]) -> Turn | None:
    """The first step of the conversation that is the rollout: titles may be asked for before it.

    The first that offers tools; where none does, the first that is continued; else the first.
    """
    openings = [turn for turn in turns if turn.resolved and turn.step.step_id not in links]
    parents = {link.parent for link in links.values()}
    own = [turn for turn in openings if not marked_sub_agent(turn)] or openings
    with_tools = [turn for turn in own if turn.tools]
    with_turns = [turn for turn in own if turn.step.step_id in parents]
    return next(iter(with_tools or with_turns or own), None)


def marked_sub_agent(turn: Turn) -> bool:
    """Whether the client says that a sub-agent is calling."""
    return not _SUB_AGENT_IDS.isdisjoint(turn.step.request.client_ids)


def _same_prompt(a: Turn, b: Turn) -> bool:
    if a.messages or b.messages:
        return (a.messages, a.tools) == (b.messages, b.tools)
    return a.has_ids and a.step.prompt.digest == b.step.prompt.digest


def _shared(a: Turn, b: Turn) -> int:
    """Messages that both begin with; where there is none, not counting system prompts."""
    return beginning(a.messages, b.messages) or beginning(a.prompt.dialogue, b.prompt.dialogue)


def _alike(a: Turn, b: Turn) -> bool:
    """Both begin with the same message, with or without system prompts; or with the same id."""
    if a.messages and b.messages:
        return _shared(a, b) > 0
    return a.has_ids and a.prompt.ids.first_id == b.prompt.ids.first_id
