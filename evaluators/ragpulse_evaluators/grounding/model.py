"""The transparent model behind `groundedness`: one weight a feature, fitted by `benchmarks/grounding.py --fit`.

score = 1 / (1 + exp(-(BIAS + sum of weight x feature))). The weights were fitted on the tuning half of the BEGIN
(Wizard of Wikipedia) human labels and on generated edits of its attributable rows, never on the reporting half;
BIAS is set so that 0.5 is the threshold with the best balanced accuracy there.
"""

import math
from collections.abc import Mapping

__all__ = ["BIAS", "THRESHOLD", "WEIGHTS", "grounded_score"]

THRESHOLD = 0.5
BIAS = 1.508
WEIGHTS: dict[str, float] = {
    "novel_share": -5.541,
    "link_share": -11.180,
    "order": 3.947,
    "self_words": -0.891,
    "opener": -0.686,
    "question": -3.161,
    "extra_negation": -0.742,
    "length": -0.800,
    "numbers": -5.000,
    "units": -5.000,
    "months": -5.000,
    "names": -3.000,
    "negation": -5.000,
    "opposites": -3.000,
}


def grounded_score(features: Mapping[str, float]) -> float:
    """Return the score of a sentence or response from its features: 0 made up .. 1 said by the contexts."""
    logit = BIAS + sum(weight * features[name] for name, weight in WEIGHTS.items())
    return 1.0 / (1.0 + math.exp(-max(-30.0, min(30.0, logit))))
