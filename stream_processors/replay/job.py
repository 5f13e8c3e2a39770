"""One replay, from what the caller asks for to what was decided and written."""

from __future__ import annotations

import dataclasses
import hashlib
from dataclasses import dataclass

import msgspec

from agentworld.contract.codec import decode, encode
from agentworld.contract.errors import InvalidInput, MalformedEvent
from agentworld.contract.events import PolicyPublished
from agentworld.contract.topics import GROUPS, TRAJECTORIES, TRAJECTORY_EVENTS
from agentworld.platform.log import Publisher
from stream_processors.replay.reassemble import Reassembly
from stream_processors.replay.regroup import regroup
from stream_processors.replay.renamed import Renaming
from stream_processors.replay.run import Replayed, ReplayRun
from stream_processors.replay.selection import Selection
from stream_processors.replay.target import Scan, Target, Written
from stream_processors.rules import Rules, RuleSource

replace = msgspec.structs.replace


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What is replayed, and as what."""

    selection: Selection
    into: str
    """The new run."""
    assemble: bool = False
    """From `trajectory-events`: steps are ordered, sealed and related again. Else from `trajectories`."""
    verdicts: bool = True
    """Whether the verdicts given on the old run's groups count for the new one's."""
    flush: bool = False
    """Whether groups that fill no batch leave in a short one at the end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What came of it."""

    replayed: Replayed
    malformed: int
    written: Written
    digest: str
    """`sha256:<hex>` over the bytes of all batches: equal data and rules give equal digests."""


class ReplayRules:
    """The new run's rules as a replay applies them: nobody consumes meanwhile, so nothing waits for that."""

    def __init__(self, source: RuleSource, **sections: dict[str, object]) -> None:
        """`sections`: single values that go over the file's, by section."""
        self._source = source
        self._sections = sections
        self._known: dict[str, Rules] = {}

    def of(self, run_id: str, channel: str) -> Rules:
        """The rules of the run's channel."""
        rules = self._source.of(run_id, channel)
        found = self._known.get(rules.digest)
        if found is None:
            changed = {
                name: replace(getattr(rules, name), **values) for name, values in self._sections.items()
            }
            found = replace(rules, **changed)
            found = replace(found, batch=replace(found.batch, max_unconsumed=0))
            self._known[rules.digest] = found
        return found


async def replay(job: Job, rules: RuleSource, scan: Scan, publisher: Publisher | None) -> Outcome:
    """Replay; without a publisher nothing is written.

    Raises `InvalidInput` where the new run is in use or nothing matches, `Unavailable` when the broker
    does not answer.
    """
    old = job.selection.run_id
    if job.into == old:
        raise InvalidInput(f"a replay of {old} needs another name than {old}: --into", code="same_run")
    target = Target(job.into, old, scan, publisher)
    known = target.check()
    run = ReplayRun(old, rules)
    renaming = Renaming(old, job.into)
    if job.assemble:
        versions = _published(scan)
        reassembly = Reassembly(job.selection, renaming, rules, run, versions=versions, verdicts=job.verdicts)
        reassembly.note(scan(TRAJECTORY_EVENTS))
        await reassembly.assemble(scan(TRAJECTORY_EVENTS), target.place_of)
        malformed = reassembly.malformed
    else:
        malformed = regroup(scan(TRAJECTORIES), job.selection, renaming, run, verdicts=job.verdicts)
    if not run.trajectories:
        topic = TRAJECTORY_EVENTS.name if job.assemble else TRAJECTORIES.name
        raise InvalidInput(
            f"no trajectory of run {old} matches in {topic}: is the name right, and does the topic "
            "still hold it (retention)?",
            code="nothing_matched",
            status=404,
        )
    replayed = run.batch(flush=job.flush)
    if publisher is not None:
        await target.write(replayed, known)
    digest = hashlib.sha256(b"\n".join(encode(batch) for batch in replayed.batches)).hexdigest()
    return Outcome(
        replayed=replayed,
        malformed=malformed,
        written=dataclasses.replace(target.written),
        digest=f"sha256:{digest}",
    )


def _published(scan: Scan) -> list[PolicyPublished]:
    """Every policy version that was announced to the batch processor, each once."""
    found: dict[str, PolicyPublished] = {}
    for record in scan(GROUPS):
        if dict(record.headers).get("type") == b"policy_published":
            try:
                event = decode(GROUPS, record.value)
            except MalformedEvent:
                continue
            found[event.event_id] = event
    return list(found.values())
