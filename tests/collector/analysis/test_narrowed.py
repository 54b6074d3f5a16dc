"""A cheap check narrows a judge's figures on pages, in check and in targets; and the order of all corrections."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from asking import ask, query_of
from click.testing import CliRunner
from stored_units import T0, Units, trace_id, uniform

from ragpulse_collector.analysis.cache import Snapshot
from ragpulse_collector.analysis.overview import overview
from ragpulse_collector.analysis.quality.points import QualityPoint
from ragpulse_collector.analysis.series import MetricSeries, series
from ragpulse_collector.api.models import Buckets
from ragpulse_collector.cli import cli
from ragpulse_collector.monitoring import Monitors, Targets
from ragpulse_collector.settings import MonitorSettings, Settings, TargetSettings
from ragpulse_collector.store.embedded import EmbeddedStore
from ragpulse_collector.words.figures import rests_on
from ragpulse_evaluators.statistics import Interval, assisted_mean, hajek, plus, ppi_mean

DAY = {"from": "2026-11-20T00:00:00Z", "to": "2026-11-21T00:00:00Z"}
NOW = T0 + timedelta(hours=6)
COUNT = 1500


@dataclass(frozen=True, kw_only=True)
class Planted:
    """A service whose truth is known: who judged and checked what, with which chances."""

    name: str = "faithfulness"
    judge: str | None = "gpt"
    check: str = "groundedness"
    pi: tuple[float, float] = (0.2, 0.2)
    """Of the judge: where the check scores below a half, and elsewhere."""
    noise: float = 0.3
    """Of the check."""
    checked: float = 1.0
    """The share of the answers that the sampler gave to the check."""
    kept: float = 1.0
    """By an upstream sampler, of answers that the check finds good."""
    users: int = 1
    """Answers of a user."""
    versions: int = 1
    labelled: float = 0.0
    dropped: float = 0.0
    """By the budget, of the answers that the judge was to be asked about."""
    hours: int = 1
    """In turns."""


@dataclass(frozen=True)
class Row:
    """One stored answer, as the test knows it."""

    number: int
    good: bool
    check: float
    up: float
    pi: float
    drawn: bool
    dropped: bool
    verdict: float
    labelled: bool


def rows(planted: Planted) -> Iterator[Row]:
    """Answers of users who are alike; the judge errs on a twentieth of the good ones, a tenth of the bad ones."""
    for number in range(COUNT):
        ease = 0.5 * uniform(number // planted.users, "user") + 0.5 * uniform(number, "answer")
        check = min(1.0, max(0.0, 0.5 + 4.0 * (ease - 0.4) + planted.noise * (uniform(number, "check") - 0.5)))
        good = ease > 0.4
        up = planted.kept if check > 0.5 else 1.0
        if uniform(number, "kept") >= up:
            continue
        pi = planted.pi[check >= 0.5]
        drawn = uniform(number, "drawn") < pi
        wrong = uniform(number, "judge") < (0.05 if good else 0.1)
        yield Row(
            number, good, check, up, up * pi, drawn, drawn and uniform(number, "cap") < planted.dropped,
            float(good != wrong), uniform(number, "label") < planted.labelled,
        )  # fmt: skip


def plant(store: EmbeddedStore, planted: Planted) -> list[Row]:
    """Store them."""
    units, answers = Units(store), list(rows(planted))
    for row in answers:
        n, version = row.number, f"v{row.number % planted.versions}"
        at = T0 - timedelta(hours=n % planted.hours)
        units.unit(n, at=at, user_id=f"u{n // planted.users}", upstream_pi=row.up)
        if uniform(n, "asked") < planted.checked:
            units.decision(n, planted.check, pi=row.up, u=0.0, at=at)
            units.score(n, planted.check, row.check, at=at)
        u = 0.0 if row.drawn else 0.999
        reason = "budget" if row.dropped else None
        if units.decision(n, planted.name, pi=row.pi, u=u, capped=row.dropped, reason=reason, at=at):
            units.score(n, planted.name, row.verdict, judge=planted.judge, version=version, at=at)
            if row.labelled:
                units.add("labels", trace_id=trace_id(n), span_id=0xAA, request_time=T0, evaluator=planted.name,
                          score=float(row.good), passing=row.good, annotator="a", label_pi=planted.labelled,
                          created_at=T0)  # fmt: skip
    units.save()
    return answers


@pytest.mark.parametrize(
    ("planted", "by"),
    [
        (Planted(), "groundedness"),
        (Planted(users=3), "groundedness"),
        (Planted(pi=(0.5, 0.15)), "groundedness"),
        (Planted(kept=0.25, pi=(0.3, 0.3)), "groundedness"),
        (Planted(name="my_judge"), "groundedness"),
        (Planted(checked=0.97), "groundedness"),
        (Planted(name="answer_relevancy", check="refusal"), "refusal"),
        (Planted(name="answer_relevancy"), None),
        (Planted(noise=40.0), None),
        (Planted(pi=(1.0, 1.0)), None),
        (Planted(checked=0.9), None),
        (Planted(judge=None), None),
        (Planted(versions=2), None),
        (Planted(pi=(0.015, 0.015)), None),
    ],
)
def test_pages_check_and_targets_use_the_check_of_the_subject(
    store: EmbeddedStore, planted: Planted, by: str | None
) -> None:
    """All name it and show the same figures, which hold the truth; where it does not narrow, nothing is another."""
    answers, metric = plant(store, planted), f"quality:{planted.name}"
    (row,) = (one for one in ask(store, "overview", DAY)["quality"] if one["evaluator"] == planted.name)
    lines = ask(store, "metrics", {**DAY, "name": metric, "step": "all"})["series"]
    checked = ask(store, "check", {**DAY, "evaluator": planted.name, "min": 0.5})
    line = next(line for line in lines if line["version"] == checked["version"])
    point = line["points"][0]
    (target,) = Targets(store, [TargetSettings(metric=metric, min=0.5)])(query_of(DAY, NOW)).targets
    for shown in (row, point, checked):
        assert shown["assisted_by"] == target.assisted_by == by
        assert [shown[key] for key in ("value", "least", "most")] == [target.value, target.lo, target.hi]
        assert (f"narrowed by {by}" in shown["words"]) is (f"narrowed by {by}" in rests_on(shown)) is (by is not None)
    assert line["assisted_by"] == by
    if by is None:
        assert checked["unassisted"] is None
        return
    before = checked["unassisted"]
    assert checked["hi"] - checked["lo"] <= 0.9 * (before["hi"] - before["lo"])
    truth = sum(one.verdict / one.up for one in answers) / sum(1 / one.up for one in answers)
    assert checked["lo"] < truth < checked["hi"]
    assert by in checked["markdown"]


@pytest.mark.parametrize("planted", [Planted(hours=2), Planted(hours=2, users=3), Planted(hours=3, kept=0.25)])
def test_an_overview_and_its_charts_read_the_check_once(store: EmbeddedStore, planted: Planted) -> None:
    """The whole range and each point come from one pass, and are the figures that each alone has."""
    plant(store, planted)
    query = Buckets.parse({**DAY, "step": "1h"}).query(NOW)
    counting = Counting(store)
    page, alone = Snapshot(counting, query), Snapshot(store, query)
    (row,) = (one for one in overview(page).quality if one.evaluator == "faithfulness")
    points = [_judged(series(shown, "quality:faithfulness")) for shown in (page, alone)]
    assert counting.reads == 1
    assert len(points[0]) == planted.hours
    assert any(point.assisted_by for point in points[0])
    for shared, own in zip(*points, strict=True):
        assert shared.assisted_by == own.assisted_by
        assert (shared.value, shared.lo, shared.hi) == pytest.approx((own.value, own.lo, own.hi), rel=1e-9)
    checked = ask(store, "check", {**DAY, "evaluator": "faithfulness", "min": 0.5})
    assert (row.value, row.lo, row.hi) == pytest.approx([checked[key] for key in ("value", "lo", "hi")], rel=1e-9)


def test_a_bucket_that_grew_is_plain_until_its_check_is_read_again(
    store: EmbeddedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two verdicts more are a thousandth of no range, but of their hour: the sums before are not its own."""
    monkeypatch.setattr(sys.modules[__name__], "COUNT", 12_000)
    plant(store, Planted(hours=3))
    query = Buckets.parse({**DAY, "step": "1h"}).query(NOW)
    before = Snapshot(store, query)
    overview(before)
    units = Units(store)
    for n in (20_001, 20_002):
        units.unit(n, at=T0)
        if units.decision(n, "faithfulness", pi=0.2, u=0.0, at=T0):
            units.score(n, "faithfulness", 1.0, judge="gpt", version="v0", at=T0)
    units.save()
    after = Snapshot(store, query)
    after.inherit(before)
    overview(after)
    shown = [
        [bool(one.assisted_by) for one in _judged(series(each, "quality:faithfulness"))] for each in (before, after)
    ]
    assert shown == [[True, True, True], [True, True, False]]


class Counting:
    """A store that counts how often the answers of a check are added up."""

    def __init__(self, store: EmbeddedStore) -> None:
        self._store, self.reads = store, 0

    def read(self, sql: str, *args: Any, **options: Any) -> Any:
        """Read."""
        self.reads += "pulls AS" in sql
        return self._store.read(sql, *args, **options)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


def _judged(answer: MetricSeries) -> list[QualityPoint]:
    """The points with a judge's figure."""
    (line,) = answer.series
    return [point for point in line.points if isinstance(point, QualityPoint) and point.n]


def test_a_monitor_keeps_the_judges_own_figure(store: EmbeddedStore) -> None:
    """Its exact tests need the judge's own answers."""
    plant(store, Planted())
    monitor = MonitorSettings(name="m", metric="quality:faithfulness", condition="< 0.99", window="1d")
    monitors = Monitors(store, Settings(monitor=[monitor]), evaluators=lambda: {"faithfulness"}, clock=lambda: NOW)
    monitors.check(NOW)
    (shown,) = monitors.list().monitors
    checked = ask(store, "check", {**DAY, "evaluator": "faithfulness", "min": 0.5})
    assert shown.value == pytest.approx(checked["unassisted"]["value"])
    assert shown.value != pytest.approx(checked["value"])


@pytest.mark.parametrize(
    ("kept", "noise", "labelled", "dropped"), list(product((1.0, 0.25), (0.3, 40.0), (0.0, 0.7), (0.0, 0.3)))
)
def test_the_order_of_corrections(
    store: EmbeddedStore, kept: float, noise: float, labelled: float, dropped: float
) -> None:
    """Weights, assistance, labels, missing verdicts: each on what the one before left, and the truth is in it."""
    planted = Planted(pi=(0.35, 0.25), kept=kept, noise=noise, labelled=labelled, dropped=dropped, users=2)
    answers = plant(store, planted)
    checked = ask(store, "check", {**DAY, "evaluator": "faithfulness", "min": 0.5})
    judged = [row for row in answers if row.drawn and not row.dropped]
    pi, users = [row.pi for row in judged], [row.number // 2 for row in judged]
    figure = hajek([row.verdict for row in judged], pi, clusters=users)
    found = assisted_mean(
        [row.verdict if row.drawn and not row.dropped else None for row in answers],
        [row.check for row in answers], [row.pi for row in answers], [row.up for row in answers],
        drawn=[row.drawn for row in answers], clusters=[row.number // 2 for row in answers],
    )  # fmt: skip
    assert found is not None
    helps = found.narrowing <= 0.9
    assert helps is (noise < 1.0)
    interval = Interval.of(found if helps else figure)
    assert interval is not None
    if labelled:
        some = [row for row in judged if row.labelled]
        guesses, people = [row.verdict for row in some], [float(row.good) for row in some]
        chances = [row.pi * labelled for row in some]
        trusted = ppi_mean([row.verdict for row in judged], guesses, people, pi, chances)
        assert trusted is not None
        errors = [truth - trusted.lam * guess for truth, guess in zip(people, guesses, strict=True)]
        of_users = [row.number // 2 for row in some]
        error = Interval.of(hajek(errors, chances, clusters=of_users, bounds=(-1.0, 1.0)))
        assert error is not None
        parts = (trusted.lam * end for end in (interval.value, interval.lo, interval.hi))
        interval = plus(Interval(*parts), error).within(0.0, 1.0)
    lost = sum(1 / row.pi for row in answers if row.dropped)
    share = lost / (lost + sum(1 / chance for chance in pi))
    ends = interval.lo * (1 - share), interval.hi * (1 - share) + share
    shown = [checked[key] for key in ("value", "lo", "hi", "least", "most")]
    assert shown == pytest.approx([interval.value, interval.lo, interval.hi, *ends], abs=1e-9)
    truth = [(row.good if labelled else row.verdict, 1 / row.up) for row in answers]
    assert ends[0] < sum(value * weight for value, weight in truth) / sum(weight for _, weight in truth) < ends[1]


def test_the_command_line_shows_points_with_and_without_the_check(store: EmbeddedStore, tmp_path: Path) -> None:
    """Of two buckets one has too few verdicts to be narrowed; `check` names the check."""
    plant(store, Planted())
    units = Units(store)
    for number in range(5000, 5040):
        at = T0 - timedelta(days=30)
        units.unit(number, at=at)
        units.decision(number, "faithfulness", pi=0.5, u=0.0, at=at)
        units.score(number, "faithfulness", float(number % 2), judge="gpt", version="v0", at=at)
    units.save()
    store.close()
    source = ["--since", "5000d", "--db", str(tmp_path / "test.duckdb")]
    shown = CliRunner().invoke(cli, ["metrics", "quality:faithfulness", "--step", "10d", *source])
    assert shown.exit_code == 0, shown.output
    assert shown.output.count(" as wide: 1500 answers, 0 unchecked") == 1
    checked = CliRunner().invoke(cli, ["check", "-e", "faithfulness", "--min", "0.5", *source])
    assert ", narrowed by groundedness" in checked.output


def test_check_says_that_the_evaluator_changed(store: EmbeddedStore) -> None:
    """As targets do: which version decides, and what does not count."""
    plant(store, Planted(pi=(1.0, 1.0), versions=2))
    note = ask(store, "check", {**DAY, "evaluator": "faithfulness", "min": 0.5})["note"]
    assert note.startswith("the evaluator changed in this range: 750 answers of v")
    assert note.endswith("750 of v0 by gpt") or note.endswith("750 of v1 by gpt")
