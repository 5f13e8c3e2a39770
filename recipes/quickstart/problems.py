"""Word problems with whole-number answers, made up from a seed."""

from __future__ import annotations

import random
from dataclasses import dataclass

_NAMES = ("Ava", "Ben", "Chloe", "Dan", "Ella", "Finn", "Grace", "Hugo", "Iris", "Jack", "Kira", "Leo")
_THINGS = ("apples", "marbles", "stickers", "pencils", "shells", "coins", "cards", "buttons")
_MORE = ("{name} finds {n} more.", "{name} buys {n} more.", "A neighbour adds {n} to them.")
_FEWER = ("{name} gives away {n}.", "{name} loses {n} of them.", "{name} sells {n} at the market.")
_TIMES = ("A week later there are {n} times as many.",)
_SHARED = ("They are shared equally among {n} friends.", "{name} splits them evenly into {n} bags.")


@dataclass(frozen=True, slots=True)
class Problem:
    """One task."""

    prompt_id: str
    question: str
    answer: int


def make_problems(seed: int, count: int) -> list[Problem]:
    """`count` problems of one to three steps. The same seed makes the same problems."""
    rng = random.Random(seed)
    return [_make(rng, f"words-{seed}-{index:03d}") for index in range(count)]


def _make(rng: random.Random, prompt_id: str) -> Problem:
    name, things = rng.choice(_NAMES), rng.choice(_THINGS)
    value = rng.randint(6, 60)
    sentences = [f"{name} has {value} {things}."]
    for _ in range(rng.randint(1, 3)):
        sentence, value = _happens(rng, value)
        sentences.append(sentence.format(name=name))
    question = (
        f"How many {things} are in one share now?" if _is_share(sentences[-1]) else "How many are there now?"
    )
    return Problem(prompt_id, " ".join([*sentences, question]), value)


def _is_share(sentence: str) -> bool:
    return "equally" in sentence or "evenly" in sentence


def _happens(rng: random.Random, value: int) -> tuple[str, int]:
    kind = rng.choice("++--*/")
    divisors = [n for n in range(2, 10) if value % n == 0]
    if kind == "/" and divisors:
        n = rng.choice(divisors)
        return rng.choice(_SHARED).replace("{n}", str(n)), value // n
    if kind == "*":
        n = rng.randint(2, 6)
        return rng.choice(_TIMES).replace("{n}", str(n)), value * n
    if kind == "-" and value > 4:
        n = rng.randint(1, value - 2)
        return rng.choice(_FEWER).replace("{n}", str(n)), value - n
    n = rng.randint(3, 60)
    return rng.choice(_MORE).replace("{n}", str(n)), value + n
