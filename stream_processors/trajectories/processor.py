"""The trajectory processor: one partition of `trajectory-events`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from agentworld.contract.codec import decode, encode
from agentworld.contract.events import (
    ClockTicked,
    Event,
    StepCaptured,
    TrajectoryRegistered,
    VerdictGiven,
)
from agentworld.contract.events.trajectories import SealReason
from agentworld.contract.topics import TRAJECTORIES, TRAJECTORY_EVENTS
from agentworld.platform.dead_letters import dead_letter
from agentworld.platform.log import OutRecord, Record
from agentworld.platform.metrics import counter
from stream_processors.clock import Clock, decode_clock, encode_clock
from stream_processors.deadlines import Deadlines
from stream_processors.effects import CLOCK_KEY, Effects, StateKey
from stream_processors.rules import Rules, RuleSource
from stream_processors.trajectories.advance import TrajectoryFact, advance, after_seal, due_ms
from stream_processors.trajectories.sampled_tokens import SampledTokens
from stream_processors.trajectories.seal import SOURCE, Moment, decode_step, revised, seal, step_letter
from stream_processors.trajectories.state import (
    ClosedTrajectory,
    OpenTrajectory,
    StoredStep,
    TrajectoryState,
    decode_state,
    encode_state,
)


def _trajectory_key(trajectory_id: str) -> StateKey:
    return ("trajectory", trajectory_id)


def _step_key(trajectory_id: str, step_id: str) -> StateKey:
    return ("step", trajectory_id, step_id)


class TrajectoryProcessor:
    """Collects events until a trajectory is complete or idle, then seals it."""

    source = TRAJECTORY_EVENTS
    consumer = SOURCE

    def __init__(self, partition: int, rules: RuleSource) -> None:
        self._partition = partition
        self._rules = rules
        self._clock = Clock()
        self._states: dict[str, TrajectoryState] = {}
        self._steps: dict[str, dict[str, StoredStep]] = defaultdict(dict)
        self._last_step_ms: dict[str, int] = {}
        self._sampled = SampledTokens()
        self._deadlines = Deadlines()
        self._open = 0

    @property
    def open_count(self) -> int:
        """Trajectories not yet sealed."""
        return self._open

    def load(self, entries: Mapping[StateKey, bytes]) -> Effects:
        """Take over stored state; removes steps whose trajectory was sealed already."""
        for key, value in entries.items():
            if key == CLOCK_KEY:
                self._clock = decode_clock(value)
            elif key[0] == "step":
                self._keep_step(key[1], key[2], StoredStep.unpack(value))
            else:
                self._states[key[1]] = decode_state(value)
        repairs = Effects()
        for trajectory_id in list(self._steps):
            state = self._states.setdefault(trajectory_id, OpenTrajectory(trajectory_id=trajectory_id))
            if isinstance(state, ClosedTrajectory):
                for step_id in self._take_steps(trajectory_id):
                    repairs.writes[_step_key(trajectory_id, step_id)] = None
        for trajectory_id, state in self._states.items():
            self._open += isinstance(state, OpenTrajectory)
            self._set_deadline(trajectory_id)
        return repairs

    def process(self, record: Record) -> Effects:
        """Apply one record of `trajectory-events`."""
        event = decode(self.source, record.value)
        counter("processor_events", "agent", "type").labels("trajectory", type(event).__name__).inc()
        effects = Effects()
        clock = self._clock.advance(event.event_time_ms) if isinstance(event, ClockTicked) else self._clock
        time_passed = clock is not self._clock
        self._clock = clock
        if isinstance(event, VerdictGiven):
            effects.outputs.append(OutRecord.of(TRAJECTORIES, event))
        elif not isinstance(event, ClockTicked):
            self._apply(event, record, effects)
        if time_passed:
            self._meet_deadlines(self._moment(event), effects)
            effects.writes[CLOCK_KEY] = encode_clock(clock)
        return effects

    def _apply(self, event: TrajectoryFact, record: Record, effects: Effects) -> None:
        trajectory_id, at = event.trajectory_id, self._moment(event)
        before = self._states.get(trajectory_id)
        steps = self._steps[trajectory_id] if isinstance(before, OpenTrajectory) else {}
        state, outputs = advance(before, event, at=at, rules=self._rules_of(before))
        effects.outputs += outputs
        if isinstance(state, ClosedTrajectory) and (refusal := after_seal(state, event)):
            marked, reason = refusal
            if marked.revision > state.revision:
                effects.outputs.append(revised(marked, at))
            state = marked
            detail = f"trajectory {trajectory_id} was sealed before this event came"
            effects.outputs.append(dead_letter(record, reason=reason, detail=detail, consumer=SOURCE))
        step_is_new = isinstance(state, OpenTrajectory) and (
            isinstance(event, StepCaptured) and event.step_id not in steps
        )
        if state is before and not step_is_new:
            counter("processor_duplicates", "agent").labels("trajectory").inc()
            return
        if before is None:
            self._open += 1
        if state is not before:
            self._put(state, effects)
        if step_is_new and isinstance(event, StepCaptured):
            stored = StoredStep(offset=record.offset, seen_at_ms=at.log_ms, value=record.value or b"")
            self._keep_step(trajectory_id, event.step_id, stored)
            effects.writes[_step_key(trajectory_id, event.step_id)] = stored.pack()
        if isinstance(event, TrajectoryRegistered) and isinstance(before, OpenTrajectory):
            self._drop_foreign_steps(before, event, effects)
        if isinstance(state, OpenTrajectory) and (limit := self._limit_met(state)):
            self._seal(trajectory_id, limit, at, effects)
        self._set_deadline(trajectory_id)

    def _limit_met(self, state: OpenTrajectory) -> SealReason | None:
        """The limit at which a registered trajectory is sealed, where it has reached one."""
        if state.registration is None:
            return None
        limits = self._rules_of(state).seal
        steps = self._steps.get(state.trajectory_id, {})
        if 0 < limits.max_steps <= len(steps):
            return "max_steps"
        if 0 < limits.max_tokens <= self._sampled.of(state.trajectory_id, steps):
            return "max_tokens"
        return None

    def _drop_foreign_steps(
        self, before: OpenTrajectory, event: TrajectoryRegistered, effects: Effects
    ) -> None:
        """Refuse steps that came before the registration and name another prompt."""
        if before.registration is not None:
            return
        steps = self._steps.get(event.trajectory_id, {})
        for step_id, stored in list(steps.items()):
            step = decode_step(stored)
            if step.prompt_id != event.prompt_id:
                detail = f"registered for prompt {event.prompt_id}, but the step names {step.prompt_id}"
                effects.outputs.append(step_letter(step, stored, "prompt_mismatch", detail, self._partition))
                effects.writes[_step_key(event.trajectory_id, step_id)] = None
                del steps[step_id]
                self._sampled.forget(event.trajectory_id)

    def _meet_deadlines(self, at: Moment, effects: Effects) -> None:
        for trajectory_id in self._deadlines.pop_due(at.log_ms):
            state = self._states[trajectory_id]
            if isinstance(state, ClosedTrajectory):
                del self._states[trajectory_id]
                effects.writes[_trajectory_key(trajectory_id)] = None
            elif state.registration is None:
                self._give_up(state, effects)
            else:
                self._seal(trajectory_id, "completed" if state.completion else "idle_timeout", at, effects)
                self._set_deadline(trajectory_id)

    def _seal(self, trajectory_id: str, reason: SealReason, at: Moment, effects: Effects) -> None:
        state = self._states[trajectory_id]
        assert isinstance(state, OpenTrajectory)
        assert state.registration is not None
        steps = self._take_steps(trajectory_id)
        closed, outputs, relations = seal(
            state, state.registration, steps, reason=reason, at=at, rules=self._rules_of(state)
        )
        counter("processor_decisions", "type").labels("trajectory_sealed").inc()
        for relation, count in relations.items():
            counter("processor_sealed_steps", "run", "relation").labels(
                state.registration.run_id, relation
            ).inc(count)
        effects.outputs += outputs
        self._open -= 1
        self._put(closed, effects)
        for step_id in steps:
            effects.writes[_step_key(trajectory_id, step_id)] = None

    def _give_up(self, state: OpenTrajectory, effects: Effects) -> None:
        """Dead-letter everything of a trajectory that was never registered."""
        trajectory_id = state.trajectory_id
        wait_ms = self._rules_of(state).seal.idle_timeout_ms
        detail = f"no registration of trajectory {trajectory_id} within {wait_ms} ms of log time"
        for step_id, stored in sorted(self._take_steps(trajectory_id).items()):
            step = decode_step(stored)
            effects.outputs.append(step_letter(step, stored, "unknown_trajectory", detail, self._partition))
            effects.writes[_step_key(trajectory_id, step_id)] = None
        for event in (*([state.completion] if state.completion else []), *state.rewards):
            effects.outputs.append(self._event_letter(event, detail))
        self._open -= 1
        del self._states[trajectory_id]
        effects.writes[_trajectory_key(trajectory_id)] = None

    def _event_letter(self, event: Event, detail: str) -> OutRecord:
        written = OutRecord.of(self.source, event)
        record = Record(
            topic=self.source.name,
            partition=self._partition,
            offset=-1,
            key=written.key,
            value=encode(event),
            headers=written.headers,
            timestamp_ms=event.event_time_ms,
        )
        return dead_letter(record, reason="unknown_trajectory", detail=detail, consumer=SOURCE)

    def _put(self, state: TrajectoryState, effects: Effects) -> None:
        self._states[state.trajectory_id] = state
        effects.writes[_trajectory_key(state.trajectory_id)] = encode_state(state)

    def _keep_step(self, trajectory_id: str, step_id: str, stored: StoredStep) -> None:
        self._steps[trajectory_id][step_id] = stored
        latest_ms = self._last_step_ms.get(trajectory_id, 0)
        self._last_step_ms[trajectory_id] = max(latest_ms, stored.seen_at_ms)

    def _take_steps(self, trajectory_id: str) -> dict[str, StoredStep]:
        self._last_step_ms.pop(trajectory_id, None)
        self._sampled.forget(trajectory_id)
        return self._steps.pop(trajectory_id, {})

    def _set_deadline(self, trajectory_id: str) -> None:
        state = self._states[trajectory_id]
        last_step_ms = self._last_step_ms.get(trajectory_id, 0)
        self._deadlines.set(trajectory_id, due_ms(state, last_step_ms, self._rules_of(state)))

    def _rules_of(self, state: TrajectoryState | None) -> Rules:
        registration = state.registration if state is not None else None
        if registration is None:
            return self._rules.of("", "")
        return self._rules.of(registration.run_id, registration.channel)

    def _moment(self, event: Event) -> Moment:
        return Moment(
            partition=self._partition, event_time_ms=event.event_time_ms, log_ms=self._clock.active_ms
        )
