"""The language model: a distribution over the whole vocabulary at every position.

Each script is a noisy channel: it puts most of its probability on its next token, some on
tokens that are easily confused with it, and a little everywhere. The model is the mixture of
the scripts, weighted by how well each explains what was sampled so far (Bayes' rule). So a
slip is possible anywhere, has its honest probability, and what follows depends on it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from recipes.quickstart.engine.reading import read
from recipes.quickstart.engine.scripts import Kind, Script, scripts_for
from recipes.quickstart.engine.vocabulary import IM_END, SIZE, encode

Vector = NDArray[np.float64]

_TARGET = math.exp(15.0)
_CONFUSED: dict[Kind, float] = {"literal": 1.0, "copied": math.exp(8.2), "recalled": math.exp(12.3)}
"""Odds, against the noise, of a script's next token and of those confused with it."""
_FAMILIES = (encode("0123456789"), encode("+-*/"))
_FAMILY_OF = {token_id: family for family in _FAMILIES for token_id in family}
_NOISE_ROWS = 61
_NOISE: Vector = np.exp(
    np.random.Generator(np.random.PCG64(20_261_130)).normal(0.0, 0.6, (_NOISE_ROWS, SIZE))
)
_NOISE_ODDS = _NOISE.tolist()
_NOISE_TOTALS = _NOISE.sum(axis=1).tolist()
"""The model's frozen weights, as it were: which row applies depends on the last token."""
_ENDED: tuple[int, Kind] = (IM_END, "literal")


class Decoding:
    """One reply in progress. A pure function of the prompt's ids and the tokens accepted so far."""

    def __init__(self, prompt_ids: Sequence[int]) -> None:
        self._scripts = scripts_for(read(list(prompt_ids)))
        total = sum(script.weight for script in self._scripts)
        self._posterior = [script.weight / total for script in self._scripts]
        self._position = 0
        self._look(prompt_ids[-1] if prompt_ids else 0)

    def logits(self) -> Vector:
        """Log-probabilities at temperature 1 of the next token, shape (vocabulary,)."""
        everywhere = 0.0
        favoured = dict.fromkeys((token for odds, _ in self._channels for token in odds), 0.0)
        for share, (odds, total) in zip(self._posterior, self._channels, strict=True):
            everywhere += share / total
            for token_id, extra in odds.items():
                favoured[token_id] += extra * share / total
        mixture: Vector = _NOISE[self._row] * everywhere
        for token_id, mass in favoured.items():
            mixture[token_id] += mass
        return np.asarray(np.log(mixture))

    def accept(self, token_id: int) -> None:
        """Go on behind `token_id`: scripts that expected it gain, the others lose."""
        noise = _NOISE_ODDS[self._row][token_id]
        explained = [
            share * (noise + odds.get(token_id, 0.0)) / total
            for share, (odds, total) in zip(self._posterior, self._channels, strict=True)
        ]
        evidence = sum(explained)
        self._posterior = [share / evidence for share in explained]
        self._position += 1
        self._look(token_id)

    def _look(self, last: int) -> None:
        self._row = (last * 31 + self._position) % _NOISE_ROWS
        self._channels = [_channel(script, self._position, self._row) for script in self._scripts]


def _channel(script: Script, position: int, row: int) -> tuple[dict[int, float], float]:
    """What a script adds to the noise for the tokens it favours, and the sum over all tokens."""
    target, kind = script.tokens[position] if position < len(script.tokens) else _ENDED
    noise = _NOISE_ODDS[row]
    extra = {target: noise[target] * (_TARGET - 1.0)}
    if kind != "literal":
        for other in _FAMILY_OF.get(target, ()):
            if other != target:
                extra[other] = noise[other] * (_CONFUSED[kind] - 1.0)
    return extra, _NOISE_TOTALS[row] + sum(extra.values())


def logits_after(prompt_ids: Sequence[int], reply_ids: Sequence[int]) -> Vector:
    """The model's log-probabilities for the token that follows `reply_ids`."""
    decoding = Decoding(prompt_ids)
    for token_id in reply_ids:
        decoding.accept(token_id)
    return decoding.logits()
