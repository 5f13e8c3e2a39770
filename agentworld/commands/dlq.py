"""`agentworld dlq`: dead letters, i.e. records that a consumer could not use, and back onto their topics.

Exit codes: 0 done; 1 the broker is away, or a letter could not be replayed; 2 what was asked for is not
there.
"""

from __future__ import annotations

import asyncio
import datetime
import json
from collections import Counter
from collections.abc import Sequence
from typing import Annotated, get_args

import typer

from agentworld.commands.dlq_view import (
    bytes_as_json,
    clean,
    event_in,
    letter_as_json,
    print_letter,
    row,
    wide_console,
)
from agentworld.commands.moments import unix_ms
from agentworld.commands.plain_errors import plain_errors
from agentworld.contract.errors import InvalidInput
from agentworld.platform.dead_letter_reader import (
    LETTERED_TOPICS,
    DeadLetter,
    KafkaLetterLog,
    find_letters,
    lettered_topic,
    parse_place,
    read_letters,
)
from agentworld.platform.dead_letter_replay import Outcome, State, replay
from agentworld.platform.publisher import KafkaPublisher
from agentworld.platform.reports import print_table
from agentworld.platform.settings import KafkaSettings

app = typer.Typer(no_args_is_help=True, help=__doc__)

Topic = Annotated[str | None, typer.Option("--topic", help="Only letters of this topic.")]
Reason = Annotated[str | None, typer.Option("--reason", help="Only this reason, e.g. unknown_trajectory.")]
Since = Annotated[
    str | None,
    typer.Option("--since", help="Only letters not older: 90s, 15m, 2h, 3d, or an ISO time (UTC if unsaid)."),
]
AsJson = Annotated[bool, typer.Option("--json", help="For machines: one JSON object.")]


@app.command("list")
@plain_errors(invalid_input=2, interrupted=1)
def list_letters(
    topic: Topic = None,
    reason: Reason = None,
    since: Since = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="The newest so many.")] = 100,
    as_json: AsJson = False,
) -> None:
    """List dead letters, oldest first, and how many there are of each reason."""
    kafka = KafkaSettings()
    letters = _selected(KafkaLetterLog(kafka), topic, reason, since)
    reasons = dict(Counter(letter.reason for letter in letters).most_common())
    shown = letters[-limit:]
    if as_json:
        found = {
            "matched": len(letters),
            "reasons": reasons,
            "letters": [letter_as_json(letter) for letter in shown],
        }
        typer.echo(json.dumps(found))
        return
    if not letters:
        typer.echo(_none(kafka, topic, reason, since))
        return
    more = f", the newest {len(shown)} shown (--limit)" if len(shown) < len(letters) else ""
    console = wide_console()
    print_table(
        f"{len(letters)} dead letters{more}",
        ("place", "time", "reason", "consumer", "event", "trajectory / prompt", "replayed", "detail"),
        [row(letter) for letter in shown],
        console=console,
    )
    print_table("By reason", ("reason", "letters"), list(reasons.items()), console=console)


@app.command("show")
@plain_errors(invalid_input=2, interrupted=1)
def show(
    place: Annotated[str, typer.Argument(metavar="PLACE", help="As `dlq list` prints it.")],
    as_json: AsJson = False,
) -> None:
    """Show one dead letter: why, its headers, and the event in it, or its bytes where it is none."""
    spec, at = parse_place(place)
    log = KafkaLetterLog(KafkaSettings())
    [letter] = find_letters(read_letters(log, [spec]), [at])
    record = log.fetch(spec, [at]).get((at.partition, at.offset))
    if record is None:
        raise InvalidInput(f"{place} expired meanwhile", code="unknown_place", status=404)
    event, problem = event_in(spec, record)
    if as_json:
        value = (
            {"event": event}
            if problem is None
            else {"problem": problem, "value": bytes_as_json(record.value)}
        )
        headers = [[name, bytes_as_json(raw)] for name, raw in record.headers]
        typer.echo(
            json.dumps(
                letter_as_json(letter) | {"key": bytes_as_json(record.key), "headers": headers} | value
            )
        )
        return
    print_letter(letter, record, event, problem)


@app.command("replay")
@plain_errors(invalid_input=2, interrupted=1)
def replay_letters(
    places: Annotated[
        list[str] | None, typer.Argument(metavar="PLACE", help="As `dlq list` prints them.")
    ] = None,
    topic: Topic = None,
    reason: Reason = None,
    since: Since = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would be done; write nothing.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    again: Annotated[bool, typer.Option("--again", help="Also letters that were replayed before.")] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Also bytes that are no event of the topic.")
    ] = False,
) -> None:
    """Publish dead letters to the topic they came from: those at PLACE..., or all that match.

    First cure what made them dead (register the trajectory, upgrade the reader); otherwise they return here.
    Repeating is harmless: events have ids, and what is known already changes nothing. A replayed letter
    stays where it is and is listed as replayed; it is not replayed twice without --again.
    """
    kafka = KafkaSettings()
    log = KafkaLetterLog(kafka)
    letters = _chosen(kafka, log, places, topic, reason, since)
    fresh = [letter for letter in letters if again or not letter.replayed]
    if fresh and not (dry_run or yes):
        for name, count in Counter(letter.spec.name for letter in fresh).items():
            typer.echo(f"{count} to {name}")
        typer.confirm("Replay them?", abort=True)
    outcomes = asyncio.run(
        _replay(kafka, log, letters, publish=bool(fresh) and not dry_run, options=(again, force))
    )
    counts = Counter(outcome.state for outcome in outcomes)
    untried = len(letters) - len(outcomes)
    told = [f"{counts[state]} {state.replace('_', ' ')}" for state in get_args(State) if counts[state]]
    typer.echo(", ".join([*told, *([f"{untried} not tried: the broker is away"] if untried else [])]))
    if counts["already_replayed"]:
        typer.echo("Already replayed letters are left alone; --again replays them once more.")
    if untried or counts["refused"] or counts["failed"] or counts["not_recorded"]:
        raise typer.Exit(1)


async def _replay(
    kafka: KafkaSettings,
    log: KafkaLetterLog,
    letters: Sequence[DeadLetter],
    *,
    publish: bool,
    options: tuple[bool, bool],
) -> list[Outcome]:
    again, force = options
    publisher = KafkaPublisher(kafka, client_id="dlq-replay") if publish else None
    outcomes = []
    try:
        async for outcome in replay(log, letters, publisher, again=again, force=force):
            outcomes.append(outcome)
            typer.echo(f"{outcome.letter.name}  {outcome.state.replace('_', ' ')} {clean(outcome.detail)}")
    finally:
        if publisher is not None:
            await publisher.close()
    return outcomes


def _chosen(
    kafka: KafkaSettings,
    log: KafkaLetterLog,
    places: Sequence[str] | None,
    topic: str | None,
    reason: str | None,
    since: str | None,
) -> list[DeadLetter]:
    if not places:
        letters = _selected(log, topic, reason, since)
        if not letters:
            raise InvalidInput(_none(kafka, topic, reason, since), code="nothing_matched", status=404)
        return letters
    if topic or reason or since:
        raise InvalidInput(
            "give places, or --topic, --reason and --since, not both", code="places_and_filters"
        )
    parsed = [parse_place(place) for place in places]
    specs = list(dict.fromkeys(spec.name for spec, _ in parsed))
    return find_letters(read_letters(log, [lettered_topic(name) for name in specs]), [at for _, at in parsed])


def _selected(
    log: KafkaLetterLog, topic: str | None, reason: str | None, since: str | None
) -> list[DeadLetter]:
    since_ms = 0 if since is None else unix_ms(since, now=datetime.datetime.now(datetime.UTC))
    specs = LETTERED_TOPICS if topic is None else (lettered_topic(topic),)
    return [
        letter
        for letter in read_letters(log, specs)
        if reason in (None, letter.reason) and letter.time_ms >= since_ms
    ]


def _none(kafka: KafkaSettings, topic: str | None, reason: str | None, since: str | None) -> str:
    asked = {"topic": topic, "reason": reason, "since": since}
    existing = KafkaLetterLog(kafka).dlq_names()
    specs = LETTERED_TOPICS if topic is None else (lettered_topic(topic),)
    if not any(spec.dlq_name in existing for spec in specs):
        return (
            f"no dead letters: on {kafka.bootstrap} there is no dead-letter topic "
            f"{specs[0].dlq_name if topic else 'at all'} under the prefix {kafka.topic_prefix!r}. Nothing "
            "has run against this broker yet, or AGENTWORLD_KAFKA_TOPIC_PREFIX is another"
        )
    if given := [f"{name} {value}" for name, value in asked.items() if value]:
        return f"no dead letter matches {', '.join(given)}: `agentworld dlq list` shows all there are"
    return "no dead letters: the topics are there and hold none"
