"""The language model: a distribution over the whole vocabulary at every position.

Each script is a noisy channel: it puts most of its probability on its next token, some on
tokens that are easily confused with it, and a little everywhere. The model is the mixture of
the scripts, weighted by how well each explains what was sampled so far (Bayes' rule). So a
slip is possible anywhere, has its honest probability, and what follows depends on it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from recipes.quickstart.engine.reading import read
from recipes.quickstart.engine.scripts import Kind, Script, scripts_for
from recipes.quickstart.engine.vocabulary import IM_END, SIZE, encode

Vector = NDArray[np.float64]

_TARGET_LOGIT: dict[Kind, float] = {"literal": 15.0, "copied": 15.0, "recalled": 15.0}
_CONFUSED_LOGIT: dict[Kind, float] = {"literal": 0.0, "copied": 8.9, "recalled": 12.3}
_ENDED: tuple[int, Kind] = (IM_END, "literal")
_CONFUSABLE = (encode("0123456789"), encode("+-*/"))
_NOISE_ROWS = 61
_NOISE = np.random.Generator(np.random.PCG64(20_261_130)).normal(0.0, 0.6, (_NOISE_ROWS, SIZE))
"""The model's frozen weights, as it were: which row applies depends on the last token."""


class Decoding:
    """One reply in progress. A pure function of the prompt's ids and the tokens accepted so far."""

    def __init__(self, prompt_ids: Sequence[int]) -> None:
        self._scripts = scripts_for(read(list(prompt_ids)))
        weights = np.array([script.weight for script in self._scripts])
        self._log_posterior: Vector = np.log(weights / weights.sum())
        self._last = prompt_ids[-1] if prompt_ids else 0
        self._position = 0
        self._channels: Vector | None = None

    def logits(self) -> Vector:
        """Log-probabilities at temperature 1 of the next token, shape (vocabulary,)."""
        channels = self._channel_logprobs()
        return np.asarray(np.logaddexp.reduce(channels + self._log_posterior[:, None], axis=0))

    def accept(self, token_id: int) -> None:
        """Go on behind `token_id`."""
        posterior = self._log_posterior + self._channel_logprobs()[:, token_id]
        self._log_posterior = posterior - np.logaddexp.reduce(posterior)
        self._last = token_id
        self._position += 1
        self._channels = None

    def _channel_logprobs(self) -> Vector:
        if self._channels is None:
            rows = np.tile(_NOISE[(self._last * 31 + self._position) % _NOISE_ROWS], (len(self._scripts), 1))
            for row, script in zip(rows, self._scripts, strict=True):
                _aim(row, script, self._position)
            self._channels = rows - np.logaddexp.reduce(rows, axis=1, keepdims=True)
        return self._channels


def _aim(row: Vector, script: Script, position: int) -> None:
    target, kind = script.tokens[position] if position < len(script.tokens) else _ENDED
    for family in _CONFUSABLE:
        if target in family:
            row[family] += _CONFUSED_LOGIT[kind]
            row[target] -= _CONFUSED_LOGIT[kind]
    row[target] += _TARGET_LOGIT[kind]


def logits_after(prompt_ids: Sequence[int], reply_ids: Sequence[int]) -> Vector:
    """The model's log-probabilities for the token that follows `reply_ids`."""
    decoding = Decoding(prompt_ids)
    for token_id in reply_ids:
        decoding.accept(token_id)
    return decoding.logits()
