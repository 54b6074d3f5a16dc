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
from _grounding_model import FOLDS, TASKS, Answer, Bools, Fit, data_folder, measure_all

from ragpulse_evaluators.grounding import model
from ragpulse_evaluators.grounding.model import FEATURES, POOLED

FILE = Path(model.__file__).with_name("weights.json")
CAUGHT = 0.6
"""Of the wrong QA answers that get a verdict at least this share fails: it says from where on an answer may pass."""
ALARMS = 0.05
"""In no set may a larger share of the good answers fail."""
WRONG = 0.05
LOWS = (0.3, 0.35, 0.4, 0.45, 0.5, 0.55, 0.6, 0.65)
SPREADS = (0.1, 0.15, 0.2, 0.25, 0.3)
"""A claim with a probability up to `low` that is `spread` below the mean of its answer stands out."""
REGIMES = (*((task,) for task in TASKS), ("begin",), ("close", "verbatim", "dressed"), ("free", "rephrased"))
"""Sets of one wording; the two of free wording count as one, since 46 answers give no share."""


def stands_out(fit: Fit, low: float, spread: float) -> Bools:
    """Tell for each answer whether a claim stands out from the others."""
    chances = 1.0 / (1.0 + np.exp(-fit.claim_logits))
    worst = np.minimum.reduceat(chances, np.searchsorted(fit.owner, np.arange(len(fit.answers))))
    by_value = np.array([a.claims[0][2].by_value for a in fit.answers])
    found: Bools = (worst <= low) & (fit.score - worst >= spread) & ~by_value
    return found


def failing(fit: Fit, limits: dict[str, float]) -> Bools:
    """Tell which answers fail."""
    found: Bools = fit.objected | stands_out(fit, limits["low"], limits["spread"]) | (fit.weakest <= limits["fail"])
    return found


def _alarms(fit: Fit, rows: Bools, failed: Bools) -> float:
    """Return the largest share of good answers that fail in a set."""
    return max(float(failed[rows & np.isin(fit.tasks, names) & ~fit.bad].mean()) for names in REGIMES)


def _fails(fit: Fit, rows: Bools) -> dict[str, float]:
    """Choose what stands out and up to where an answer fails: most wrong QA answers, and few good ones in every set."""
    asked = rows & (fit.tasks == "qa") & fit.bad
    tried = []
    for low in LOWS:
        for spread in SPREADS:
            limits = {"fail": 0.0, "low": low, "spread": spread}
            failed = failing(fit, limits)
            if _alarms(fit, rows, failed) <= ALARMS:
                tried.append((float(failed[asked].mean()), -low, spread, limits))
    chosen = max(tried, key=lambda one: one[:3])[3] if tried else {"fail": 0.0, "low": 0.0, "spread": 1.0}
    good = [fit.weakest[rows & (fit.tasks == name) & ~fit.bad] for names in REGIMES for name in names]
    return chosen | {"fail": round(min(float(np.quantile(scores, ALARMS)) for scores in good if len(scores)), 3)}


def thresholds(fit: Fit, rows: Bools | None = None) -> dict[str, float]:
    """Choose on some answers where they fail, from which probability answers pass, and from which claims do."""
    rows = np.ones(len(fit.answers), dtype=bool) if rows is None else rows
    limits = _fails(fit, rows)
    asked, failed = rows & (fit.tasks == "qa") & fit.bad, failing(fit, limits)
    passing = np.sort(fit.weakest[asked & ~failed])[::-1]
    allowed = int(failed[asked].sum() * (1 / CAUGHT - 1))
    chances = 1.0 / (1.0 + np.exp(-fit.claim_logits))
    people = (np.array([a.set == "ragtruth" for a in fit.answers]) & rows)[fit.owner]
    order = np.argsort(-chances[people])
    wrong = np.cumsum(fit.labels[people][order] == 1) / np.arange(1, people.sum() + 1)
    least = chances[people][order][np.flatnonzero(wrong <= WRONG)[-1]]
    return {"pass": round(float(passing[allowed]) + 0.0005, 3), "claim_pass": round(float(least), 3)} | limits


def verdicts(fit: Fit) -> tuple[Bools, Bools]:
    """Tell which answers fail and which pass, by thresholds that never saw their documents."""
    failed = np.zeros(len(fit.answers), dtype=bool)
    passed = failed.copy()
    for k in range(FOLDS):
        limits, here = thresholds(fit, fit.fold != k), fit.fold == k
        failed[here] = failing(fit, limits)[here]
        passed[here] = (fit.weakest >= limits["pass"])[here] & ~failed[here]
    return failed, passed


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
