"""The transparent model behind `groundedness`: one weight a feature, fitted by `benchmarks/grounding.py --fit`.

score = 1 / (1 + exp(-(BIAS + sum of weight x feature))). The weights were fitted on the tuning half of the BEGIN
(Wizard of Wikipedia) human labels and on generated edits of its attributable rows, never on the reporting half;
BIAS is set so that 0.5 is the threshold with the best balanced accuracy there.
"""

import math
from collections.abc import Mapping

__all__ = ["BIAS", "WEIGHTS", "sentence_score"]

BIAS = 3.0
WEIGHTS: dict[str, float] = {
    "novel_share": -2.5,
    "novel_count": -0.8,
    "self_words": -0.8,
    "novel_function_share": -1.2,
    "novel_bigrams": -2.0,
    "order": 2.0,
    "numbers": -4.0,
    "units": -3.0,
    "months": -3.0,
    "names": -1.5,
    "negation": -3.0,
    "opposites": -2.5,
    "question": -2.0,
}


def sentence_score(features: Mapping[str, float]) -> float:
    """Return the score of one sentence, 0 (made up) to 1 (said by the contexts)."""
    logit = BIAS + sum(weight * features[name] for name, weight in WEIGHTS.items())
    return 1.0 / (1.0 + math.exp(-max(-30.0, min(30.0, logit))))
