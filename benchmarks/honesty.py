"""Statistical promises: coverage of intervals, bias under risk sampling and budgets, false alarms, delays.

    python benchmarks/honesty.py [--short]

Every simulation samples traffic whose true mean is known, estimates it with the product's own functions, and compares;
where a peer has a formula, it is computed too. Exit 1 when a promise of docs/benchmarks.md is broken.
"""

from __future__ import annotations

import math
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import numpy as np

from ragpulse_collector.analysis.quality import estimates
from ragpulse_collector.analysis.selection import Window
from ragpulse_collector.app import Collector
from ragpulse_collector.demo.traffic import traffic, visits
from ragpulse_collector.records import Batch
from ragpulse_collector.sampling import Rule, Sampler
from ragpulse_collector.sampling.pacing import Controller
from ragpulse_collector.settings import Settings, Stratum
from ragpulse_collector.store import EmbeddedStore
from ragpulse_collector.store.protocol import utc_now
from ragpulse_collector.store.queries.traces import Filter
from ragpulse_collector.store.units.numbers import sampling_number
from ragpulse_evaluators.statistics import Interval, Moments, compare_arms, hajek, minus, ppi_mean, verdict, wilson

sys.path.insert(0, str(Path(__file__).parent))

import _cells
import _clustered
import _decided
import _labelled
import _planned
from _promises import Promise, run

NOON = datetime(2026, 11, 20, 12)


def moments_of(strata: Sequence[tuple[int, int, float]]) -> Moments | None:
    """The sums of strata of (scored, passed, pi)."""
    n, k = sum(s[0] for s in strata), sum(s[1] for s in strata)
    if n == 0:
        return None
    w, wy = sum(s[0] / s[2] for s in strata), sum(s[1] / s[2] for s in strata)
    ww, wwy = sum(s[0] / s[2] ** 2 for s in strata), sum(s[1] / s[2] ** 2 for s in strata)
    heaviest, lowest, highest = 1 / min(s[2] for s in strata if s[0]), 0.0 if k < n else 1.0, 1.0 if k else 0.0
    return Moments(n, n, w, wy, wy, ww, ww, wwy, wwy, wy, w, heaviest, heaviest, lowest, highest, 0)


def covers(moments: Moments | None, truth: float) -> bool:
    """Whether the interval holds the truth; without scores it does not."""
    if moments is None:
        return False
    lo, hi = moments.estimate()
    return lo is not None and hi is not None and lo <= truth <= hi


def unweighted_coverage(seeds: int) -> list[Promise]:
    """Each cell within Monte-Carlo error of Wilson's exact coverage; TruLens's normal interval beside it."""
    rng = np.random.default_rng(1)
    promises = []
    for p in (0.5, 0.8, 0.9, 0.95, 0.99):
        for n in (10, 20, 30, 100, 300, 1000):
            ks = rng.binomial(n, p, size=seeds)
            covered = {k: covers(moments_of([(n, k, 1.0)]), p) for k in range(n + 1)}
            share = float(np.mean([covered[int(k)] for k in ks]))
            exact = sum(_pmf(n, k, p) for k in range(n + 1) if _inside(wilson(k, n), p))
            error = 4.0 * math.sqrt(max(exact * (1 - exact), 1e-4) / seeds)
            normal = sum(_pmf(n, k, p) for k in range(n + 1) if abs(k / n - p) <= 1.96 * _normal_se(k, n))
            peer = f"Wilson exactly {exact:.3f}, mean +- 1.96 se {normal:.3f}"
            name = f"coverage at pass rate {p}, n {n}"
            promises.append(Promise(name, share, exact - error, exact + error, peer))
    return promises


def _pmf(n: int, k: int, p: float) -> float:
    log = math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)
    return math.exp(log + k * math.log(p) + (n - k) * math.log(1 - p))


def _inside(interval: Any, p: float) -> bool:
    return bool(interval.lo <= p <= interval.hi)


def _normal_se(k: int, n: int) -> float:
    return math.sqrt(k / n * (1 - k / n) / max(1, n - 1))


def weighted_coverage(seeds: int) -> list[Promise]:
    """Two strata with unequal probabilities, and graded scores with equal ones: the worst of all cells.

    0.93 from 30 on, 0.90 below, 0.94 on average (docs/benchmarks.md). Graded samples that are all 0 and 1 are yes
    or no. With equal weights these have Wilson's interval as published, which falls to 0.88 below 30 scored.
    """
    rng = np.random.default_rng(2)
    promises = []
    groups = {
        "yes or no, weighted": (_cells.cells(), 0.90),
        "graded, weighted": (_cells.graded_cells(), 0.90),
        "graded, equal weights": (_cells.equal_cells(), 0.88),
    }
    for group, (iterator, low_below_30) in groups.items():
        cells = list(iterator)
        cells = cells[:: 1 if seeds > 1000 or len(cells) < 500 else 4]  # the short form takes a quarter of large groups
        for size, low, part in (
            ("from 30 scored", 0.93, [cell for cell in cells if cell.scored >= 30]),
            ("below", low_below_30, [cell for cell in cells if 10 <= cell.scored < 30]),
        ):
            result = _cells.coverage_of(rng, part, seeds, measure=_cells.coverage)
            bound = low - 3.0 * math.sqrt(low * (1.0 - low) / seeds)
            name = f"{group}, {size}: "
            promises += [
                Promise(f"{name}worst of {result.count} cells", result.worst, bound, note=result.worst_label),
                Promise(f"{name}mean over cells", result.mean, 0.94),
            ]
    return promises


def clustered_coverage(seeds: int) -> list[Promise]:
    """Users who ask several times: at least 0.93 from ten effective users on, 0.90 with five to nine.

    A limit that lies at the truth is decided wrongly (the interval wholly above, or wholly below) in at most 3 %.
    """
    rng, step = np.random.default_rng(9), 1 if seeds > 1000 else 61
    cells = list(_clustered.cells())[::step]
    results = [(cell, _clustered.coverage(rng, cell, max(100, seeds // 10))) for cell in cells]
    promises = []
    for size, goal, first, last in (("10 and more", 0.93, 10.0, math.inf), ("5 to 9", 0.90, 5.0, 10.0)):
        band = [(cell, each) for cell, each in results if first <= each.effective < last and each.defined > 0.2]
        resampled = _clustered.resampled(rng, band, seeds)
        worst_cell, worst = min(resampled, key=lambda pair: pair[1].covered)
        wrong_cell, wrong = max(resampled, key=lambda pair: max(pair[1].above, pair[1].below))
        slack = 3.0 / math.sqrt(seeds)
        name = f"{size} effective users: "
        low = goal - slack * math.sqrt(goal * (1.0 - goal))
        promises += [
            Promise(f"{name}worst of {len(band)} cells", worst.covered, low, note=worst_cell.label),
            Promise(f"{name}mean over cells", float(np.mean([each.covered for _, each in band])), 0.94),
        ]
        if goal > 0.92:
            rate, high = max(wrong.above, wrong.below), 0.03 + slack * 0.17
            promises.append(Promise(f"{name}wrong at the limit", rate, high=high, note=wrong_cell.label))
    for users, pi in ((60, "pi 1"), (300, "pi 1/0.05")):  # cells with the most wrong decisions
        cell = _clustered.Cell(users, 3, "a user with a quarter", 0.2, "yes or no", 0.9, pi)
        result = _clustered.coverage(rng, cell, 10_000)
        name = "one user asks a quarter: wrong at the limit"
        promises.append(Promise(name, max(result.above, result.below), high=0.03, note=cell.label))
    return promises


def independent_answers(seeds: int) -> list[Promise]:
    """Users with uncorrelated answers (ICC 0) cost little width against answers that are known to be independent."""
    rng, promises = np.random.default_rng(10), []
    for users, each, law, mean, high in (
        (20, 10, "yes or no", 0.5, 1.10), (60, 10, "yes or no", 0.5, 1.055), (60, 10, "yes or no", 0.9, 1.07),
        (300, 10, "yes or no", 0.9, 1.05), (300, 10, "graded", 0.9, 1.05),
    ):  # fmt: skip
        cell = _clustered.Cell(users, each, "equal", 0.0, law, mean, "pi 1")
        y, w, owner = _clustered.sample(rng, cell, seeds)
        clustered = _mean_width(_clustered.sums(y, w, owner, seeds, users))
        independent = _mean_width(_clustered.sums(y, w, np.arange(len(y)), seeds, users * each))
        name = f"{users} users x {each}, {law} {mean}, ICC 0: width x independent"
        promises.append(Promise(name, clustered / independent, high=high))
    return promises


def _mean_width(samples: Iterable[Moments | None]) -> float:
    return float(np.mean([_width(moments.estimate()) for moments in samples if moments is not None]))


def no_difference(seeds: int) -> list[Promise]:
    """A/A: two arms of the same service, or the same answers twice, differ significantly in at most 5 %."""
    rng, promises = np.random.default_rng(11), []
    for users, each, sizes, icc in ((20, 10, "equal", 0.2), (60, 10, "zipf", 0.3), (40, 3, "equal", 0.5)):
        cell = _clustered.Cell(users, each, sizes, icc, "yes or no", 0.9, "pi 1")
        arms = [list(_clustered.sums(*_clustered.sample(rng, cell, seeds), seeds, users)) for _ in range(2)]
        unpaired = [_differ(a, b) for a, b in zip(*arms, strict=True) if a is not None and b is not None]
        y, w, owner = _clustered.sample(rng, cell, seeds)
        second = _clustered.scores(rng, cell, owner, seeds * users)
        paired = [_paired_differ(y, second, w, owner, row, users) for row in range(min(seeds, 400))]
        setting = f"{users} users x {each} ({sizes}), ICC {icc}: false differences"
        high = 0.05 + 3.0 * math.sqrt(0.05 * 0.95 / seeds)
        promises.append(Promise(f"A/A, {setting}", sum(unpaired) / len(unpaired), high=high))
        high = 0.05 + 3.0 * math.sqrt(0.05 * 0.95 / len(paired))
        promises.append(Promise(f"A/A paired, {setting}", sum(paired) / len(paired), high=high))
    return promises


def _differ(a: Moments, b: Moments) -> bool:
    first, second = (Interval.of(arm.estimate()) for arm in (a, b))
    if first is None or second is None:
        return False
    difference = minus(first, second)
    return difference.lo > 0.0 or difference.hi < 0.0


def _paired_differ(y: Any, second: Any, w: Any, owner: Any, row: int, users: int) -> bool:
    rows = owner // users == row
    difference = hajek(
        (y - second)[rows].tolist(), (1.0 / w[rows]).tolist(), clusters=owner[rows].tolist(), bounds=(-1.0, 1.0)
    )
    assert difference is not None
    return bool(difference.lo is not None and (difference.lo > 0.0 or (difference.hi or 0.0) < 0.0))


def _strata(
    rng: Any, total: int, risky: float, passing: tuple[float, float], probabilities: tuple[float, float]
) -> list[tuple[int, int, float]]:
    """Traffic of which a share is risky, each stratum sampled with its probability: (scored, passed, pi) of both."""
    first = int(rng.binomial(total, risky))
    strata = []
    for size, p, pi in zip((first, total - first), passing, probabilities, strict=True):
        n = int(rng.binomial(size, pi))
        strata.append((n, int(rng.binomial(n, p)), pi))
    return strata


def risk_oversampled(seeds: int) -> list[Promise]:
    """Risky traces sampled at 0.5 instead of 0.02: the plain mean is 0.63 where the truth is 0.905."""
    rng = np.random.default_rng(3)
    weighted, naive = [], []
    risky, passing, probabilities = 0.1, (0.5, 0.95), (0.5, 0.02)
    truth = risky * passing[0] + (1 - risky) * passing[1]
    for _ in range(seeds):
        strata = _strata(rng, 20_000, risky, passing, probabilities)
        moments = moments_of(strata)
        assert moments is not None
        weighted.append(moments.mean)
        naive.append(sum(s[1] for s in strata) / sum(s[0] for s in strata))
    error = 4.0 * float(np.std(weighted)) / math.sqrt(seeds)
    bias = abs(float(np.mean(weighted)) - truth)
    note = f"naive {np.mean(naive):.3f} for {truth:.3f}"
    return [Promise("risk sampling: bias of the weighted mean", bias, high=max(0.002, error), note=note)]


def upstream_errors(seeds: int) -> list[Promise]:
    """A sampler before the collector keeps every failure and one in sixteen of the rest: the error rate's interval.

    0.93 in every cell, and no bias. It is wider than if all requests were stored, since one failure more among the few
    heavy requests would count sixteen times.
    """
    rng, promises = np.random.default_rng(12), []
    for total, rate, widest in ((1_200, 0.05, 2.8), (12_000, 0.0188, 1.7), (12_000, 0.1, 1.8)):
        of_all = wilson(rate * total, total)
        assert of_all is not None
        found = [_kept_errors(rng, total, rate) for _ in range(seeds)]
        covered = float(np.mean([each.lo <= rate <= each.hi for each in found]))
        width = float(np.mean([_width(each) for each in found])) / _width(of_all)
        values = [each.value for each in found]
        name, error = f"upstream, {total} requests, {rate}: ", float(np.std(values)) / math.sqrt(seeds)
        promises += [
            Promise(f"{name}coverage", covered, 0.93 - 3.0 * math.sqrt(0.93 * 0.07 / seeds)),
            Promise(f"{name}width x all stored", width, high=widest),
            Promise(f"{name}bias in standard errors", abs(float(np.mean(values)) - rate) / error, high=4.0),
        ]
    return promises


def _kept_errors(rng: Any, total: int, rate: float) -> Interval:
    failed = int(rng.binomial(total, rate))
    kept = int(rng.binomial(total - failed, 1 / 16))
    found = Interval.of(hajek([1.0] * failed + [0.0] * kept, [1.0] * failed + [1 / 16] * kept))
    assert found is not None
    return found


def uneven_day(seeds: int) -> list[Promise]:
    """Good mornings and bad evenings under a budget for a thousand: pacing by pi, against first come first served."""
    rng = np.random.default_rng(4)
    biases, first_come = [], []
    for _ in range(seeds):
        controller, budget = Controller(floor=0.01), 1000.0 * 0.9
        strata: list[tuple[int, int, float]] = []
        good_total, total, taken, passed = 0.0, 0, 0, 0
        for minute in range(1440):
            n = int(rng.poisson(14 if 480 <= minute < 1200 else 4))
            good = int(rng.binomial(n, 0.95 if minute < 720 else 0.75))
            good_total, total = good_total + good, total + n
            early = min(n, 1000 - taken)
            passed += int(rng.hypergeometric(good, n - good, early)) if early and n else 0
            taken += early
            pi = controller.scale
            judged = int(rng.binomial(n, pi))
            ok = int(rng.hypergeometric(good, n - good, judged)) if judged else 0
            strata.append((judged, ok, pi))
            budget -= judged
            controller.update(usd=n * pi, seconds=60, budget_usd=max(0.0, budget), remaining_s=86_400 - 60 * minute)
        moments = moments_of([stratum for stratum in strata if stratum[0]])
        assert moments is not None
        biases.append(moments.mean - good_total / total)
        first_come.append(passed / taken - good_total / total)
    bias, error = abs(float(np.mean(biases))), 4.0 * float(np.std(biases)) / math.sqrt(seeds)
    note = f"first come {np.mean(first_come):+.3f}"
    return [Promise("uneven day under a budget: bias with pacing", bias, high=max(0.005, error), note=note)]


def peeking(runs: int) -> list[Promise]:
    """A/A with correlated answers of a user (ICC 0.2) and twenty interim tests; and a planted drop."""
    rng = np.random.default_rng(5)
    alarms, naive, detected = 0, 0, 0
    for number in range(runs):
        alarms += _peek(rng, effect=0.0) != "undecided"
        naive += _peek(rng, effect=0.0, independent=True) != "undecided"
        detected += number % 2 == 0 and _peek(rng, effect=0.15) == "worse"
    slack = 3.0 * math.sqrt(0.05 * 0.95 / runs)
    name, note = "A/A false alarms under peeking, clustered by user", f"counted as independent {naive / runs:.2f}"
    return [
        Promise(name, alarms / runs, high=0.05 + slack, note=note),
        Promise("a drop of 0.15 found within 4,000 answers of 200 users", detected / math.ceil(runs / 2), low=0.8),
    ]


def _peek(rng: Any, *, effect: float, independent: bool = False) -> str:
    """Test after every 200 answers; return the first verdict `better` or `worse`, else `undecided`."""
    users = np.arange(200)
    rates = rng.beta(0.8 * 4, 0.2 * 4, size=200)  # mean 0.8, ICC 0.2
    arm = users % 2
    rates = np.clip(rates - effect * arm, 0.0, 1.0)
    order = rng.integers(0, 200, size=4000)
    values = (rng.random(4000) < rates[order]).astype(float)
    p = 1.0
    for stop in range(200, 4001, 200):
        sides = []
        for side in (1, 0):
            rows = arm[order[:stop]] == side
            clusters = np.flatnonzero(rows) if independent else order[:stop][rows]
            answers = values[:stop][rows].tolist()
            sides.append(hajek(answers, [1.0] * len(answers), clusters=clusters.tolist()))
        test = compare_arms(sides[0], sides[1], tau=0.1, previous_p=p)
        p = 1.0 if test is None else test.p
        if (result := verdict(sides, test)) in ("better", "worse"):
            return result
    return "undecided"


def labels(runs: int) -> list[Promise]:
    """A judge that agrees with people (correlation 0.8 and more), ten times more judged than labelled."""
    return [*_labels(runs, count=100, graded=True), *_labels(runs, count=100, graded=False)]


def _labels(runs: int, *, count: int, graded: bool) -> list[Promise]:
    rng = np.random.default_rng(6)
    narrower, covered, covered_alone, correlation = [], 0, 0, []
    for _ in range(runs):
        if graded:
            truth = np.clip(rng.normal(0.6, 0.15, size=10 * count), 0, 1)
            judge = np.clip(truth + rng.normal(0.0, 0.1, size=10 * count), 0, 1)
        else:
            truth = (rng.random(10 * count) < 0.7).astype(float)
            judge = np.where(rng.random(10 * count) < 0.08, 1 - truth, truth)
        mean = 0.6 if graded else 0.7
        correlation.append(float(np.corrcoef(truth, judge)[0, 1]))
        labelled = rng.choice(10 * count, size=count, replace=False)
        human = truth[labelled].tolist()
        both, alone = ppi_mean(judge.tolist(), judge[labelled].tolist(), human), hajek(human, [1.0] * count)
        assert both is not None
        assert alone is not None
        narrower.append(1.0 - _width(both) / _width(alone))
        covered += _inside(both, mean)
        covered_alone += _inside(alone, mean)
    slack = 3.0 * math.sqrt(0.95 * 0.05 / runs)
    name = f"PPI, {count} {'graded' if graded else 'yes-or-no'} labels"
    low = 0.30 - 3.0 * float(np.std(narrower)) / math.sqrt(runs)
    note = f"correlation {np.mean(correlation):.2f}"
    return [
        Promise(f"{name}: narrower than labels alone by", float(np.mean(narrower)), low=low, note=note),
        Promise(f"{name}: coverage", covered / runs, low=0.94 - slack, note=f"labels alone {covered_alone / runs:.3f}"),
    ]


def _width(interval: Any) -> float:
    return float(interval.hi - interval.lo)


def salts(count: int) -> list[Promise]:
    """Traffic through a real collector, all scored; sampled again with each salt, the series equals the estimator."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "salts.duckdb"
        _collect(path, rounds=6 if count > 2 else 1)
        store = EmbeddedStore(path, decode=lambda _: Batch())
        try:
            rows = store.read(
                "SELECT s.trace_id, s.span_id, s.normalized, if(t.prompt_version = 'v2', 1, 0.1)::DOUBLE,"
                " coalesce(t.user_id, t.session_id, t.trace_id)"
                " FROM scores s JOIN traces t USING (trace_id) WHERE s.evaluator = 'groundedness' AND s.status = 'ok'"
            ).rows
            largest = max(_difference(store, rows, f"salt {number}") for number in range(count))
        finally:
            store.close()
    name = f"{count} salts over {len(rows)} answers of a real collector: series against hajek(), largest difference"
    return [Promise(name, largest, high=1e-9)]


def _collect(path: Path, *, rounds: int) -> None:
    """Requests of the demo over OTLP/HTTP, decided and evaluated at rate 1."""
    collector = Collector(Settings().with_options("collector", {"db": str(path), "port": 0, "settle_s": 0.0}))
    collector.start()
    try:
        requests, deadline = visits(rounds=rounds), time.monotonic() + 60
        for body in traffic(requests):
            headers = {"Content-Type": body.content_type}
            urlopen(Request(f"{collector.url}/v1/{body.signal}", data=body.body, headers=headers), timeout=30).close()
        while collector.store.read("SELECT count(*) FROM scores").rows[0][0] < 4 * len(requests):
            if time.monotonic() > deadline:
                raise SystemExit("not evaluated within a minute")
            time.sleep(0.05)
    finally:
        collector.stop()


def _difference(store: EmbeddedStore, scored: Sequence[tuple[str, str, float, float, str]], salt: str) -> float:
    """Decide again with a salt; the largest difference of the store's estimate from `hajek`."""

    def delete_decisions(tx: Any) -> None:
        for table in ("trace_facts", "decisions", "eval_jobs"):
            tx.execute(f"DELETE FROM raw.{table}")
        tx.execute("DELETE FROM raw.meta WHERE key = 'low_water'")

    strata = (Stratum(where="prompt_version = 'v2'", rate=1.0),)
    rule = Rule(name="r", evaluators=("groundedness",), rate=0.1, strata=strata)
    store.write(delete_decisions).result()
    Sampler(store, lambda: [rule], salt=salt).decide(utc_now() + timedelta(minutes=1))
    sampled = [(value, pi, user) for trace, span, value, pi, user in scored if sampling_number(salt, trace, span) < pi]
    values, pis, users = (list(column) for column in zip(*sampled, strict=True))
    expected = hajek(values, pis, clusters=users)
    (bucket,) = estimates(store, "groundedness", Window(NOON - timedelta(days=9999), utc_now(), 0), Filter())
    actual = bucket.estimate
    assert expected is not None
    assert actual is not None
    pairs = zip((actual.estimate, *actual, actual.n_eff), (expected.estimate, *expected, expected.n_eff), strict=True)
    return max(abs(float(a or 0.0) - float(b or 0.0)) for a, b in pairs)


SIMULATIONS: dict[str, tuple[Callable[[int], list[Promise]], int, int]] = {
    "unweighted": (unweighted_coverage, 500, 5000),
    "weighted": (weighted_coverage, 400, 5000),
    "clustered": (clustered_coverage, 400, 4000),
    "unlike": (independent_answers, 200, 1000),
    "a/a": (no_difference, 200, 4000),
    "risk": (risk_oversampled, 100, 5000),
    "upstream": (upstream_errors, 60, 2000),
    "plan": (_planned.planned, 12, 200),
    "classes": (_planned.by_class, 60, 400),
    "day": (uneven_day, 6, 100),
    "peeking": (peeking, 12, 400),
    "labels": (labels, 60, 2000),
    "decided": (_decided.decided, 20, 1000),
    "by class": (_labelled.by_class, 4, 400),
    "salts": (salts, 2, 20),
}
"""Name → simulation, the number of samples in the short form (the tests) and in the full one."""


def main() -> int:
    """Run every simulation and print each figure with its bounds."""
    return run(__doc__, {name: (partial(f, short), partial(f, full)) for name, (f, short, full) in SIMULATIONS.items()})


if __name__ == "__main__":
    sys.exit(main())
