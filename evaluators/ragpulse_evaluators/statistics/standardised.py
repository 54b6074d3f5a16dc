"""The difference of two groups at equal questions: standardised over what the requests brought (tenant, language)."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from ragpulse_evaluators.statistics.intervals import weighted_mean

_LEAST = 5
"""Fewer answers of a stratum on one side say too little about how it fares there."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A value with its chance of having been scored, the user it belongs to, and the stratum of its request."""

    value: float
    pi: float
    cluster: Hashable
    stratum: Hashable


@dataclass(frozen=True, slots=True, kw_only=True)
class Standardised:
    """The mean difference b minus a over the strata that both sides have, weighted by all their traffic.

    `excluded` is the share of the traffic in strata of one side only; `a` and `b` are the standardised means.
    """

    difference: float
    se: float
    a: float
    b: float
    strata: int
    excluded: float


def standardised(a: Sequence[Answer], b: Sequence[Answer]) -> Standardised | None:
    """Return the difference of the groups' means as if both had answered the same mix of strata; None without common.

    Direct standardisation with the joint mix as standard population: d = Σp_s(m_bs - m_as). The error adds up the
    influence of each answer on the means and on the estimated p_s, by user: a user on both sides counts once.

    >>> easy, hard = [Answer(1.0, 1.0, n, "easy") for n in range(9)], [Answer(0.0, 1.0, n, "hard") for n in range(9)]
    >>> standardised(easy + hard[:5], easy[:5] + hard).difference  # 5 of 14 against 9 of 14 hard questions
    0.0
    """
    sides = [_by_stratum(side) for side in (a, b)]
    common = [s for s in sides[0] if min(len(side.get(s, ())) for side in sides) >= _LEAST]
    total = math.fsum(1.0 / answer.pi for answer in (*a, *b))
    of_stratum = {s: math.fsum(1.0 / answer.pi for side in sides for answer in side[s]) for s in common}
    whole = math.fsum(of_stratum.values())
    if not common:
        return None
    means = [{s: _mean(side[s]) for s in common} for side in sides]
    at_a, at_b = (math.fsum(of_stratum[s] / whole * mean[s] for s in common) for mean in means)
    pulls: dict[Hashable, float] = defaultdict(float)
    for sign, side, mean in zip((-1.0, 1.0), sides, means, strict=True):
        for s in common:
            gap = (means[1][s] - means[0][s] - (at_b - at_a)) / whole
            each, n = of_stratum[s] / whole / math.fsum(1.0 / answer.pi for answer in side[s]), len(side[s])
            for answer in side[s]:
                own = sign * each * (answer.value - mean[s]) * math.sqrt(n / (n - 1.0))
                pulls[answer.cluster] += (own + gap) / answer.pi
    return Standardised(
        difference=at_b - at_a, se=math.hypot(*pulls.values()), a=at_a, b=at_b, strata=len(common),
        excluded=1.0 - whole / total,
    )  # fmt: skip


def _by_stratum(side: Sequence[Answer]) -> dict[Hashable, list[Answer]]:
    parts: dict[Hashable, list[Answer]] = defaultdict(list)
    for answer in side:
        parts[answer.stratum].append(answer)
    return parts


def _mean(answers: Sequence[Answer]) -> float:
    return weighted_mean([answer.value for answer in answers], [1.0 / answer.pi for answer in answers])
