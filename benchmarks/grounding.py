"""`groundedness` against people, beside two plain baselines: share of known words, best pair overlap.

    python benchmarks/grounding.py

Every score is one of models that never saw the document of the answer (five folds by document). The baselines are the
share of the answer's words that some context holds, and the share of its neighbouring words that one context holds.
Data: see `_grounding_model.py`; those of others are in RAGPULSE_SHARED_DATA or ../shared/data.
"""

import argparse
import io
import json
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path

import numpy as np
from _grounding_model import TASKS, Answer, Bools, Fit, Floats, data_folder, measure_all
from fit_grounding import FILE, verdicts
from numpy.typing import NDArray
from scipy.stats import rankdata

from ragpulse_evaluators.case import Case
from ragpulse_evaluators.grounding.evidence import index_of
from ragpulse_evaluators.grounding.facts import quantities
from ragpulse_evaluators.grounding.groundedness import assess
from ragpulse_evaluators.grounding.model import measure
from ragpulse_evaluators.grounding.text import words

RESAMPLES = 300
SETS = (*TASKS, "begin", "close", "free", "verbatim, edited", "rephrased, edited")
COPIES = (
    *("number", "date", "unit", "negation", "antonym", "comparative", "entity", "name", "elsewhere", "quantifier"),
    *("clause", "subject", "attribution", "glued", "role"),
)
BASE_TIMES = 3.0
_WORD = re.compile(r"\w+")


def known_words(answer: Answer) -> float:
    """Return the share of words that some context holds."""
    said = _WORD.findall((answer.case.response or "").lower())
    known = set(_WORD.findall(" ".join(answer.case.texts).lower()))
    return sum(word in known for word in said) / max(1, len(said))


def known_pairs(answer: Answer) -> float:
    """Return the largest share of neighbouring words that one context holds."""
    said = list(pairwise(_WORD.findall((answer.case.response or "").lower())))
    contexts = [set(pairwise(_WORD.findall(text.lower()))) for text in answer.case.texts]
    return max((sum(pair in known for pair in said) / max(1, len(said)) for known in contexts), default=0.0)


def auc(bad: Bools, scores: Floats) -> float:
    """Return the probability that a good answer has the higher score."""
    ranks, n, m = rankdata(scores), int((~bad).sum()), int(bad.sum())
    return float((ranks[~bad].sum() - n * (n + 1) / 2) / (n * m)) if n and m else float("nan")


def interval(groups: NDArray[np.str_], statistic: Callable[[NDArray[np.intp]], float]) -> tuple[float, float, float]:
    """Estimate with a 95 % interval by resampling documents."""
    places = [np.flatnonzero(groups == group) for group in np.unique(groups)]
    rng = np.random.default_rng(0)
    draws = [
        statistic(np.concatenate([places[g] for g in rng.integers(len(places), size=len(places))]))
        for _ in range(RESAMPLES)
    ]
    low, high = np.nanpercentile(draws, [2.5, 97.5])
    return statistic(np.arange(len(groups))), float(low), float(high)


def chosen(fit: Fit, name: str) -> Bools:
    """Select a set; edited answers come beside the originals that they were made from."""
    found: Bools = (fit.tasks == name) | (fit.tasks == name.removesuffix(", edited"))
    return found & np.array([a.reporting for a in fit.answers])


def report_ranking(fit: Fit) -> None:
    """Print AUC of `weakest`, `score` and both baselines, and the difference to known words."""
    baselines = [np.array([f(a) for a in fit.answers]) for f in (known_words, known_pairs)]
    documents = np.array([a.document for a in fit.answers])
    print(f"{'AUC, answers':20s}{'weakest':>23s}{'score':>23s}{'words':>8s}{'pairs':>8s}{'weakest - words':>26s}")
    for name in SETS:
        mask = chosen(fit, name)
        bad, groups = fit.bad[mask], documents[mask]
        ours, score, known, paired = (s[mask] for s in (fit.weakest, fit.score, *baselines))
        cells = [_cell(*interval(groups, partial(_difference, bad, s, None))) for s in (ours, score)]
        gain = _cell(*interval(groups, partial(_difference, bad, ours, known)))
        print(f"{name:20s}{cells[0]}{cells[1]}{auc(bad, known):8.3f}{auc(bad, paired):8.3f}{gain}")
    print(f"\n{'AUC, sentences':20s}")
    for task in TASKS:
        mask = (fit.tasks == task)[fit.owner] & (fit.labels >= 0)
        wrong = fit.labels[mask] == 1
        statistic = partial(_difference, wrong, fit.claim_logits[mask], None)
        print(f"{task:20s}{_cell(*interval(documents[fit.owner][mask], statistic))}")


def _difference(bad: Bools, scores: Floats, others: Floats | None, rows: NDArray[np.intp]) -> float:
    """Return the AUC of the scores of some rows, minus that of others."""
    return auc(bad[rows], scores[rows]) - (0.0 if others is None else auc(bad[rows], others[rows]))


def _cell(value: float, low: float, high: float) -> str:
    return f"   {value:.3f} [{low:+.3f}, {high:+.3f}]" if low < 0 else f"   {value:.3f} [{low:.3f}, {high:.3f}]"


def report_verdicts(fit: Fit) -> None:
    """Print how many answers get a verdict and how many of those are wrong, with intervals, and whether floors hold."""
    failed, passed = verdicts(fit)
    documents, reporting = np.array([a.document for a in fit.answers]), np.array([a.reporting for a in fit.answers])
    print("\nverdicts by thresholds that never saw the document")
    for name in (*SETS[:-2], "verbatim", "dressed", "rephrased", *SETS[-2:]):
        for bad in (False, True):
            mask = (fit.tasks == name) & (fit.bad == bad) & reporting
            if mask.any():
                given = documents[mask], failed[mask], (failed | passed)[mask]
                cells = (_share(*given, _decided), _share(*given, _of_decided), _share(*given, _of_all))
                print(
                    f"{name:20s}{'bad ' if bad else 'good'}  clear{cells[0]}  fail of clear{cells[1]}  of all{cells[2]}"
                )
                _print_floors(name, bad, [[float(x) for x in cell] for cell in cells])
    for name in TASKS:
        task = fit.tasks == name
        print(
            f"bad among those that fail, {name}: {fit.bad[task & failed].mean():.2f}, of all {fit.bad[task].mean():.2f}"
        )
    caught = failed[(fit.tasks == "verbatim, edited") & reporting].mean()
    print(f"\ncaught on copies {caught:.2f}, by edit: " + ", ".join(_caught(fit, failed, kind) for kind in COPIES))


class _Cell(tuple[float, float, float]):
    """An estimate and its interval, printed as both."""

    def __str__(self) -> str:
        return " {:.3f} [{:.3f}, {:.3f}]".format(*self)


def _share(groups: NDArray[np.str_], failed: Bools, clear: Bools, statistic: Callable[[Bools, Bools], float]) -> _Cell:
    return _Cell(interval(groups, lambda rows: statistic(failed[rows], clear[rows])))


def _decided(failed: Bools, clear: Bools) -> float:
    return float(clear.mean())


def _of_decided(failed: Bools, clear: Bools) -> float:
    return float(failed[clear].mean()) if clear.any() else float("nan")


def _of_all(failed: Bools, clear: Bools) -> float:
    return float(failed.mean())


FLOORS = {
    ("qa", False): (0.45, 0.05),
    ("qa", True): (0.45, 0.6),
    ("verbatim", False): (0.9, 0.05),
    ("verbatim, edited", True): (0.9, 0.6),
}
"""Wanted: at least this share clear, and of those at most (good) or at least (bad) this share failing."""


def _print_floors(name: str, bad: bool, cells: Sequence[Sequence[float]]) -> None:
    if wanted := FLOORS.get((name, bad)):
        clear = cells[0][2] >= wanted[0]
        failing = cells[1][2] >= wanted[1] if bad else cells[1][1] <= wanted[1]
        told = ["inside the interval or better" if met else "MISSED" for met in (clear, failing)]
        print(f"{'':26s}clear wanted {wanted[0]:.2f}: {told[0]}; fail wanted {wanted[1]:.2f}: {told[1]}")


def _caught(fit: Fit, failing: Bools, kind: str) -> str:
    writers = np.array([a.writer for a in fit.answers])
    mask = (fit.tasks == "verbatim, edited") & (writers == kind) & np.array([a.reporting for a in fit.answers])
    return f"{kind} {failing[mask].mean():.2f} (n={mask.sum()})"


def report_objections(fit: Fit) -> None:
    """Print how often people marked what each kind of objection fires on, beside the base rate of each set.

    Models hardly ever edit a copied sentence, so those objections are shown on replies and on pairs, too.
    """
    print(f"\nobjections, wanted {BASE_TIMES:.0f} times the base rate of RAGTruth, or as much with a base rate like it")
    for name in ("ragtruth", "begin", "pairs"):
        found = [
            ({_kind(objection) for objection in findings.objections}, label)
            for answer in fit.answers
            if answer.set == name
            for (*_, findings), label in zip(answer.claims, answer.labels(), strict=True)
            if label is not None
        ]
        wrong = sum(label for _, label in found)
        print(f"  {name}, base rate {wrong / len(found):.2f}")
        fired = Counter((kind, label) for kinds, label in found for kind in kinds)
        for kind in sorted({kind for kind, _ in fired}):
            right, all_ = fired[kind, 1], fired[kind, 0] + fired[kind, 1]
            odds = (right / wrong) / max(1e-9, right / wrong + 9 * fired[kind, 0] / (len(found) - wrong))
            print(f"    {kind:30s} fired {all_:4d}  right {right / all_:.2f}, at a base rate of .10 {odds:.2f}")


def _kind(objection: str) -> str:
    if "added to" in objection:
        return "a clause added to a copy"
    if "negated" in objection:
        return "negation in a copy"
    if "“" in objection:
        return "a JSON value that says no"
    return "another word in a copy" if objection.startswith("'") else "another quantity"


def report_derived(fit: Fit) -> None:
    """Print how many random wrong numbers are taken for sums, shares and the like of the evidence."""
    rng = np.random.default_rng(0)
    for task in TASKS:
        tried = passed = 0
        for answer in [a for a in fit.answers if a.task == task]:
            index = index_of(answer.case.texts)
            for start, end, _ in answer.claims:
                text = (answer.case.response or "")[start:end]
                found = [q for q in quantities(words(text)) if q.text.isdigit()]
                if found:
                    other = str(int(found[0].text) + int(rng.integers(1, 40)))
                    tokens = words(text.replace(found[0].text, other, 1))
                    support = index.support(tokens)
                    held = any(q.text == other for s in index.sentences for q in s.quantities)
                    if not held:
                        tried += 1
                        passed += measure(tokens, support, index).features["lost"] == 0.0
        print(f"random wrong numbers accepted, {task}: {passed / max(1, tried):.3f} (n={tried})")


FORMER = "def91741"
"""The last commit with version 4 of `groundedness`."""
_FORMER_SCRIPT = """
import json, sys, time
from ragpulse_evaluators.grounding.groundedness import assess
scores, started = [], time.process_time()
for response, contexts in json.load(sys.stdin):
    scores.append(assess(response, contexts).weakest or 0.0)
print(json.dumps([scores, time.process_time() - started]))
"""


def former(cases: Sequence[Case]) -> tuple[Floats, float] | None:
    """Return `weakest` of version 4 for each case, and its CPU time; its code comes from git, None without that."""
    root = Path(__file__).parents[1]
    archive = subprocess.run(["git", "-C", root, "archive", FORMER, "evaluators"], capture_output=True, check=False)
    if archive.returncode:
        return None
    given = json.dumps([[case.response or "", case.texts] for case in cases])
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as code:
            code.extractall(folder, filter="data")
        environment = os.environ | {"PYTHONPATH": f"{folder}/evaluators"}
        command = [sys.executable, "-c", _FORMER_SCRIPT]
        done = subprocess.run(command, input=given, text=True, capture_output=True, check=True, env=environment)
    scores, seconds = json.loads(done.stdout)
    return np.array(scores), seconds


def report_former(fit: Fit) -> None:
    """Print the difference to version 4 on BEGIN, answer by answer, and the CPU time of both on the same answers."""
    documents = np.array([a.document for a in fit.answers])
    for name, rows in (("all", fit.tasks == "begin"), ("for reports", chosen(fit, "begin"))):
        before = former([a.case for a, here in zip(fit.answers, rows, strict=True) if here])
        if before is None:
            print("no version 4: this is no git checkout")
            return
        bad, ours = fit.bad[rows], (fit.weakest[rows], fit.score[rows])
        cells = [_cell(*interval(documents[rows], partial(_difference, bad, scores, before[0]))) for scores in ours]
        print(
            f"BEGIN, {name} ({rows.sum()}): version 4 {auc(bad, before[0]):.3f}, weakest {auc(bad, ours[0]):.3f},"
            f" paired{cells[0]}, score{cells[1]}"
        )
    given = [a.case for a in fit.answers if a.set == "ragtruth"][::4]
    _, seconds = former(given) or (None, float("nan"))
    started = time.process_time()
    for case in given:
        assess(case.response or "", case.texts)
    now = time.process_time() - started
    each = 1000 / len(given)
    print(f"\n{each * now:.2f} ms of CPU for each of {len(given)} answers, version 4 {each * seconds:.2f} ms")


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.parse_args(arguments)
    if not (data_folder() / "ragtruth_dev.jsonl").is_file():
        print("skipped: ragtruth_dev.jsonl not found; set RAGPULSE_SHARED_DATA", file=sys.stderr)
        return 0
    fit = Fit(measure_all())
    print(f"weights in {FILE.name}; every score below is cross-validated by document\n")
    for report in (report_ranking, report_verdicts, report_objections, report_derived, report_former):
        report(fit)
    return 0


if __name__ == "__main__":
    sys.exit(main())
