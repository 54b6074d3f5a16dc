"""A metric's answer as a chart."""

import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from ragpulse_collector.analysis.series import MetricSeries, QualityLine, QualityPoint
from ragpulse_collector.monitoring.targets import TargetState
from ragpulse_dashboards.charts import Chart

START = datetime(2026, 1, 1)


def answer(*lines: QualityLine) -> MetricSeries:
    """An answer of GET metrics with one-minute buckets."""
    return MetricSeries(
        name="quality:g",
        unit="ratio",
        step=60,
        from_=START,
        to=START.replace(hour=1),
        until=START.replace(hour=1),
        series=lines,
        markers=[],
        other_groups=0,
        left_out=None,
    )


def line(*points: QualityPoint, **more: Any) -> QualityLine:
    """One series."""
    return QualityLine(**{"group": {}, "points": points, "replayed_where": [], "online_since": None, **more})


def point(minute: int, value: float | None, n: int = 20, **more: Any) -> QualityPoint:
    """One bucket."""
    figures = {"value": value, "lo": 0.1, "hi": 0.9, "n": n, "users": 7, "dropped": 1, "pending": 3, **more}
    return QualityPoint(t=START.replace(minute=minute), counts={"skipped": 2}, **figures)


def test_a_missing_bucket_is_a_gap() -> None:
    """Where buckets are missing the column holds null, so that no line is drawn across."""
    chart = Chart(
        key="k",
        name="t",
        answers=[("", answer(line(point(0, 0.5), point(9, 0.7))))],
        metric="quality:g",
    )
    (drawn,) = json.loads(chart.data)["lines"]
    assert drawn["v"] == [0.5, None, 0.7]


def test_versions_are_separate_lines() -> None:
    """Two versions of an evaluator never share a line, and their legend says which is which."""
    lines = line(point(0, 0.5), version="abcdef0123"), line(point(1, 0.7), version="9999999999")
    chart = Chart(key="k", name="t", answers=[("", answer(*lines))], metric="quality:g")
    assert chart.names == ["version abcdef01", "version 99999999"]
    assert [drawn["v"] for drawn in json.loads(chart.data)["lines"]] == [[0.5, None], [None, 0.7]]


def test_the_table_has_every_figure() -> None:
    """The table twin holds value, interval, n and what was counted but not averaged, newest first."""
    chart = Chart(
        key="k",
        name="t",
        answers=[("", answer(line(point(0, 0.5), point(1, None))))],
        metric="quality:g",
    )
    assert [row.value for row in chart.rows] == [None, 0.5]
    assert (chart.rows[0].not_scored, chart.rows[0].point.users) == ("2 skipped, 1 dropped, 3 pending", 7)
    assert chart.latest is not None
    assert chart.latest.value == 0.5


def test_too_many_groups_stay_in_the_table() -> None:
    """Only the six largest groups are drawn; the rest are counted and listed."""
    lines = (line(point(0, 0.5, n=number), group={"model": f"m{number}"}) for number in range(9))
    chart = Chart(key="k", name="t", answers=[("", answer(*lines))], metric="quality:g")
    assert len(chart.names) == 6
    assert "m0" not in chart.names
    assert chart.hidden_lines == 3
    assert len(chart.rows) == 9


def test_values_that_are_not_numbers_are_gaps() -> None:
    """NaN and infinity would break the page's JSON; they become null."""
    chart = Chart(
        key="k",
        name="t",
        answers=[("", answer(line(point(0, float("nan")), point(1, float("inf")))))],
        metric="quality:g",
    )
    assert json.loads(chart.data)["lines"][0]["v"] == [None, None]


def test_thin_points_are_hollow_as_the_collector_says() -> None:
    """A point that the API calls thin is drawn hollow, whatever its n."""
    points = point(0, 0.8, n=50, thin=True), point(1, 0.8, n=9, thin=False)
    chart = Chart(key="a", name="a", answers=[("", answer(line(*points)))], metric="quality:a")
    assert json.loads(chart.data)["lines"][0]["thin"] == [True, False]


def test_the_headline_of_a_chart_is_no_half_filled_bucket() -> None:
    """The newest point beside the title is of a bucket that is over, where there is one."""
    over, begun = point(58, 0.8), point(59, 0.1, n=1)
    ended = replace(answer(line(over, begun)), to=START.replace(minute=59, second=30))
    begun_only = replace(ended, series=[line(begun)])
    charts = [Chart(key="a", name="a", answers=[("", one)], metric="quality:g") for one in (ended, begun_only)]
    assert [chart.latest and chart.latest.value for chart in charts] == [0.8, 0.1]


def target(metric: str, *, least: float | None = None, most: float | None = None) -> TargetState:
    """A target that nothing decides."""
    return TargetState(metric=metric, min=least, max=most, where=None, unit="share", value=None, lo=None, hi=None, n=0,
                       state="undecided", refused=None)  # fmt: skip


def test_a_target_is_a_line_and_a_word_in_each_row() -> None:
    """Buckets wholly beyond the bound are met or missed, those whose interval holds it undecided."""
    targets = [target("quality:g", least=0.4), target("latency_p95", most=9.0)]
    points = (point(n, value, lo=value - 0.1, hi=value + 0.1) for n, value in enumerate((0.2, 0.45, 0.6)))
    answers = [("", answer(line(*points)))]
    chart = Chart(key="k", name="t", metric="quality:g", answers=answers, targets=targets)
    assert json.loads(chart.data)["targets"] == [{"value": 0.4, "text": "at least 0.400"}]
    assert [chart.bounds[0].state(row) for row in chart.rows] == ["met", "undecided", "missed"]
    assert chart.bounds[0].state(replace(chart.rows[0], point=replace(chart.rows[0].point, value=None))) == ""


def test_a_replays_past_is_marked_where_the_rule_goes_on() -> None:
    """The line does not break; a marker says where scores of the replay end. Without replayed scores there is none."""
    old, new = point(0, 0.5, replayed=20), point(1, 0.6, replayed=0)
    for points, texts in (([old, new], ["replayed before, live from here"]), ([new], [])):
        replayed = line(*points, version="v", online_since=START.replace(minute=1))
        chart = Chart(key="k", name="t", answers=[("", answer(replayed))], metric="quality:g")
        drawn = json.loads(chart.data)
        assert [one["text"] for one in drawn["markers"]] == texts
        assert len(drawn["lines"]) == 1


def test_one_bucket_is_as_long_as_its_range() -> None:
    """The API says step 0 for a single bucket: a rate is over the range, and an empty range divides by nothing."""
    whole = replace(answer(line(point(0, 120.0))), name="requests", unit="count", step=0)
    chart = Chart(key="k", name="Requests", answers=[("", whole)], metric="requests")
    assert (chart.step, chart.rows[0].value, chart.latest and chart.latest.value) == (3600, 2.0, 2.0)
    empty = Chart(key="k", name="Requests", answers=[("", replace(whole, to=whole.from_))], metric="requests")
    assert json.loads(empty.data)["step"] == 60


def test_a_bucket_that_the_range_holds_in_part_is_drawn_apart() -> None:
    """Its rate and its place are those of the part; the figure above the chart is that of a whole bucket."""
    asked = replace(
        answer(line(point(0, 4.0), point(1, 8.0), point(2, 6.0))),
        from_=START.replace(second=30),
        to=START.replace(minute=2, second=45),
        name="requests",
        unit="count",
    )
    chart = Chart(key="k", name="Requests", answers=[("", asked)], metric="requests")
    drawn = json.loads(chart.data)
    assert drawn["part"] == ["in part", "", "in part"]
    assert drawn["lines"][0]["v"] == [8.0, 8.0, 8.0]
    assert [place - drawn["t"][0] for place in drawn["x"]] == [45.0, 90.0, 142.5]
    assert chart.latest is not None
    assert chart.latest.t == datetime(2026, 1, 1, 0, 1, tzinfo=UTC)
    assert [row.part for row in chart.rows] == ["in part", "", "in part"]


def test_why_explains_what_came_since_the_change() -> None:
    """The link of a chart and the button of the sentence about it name the same moment."""
    since = datetime(2026, 1, 1, 0, 1, 0, 123_000)
    for metric in ("quality:g", "cost_usd"):
        chart = Chart(key="k", name="t", answers=[("", answer())], metric=metric, since=since)
        assert chart.why == {"metric": metric, "at": "2026-01-01T00:01:00Z"}
