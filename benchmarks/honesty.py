"""Are the numbers what they say: coverage of intervals, bias under risk sampling and budgets, false alarms, delays.

    python benchmarks/honesty.py [--short]

Every simulation draws traffic whose truth is known, lets the product's own functions estimate it, and compares with
the truth; a peer's formula runs beside it where there is one. Exit 1 when a promise of docs/quality.md is broken.
"""

from __future__ import annotations

import importlib
import math
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import numpy as np

from ragpulse_collector.analysis.quality import estimates
from ragpulse_collector.analysis.selection import Filter, Window
from ragpulse_collector.app import Collector
from ragpulse_collector.demo.traffic import traffic, visits
from ragpulse_collector.records import Batch
from ragpulse_collector.sampling import Rule, Sampler, Stratum
from ragpulse_collector.sampling.pacing import Controller
from ragpulse_collector.settings import Settings
from ragpulse_collector.store import EmbeddedStore
from ragpulse_collector.store.queries.decisions import sampling_number
from ragpulse_collector.store.rows import utc_now
from ragpulse_evaluators.statistics import Interval, Moments, compare_arms, hajek, minus, ppi_mean, verdict, wilson

sys.path.insert(0, str(Path(__file__).parent))
CELLS, ASSISTED, CLUSTERED, PROMISES = (
    importlib.import_module(name) for name in ("_cells", "_assisted", "_clustered", "_promises")
)
Promise = PROMISES.Promise
NOON = datetime(2026, 11, 20, 12)


def moments_of(strata: Sequence[tuple[int, int, float]]) -> Moments | None:
    """The sums of scored units given per stratum as (scored, passed, pi)."""
    n, k = sum(s[0] for s in strata), sum(s[1] for s in strata)
    if n == 0:
        return None
    w, wy = sum(s[0] / s[2] for s in strata), sum(s[1] / s[2] for s in strata)
    ww, wwy = sum(s[0] / s[2] ** 2 for s in strata), sum(s[1] / s[2] ** 2 for s in strata)
    rarest, least, most = min(s[2] for s in strata if s[0]), 0.0 if k < n else 1.0, 1.0 if k else 0.0
    return Moments(n, n, w, wy, wy, ww, ww, wwy, wwy, wy, w, 1 / rarest, 1 / rarest, least, most, 0)


def covers(found: Moments | None, truth: float) -> bool | None:
    """Whether the interval holds the truth; None where nothing was scored."""
    if found is None:
        return None
    lo, hi = found.estimate()
    return lo is not None and hi is not None and lo <= truth <= hi


def unweighted_coverage(seeds: int) -> list[Promise]:
    """Each cell within Monte-Carlo error of Wilson's exact coverage; TruLens's normal interval beside it."""
    chance = np.random.default_rng(1)
    found = []
    for p in (0.5, 0.8, 0.9, 0.95, 0.99):
        for n in (10, 20, 30, 100, 300, 1000):
            ks = chance.binomial(n, p, size=seeds)
            known = {int(k): bool(covers(moments_of([(n, int(k), 1.0)]), p)) for k in range(n + 1)}
            seen = float(np.mean([known[int(k)] for k in ks]))
            exact = sum(_pmf(n, k, p) for k in range(n + 1) if _inside(wilson(k, n), p))
            error = 4.0 * math.sqrt(max(exact * (1 - exact), 1e-4) / seeds)
            normal = sum(_pmf(n, k, p) for k in range(n + 1) if abs(k / n - p) <= 1.96 * _normal_se(k, n))
            peer = f"Wilson exactly {exact:.3f}, mean +- 1.96 se {normal:.3f}"
            found.append(Promise(f"coverage at pass rate {p}, n {n}", seen, exact - error, exact + error, peer))
    return found


def _pmf(n: int, k: int, p: float) -> float:
    log = math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)
    return math.exp(log + k * math.log(p) + (n - k) * math.log(1 - p))


def _inside(interval: Any, p: float) -> bool:
    return bool(interval.lo <= p <= interval.hi)


def _normal_se(k: int, n: int) -> float:
    return math.sqrt(k / n * (1 - k / n) / max(1, n - 1))


def weighted_coverage(seeds: int) -> list[Promise]:
    """Two strata drawn with unequal chances, and graded scores of equal ones: the worst of all cells.

    0.93 from 30 scored on, 0.90 below, 0.94 in the mean (docs/quality.md). Graded draws that are all 0 and 1 are yes or
    no, and of equal weights have Wilson's interval as published, with its dips below 30 scored: 0.88.
    """
    chance = np.random.default_rng(2)
    found = []
    kinds = {
        "yes or no, weighted": (CELLS.cells(), 0.90),
        "graded, weighted": (CELLS.graded_cells(), 0.90),
        "graded, equal weights": (CELLS.equal_cells(), 0.88),
    }
    for kind, (all_of_kind, least_below) in kinds.items():
        known = list(all_of_kind)
        known = known[:: 1 if seeds > 1000 or len(known) < 500 else 4]  # the short form looks at a quarter of the many
        for told, least, some in (
            ("from 30 scored", 0.93, [cell for cell in known if cell.scored >= 30]),
            ("below", least_below, [cell for cell in known if 10 <= cell.scored < 30]),
        ):
            seen, slack = (
                CELLS.worst(chance, some, seeds, covered=CELLS.coverage),
                3.0 * math.sqrt(least * (1.0 - least) / seeds),
            )
            name = f"{kind}, {told}: "
            found.append(Promise(f"{name}worst of {seen.count} cells", seen.worst, least - slack, note=seen.where))
            found.append(Promise(f"{name}mean over cells", seen.mean, 0.94))
    return found


def clustered_coverage(seeds: int) -> list[Promise]:
    """Users who ask several times: at least 0.93 from ten effective users on, 0.90 with five to nine.

    A limit that lies at the truth is decided wrongly (the interval wholly above, or wholly below) in at most 3 %.
    """
    chance, every = np.random.default_rng(9), 1 if seeds > 1000 else 61
    few = max(100, seeds // 10)
    seen = [(cell, CLUSTERED.look(chance, cell, few)) for cell in list(CLUSTERED.cells())[::every]]
    found = []
    for told, goal, first, last in (("10 and more", 0.93, 10.0, math.inf), ("5 to 9", 0.90, 5.0, 10.0)):
        band = [(cell, one) for cell, one in seen if first <= one.effective < last and one.shown > 0.2]
        sure = CLUSTERED.redrawn(chance, band, seeds)
        worst = min(sure, key=lambda pair: pair[1].covered)
        wrong = max(sure, key=lambda pair: max(pair[1].above, pair[1].below))
        rate, slack = max(wrong[1].above, wrong[1].below), 3.0 / math.sqrt(seeds)
        name = f"{told} effective users: "
        low = goal - slack * math.sqrt(goal * (1.0 - goal))
        found.append(Promise(f"{name}worst of {len(band)} cells", worst[1].covered, low, note=worst[0].told))
        found.append(Promise(f"{name}mean over cells", float(np.mean([one.covered for _, one in band])), 0.94))
        if goal > 0.92:
            found.append(Promise(f"{name}wrong at the limit", rate, high=0.03 + slack * 0.17, note=wrong[0].told))
    for users, pi in ((60, "pi 1"), (300, "pi 1/0.05")):  # the kind of cell that was decided wrongly most often
        cell = CLUSTERED.Cell(users, 3, "one asks a quarter", 0.2, "yes or no", 0.9, pi)
        one = CLUSTERED.look(chance, cell, 10_000)
        found.append(
            Promise("one user asks a quarter: wrong at the limit", max(one.above, one.below), high=0.03, note=cell.told)
        )
    return found


def users_unlike(seeds: int) -> list[Promise]:
    """Users whose answers are not alike (ICC 0) cost little width against answers that are known to be independent."""
    chance, found = np.random.default_rng(10), []
    for users, each, law, mean, most in (
        (20, 10, "yes or no", 0.5, 1.10), (60, 10, "yes or no", 0.5, 1.055), (60, 10, "yes or no", 0.9, 1.07),
        (300, 10, "yes or no", 0.9, 1.05), (300, 10, "graded", 0.9, 1.05),
    ):  # fmt: skip
        cell = CLUSTERED.Cell(users, each, "equal", 0.0, law, mean, "pi 1")
        y, w, owner = CLUSTERED.drawn(chance, cell, seeds)
        ratios = []
        for owners in (owner, np.arange(len(y))):
            size = users if owners is owner else users * each
            sums = CLUSTERED.sums(y, w, owners, seeds, size)
            ratios.append(float(np.mean([_width(one.estimate()) for one in sums if one is not None])))
        told = f"{users} users x {each}, {law} {mean}, ICC 0: width x independent"
        found.append(Promise(told, ratios[0] / ratios[1], high=most))
    return found


def no_difference(seeds: int) -> list[Promise]:
    """A/A: two arms of the same service, or the same answers twice, differ surely in at most 5 %."""
    chance, found = np.random.default_rng(11), []
    for users, each, sizes, icc in ((20, 10, "equal", 0.2), (60, 10, "zipf", 0.3), (40, 3, "equal", 0.5)):
        cell = CLUSTERED.Cell(users, each, sizes, icc, "yes or no", 0.9, "pi 1")
        arms = [list(CLUSTERED.sums(*CLUSTERED.drawn(chance, cell, seeds), seeds, users)) for _ in range(2)]
        moves = [_moved(a, b) for a, b in zip(*arms, strict=True) if a is not None and b is not None]
        slack = 3.0 * math.sqrt(0.05 * 0.95 / seeds)
        told = f"A/A, {users} users x {each} ({sizes}), ICC {icc}: false differences"
        found.append(Promise(told, sum(moves) / len(moves), high=0.05 + slack))
        y, w, owner = CLUSTERED.drawn(chance, cell, seeds)
        again = CLUSTERED.scores(chance, cell, owner, seeds * users)
        paired = [_paired(y, again, w, owner, draw, users) for draw in range(min(seeds, 400))]
        told = f"A/A paired, {users} users x {each} ({sizes}), ICC {icc}: false differences"
        found.append(Promise(told, sum(paired) / len(paired), high=0.05 + 3.0 * math.sqrt(0.0475 / len(paired))))
    return found


def _moved(a: Moments, b: Moments) -> bool:
    one, other = (Interval.of(arm.estimate()) for arm in (a, b))
    if one is None or other is None:
        return False
    move = minus(one, other)
    return move.lo > 0.0 or move.hi < 0.0


def _paired(y: Any, again: Any, w: Any, owner: Any, draw: int, users: int) -> bool:
    mine = owner // users == draw
    move = hajek(
        (y - again)[mine].tolist(), (1.0 / w[mine]).tolist(), clusters=owner[mine].tolist(), bounds=(-1.0, 1.0)
    )
    assert move is not None
    return bool(move.lo is not None and (move.lo > 0.0 or (move.hi or 0.0) < 0.0))


def _strata(
    chance: Any, total: int, risky: float, passing: tuple[float, float], chances: tuple[float, float]
) -> list[tuple[int, int, float]]:
    """Traffic of which a share is risky, each stratum drawn with its chance: (scored, passed, pi) of both."""
    first = int(chance.binomial(total, risky))
    strata = []
    for size, p, pi in zip((first, total - first), passing, chances, strict=True):
        n = int(chance.binomial(size, pi))
        strata.append((n, int(chance.binomial(n, p)), pi))
    return strata


def risk_oversampled(seeds: int) -> list[Promise]:
    """Risky traces drawn at 0.5 instead of 0.02: the plain mean says 0.63 where the truth is 0.905."""
    chance = np.random.default_rng(3)
    weighted, naive = [], []
    risky, passing, chances = 0.1, (0.5, 0.95), (0.5, 0.02)
    truth = risky * passing[0] + (1 - risky) * passing[1]
    for _ in range(seeds):
        strata = _strata(chance, 20_000, risky, passing, chances)
        found = moments_of(strata)
        assert found is not None
        weighted.append(found.mean)
        naive.append(sum(s[1] for s in strata) / sum(s[0] for s in strata))
    error = 4.0 * float(np.std(weighted)) / math.sqrt(seeds)
    bias = abs(float(np.mean(weighted)) - truth)
    return [
        Promise(
            "risk sampling: bias of the weighted mean",
            bias,
            high=max(0.002, error),
            note=f"naive {np.mean(naive):.3f} for {truth:.3f}",
        )
    ]


def uneven_day(seeds: int) -> list[Promise]:
    """Good mornings and bad evenings under a budget for a thousand: pacing by pi, against first come first served."""
    chance = np.random.default_rng(4)
    biases, first_come = [], []
    for _ in range(seeds):
        controller, left = Controller(floor=0.01), 1000.0 * 0.9
        strata: list[tuple[int, int, float]] = []
        right, whole, taken, passed = 0.0, 0, 0, 0
        for minute in range(1440):
            n = int(chance.poisson(14 if 480 <= minute < 1200 else 4))
            good = int(chance.binomial(n, 0.95 if minute < 720 else 0.75))
            right, whole = right + good, whole + n
            early = min(n, 1000 - taken)
            passed += int(chance.hypergeometric(good, n - good, early)) if early and n else 0
            taken += early
            pi = controller.scale
            judged = int(chance.binomial(n, pi))
            ok = int(chance.hypergeometric(good, n - good, judged)) if judged else 0
            strata.append((judged, ok, pi))
            left -= judged
            controller.update(usd=n * pi, seconds=60, budget_usd=max(0.0, left), remaining_s=86_400 - 60 * minute)
        found = moments_of([stratum for stratum in strata if stratum[0]])
        assert found is not None
        biases.append(found.mean - right / whole)
        first_come.append(passed / taken - right / whole)
    bias, error = abs(float(np.mean(biases))), 4.0 * float(np.std(biases)) / math.sqrt(seeds)
    return [
        Promise(
            "uneven day under a budget: bias with pacing",
            bias,
            high=max(0.005, error),
            note=f"first come {np.mean(first_come):+.3f}",
        )
    ]


def peeking(runs: int) -> list[Promise]:
    """A/A with users whose answers are alike (ICC 0.2), looked at twenty times; and a planted drop."""
    chance = np.random.default_rng(5)
    alarms, naive, found = 0, 0, 0
    for run in range(runs):
        alarms += _peek(chance, effect=0.0)[0]
        naive += _peek(chance, effect=0.0, independent=True)[0]
        found += _peek(chance, effect=0.15)[1] if run % 2 == 0 else 0
    slack = 3.0 * math.sqrt(0.05 * 0.95 / runs)
    return [
        Promise(
            "A/A false alarms under peeking, clustered by user",
            alarms / runs,
            high=0.05 + slack,
            note=f"counted as independent {naive / runs:.2f}",
        ),
        Promise("a drop of 0.15 found within 4,000 answers of 200 users", found / math.ceil(runs / 2), low=0.8),
    ]


def _peek(chance: Any, *, effect: float, independent: bool = False) -> tuple[bool, bool]:
    """Look after every 200 answers; returns whether any verdict came, and whether the last one said `worse`."""
    users = np.arange(200)
    rates = chance.beta(0.8 * 4, 0.2 * 4, size=200)  # mean 0.8, ICC 0.2
    arm = users % 2
    rates = np.clip(rates - effect * arm, 0.0, 1.0)
    order = chance.integers(0, 200, size=4000)
    values = (chance.random(4000) < rates[order]).astype(float)
    called, p = "undecided", 1.0
    for stop in range(200, 4001, 200):
        sides = []
        for side in (1, 0):
            mine = arm[order[:stop]] == side
            clusters = np.flatnonzero(mine) if independent else order[:stop][mine]
            answers = values[:stop][mine].tolist()
            sides.append(hajek(answers, [1.0] * len(answers), clusters=clusters.tolist()))
        test = compare_arms(sides[0], sides[1], tau=0.1, previous_p=p)
        p = 1.0 if test is None else test.p
        called = verdict(sides, test)
        if called in ("better", "worse"):
            return True, called == "worse"
    return False, False


def labels(runs: int) -> list[Promise]:
    """A judge that agrees with people (correlation 0.8 and more), ten times more judged than labelled."""
    return [*_labels(runs, count=100, graded=True), *_labels(runs, count=100, graded=False)]


def _labels(runs: int, *, count: int, graded: bool) -> list[Promise]:
    chance = np.random.default_rng(6)
    narrower, held, alone, correlation = [], 0, 0, []
    for _ in range(runs):
        if graded:
            truth = np.clip(chance.normal(0.6, 0.15, size=10 * count), 0, 1)
            judge = np.clip(truth + chance.normal(0.0, 0.1, size=10 * count), 0, 1)
        else:
            truth = (chance.random(10 * count) < 0.7).astype(float)
            judge = np.where(chance.random(10 * count) < 0.08, 1 - truth, truth)
        mean = 0.6 if graded else 0.7
        correlation.append(float(np.corrcoef(truth, judge)[0, 1]))
        chosen = chance.choice(10 * count, size=count, replace=False)
        human, guess = truth[chosen].tolist(), judge[chosen].tolist()
        both, only = ppi_mean(judge.tolist(), guess, human), hajek(human, [1.0] * count)
        assert both is not None
        assert only is not None
        narrower.append(1.0 - _width(both) / _width(only))
        held += _inside(both, mean)
        alone += _inside(only, mean)
    slack = 3.0 * math.sqrt(0.95 * 0.05 / runs)
    told = f"PPI, {count} {'graded' if graded else 'yes-or-no'} labels"
    least = 0.30 - 3.0 * float(np.std(narrower)) / math.sqrt(runs)
    near = f"correlation {np.mean(correlation):.2f}"
    return [
        Promise(f"{told}: narrower than labels alone by", float(np.mean(narrower)), low=least, note=near),
        Promise(f"{told}: coverage", held / runs, low=0.94 - slack, note=f"labels alone {alone / runs:.3f}"),
    ]


def _width(interval: Any) -> float:
    return float(interval.hi - interval.lo)


def assisted(seeds: int) -> list[Promise]:
    """A judge asked about a sample, a check about all: as honest as without it, and narrower the more it foresees."""
    chance, every = np.random.default_rng(8), 1 if seeds > 1000 else 12
    known = list(ASSISTED.cases())[::every]
    seen = CELLS.worst(chance, known, seeds, covered=ASSISTED.coverage)
    slack = 3.0 * math.sqrt(0.93 * 0.07 / seeds)
    found = [
        Promise(f"assisted: worst of {seen.count} cells", seen.worst, 0.93 - slack, note=seen.where),
        Promise("assisted: mean over cells", seen.mean, 0.94),
    ]
    for (noise, told), most in zip(ASSISTED.NOISES.items(), (0.8, 0.9, 1.0), strict=True):
        draws = [case.draw(chance) for case in known if case.noise == noise for _ in range(max(5, seeds // 50))]
        ratio = math.exp(float(np.mean([math.log(wide / plain) for _, _, wide, plain in draws])))
        peer = f"plain covers {np.mean([held for _, held, _, _ in draws]):.3f}"
        found.append(Promise(f"assisted: width at a correlation {told}, x without", ratio, high=most, note=peer))
    return found


def salts(count: int) -> list[Promise]:
    """Traffic through a real collector, all scored; drawn again with each salt, the series equals the estimator."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "salts.duckdb"
        _collected(path, rounds=6 if count > 2 else 1)
        store = EmbeddedStore(path, decode=lambda _: Batch())
        try:
            rows = store.read(
                "SELECT s.trace_id, s.span_id, s.normalized, if(t.prompt_version = 'v2', 1, 0.1)::DOUBLE,"
                " coalesce(t.user_id, t.session_id, t.trace_id)"
                " FROM scores s JOIN traces t USING (trace_id) WHERE s.evaluator = 'groundedness' AND s.status = 'ok'"
            ).rows
            worst = max(_difference(store, rows, f"salt {number}") for number in range(count))
        finally:
            store.close()
    told = f"{count} salts over {len(rows)} answers of a real collector: series against hajek(), largest difference"
    return [Promise(told, worst, high=1e-9)]


def _collected(path: Path, *, rounds: int) -> None:
    """Requests of the demo over OTLP/HTTP, decided and evaluated at rate 1."""
    collector = Collector(Settings().with_options("collector", {"db": str(path), "port": 0, "settle_s": 0.0}))
    collector.start()
    try:
        planned, due = visits(rounds=rounds), time.monotonic() + 60
        for body in traffic(planned):
            headers = {"Content-Type": body.content_type}
            urlopen(Request(f"{collector.url}/v1/{body.signal}", data=body.body, headers=headers), timeout=30).close()
        while collector.store.read("SELECT count(*) FROM scores").rows[0][0] < 4 * len(planned):
            if time.monotonic() > due:
                raise SystemExit("not evaluated within a minute")
            time.sleep(0.05)
    finally:
        collector.stop()


def _difference(store: EmbeddedStore, scored: Sequence[tuple[str, str, float, float, str]], salt: str) -> float:
    def forget(tx: Any) -> None:
        for table in ("trace_facts", "decisions", "eval_jobs"):
            tx.execute(f"DELETE FROM raw.{table}")
        tx.execute("DELETE FROM raw.meta WHERE key = 'low_water'")

    strata = (Stratum(where="prompt_version = 'v2'", rate=1.0),)
    rule = Rule(name="r", evaluators=("groundedness",), rate=0.1, strata=strata)
    store.write(forget).result()
    Sampler(store, lambda: [rule], salt=salt).decide(utc_now() + timedelta(minutes=1))
    drawn = [(value, pi, user) for trace, span, value, pi, user in scored if sampling_number(salt, trace, span) < pi]
    values, chances, users = (list(column) for column in zip(*drawn, strict=True))
    expected = hajek(values, chances, clusters=users)
    (bucket,) = estimates(store, "groundedness", Window(NOON - timedelta(days=9999), utc_now(), 0), Filter())
    found = bucket.estimate
    assert expected is not None
    assert found is not None
    pairs = zip((found.estimate, *found, found.n_eff), (expected.estimate, *expected, expected.n_eff), strict=True)
    return max(abs(float(a or 0.0) - float(b or 0.0)) for a, b in pairs)


SIMULATIONS: dict[str, tuple[Callable[[int], list[Promise]], int, int]] = {
    "unweighted": (unweighted_coverage, 500, 5000),
    "weighted": (weighted_coverage, 400, 5000),
    "clustered": (clustered_coverage, 400, 4000),
    "unlike": (users_unlike, 200, 1000),
    "a/a": (no_difference, 200, 4000),
    "risk": (risk_oversampled, 100, 5000),
    "day": (uneven_day, 6, 100),
    "peeking": (peeking, 12, 400),
    "labels": (labels, 60, 2000),
    "assisted": (assisted, 40, 2000),
    "salts": (salts, 2, 20),
}
"""Name → simulation, how many draws in the short form (the tests) and in the whole one."""


def main() -> int:
    """Run every simulation and print each figure against its bound."""
    sized = {
        name: (partial(simulate, short), partial(simulate, whole))
        for name, (simulate, short, whole) in SIMULATIONS.items()
    }
    return PROMISES.run(__doc__, sized)


if __name__ == "__main__":
    sys.exit(main())
