"""Groundedness against people: a floor under the figures that `benchmarks/grounding.py` reports."""

import hashlib
import json
import os
import re
import unicodedata
from pathlib import Path
from typing import Any

import pytest
from sklearn.metrics import roc_auc_score

from ragpulse_evaluators.grounding.groundedness import assess

ROOT = Path(__file__).resolve().parents[3]
DATA = Path(os.environ.get("RAGPULSE_SHARED_DATA") or ROOT.parent / "shared" / "data") / "begin_wow_test.jsonl"


@pytest.fixture
def labelled() -> list[dict[str, Any]]:
    """Every second human-labelled response of BEGIN in the half that was tuned on; the other half is for reports."""
    if not DATA.is_file():
        pytest.skip(f"{DATA.name} is not here: set RAGPULSE_SHARED_DATA to its folder")
    rows = [json.loads(line) for line in DATA.read_text(encoding="utf-8").splitlines()]
    return [row for row in rows if row["attributable"] is not None and tuned_on(row["contexts"][0])][::2]


def tuned_on(passage: str) -> bool:
    """The halves of `benchmarks/grounding.py`: by a hash of the passage."""
    folded = " ".join(unicodedata.normalize("NFKC", passage).casefold().split())
    return int(hashlib.sha256(folded.encode()).hexdigest(), 16) % 2 == 0


def overlap(row: dict[str, Any]) -> float:
    """Share of the response's words that the passage holds."""
    words = re.findall(r"\w+", row["response"].lower())
    known = set(re.findall(r"\w+", row["contexts"][0].lower()))
    return sum(word in known for word in words) / max(1, len(words))


def test_agrees_with_people_better_than_overlap(labelled: list[dict[str, Any]]) -> None:
    """The weakest claim ranks attributable answers above others, no worse than word overlap does."""
    people = [row["attributable"] for row in labelled]
    ours = roc_auc_score(people, [assess(row["response"], row["contexts"]).weakest or 0.0 for row in labelled])
    assert ours > 0.93
    assert ours > roc_auc_score(people, [overlap(row) for row in labelled])
