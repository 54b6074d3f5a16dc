"""Groundedness against people, beside plain word overlap; with `--fit`, the fit of its weights.

    python benchmarks/grounding.py            # report on the test halves, which nothing was ever tuned on
    python benchmarks/grounding.py --tuning   # the same report on the tuning halves
    python benchmarks/grounding.py --fit      # print weights fitted on the tuning half (paste into grounding/model.py)

Data: the BEGIN benchmark, Wizard of Wikipedia part (`begin_wow_test.jsonl`), in the folder RAGPULSE_SHARED_DATA or
../shared/data. Passages are split in two halves by a hash of their text, since many passages repeat.
"""

import argparse
import hashlib
import json
import os
import re
import statistics
import sys
import time
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from _grounding_texts import Answer, Half, answers
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.stats import rankdata

from ragpulse_evaluators.case import Case
from ragpulse_evaluators.errors import MissingField
from ragpulse_evaluators.grounding.groundedness import Groundedness, judge_sentences, pool_response
from ragpulse_evaluators.grounding.markup import read_markup
from ragpulse_evaluators.grounding.model import FEATURES, THRESHOLD, grounded_score
from ragpulse_evaluators.grounding.perturb import KINDS, perturb
from ragpulse_evaluators.grounding.text import split_sentences

Floats = NDArray[np.float64]
SYSTEMS = ("t5", "gpt2", "doha", "ctrl")
RESAMPLES = 1000
PENALTY = 5.0
REPHRASED = 0.02
"""What a rephrased answer weighs in the fit, beside a human label: best of 0 to 0.3 in cross-validation."""
ALARMS = 0.01
"""Wording alone fails this share of the freely rephrased answers of the tuning half: a choice between them and the
labels of people (docs/grounding.md)."""


@dataclass(frozen=True)
class Row:
    passage: str
    system: str
    response: str
    context: str
    label: int

    @property
    def case(self) -> Case:
        return Case(response=self.response, contexts=(self.context,))


@dataclass(frozen=True)
class Measured:
    rows: Sequence[Row]
    scores: Floats
    overlap: Floats

    @property
    def labels(self) -> NDArray[np.int64]:
        return np.array([r.label for r in self.rows])


def data_file() -> Path | None:
    folder = os.environ.get("RAGPULSE_SHARED_DATA")
    root = Path(folder) if folder else Path(__file__).resolve().parents[2] / "shared" / "data"
    path = root / "begin_wow_test.jsonl"
    return path if path.is_file() else None


def load(path: Path, *, tuning: bool) -> list[Row]:
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    read = [
        Row(passage_hash(r["contexts"][0]), r["system"], r["response"], r["contexts"][0], r["attributable"])
        for r in rows
        if r["attributable"] is not None
    ]
    return [r for r in read if (int(r.passage, 16) % 2 == 0) is tuning]


def passage_hash(text: str) -> str:
    folded = " ".join(unicodedata.normalize("NFKC", text).casefold().split())
    return hashlib.sha256(folded.encode()).hexdigest()


def edited(rows: Sequence[Row], *, seed: int = 0) -> list[Row]:
    supported = [r for r in rows if r.label == 1]
    cases = [r.case for r in supported]
    return [
        Row(supported[e.source].passage, e.kind, e.case.response or "", supported[e.source].context, 0)
        for e in perturb(cases, seed=seed)
        if not e.supported
    ]


def word_overlap(row: Row) -> float:
    words = re.findall(r"\w+", row.response.lower())
    known = set(re.findall(r"\w+", row.context.lower()))
    return sum(w in known for w in words) / max(1, len(words))


def features(case: Case) -> tuple[dict[str, float], bool]:
    """The features of `assess`; a response that claims nothing (which the evaluator skips) is one new word."""
    response = case.response or ""
    read = read_markup(response, [c.id for c in case.contexts or ()]).text
    judged = judge_sentences(response, read, case.texts)
    if any(sentence.claim for _, sentence in judged):
        return pool_response([findings for findings, _ in judged])
    return dict.fromkeys(FEATURES, 0.0) | {"new_share": 1.0, "new_weight": 1.0}, False


def score(row: Row) -> float:
    pooled, objected = features(row.case)
    return grounded_score(pooled, objected=objected)


def measured(rows: Sequence[Row]) -> Measured:
    scores = np.array([score(r) for r in rows])
    return Measured(rows, scores, np.array([word_overlap(r) for r in rows]))


def bootstrap(data: Measured, statistic: Callable[[NDArray[np.intp]], float]) -> tuple[float, float, float]:
    """Estimate with a 95 % interval by resampling passages."""
    places: dict[str, list[int]] = {}
    for i, row in enumerate(data.rows):
        places.setdefault(row.passage, []).append(i)
    groups = [np.array(p) for p in places.values()]
    rng = np.random.default_rng(0)
    draws = [
        statistic(np.concatenate([groups[g] for g in rng.integers(len(groups), size=len(groups))]))
        for _ in range(RESAMPLES)
    ]
    low, high = np.percentile(draws, [2.5, 97.5])
    return statistic(np.arange(len(data.rows))), float(low), float(high)


def auc(labels: NDArray[np.int64], scores: Floats) -> float:
    ranks = rankdata(scores)
    good = labels == 1
    n, m = int(good.sum()), int((~good).sum())
    return float((ranks[good].sum() - n * (n + 1) / 2) / (n * m))


def within(data: Measured, scores: Floats, of: Callable[..., float]) -> Callable[[NDArray[np.intp]], float]:
    systems = np.array([r.system for r in data.rows])
    labels = data.labels

    def statistic(chosen: NDArray[np.intp]) -> float:
        parts = [chosen[systems[chosen] == s] for s in SYSTEMS]
        return float(np.mean([of(labels[p], scores[p]) for p in parts]))

    return statistic


def overall(data: Measured, scores: Floats, of: Callable[..., float]) -> Callable[[NDArray[np.intp]], float]:
    labels = data.labels
    return lambda chosen: of(labels[chosen], scores[chosen])


def balanced(threshold: float) -> Callable[[NDArray[np.int64], Floats], float]:
    return lambda labels, scores: balanced_accuracy(labels, scores >= threshold)


def balanced_accuracy(labels: NDArray[np.int64], called: NDArray[np.bool_]) -> float:
    return float((called[labels == 1].mean() + (~called[labels == 0]).mean()) / 2)


def best_threshold(labels: NDArray[np.int64], scores: Floats) -> float:
    candidates = np.unique(scores)
    middles = np.concatenate([candidates[:1], (candidates[1:] + candidates[:-1]) / 2])
    return float(max(middles, key=lambda t: balanced_accuracy(labels, scores >= t)))


def report(path: Path, *, tuning: bool) -> None:
    tuned = measured(load(path, tuning=True))
    data = tuned if tuning else measured(load(path, tuning=False))
    cut = best_threshold(tuned.labels, tuned.overlap)
    half, passages = "tuning" if tuning else "reporting", len({r.passage for r in data.rows})
    print(f"\nBEGIN (wow, test), {half} half: {len(data.rows)} responses, {passages} passages")
    print(f"thresholds from the tuning half: groundedness {THRESHOLD}, overlap {cut:.3f}\n")
    print(f"{'':36s}{'groundedness':>24s}{'word overlap':>24s}{'difference':>26s}")
    for title, view, mine, theirs in (
        ("ROC AUC, overall", overall, auc, auc),
        ("ROC AUC, mean within system", within, auc, auc),
        ("balanced accuracy, overall", overall, balanced(THRESHOLD), balanced(cut)),
        ("balanced accuracy, within system", within, balanced(THRESHOLD), balanced(cut)),
    ):
        ours, plain = view(data, data.scores, mine), view(data, data.overlap, theirs)
        _line(title, data, ours, plain)
    for system in SYSTEMS:
        mask = np.array([r.system == system for r in data.rows])
        print(
            f"  AUC {system:32s}{auc(data.labels[mask], data.scores[mask]):8.4f}{'':16s}"
            f"{auc(data.labels[mask], data.overlap[mask]):8.4f}"
        )
    _report_edits(data)


def _line(
    title: str,
    data: Measured,
    ours: Callable[[NDArray[np.intp]], float],
    plain: Callable[[NDArray[np.intp]], float],
) -> None:
    cells = [bootstrap(data, s) for s in (ours, plain, lambda chosen: ours(chosen) - plain(chosen))]
    print(f"{title:36s}" + "".join(f"{e:10.4f} [{lo:.3f}, {hi:.3f}]" for e, lo, hi in cells[:2]), end="")
    print("{:+10.4f} [{:+.3f}, {:+.3f}]".format(*cells[2]))


def _report_edits(data: Measured) -> None:
    originals = [r for r in data.rows if r.label == 1]
    edits = edited(data.rows)
    print(f"\nMinimal edits of {len(originals)} attributable responses, against the originals (ROC AUC)")
    kept = measured(originals)
    for kind in ("all", *KINDS):
        chosen = measured([r for r in edits if kind in ("all", r.system)])
        if not chosen.rows:
            continue
        both = Measured(
            [*kept.rows, *chosen.rows],
            np.concatenate([kept.scores, chosen.scores]),
            np.concatenate([kept.overlap, chosen.overlap]),
        )
        ours, low, high = bootstrap(both, overall(both, both.scores, auc))
        caught = float((chosen.scores < THRESHOLD).mean())
        plain = auc(both.labels, both.overlap)
        print(
            f"  {kind:10s} n={len(chosen.rows):5d}  groundedness {ours:.4f} [{low:.3f}, {high:.3f}]"
            f"  overlap {plain:.4f}  called ungrounded {caught:.2f}"
        )


def fit(path: Path) -> None:
    """Weights of the wording, from human labels and, counting little, rephrased answers.

    The bias comes from the rephrased answers alone.
    """
    human = load(path, tuning=True)
    rephrased = [a.case for a in answers("tuning") if a.kind == "rephrased"]
    pooled = [features(case)[0] for case in (*(row.case for row in human), *rephrased)]
    table = np.array([[found[name] for name in FEATURES] for found in pooled])
    labels = np.array([*(row.label for row in human), *(1 for _ in rephrased)])
    importance = np.repeat([1.0, REPHRASED], [len(human), len(rephrased)])
    spread = table[: len(human)].std(axis=0)
    weights = _logistic(np.column_stack([table / spread, np.ones(len(table))]), labels, importance)[:-1] / spread
    logits = np.sort(table[len(human) :] @ weights)
    print(f"BIAS = {-logits[int(ALARMS * len(logits))]:.3f}\nWEIGHTS: dict[str, float] = {{")
    for name, weight in zip(FEATURES, weights, strict=True):
        print(f'    "{name}": {weight:.3f},')
    print("}")


def _logistic(design: Floats, labels: NDArray[np.int64], importance: Floats) -> Floats:
    def loss(weights: Floats) -> tuple[float, Floats]:
        logits = np.clip(design @ weights, -30, 30)
        shrunk = np.append(weights[:-1], 0.0)
        total = (importance * (np.logaddexp(0, logits) - labels * logits)).sum() + PENALTY / 2 * (shrunk**2).sum()
        slope = design.T @ (importance * (1 / (1 + np.exp(-logits)) - labels)) + PENALTY * shrunk
        return float(total), slope

    found: Floats = minimize(loss, np.zeros(design.shape[1]), jac=True, method="L-BFGS-B").x
    return found


def speed(path: Path) -> None:
    """CPU time, so that other work on the machine hardly counts."""
    rows = load(path, tuning=False)
    started = time.process_time()
    for row in rows:
        word_overlap(row)
    plain = time.process_time() - started
    started = time.process_time()
    for row in rows:
        features(row.case)
    ours = time.process_time() - started
    sentences = sum(len(split_sentences(row.response)) for row in rows)
    print(f"\n{sentences / ours:,.0f} sentence-context pairs a CPU second, {ours / plain:.0f} x overlap's time")
    words = [word for row in rows for word in row.context.split()]
    contexts = [" ".join(words[start : start + 180]) for start in range(0, 50 * 180, 180)]
    answer = " ".join(" ".join(row.response for row in rows).split()[:1676])
    for name, case in (("short", Case(response=rows[0].response, contexts=[rows[0].context])),
                       ("1,676 words, 50 contexts of 180", Case(response=answer, contexts=contexts))):  # fmt: skip
        print(f"{name}: {1000 * statistics.median(_seconds(case) for _ in range(15)):.1f} ms of CPU (goals 2 and 60)")


def _seconds(case: Case) -> float:
    started = time.process_time()
    weakest(case)
    return time.process_time() - started


def report_answers(half: Half) -> None:
    """False alarms on supported answers, and for each edit AUC and share caught on both kinds of base."""
    given = list(answers(half))
    print(f"\nAnswers of the {half} half: false alarms (share of supported answers that do not pass)")
    for kind in ("verbatim", "dressed", "rephrased"):
        scores = np.array([weakest(a.case) for a in given if a.kind == kind])
        print(f"  {kind:12s} n={len(scores):4d}  {(scores < THRESHOLD).mean():.3f}")
    print(f"A sentence from nowhere at the end of a rephrased answer, caught: {_caught_sentences(given):.2f}")
    print(f"Edits of the {half} half: copies, AUC, share caught at the default threshold")
    tables = [_edit_table([a.case for a in given if a.kind == kind]) for kind in ("verbatim", "rephrased")]
    print(f"  {'':12s}{'verbatim':>24s}{'rephrased':>26s}")
    for kind in ("all", *KINDS):
        cells = [f"n={n:4d}  {area:.3f}  {caught:.2f}   " for n, area, caught in (table[kind] for table in tables)]
        print(f"  {kind:12s}" + "  ".join(cells))


def _caught_sentences(given: Sequence[Answer]) -> float:
    """Append the last sentence of the next answer to each, and give the context of the first alone."""
    cases = [a.case for a in given if a.kind == "rephrased"]
    scores = []
    for n, case in enumerate(cases):
        other = cases[n - n % 3 + (n + 1) % 3]
        made_up = split_sentences(other.response or "")[-1].text
        scores.append(weakest(Case(response=f"{case.response} {made_up}", contexts=[case.texts[n % 3]])))
    return float((np.array(scores) < THRESHOLD).mean())


def _edit_table(cases: Sequence[Case]) -> dict[str, tuple[int, float, float]]:
    kept = np.array([weakest(case) for case in cases])
    edits = [(e.kind, weakest(e.case)) for e in perturb(cases) if not e.supported]
    table = {}
    for kind in ("all", *KINDS):
        scores = np.array([score for made, score in edits if kind in ("all", made)])
        labels = np.concatenate([np.ones(len(kept), dtype=np.int64), np.zeros(len(scores), dtype=np.int64)])
        area = auc(labels, np.concatenate([kept, scores])) if len(scores) else float("nan")
        table[kind] = (len(scores), area, float((scores < THRESHOLD).mean()) if len(scores) else float("nan"))
    return table


def weakest(case: Case) -> float:
    """The score that decides `passing`; an answer that claims nothing passes."""
    try:
        return float(Groundedness().run(case).parts["weakest"])
    except MissingField:
        return 1.0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fit", action="store_true", help="print weights fitted on the tuning half")
    parser.add_argument("--tuning", action="store_true", help="report on the tuning half, as often as you like")
    options = parser.parse_args()
    if not options.fit:
        report_answers("tuning" if options.tuning else "test")
    path = data_file()
    if path is None:
        print("skipped: begin_wow_test.jsonl not found; set RAGPULSE_SHARED_DATA", file=sys.stderr)
        return 0
    if options.fit:
        fit(path)
    else:
        report(path, tuning=options.tuning)
        speed(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
