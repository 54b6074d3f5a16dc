"""The headline of a range: its fixed order, and each sentence."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
from asking import measures
from stored_units import T0, Units, open_store, uniform

from ragpulse_collector.analysis.changes import Level, Shift
from ragpulse_collector.analysis.overview import Headline, RangeSummary
from ragpulse_collector.analysis.quality.coverage import CoverageRow
from ragpulse_collector.analysis.topics.drift import QuestionDrift
from ragpulse_collector.monitoring.headline import headline
from ragpulse_collector.monitoring.listing import ShownMonitor
from ragpulse_collector.monitoring.targets import TargetState
from ragpulse_collector.store import Store
from ragpulse_dashboards.site import View
from ragpulse_evaluators.statistics import Uncertain

AT = datetime(2026, 11, 20, 18, 12)


def quality(name: str, value: float, before: float | None = None, half: float = 0.03) -> Headline:
    """The estimate of an evaluator, and what it was in the range before."""
    moved = None if before is None else value - before
    sure = moved is not None and abs(moved) > half
    return Headline(
        value=value, lo=value - half, hi=value + half, n=400, n_eff=400.0, thin=False, users=0, reason=None, missing=0,
        evaluator=name, version="v", judge=None, passing_rate=None, clear_share=None, wording=None,
        previous=None if before is None else Uncertain(value=before, lo=before - half, hi=before + half),
        difference=None if moved is None else Uncertain(value=moved, lo=moved - half, hi=moved + half),
        verdict=None if moved is None else "undecided" if not sure else "worse" if moved < 0 else "better",
    )  # fmt: skip


def scored(n: int, of: int, name: str = "groundedness", **outcomes: int) -> CoverageRow:
    """What became of the selected answers."""
    none = dict.fromkeys(("skipped", "invalid", "error", "dropped"), 0)
    counts: dict[str, int] = none | outcomes
    return CoverageRow(evaluator=name, eligible=of, selected=of, scored=n, uncovered_share=0.0, **counts)


def shift(metric: str, before: float, after: float, *, worse: bool = True, cause: str | None = None) -> Shift:
    """A change within the range."""
    first, then = (Level(value, value - 0.01, value + 0.01, 200) for value in (before, after))
    return Shift(metric=metric, unit="share", t=AT, before=first, after=then, sureness=6.0, worse=worse, cause=cause)


def missed(metric: str, value: float, **limit: float) -> TargetState:
    """A target that is surely not met."""
    nothing: dict[str, Any] = dict.fromkeys(("min", "max", "where", "lo", "hi", "n", "refused", "unit"))
    return TargetState(metric=metric, value=value, state="missed", **(nothing | limit))


def monitor(name: str, state: str = "firing") -> ShownMonitor:
    """A monitor in a state."""
    values = dict.fromkeys(ShownMonitor.__dataclass_fields__)
    return ShownMonitor(
        **{**values, "name": name, "state": state, "metric": "error_rate", "condition": "> 0.05", "value": 0.07}
    )  # type: ignore[arg-type]


CALM = RangeSummary(
    as_of=AT, demo=False, newest_span=AT, lag_s=1.0, n_traces=400, error_rate=0.01, error_interval=(0.0, 0.02),
    n_answers=400, n_empty=0, n_refused=0, estimated=False,
    latency_p95=900.0, cost_usd=1.0, cost_unknown_share=0.0, tokens=1,
    lead="groundedness", quality=[quality("groundedness", 0.90, 0.89)], coverage=[scored(390, 400)],
    error_change=Uncertain(value=0.0, lo=-0.01, hi=0.01),
)  # fmt: skip
RISEN = Uncertain(value=0.03, lo=0.01, hi=0.05)
NO_TARGETS: Sequence[TargetState] = ()


def calm(**changes: Any) -> RangeSummary:
    """A range in which nothing happened, but for these."""
    return replace(CALM, **changes)


def told(overview: RangeSummary, targets: Sequence[TargetState] = NO_TARGETS, *names: str, **view: str) -> list[str]:
    """The sentences in order."""
    return [_plain(one.text) for one in headline(View(**view), overview, targets, [monitor(name) for name in names])]  # type: ignore[arg-type]


FELL = [quality("groundedness", 0.8, 0.9)]
FELL_AT = shift("quality:groundedness", 0.94, 0.73, cause="prompt qa v2")
ROSE_AT = shift("quality:groundedness", 0.7, 0.9, worse=False)
CALM_WORDS = "Groundedness: no change above 0.04 against the range before."
FELL_WORDS = "Groundedness fell 0.90 → 0.80 against the range before."


def _plain(text: str) -> str:
    return text.replace("\N{NO-BREAK SPACE}", " ")


SENTENCES: list[tuple[RangeSummary, Sequence[TargetState], list[str]]] = [
    (calm(drift=[QuestionDrift("other", 0.11, 0.03)]), (),
     ["11 % of the questions belong to no known topic, usually 3.0 %."]),
    (calm(drift=[QuestionDrift("print\ners", 0.02, 0.2), QuestionDrift("other", 0.11, 0.03)]), (),
     ["2.0 % of the questions are about print ers, usually 20 %."]),
    (calm(), (), [CALM_WORDS]),
    (calm(quality=[quality("refusal", 0.9, 0.9)]), (), ["Answered: no change above 3.0 % against the range before."]),
    (calm(quality=[quality("groundedness", 0.9, 0.9, half=0.4)]), (),
     ["Groundedness: too few scores to see a change below 0.40."]),
    (calm(quality=[quality("groundedness", 0.9)]), (),
     ["Groundedness is 0.900. Nothing to compare with: the range before has no scores."]),
    (calm(quality=[]), (), ["Nothing to compare with: the range before has no scores."]),
    (calm(n_traces=0, quality=[], coverage=[]), (), ["No answer in this range."]),
    (calm(n_traces=1, quality=[], coverage=[]), (), ["1 answer so far."]),
    (calm(n_traces=20, quality=[], coverage=[]), (), ["20 answers so far."]),
    (calm(coverage=[scored(106, 3585)]), (), ["3,479 of 3,585 answers are not scored yet."]),
    (calm(coverage=[scored(200, 400)]), (), [CALM_WORDS]),
    (calm(coverage=[scored(10, 400, error=380)]), (), ["380 of 400 answers could not be scored."]),
    (calm(coverage=[scored(10, 400, skipped=389)]), (), [CALM_WORDS]),
    (calm(coverage=[scored(0, 400, skipped=400), scored(9, 400, "refusal")]), (),
     ["391 of 400 answers are not scored yet."]),
    (calm(coverage=[scored(5, 400), scored(400, 400, "refusal")]), (), ["395 of 400 answers are not scored yet."]),
    (calm(error_change=RISEN, error_rate=0.05), (), ["Error rate rose 2.0 % → 5.0 % against the range before."]),
    (calm(error_rate=0.31, n_errors=124), (), ["31 % of requests fail."]),
    (calm(error_rate=0.31, n_errors=124, quality=[]), (), ["31 % of requests fail."]),
    (calm(error_rate=0.31), (), ["31 % of requests fail."]),
    (calm(error_rate=1.0, n_errors=4, n_traces=4, quality=[]), (), ["4 of 4 requests fail.", "4 answers so far."]),
    (calm(error_rate=0.5, n_errors=2, n_traces=4, quality=[]), (), ["4 answers so far."]),
    (calm(error_rate=0.05, n_errors=20), (), [CALM_WORDS]),
    (calm(error_rate=0.31, n_errors=124, changes=[shift("error_rate", 0.01, 0.9)]), (),
     ["31 % of requests fail.", "Error rate rose 1.0 % → 90 % at Nov 20 18:12 UTC."]),
    (calm(error_rate=0.31, n_errors=124), [replace(missed("error_rate", 0.31, max=0.4), state="met")], [CALM_WORDS]),
    (calm(error_rate=0.31, n_errors=124), [missed("error_rate", 0.4, max=0.3, where="model = 'm'")],
     ["Error rate misses its target: 40 %, at most 30 % where model = 'm'.", "31 % of requests fail."]),
    (calm(changes=[shift("error_rate", 0.01, 0.3)], error_change=RISEN), (),
     ["Error rate rose 1.0 % → 30 % at Nov 20 18:12 UTC."]),
    (calm(changes=[shift("error_rate", 0.3, 0.01, worse=False)]), (),
     ["Error rate fell 30 % → 1.0 % at Nov 20 18:12 UTC."]),
    (calm(), [missed("quality:groundedness", 0.861, min=0.9)],
     ["Groundedness misses its target: 0.861, at least 0.900."]),
    (calm(), [missed("error_rate", 0.031, max=0.02)], ["Error rate misses its target: 3.1 %, at most 2.0 %."]),
    (calm(quality=FELL), (), [FELL_WORDS]),
    (calm(quality=[quality("groundedness", 0.904, 0.902, half=0.001)]), (),
     ["Groundedness rose 0.902 → 0.904 against the range before."]),
    (calm(quality=FELL, changes=[FELL_AT]),
     (), ["Groundedness fell 0.94 → 0.73 at Nov 20 18:12 UTC, when prompt qa v2 began."]),
    (calm(quality=FELL, changes=[ROSE_AT]), (),
     [FELL_WORDS, "Groundedness rose 0.70 → 0.90 at Nov 20 18:12 UTC."]),
    (calm(quality=[quality("tone", 0.8, 0.9), quality("groundedness", 0.9, 0.8)]), (),
     ["Groundedness rose 0.80 → 0.90 against the range before.", "Tone fell 0.90 → 0.80 against the range before."]),
]  # fmt: skip


@pytest.mark.parametrize(("overview", "targets", "expected"), SENTENCES, ids=[row[2][0] for row in SENTENCES])
def test_each_sentence(overview: RangeSummary, targets: Sequence[TargetState], expected: list[str]) -> None:
    """What is said says how it is known; nothing else is said."""
    assert told(overview, targets) == expected


def test_the_order_is_fixed() -> None:
    """Everything at once: alerts, errors, missed targets, missing scores, changes against before, changes within."""
    everything = calm(
        quality=[quality("groundedness", 0.8, 0.9)], coverage=[scored(1, 400)], error_rate=0.71,
        error_interval=(0.66, 0.75), error_change=RISEN, changes=[shift("cost_usd", 0.001, 0.002)],
    )  # fmt: skip
    targets = [missed("quality:groundedness", 0.8, min=0.9), missed("error_rate", 0.71, max=0.02)]
    assert told(everything, targets, "quality", "spend") == [
        "2 alerts are firing: quality, spend. Error rate 7.0 %, limit > 5.0 %; error rate 7.0 %, limit > 5.0 %.",
        "Error rate misses its target: 71 %, at most 2.0 %.",
        "Error rate rose 68 % → 71 % against the range before.",
        "Groundedness misses its target: 0.800, at least 0.900.",
        "399 of 400 answers are not scored yet.",
        "Groundedness fell 0.90 → 0.80 against the range before.",
        "Cost per answer rose $0.0010 → $0.0020 at Nov 20 18:12 UTC.",
    ]


def test_a_range_that_is_over_has_no_alert_of_now() -> None:
    """An alert that fires today would change the sentence of last week; only firing ones count."""
    assert told(calm(), (), "quality")[0] == "An alert is firing: quality. Error rate 7.0 %, limit > 5.0 %."
    over = headline(View(end="2026-11-20T00:00:00Z"), calm(), (), [monitor("quality")])
    assert [one.text for one in over] == [CALM_WORDS]
    assert headline(View(), calm(), (), [monitor("quality", "ok")])[0].tone == ""


def test_before_the_scores_are_read_nothing_is_said_about_them() -> None:
    """A page that has read only the traffic knows alerts, errors and few answers."""
    assert headline(View(), calm(quality=[], coverage=[]), complete=False) == []
    assert [one.text for one in headline(View(), calm(n_traces=1), complete=False)] == ["1 answer so far."]


def test_sentences_lead_to_what_they_are_about() -> None:
    """The answers, the alerts, the evaluations that failed; times without a fraction, which forms do not have."""

    def links(overview: RangeSummary, *names: str) -> dict[str, str]:
        return dict(headline(View(), overview, (), [monitor(name) for name in names])[0].links)

    assert links(calm(), "quality") == {"Alerts": "/alerts"}
    assert links(calm(n_traces=1, quality=[])) == {"Show": "/traces?from=-24h"}
    assert "outcome=error" in links(calm(coverage=[scored(10, 400, error=380)]))["Show"]
    within = replace(shift("latency_p95", 900.0, 1900.0), t=AT + timedelta(microseconds=5))
    found = links(calm(changes=[within]))
    assert list(found) == ["Why?", "Slowest answers"]
    assert found["Why?"].endswith("at=2026-11-20T18%3A12%3A00Z")
    assert links(calm(error_rate=0.05, error_change=RISEN))["Why?"].endswith("metric=error_rate&at=-24h")


END = T0 + timedelta(hours=16)
STEP = timedelta(minutes=5)


def said(store: Store, now: datetime, start: str = "-8h", end: str = "") -> str:
    """The headline of a range in a real store."""
    overview = next(one for one in measures(store, lambda: now) if one.name == "GET overview")
    answer = overview.answer_to(overview.params.parse({"from": start, **({"to": end} if end else {})}))
    return _plain(headline(View(start=start, end=end), answer)[0].text)


def test_one_range_is_told_one_way(tmp_path: Path) -> None:
    """Sixteen hours, then nothing new: edges that move with each look told the last eight hours in four ways."""
    store = open_store(tmp_path)
    units = Units(store)
    for number in range(960):
        score = float(uniform(number, "s1") < (0.87 if number >= 480 else 0.91))
        facts = {"cost_usd": 0.001 * (1 + uniform(number, "c1")), "latency_ms": 500 + 1000 * uniform(number, "l1")}
        units.scored(number, "judge", score, at=T0 + timedelta(minutes=number), facts=facts)
    units.save()

    looks = [END + timedelta(seconds=5 + 230 * look) for look in range(14)]
    moving = {said(store, now, f"{now - timedelta(hours=8):%FT%TZ}", f"{now:%FT%TZ}") for now in looks}
    assert len(moving) == 2
    fixed = {said(store, END + timedelta(hours=look), f"{T0 + timedelta(hours=8):%FT%TZ}", f"{END:%FT%TZ}")
             for look in (0, 6, 24, 48)}  # fmt: skip
    assert len(fixed) == 1
    for _, same in groupby(
        (END + timedelta(seconds=145 * look) for look in range(8)), key=lambda now: (now - T0) // STEP
    ):
        assert len({said(store, now) for now in same}) == 1
    store.close()


NIGHT = "the same hours of 9 days before"


@pytest.mark.parametrize(
    ("last_night", "expected"),
    [
        (0.6, rf"Judge is 0\.[56]\d+, usually 0\.[56]\d+ \({NIGHT}\)\."),
        (0.2, rf"Judge fell 0\.[56]\d → 0\.[12]\d (against {NIGHT}|at .*, usually 0\.[56]\d+ \({NIGHT}\))\."),
    ],
)
def test_a_night_is_no_news_and_a_bad_one_is(tmp_path: Path, last_night: float, expected: str) -> None:
    """Answers of each night are worse than those of the day before it: what is usual at these hours decides."""
    store = open_store(tmp_path)
    units = Units(store)
    for number in range(20 * 240):
        age = timedelta(hours=number / 20)
        night = last_night if age < timedelta(hours=12) else 0.6
        good = 0.95 if age // timedelta(hours=12) % 2 else night
        units.scored(number, "judge", float(uniform(number, "n") < good), at=T0 - age - timedelta(seconds=1))
    units.save()
    assert re.fullmatch(expected, said(store, T0, "-12h"))
    store.close()
