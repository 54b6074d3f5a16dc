"""Fit the two models of `groundedness` and choose its thresholds; writes `grounding/weights.json`.

    python benchmarks/fit_grounding.py            # prints weights and thresholds
    python benchmarks/fit_grounding.py --write    # writes them

The weights see all answers; the thresholds are chosen on scores of models that never saw the document of an answer.
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
from _grounding_model import TASKS, Answer, Bools, Fit, data_folder, measure_all

from ragpulse_evaluators.grounding import model
from ragpulse_evaluators.grounding.model import FEATURES, POOLED

FILE = Path(model.__file__).with_name("weights.json")
CAUGHT = 0.6
ALARMS = 0.05
WRONG = 0.05
LOW, SPREAD = 0.5, 0.15
"""A claim with a probability up to LOW that is SPREAD below the mean of its answer stands out."""


def stands_out(fit: Fit) -> Bools:
    """Tell for each answer whether a claim stands out from the others."""
    chances = 1.0 / (1.0 + np.exp(-fit.claim_logits))
    worst = np.minimum.reduceat(chances, np.searchsorted(fit.owner, np.arange(len(fit.answers))))
    found: Bools = (worst <= LOW) & (fit.score - worst >= SPREAD)
    return found


def thresholds(fit: Fit) -> dict[str, float]:
    """Choose from which probability answers and claims pass, and up to which an answer fails."""
    weakest, failing = fit.weakest, fit.objected | stands_out(fit)
    good = [weakest[(fit.tasks == task) & ~fit.bad] for task in (*TASKS, "begin", "close", "free", "rephrased")]
    fail = min(float(np.quantile(scores, ALARMS)) for scores in good if len(scores))
    asked = (fit.tasks == "qa") & fit.bad
    caught = float((failing[asked] | (weakest[asked] <= fail)).mean())
    passing = np.sort(weakest[asked & ~failing])[::-1]
    allowed = int(caught * (1 / CAUGHT - 1) * asked.sum())
    chances = 1.0 / (1.0 + np.exp(-fit.claim_logits))
    people = np.array([a.set == "ragtruth" for a in fit.answers])[fit.owner]
    order = np.argsort(-chances[people])
    wrong = np.cumsum(fit.labels[people][order] == 1) / np.arange(1, people.sum() + 1)
    least = chances[people][order][np.flatnonzero(wrong <= WRONG)[-1]]
    return {
        "pass": round(float(passing[allowed]), 3),
        "fail": round(fail, 3),
        "claim_pass": round(float(least), 3),
        "low": LOW,
        "spread": SPREAD,
    }


def weights(given: list[Answer]) -> dict[str, Any]:
    """Fit everything."""
    fit = Fit(given)
    models = (("claim", FEATURES, fit.claim_model), ("answer", POOLED, fit.answer_model))
    fitted = {
        name: {"bias": round(float(found[-1]), 3)}
        | {feature: round(float(weight), 3) for feature, weight in zip(features, found[:-1], strict=True)}
        for name, features, found in models
    }
    return thresholds(fit) | fitted


def main() -> int:
    """Print or write the weights."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="write grounding/weights.json")
    write = parser.parse_args().write
    if not (data_folder() / "ragtruth_dev.jsonl").is_file():
        print("skipped: ragtruth_dev.jsonl not found; set RAGPULSE_SHARED_DATA", file=sys.stderr)
        return 0
    text = json.dumps(weights(measure_all()), indent=1) + "\n"
    print(text)
    if write:
        FILE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
