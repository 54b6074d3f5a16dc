"""The transparent model behind `groundedness`: one weight a feature, fitted by `benchmarks/grounding.py --fit`.

score = 1 / (1 + exp(-(BIAS + sum of weight x feature))). The weights were fitted on the tuning half of the BEGIN
(Wizard of Wikipedia) human labels and on generated edits of its attributable rows, never on the reporting half;
BIAS is set so that 0.5 is the threshold with the best balanced accuracy there.
"""

import math
from collections.abc import Iterable, Mapping

__all__ = ["BIAS", "THRESHOLD", "WEIGHTS", "drawback", "grounded_score"]

THRESHOLD = 0.5
BIAS = 1.416
WEIGHTS: dict[str, float] = {
    "new_share": -1.474,
    "link_share": -8.702,
    "order": 2.326,
    "new_run": -0.852,
    "new_weight": -1.734,
    "new_words": -0.676,
    "opinions": -0.650,
    "self_words": -0.630,
    "opener": -0.703,
    "question": -1.842,
    "numbers": -4.690,
    "units": -4.000,
    "months": -4.000,
    "names": -2.000,
    "negation": -5.605,
    "opposites": -4.000,
    "swaps": -3.927,
}


def grounded_score(features: Mapping[str, float]) -> float:
    """Return the score of a sentence or response from its features: 0 made up .. 1 said by the contexts."""
    logit = BIAS + sum(weight * features[name] for name, weight in WEIGHTS.items())
    return 1.0 / (1.0 + math.exp(-max(-30.0, min(30.0, logit))))


def drawback(features: Mapping[str, float], names: Iterable[str]) -> str:
    """Return which of these features lowers the score most; one with a positive weight does by what it lacks to 1."""
    return max(names, key=lambda name: max(0.0, WEIGHTS[name]) - WEIGHTS[name] * features[name])
