"""From logits to a token: the probabilities reported are those it was drawn with."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from recipes.quickstart.engine.model import Vector


@dataclass(frozen=True, slots=True)
class Sampled:
    """A token, its log-probability, and the most likely tokens with theirs.

    Log-probabilities are rounded to float32, so that storage as Float32 keeps them exactly.
    """

    token_id: int
    logprob: float
    top: tuple[tuple[int, float], ...] = ()


def distribution(logits: Vector, *, temperature: float, top_p: float) -> Vector:
    """Probabilities over the vocabulary: temperature first, then the top-p nucleus, renormalised.

    Temperature 0 puts everything on the most likely token.
    """
    if temperature == 0:
        greedy: Vector = np.zeros_like(logits)
        greedy[int(np.argmax(logits))] = 1.0
        return greedy
    scaled = logits / temperature
    probabilities: Vector = np.exp(scaled - scaled.max())
    probabilities /= probabilities.sum()
    if top_p < 1.0:
        order = np.argsort(-probabilities, kind="stable")
        before = np.cumsum(probabilities[order]) - probabilities[order]
        probabilities[order[before >= top_p]] = 0.0
        probabilities /= probabilities.sum()
    return probabilities


def draw(probabilities: Vector, rng: np.random.Generator, *, top: int = 0) -> Sampled:
    """Sample one token by inverting the cumulative distribution."""
    cumulative = np.cumsum(probabilities)
    token_id = int(np.searchsorted(cumulative, rng.random() * cumulative[-1], side="right"))
    likeliest = np.argsort(-probabilities, kind="stable")[:top] if top else ()
    return Sampled(
        token_id=token_id,
        logprob=logprob(probabilities[token_id]),
        top=tuple((int(i), logprob(probabilities[i])) for i in likeliest),
    )


FLOOR = -9999.0
"""Stands for the logarithm of zero, as engines send it."""


def logprob(probability: float) -> float:
    """Natural logarithm as a float32 value; `FLOOR` for zero."""
    return float(np.float32(np.log(probability))) if probability > 0 else FLOOR
