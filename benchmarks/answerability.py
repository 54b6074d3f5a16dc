"""What do a question's contexts tell of whether it can be answered? MT-RAG: answerable against partial last turns.

    python benchmarks/answerability.py

Unanswerable rows mostly have no contexts, so they are left out. The baseline is the share of the question's words in
its best passage. A row is the area under the curve with an interval from 2,000 resamples. Nothing is built on a row
that does not beat the baseline. The data have no similarities of a retriever.
"""

from __future__ import annotations

import json
import math
import os
import random
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ragpulse_evaluators import Case, get_evaluator
from ragpulse_evaluators.statistics import roc_auc
from ragpulse_evaluators.text.matching import words

_RESAMPLES = 2_000
Row = dict[str, Any]


def area(good: Sequence[float], bad: Sequence[float]) -> float:
    """How often an answerable question has the higher value."""
    return roc_auc([*good, *bad], [True] * len(good) + [False] * len(bad)) or 0.0


def question_of(row: Row) -> str:
    """The last turn of the user."""
    return str([turn["text"] for turn in row["conversation"] if turn["speaker"] == "user"][-1])


def texts_of(row: Row) -> list[str]:
    """The passages as texts."""
    return [one if isinstance(one, str) else one.get("text", "") for one in row["contexts"]]


def by_words(rows: Sequence[Row]) -> list[float]:
    """Log odds of the words of a question, of all other questions (naive Bayes, one added)."""
    counts = {kind: Counter[str]() for kind in (True, False)}
    for row in rows:
        counts[row["good"]].update(set(words(question_of(row))))
    size = {kind: sum(row["good"] is kind for row in rows) for kind in (True, False)}
    found = []
    for row in rows:
        total = 0.0
        for word in set(words(question_of(row))):
            share = {
                kind: (counts[kind][word] - (row["good"] is kind) + 1) / (size[kind] - (row["good"] is kind) + 2)
                for kind in (True, False)
            }
            total += math.log(share[True] / share[False])
        found.append(total)
    return found


def overlap(row: Row) -> float:
    """The share of the question's words in its best passage."""
    asked = set(words(question_of(row)))
    return max((len(asked & set(words(text))) / len(asked) for text in texts_of(row)), default=0.0) if asked else 0.0


def score_of(name: str) -> Callable[[Row], float]:
    """The value of an evaluator over the answer that people wrote."""
    judge = get_evaluator(name)

    def score(row: Row) -> float:
        case = Case(query=question_of(row), response=row["answer"], contexts=texts_of(row))
        return judge.at_once(case).score or 0.0

    return score


def main() -> int:
    """Print the table; exit 0 where the data are absent, and say so."""
    folder = Path(os.environ.get("RAGPULSE_SHARED_DATA", Path(__file__).parents[2] / "shared" / "data"))
    path = folder / "mtrag_answerability.jsonl"
    if not path.exists():
        print(f"skipped: {path.name} is not here, set RAGPULSE_SHARED_DATA to its folder")
        return 0
    rows: list[Row] = [
        row | {"good": row["answerability"] == "ANSWERABLE"}
        for row in map(json.loads, path.read_text(encoding="utf-8").splitlines())
        if row["answerability"] in ("ANSWERABLE", "PARTIAL") and row["contexts"]
    ]
    columns = {
        "the words of the question alone": by_words(rows),
        "a longer question": [float(len(words(question_of(row)))) for row in rows],
        "question words in the best passage (baseline)": [overlap(row) for row in rows],
        "context_utilization": [score_of("context_utilization")(row) for row in rows],
        "groundedness": [score_of("groundedness")(row) for row in rows],
    }
    good = [place for place, row in enumerate(rows) if row["good"]]
    bad = [place for place, row in enumerate(rows) if not row["good"]]
    print(f"{len(good)} answerable, {len(bad)} partial")
    draw = random.Random(11)
    for name, values in columns.items():
        areas = sorted(
            area([values[one] for one in draw.choices(good, k=len(good))],
                 [values[one] for one in draw.choices(bad, k=len(bad))])
            for _ in range(_RESAMPLES)
        )  # fmt: skip
        low, high = areas[int(0.025 * _RESAMPLES)], areas[int(0.975 * _RESAMPLES) - 1]
        whole = area([values[one] for one in good], [values[one] for one in bad])
        print(f"{name:46}{whole:6.2f}  [{low:.2f}, {high:.2f}]")
    return 0


if __name__ == "__main__":
    sys.exit(main())
