"""The data and the fit of `groundedness`: claims of labelled answers, measured, and models fitted across documents.

Sets: RAGTruth's development half (three tasks, spans marked by people), BEGIN (one-sentence replies, labels of people),
the project's pairs (one fact apart), its own answers (word for word, dressed, rephrased) and edits of them.
"""

import hashlib
import json
import os
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from _grounding_texts import FOLDER, answers
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression

from ragpulse_evaluators.case import Case
from ragpulse_evaluators.grounding import model
from ragpulse_evaluators.grounding.groundedness import read_claims
from ragpulse_evaluators.grounding.model import FEATURES, POOLED, Findings
from ragpulse_evaluators.grounding.perturb import perturb

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
FOLDS = 5
CLAIM_WEIGHTS = {"ragtruth": 1.0, "begin": 0.3, "pairs": 2.0, "own": 0.5, "edits": 0.1}
"""What a claim of each set weighs in the fit: BEGIN more would rank the sentences of long answers worse."""
ANSWER_WEIGHTS = {"ragtruth": 1.0, "begin": 3.0, "pairs": 2.0, "own": 0.3, "edits": 0.06}
TASKS = ("qa", "summary", "data2txt")
_BALANCED = 200.0
"""What the good and the bad answers of each task weigh together."""
_EDITED_EVERY = 5


@dataclass(frozen=True)
class Answer:
    """One labelled answer and its measured claims; `spans` mark what people found wrong, where they did."""

    set: str
    task: str
    document: str
    writer: str
    bad: bool
    case: Case
    spans: tuple[tuple[int, int], ...] | None = None
    reporting: bool = True
    """False for what may be looked at as often as one likes: the tuning halves."""
    claims: list[tuple[int, int, Findings]] = field(default_factory=list)

    def labels(self) -> list[int | None]:
        """1 for each claim that is wrong, None where nobody said."""
        if self.spans is not None:
            return [int(any(a < end - 1 and b > start for a, b in self.spans)) for start, end, _ in self.claims]
        known = not self.bad or len(self.claims) == 1
        return [int(self.bad) if known else None] * len(self.claims)


def data_folder() -> Path:
    """Return the folder of the shared data."""
    folder = os.environ.get("RAGPULSE_SHARED_DATA")
    return Path(folder) if folder else Path(__file__).resolve().parents[2] / "shared" / "data"


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    if path.is_file():
        yield from map(json.loads, path.read_text(encoding="utf-8").splitlines())


def ragtruth() -> Iterator[Answer]:
    """Yield RAGTruth's development half."""
    for row in _rows(data_folder() / "ragtruth_dev.jsonl"):
        spans = tuple((s["start"], s["end"]) for s in row["spans"])
        case = Case(response=row["response"], contexts=row["contexts"])
        yield Answer("ragtruth", row["task"], row["id"].split("-")[0], row["model"], row["bad"], case, spans)


def begin() -> Iterator[Answer]:
    """Yield BEGIN; half of its passages are for reports."""
    for row in _rows(data_folder() / "begin_wow_test.jsonl"):
        if row["attributable"] is not None:
            passage = hashlib.sha256(" ".join(row["contexts"][0].casefold().split()).encode()).hexdigest()
            case = Case(response=row["response"], contexts=row["contexts"])
            bad, reporting = not row["attributable"], int(passage, 16) % 2 == 1
            yield Answer("begin", "begin", passage[:12], row["system"], bad, case, reporting=reporting)


def pairs() -> Iterator[Answer]:
    """Yield the right and the wrong answer of each pair."""
    for number, row in enumerate(_rows(FOLDER / "grounding_pairs.jsonl")):
        for pair in row["pairs"]:
            for side in ("right", "wrong"):
                case = Case(response=pair[side], contexts=row["contexts"])
                yield Answer("pairs", pair["wording"], f"pair{number}", pair["fact"], side == "wrong", case)


def own() -> Iterator[Answer]:
    """Yield the project's own answers, and edits of those that are word for word or rephrased."""
    for half in ("tuning", "test"):
        for number, answer in enumerate(answers(half)):
            place = f"{half}{number // 10}"
            reporting = half == "test"
            yield Answer("own", answer.kind, place, answer.kind, False, answer.case, reporting=reporting)
            if answer.kind != "dressed" and (reporting or number % _EDITED_EVERY == 0):
                for edit in perturb([answer.case]):
                    if not edit.supported:
                        task = f"{answer.kind}, edited"
                        yield Answer("edits", task, place, edit.kind, True, edit.case, reporting=reporting)


def measure_all(sources: Sequence[Callable[[], Iterator[Answer]]] = (ragtruth, begin, pairs, own)) -> list[Answer]:
    """Measure the claims of every answer; those that claim nothing are left out."""
    measured = []
    for answer in (answer for source in sources for answer in source()):
        answer.claims.extend(read_claims(answer.case.response or "", answer.case.texts))
        if answer.claims:
            measured.append(answer)
    return measured


def _fit(table: Floats, bad: Bools, weights: Floats) -> Floats:
    """Return weights and, last, bias of the probability that something is supported."""
    fitted = LogisticRegression(C=1.0, max_iter=3000).fit(table, ~bad, sample_weight=weights)
    return np.append(fitted.coef_[0], fitted.intercept_[0])


def _logits(table: Floats, weights: Floats) -> Floats:
    found: Floats = table @ weights[:-1] + weights[-1]
    return found


class Fit:
    """Both models, fitted on all answers, and the scores of each answer by models that never saw its document."""

    def __init__(self, given: Sequence[Answer]) -> None:
        self.answers = given
        self.sets = np.array([a.set for a in given])
        self.tasks = np.array([a.task for a in given])
        self.bad = np.array([a.bad for a in given])
        self.fold = np.array([zlib.crc32(f"{a.set[:3]}{a.document}".encode()) % FOLDS for a in given])
        sizes = [len(a.claims) for a in given]
        self.owner = np.repeat(np.arange(len(given)), sizes)
        self.table = np.array([[f.features[name] for name in FEATURES] for a in given for *_, f in a.claims])
        labels = [label for a in given for label in a.labels()]
        self.labels = np.array([-1 if label is None else label for label in labels])
        self._fit_claims()
        self._fit_answers()

    def _fit_claims(self) -> None:
        weights = np.array([CLAIM_WEIGHTS[s] for s in self.sets])[self.owner]
        known, fold = self.labels >= 0, self.fold[self.owner]
        self.claim_logits = np.zeros(len(self.labels))
        for k in range(FOLDS):
            train, test = known & (fold != k), fold == k
            found = _fit(self.table[train], self.labels[train] == 1, weights[train])
            self.claim_logits[test] = _logits(self.table[test], found)
        self.claim_model = _fit(self.table[known], self.labels[known] == 1, weights[known])

    def _fit_answers(self) -> None:
        starts = np.searchsorted(self.owner, np.arange(len(self.answers)))
        rows = []
        for answer, start in zip(self.answers, starts, strict=True):
            findings = [f for *_, f in answer.claims]
            rows.append(model.pool(findings, self.claim_logits[start : start + len(findings)].tolist()))
        self.pooled = np.array([[row[name] for name in POOLED] for row in rows])
        weights, natural = self._answer_weights(), np.array([CLAIM_WEIGHTS[s] for s in self.sets])
        logits = np.zeros(len(rows))
        for k in range(FOLDS):
            train, test = self.fold != k, self.fold == k
            logits[test] = _logits(self.pooled[test], self._calibrated(train, weights, natural))
        self.answer_logits = logits
        self.answer_model = self._calibrated(np.ones(len(rows), dtype=bool), weights, natural)

    def _calibrated(self, train: Bools, weights: Floats, natural: Floats) -> Floats:
        """Fit the ranking with balanced tasks, then its level with answers as often as they come."""
        found = _fit(self.pooled[train], self.bad[train], weights[train])
        level = _fit(_logits(self.pooled[train], found)[:, None], self.bad[train], natural[train])
        return np.append(found[:-1] * level[0], found[-1] * level[0] + level[1])

    def _answer_weights(self) -> Floats:
        weights = np.array([ANSWER_WEIGHTS[s] for s in self.sets])
        for task in TASKS:
            for bad in (False, True):
                chosen = (self.tasks == task) & (self.bad == bad)
                weights[chosen] *= _BALANCED / max(1, chosen.sum())
        return weights

    @property
    def weakest(self) -> Floats:
        """The probability that each whole answer is supported, across documents."""
        return 1.0 / (1.0 + np.exp(-self.answer_logits))

    @property
    def score(self) -> Floats:
        """The mean probability of the claims of each answer, across documents."""
        chances = 1.0 / (1.0 + np.exp(-self.claim_logits))
        means: Floats = np.bincount(self.owner, chances) / np.bincount(self.owner)
        return means

    @property
    def objected(self) -> Bools:
        """Whether a claim of each answer meets an objection."""
        return np.array([any(f.objections for *_, f in a.claims) for a in self.answers])
