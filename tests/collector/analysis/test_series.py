"""Series over request time: every name, equal to the estimator, gaps as gaps."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from functools import partial
from typing import Any, cast

import pytest
from asking import ask
from stored_units import T0, Units, trace_id, uniform

from ragpulse_collector.analysis import selection
from ragpulse_collector.analysis.cache import Snapshot, Snapshots
from ragpulse_collector.analysis.overview import RangeSummary, overview
from ragpulse_collector.analysis.query import window_between
from ragpulse_collector.analysis.series import MetricSeries, series
from ragpulse_collector.analysis.traffic import NAMES
from ragpulse_collector.api.http import plain
from ragpulse_collector.api.models import Buckets
from ragpulse_collector.store import Store
from ragpulse_collector.store.embedded import EmbeddedStore
from ragpulse_evaluators.statistics import hajek, wilson


def now() -> datetime:
    """Three hours after noon."""
    return T0 + timedelta(hours=3)


def points(store: EmbeddedStore, name: str, **params: Any) -> list[dict[str, Any]]:
    """The points of the only line of a metric, by hour over the last four hours."""
    (line,) = ask(store, "metrics", {"name": name, "from": "-4h", "step": "1h", **params}, clock=now)["series"]
    found: list[dict[str, Any]] = line["points"]
    return found


@pytest.mark.parametrize("graded", [False, True])
@pytest.mark.parametrize("chances", [(1.0,), (0.5, 0.05, 1.0)])
def test_a_point_equals_the_estimator(store: EmbeddedStore, graded: bool, chances: tuple[float, ...]) -> None:
    """Sums in the store give what `hajek` gives on the values: mean, interval, n, effective n."""
    units, values, pi = Units(store), [], []
    for number in range(500):
        value = round(uniform(number, "value"), 2) if graded else float(uniform(number, "value") < 0.8)
        chance = chances[number % len(chances)]
        if units.scored(number, "judge", value, pi=chance):
            values.append(value)
            pi.append(chance)
    units.save()
    expected = hajek(values, pi)
    assert expected is not None
    point = points(store, "quality:judge")[1]
    told = [point["value"], point["lo"], point["hi"], point["n"], point["n_eff"]]
    assert told == pytest.approx([expected.estimate, *expected, expected.n, expected.n_eff], abs=1e-9)


def test_a_bucket_without_scores_is_a_gap(store: EmbeddedStore) -> None:
    """Null, not zero; requests in an hour without any are zero between the first and the last."""
    units = Units(store)
    units.scored(1, "judge", 1.0)
    units.unit(2, at=T0 + timedelta(hours=2))
    units.save()
    assert [point["value"] for point in points(store, "quality:judge")] == [None, 1.0, None, None]
    assert [point["value"] for point in points(store, "requests")] == [None, 1.0, 0.0, 1.0]
    assert [point["value"] for point in points(store, "latency_p50")] == [None, 1000.0, None, 1000.0]


def test_every_traffic_metric(store: EmbeddedStore) -> None:
    """Each name gives the figure worked out by hand."""
    units = Units(store)
    for number in range(10):
        units.unit(number, error=number < 2, latency_ms=100.0 * number, ttft_ms=float(number), input_tokens=10,
                   output_tokens=None if number else 7, cost_usd=0.5 if number < 4 else None,
                   feedback=(1.0, -1.0, 0.0, 1.0, None)[min(number, 4)],
                   answer=("empty", "refused", "refused", "answered", None)[min(number, 4)],
                   topic=("other", "a", "b", "other", None)[min(number, 4)],
                   question_distance=(0.8, 0.2, 0.1, 0.6, None)[min(number, 4)])  # fmt: skip
    units.save()
    expected = {"requests": 10, "errors": 2, "error_rate": 0.2, "latency_p50": 450, "latency_p95": 855,
                "latency_p99": 891, "ttft_p50": 4.5, "ttft_p95": 8.55, "input_tokens": 100, "output_tokens": 7,
                "cost_usd": 2, "throughput": 10 / 3600, "empty_rate": 0.25, "refused_rate": 0.5,
                "unanswered_rate": 0.75, "acceptance": 0.5, "other_share": 0.5, "question_drift": 0.425}  # fmt: skip
    assert expected.keys() == NAMES.keys()
    found = {name: points(store, name)[1] for name in NAMES}
    assert {name: point["value"] for name, point in found.items()} == pytest.approx(expected)
    assert found["cost_usd"]["unknown_share"] == 0.6
    assert found["empty_rate"]["unknown_share"] == 0.6
    rate = wilson(2, 10)
    assert rate is not None
    assert found["error_rate"]["hi"] == rate.hi


def test_a_total_of_unknowns_is_unknown(store: EmbeddedStore) -> None:
    """No price known: null, with the share that says why."""
    units = Units(store)
    units.unit(1)
    units.save()
    assert (points(store, "cost_usd")[1]["value"], points(store, "cost_usd")[1]["unknown_share"]) == (None, 1.0)


def test_upstream_sampling_is_scaled_and_marked(store: EmbeddedStore) -> None:
    """A trace kept with probability 0.1 stands for ten, and the point says it is an estimate."""
    units = Units(store)
    units.unit(1, upstream_pi=0.1)
    units.save()
    point = points(store, "requests")[1]
    assert (point["value"], point["n"], point["estimated"]) == (10.0, 1, True)


def test_what_is_no_number_is_counted_beside(store: EmbeddedStore) -> None:
    """Skipped, invalid and failed verdicts never enter the mean; above 5 % the bounds are shown."""
    units = Units(store)
    for number, status in enumerate(["ok"] * 8 + ["skipped", "invalid", "error"]):
        units.scored(number, "judge", 1.0 if status == "ok" else None, status=status)
    units.save()
    point = points(store, "quality:judge")[1]
    assert (point["value"], point["n"]) == (1.0, 8)
    assert point["counts"] == {"skipped": 1, "invalid": 1, "error": 1}
    assert point["bounds"] == pytest.approx([0.8, 1.0])


def test_what_a_cap_dropped_opens_bounds(store: EmbeddedStore) -> None:
    """Two selected units left out for money: the bucket says so and shows both extremes; pacing does not count."""
    units = Units(store)
    for number in range(8):
        units.scored(number, "judge", float(number % 2), pi=0.5, u=0.1)
    for number, u in ((8, 0.2), (9, 0.3), (10, 0.6)):
        units.unit(number)
        units.decision(number, "judge", pi=0.5, u=u, reason="budget")
    units.save()
    store.write(lambda tx: tx.execute("UPDATE raw.decisions SET sampled = false WHERE reason = 'budget'")).result()
    point = points(store, "quality:judge")[1]
    assert (point["value"], point["dropped"], point["bounds"]) == (0.5, 2, pytest.approx([0.4, 0.6]))


def test_forced_scores_count_only_if_chance_would_have(store: EmbeddedStore) -> None:
    """A forced verdict on a unit that was not drawn stays out of the estimate."""
    units = Units(store)
    units.scored(1, "judge", 1.0, pi=0.5, u=0.1)
    units.unit(2)
    units.decision(2, "judge", pi=0.5, u=0.9, reason="forced")
    units.score(2, "judge", 0.0)
    units.save()
    assert (points(store, "quality:judge")[1]["value"], points(store, "quality:judge")[1]["n"]) == (1.0, 1)


def test_versions_and_judges_are_separate_lines(store: EmbeddedStore) -> None:
    """A new version breaks the series and leaves a marker; so does a new judge."""
    units = Units(store)
    for number, (version, judge) in enumerate([("v1", None), ("v2", None), ("v2", "gpt")]):
        units.scored(number, "judge", 1.0, at=T0 + timedelta(hours=number), version=version, judge=judge)
    units.save()
    told = ask(store, "metrics", {"name": "quality:judge", "from": "-4h", "step": "1h"}, clock=now)
    assert [(line["version"], line["judge"]) for line in told["series"]] == [("v1", None), ("v2", None), ("v2", "gpt")]
    assert [marker["text"] for marker in told["markers"]] == ["judge v2", "judge v2 judged by gpt"]


def test_the_latest_verdict_of_a_unit_counts(store: EmbeddedStore) -> None:
    """An error before the answer, or an answer to an older revision, does not count twice."""
    units = Units(store)
    units.scored(1, "judge", None, status="error")
    units.score(1, "judge", 1.0, created=T0 + timedelta(seconds=5))
    units.save()
    point = points(store, "quality:judge")[1]
    assert (point["value"], point["n"], point["counts"]["error"]) == (1.0, 1, 0)
    units.score(1, "judge", None, status="error", created=T0 + timedelta(seconds=9))
    units.save()
    assert points(store, "quality:judge")[1]["value"] == 1.0


def test_score_and_pass_rate(store: EmbeddedStore) -> None:
    """`score:` is on the native scale without bounds, `pass_rate:` counts `passing`."""
    units = Units(store)
    for number, native in enumerate((2.0, 3.0, 5.0)):
        units.unit(number)
        units.decision(number, "judge")
        units.score(number, "judge", native / 5, score=native, passing=native >= 3)
    units.save()
    score, rate = points(store, "score:judge")[1], points(store, "pass_rate:judge")[1]
    assert (score["value"], rate["value"]) == (pytest.approx(10 / 3), pytest.approx(2 / 3))
    assert score["hi"] > 5


def test_group_by_and_filters(store: EmbeddedStore) -> None:
    """Lines per group; filters by parameter and by SQL."""
    units = Units(store)
    for number in range(12):
        facts = {"model": "ab"[number % 2], "prompt_version": f"v{number % 3}", "latency_ms": float(number)}
        units.scored(number, "judge", float(number % 2), facts=facts)
    units.save()
    params = {"name": "quality:judge", "from": "-4h", "step": "1h", "group_by": "model"}
    told = ask(
        store, "metrics", {**params, "prompt_version": ["v0", "v1"], "where": "latency_ms >= 2 -- late"}, clock=now
    )
    found = [(line["group"], line["points"][1]["value"], line["points"][1]["n"]) for line in told["series"]]
    assert found == [({"model": "a"}, 0.0, 3), ({"model": "b"}, 1.0, 3)]
    assert points(store, "requests", q="WHY")[1]["value"] == 12


@pytest.mark.parametrize("group_by", ["user_id", "model", ["user_id", "model"], "top_k"])
@pytest.mark.parametrize("name", ["requests", "error_rate", "quality:judge", "coverage:judge"])
def test_the_largest_groups_are_answered_and_the_others_together(
    store: EmbeddedStore, name: str, group_by: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Senders choose the values: 40 of them are 3 lines, and no request is missing."""
    monkeypatch.setattr(selection, "MAX_GROUPS", 2)
    units = Units(store)
    for number in range(60):
        value = "ab"[number % 2] if number < 20 else f"rare {number}"
        top_k = number % 2 if number < 20 else number
        units.scored(number, "judge", 1.0, facts={"user_id": value, "model": value, "top_k": top_k})
    units.save()
    asked = {"name": name, "from": "-4h", "step": "1h"}
    (whole,) = ask(store, "metrics", asked, clock=now)["series"]
    told = ask(store, "metrics", {**asked, "group_by": group_by}, clock=now)
    largest = {"0", "1"} if group_by == "top_k" else {"a", "b"}
    assert {next(iter(line["group"].values())) for line in told["series"]} == largest | {"(other)"}
    assert told["other_groups"] == 40
    counted = [sum(point["n"] or 0 for point in line["points"]) for line in (whole, *told["series"])]
    assert counted[0] == sum(counted[1:]) > 0


def test_more_points_leave_fewer_groups(store: EmbeddedStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """A group has a point in each bucket."""
    monkeypatch.setattr(selection, "MAX_GROUPED_POINTS", 12)
    units = Units(store)
    for number in range(30):
        units.scored(number, "judge", 1.0, facts={"user_id": f"u{number}"})
    units.save()
    asked = {"name": "requests", "from": "-4h", "group_by": "user_id"}
    lines = [len(ask(store, "metrics", {**asked, "step": step}, clock=now)["series"]) for step in ("1h", "all")]
    assert lines == [4, 13]


@pytest.mark.parametrize(
    ("params", "mistake"),
    [
        ({"name": "nope"}, "no metric 'nope'; possible: requests"),
        ({"name": "requests", "group_by": "query"}, "cannot group by 'query'"),
        ({"name": "requests", "from": "tomorrow"}, "'tomorrow' is no time"),
        ({"name": "requests", "from": "-1h", "to": "-2h"}, "must lie before"),
        ({"name": "requests", "step": "1s", "from": "-7d"}, "more than 2000 points"),
        ({"name": "requests", "where": "nope = 1"}, "nope"),
        ({"name": "requests", "where": "latency_ms"}, "where"),
        ({"name": "requests", "where": "1 = (SELECT count(*) FROM raw.spans)"}, "no subqueries"),
        ({"name": "requests", "where": "true) ORDER BY (1"}, "syntax error"),
        ({"name": "requests", "where": "true); DROP TABLE raw.spans; SELECT (1"}, "syntax error"),
        ({"name": "requests", "error": "maybe"}, "error: input should be a valid boolean"),
    ],
)
def test_malformed_parameters_are_named(store: EmbeddedStore, params: dict[str, Any], mistake: str) -> None:
    """Each mistake is a ValueError that says what is wrong (the API answers 400)."""
    with pytest.raises(ValueError, match=mistake.replace("(", r"\(")):
        ask(store, "metrics", params, clock=now)


def test_auto_step_fits_the_width() -> None:
    """At most `width` buckets, on round numbers, weeks on Mondays."""
    month = timedelta(days=-30)
    window = window_between(month, None, now=now(), step="auto", width=60)
    assert (window.step_s, len(list(window.starts()))) == (43200, 61)
    week = window_between(month, None, now=now(), step=7 * 86_400)
    assert {at.weekday() for at in week.starts()} == {0}


def labelled(store: EmbeddedStore, count: int, *, wrong: int) -> None:
    """`count` judged units, a quarter labelled; the judge passes `wrong` of ten that people fail."""
    units = Units(store)
    for number in range(count):
        units.scored(number, "judge", 1.0)
        if number % 4 == 0:
            human = 0.0 if number % 40 < 4 * wrong else 1.0
            units.add("labels", trace_id=trace_id(number), span_id=0xAA, request_time=T0, evaluator="judge",
                      score=human, passing=human > 0, annotator="a", label_pi=0.25, created_at=T0)  # fmt: skip
    units.save()


def test_the_corrected_series_moves_by_the_judges_error(store: EmbeddedStore) -> None:
    """A judge that passes everything while people fail 3 of 10 is corrected to 0.7, the raw value beside it."""
    labelled(store, 400, wrong=3)
    point = points(store, "quality:judge", corrected=True)[1]
    assert (point["value"], point["uncorrected"]["value"]) == (pytest.approx(0.7, abs=0.02), 1.0)
    assert point["lo"] < 0.7 < point["hi"]
    (report,) = ask(store, "calibration", {"evaluator": "judge", "from": "-4h"}, clock=now)["versions"]
    assert (report["n"], report["sensitivity"], report["specificity"]) == (100, 1.0, 0.0)
    assert report["kappa"] == pytest.approx(0.0)
    assert report["corrected"]["value"] == pytest.approx(0.7, abs=0.02)
    (whole,) = points(store, "quality:judge", corrected=True, step="all")
    assert {key: whole[key] for key in ("value", "lo", "hi")} == report["corrected"]


def test_labels_that_people_chose_themselves_correct_nothing(store: EmbeddedStore) -> None:
    """They label what failed, which turned 0.80 into .29. Beside fifty labels with a chance they are ignored."""
    units = Units(store)
    for number in range(400):
        good = number % 5 > 0
        units.scored(number, "judge", float(good))
        chosen = not good and number % 2 == 0
        if chosen or number % 8 == 1:
            units.add("labels", trace_id=trace_id(number), span_id=0xAA, request_time=T0, evaluator="judge",
                      score=float(good and not chosen), passing=good, annotator="a",
                      label_pi=None if chosen else 0.125, created_at=T0)  # fmt: skip
    units.save()
    asked = {"name": "quality:judge", "from": "-4h", "step": "all", "corrected": True}
    (line,) = ask(store, "metrics", asked, clock=now)["series"]
    assert (line["corrected"], line["labels"], line["labels_chosen"]) == (True, 50, 40)
    assert line["points"][0]["value"] == pytest.approx(0.8, abs=0.01)
    (report,) = ask(store, "calibration", {"evaluator": "judge", "from": "-4h"}, clock=now)["versions"]
    assert (report["n"], report["drawn"], report["corrected"]["value"]) == (90, 50, pytest.approx(0.8, abs=0.01))


def test_few_labels_correct_nothing(store: EmbeddedStore) -> None:
    """Below thirty labels the line says so and stays."""
    labelled(store, 40, wrong=3)
    told = ask(store, "metrics", {"name": "quality:judge", "from": "-4h", "step": "1h", "corrected": True}, clock=now)[
        "series"
    ][0]
    assert (told["corrected"], told["labels"], told["points"][1]["value"]) == (False, 10, 1.0)


def test_suggestions_carry_their_chance(store: EmbeddedStore) -> None:
    """Unsure verdicts are drawn more often, none with less than 0.05, labelled ones never again."""
    units = Units(store)
    for number in range(400):
        units.scored(number, "judge", 0.5 if number < 100 else 1.0)
    units.save()
    found = ask(store, "labels/suggest", {"evaluator": "judge", "limit": 20}, clock=now)["traces"]
    chances = {trace["scores"]["judge"]["normalized"]: trace["label_pi"] for trace in found}
    assert len(found) == 20
    assert chances[0.5] > 2 * 0.05
    assert all(trace["label_pi"] >= 0.05 for trace in found)


def test_suggestions_go_on_past_the_first_sitting(store: EmbeddedStore) -> None:
    """Labelling what is suggested again and again ends when all is labelled; the labels give the truth all along."""
    units = Units(store)
    human = {trace_id(number): float(number % 10 > 0) for number in range(120)}
    for number in range(120):
        units.scored(number, "judge", 0.5 if number % 4 == 0 else 1.0)
    units.save()
    for sitting in range(6):
        found = ask(store, "labels/suggest", {"evaluator": "judge", "limit": 20}, clock=now)["traces"]
        assert len(found) == 20
        for one in found:
            units.add("labels", trace_id=one["trace_id"], span_id=0xAA, request_time=T0, evaluator="judge",
                      score=human[one["trace_id"]], passing=True, annotator="a", label_pi=one["label_pi"],
                      created_at=T0)  # fmt: skip
        units.save()
        (report,) = ask(store, "calibration", {"evaluator": "judge", "from": "-4h"}, clock=now)["versions"]
        if sitting > 1:
            assert report["corrected"]["lo"] < 0.9 < report["corrected"]["hi"]
    assert ask(store, "labels/suggest", {"evaluator": "judge", "limit": 20}, clock=now)["traces"] == []


@pytest.fixture(autouse=True)
def _reading_takes_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """How old an answer may be follows the time that reading took: here no machine is slow."""
    monkeypatch.setattr(Snapshot, "read_s", property(lambda _: 0.0, lambda _, __: None), raising=False)


class Counted:
    """A store that counts its questions, and a clock that stands until told."""

    def __init__(self, store: EmbeddedStore) -> None:
        self._store, self.asked, self.time = store, 0, 0.0
        self.shared = Snapshots(cast("Store", self), timer=lambda: self.time)
        self.hook: Callable[[], object] | None = None

    def read(self, *args: Any, **options: Any) -> Any:
        """Ask the store."""
        self.asked += 1
        if self.hook:
            self.hook()
        return self._store.read(*args, **options)

    def limited(self) -> Counted:
        """The same store."""
        return self

    def _snapshot(self, max_age: float = 0.0, **params: Any) -> Snapshot:
        query = Buckets.parse({"from": "-4h", **params}).query(now() + timedelta(seconds=self.time))
        return self.shared.of(query, max_age)

    def headline(self, **params: Any) -> RangeSummary:
        """The overview of the last four hours."""
        return overview(self._snapshot(**params))

    def chart(self, name: str) -> MetricSeries:
        """A metric of the last four hours."""
        return series(self._snapshot(), name)


def test_charts_of_one_page_share_one_reading(store: EmbeddedStore) -> None:
    """After the headline no chart of the range asks for requests, or twice for scores; the figures are the same."""
    units = Units(store)
    for number in range(50):
        units.scored(number, "judge", float(number % 5 > 0), facts={"latency_ms": float(number)})
    units.save()
    counted = Counted(store)
    counted.headline()
    before = counted.asked
    for name in ("quality:judge", "requests", "latency_p95", "cost_usd"):
        told = counted.chart(name)
        assert plain(told) == ask(store, "metrics", {"from": "-4h", "name": name}, clock=now)
    # Prompt marks, replays, and the evaluator's buckets (repeated?, replayed?, verdicts, missing), once each: a user
    # who asks in several buckets is one in the headline, so that it is no sum of them.
    assert counted.asked - before <= 6


def test_a_reading_serves_a_second(store: EmbeddedStore) -> None:
    """What comes later is seen a second later; the parts of the range add up to the whole."""
    units = Units(store)
    for number in range(40):
        units.scored(number, "judge", float(number % 4 > 0), at=T0 + timedelta(minutes=number), pi=0.5)
    units.save()
    counted = Counted(store)
    (first,) = counted.headline().quality
    values = [float(number % 4 > 0) for number in range(40) if uniform(number) < 0.5]
    expected = hajek(values, [0.5] * len(values))
    assert expected is not None
    assert (first.value, first.lo, first.n) == pytest.approx((expected.estimate, expected.lo, expected.n))
    units.scored(99, "judge", 0.0, pi=1.0)
    units.save()
    assert counted.headline().quality[0].n == first.n
    counted.time = 30.0
    assert counted.headline().quality[0].n == first.n + 1


def test_the_queue_is_looked_through_from_where_it_begins(store: EmbeddedStore) -> None:
    """Older jobs that are met are looked at once; what is met meanwhile no longer waits, and what is new does."""
    units, early = Units(store), T0 - timedelta(hours=3)
    jobs = [units.job(number, "judge", at=early + timedelta(minutes=number)) for number in range(4)]
    counted, waiting = Counted(store), []
    for step, finished in enumerate(([0, 1], [3], [2], [])):
        for number in finished:
            units.add("scores", job_id=jobs[number], source="online", status="ok", attempt=1, created_at=now())
        if step == 3:
            units.job(9, "judge", at=now())
        units.save()
        counted.time = 60.0 * step
        waiting.append(counted.headline().queued)
    assert waiting == [2, 1, 0, 1]


def test_the_cost_of_a_good_answer_follows_the_answers(store: EmbeddedStore) -> None:
    """Its share is not read again while nothing came, and is as soon as the answers are more by a thousandth."""
    units = Units(store)
    for number in range(4):
        units.scored(number, "groundedness", 1.0, facts={"cost_usd": 0.5})
    units.save()
    counted = Counted(store)
    told = []
    for step in range(3):
        counted.time = 5.0 * step
        cost = counted.headline().cost_per_good_answer
        told.append(cost and cost.value)
        if step == 1:
            for number in range(4, 8):
                units.scored(number, "groundedness", 0.0, facts={"cost_usd": 0.5})
            units.save()
    assert told == pytest.approx([0.5, 0.5, 1.0])


def test_a_range_may_be_one_bucket(store: EmbeddedStore) -> None:
    """`step=all`: the figures of the whole range, wherever weeks begin; throughput is per second covered."""
    units = Units(store)
    for number in range(6):
        units.unit(number, at=T0 + timedelta(minutes=20 * number))
    units.save()
    assert [point["value"] for point in points(store, "requests", step="all")] == [6]
    assert points(store, "throughput", step="all")[0]["value"] == pytest.approx(6 / (3 * 3600))


def test_who_accepts_older_figures_never_waits_for_newer_ones(store: EmbeddedStore) -> None:
    """With `max_age` figures of 30 s ago are answered at once, also while newer ones are being read; then the newer."""
    units = Units(store)
    units.scored(1, "judge", 1.0)
    units.save()
    counted = Counted(store)
    patient = partial(counted.headline, max_age=60)
    first = patient()
    counted.time = 30.0
    before = counted.asked
    assert patient().as_of == first.as_of
    assert counted.asked == before + 2  # the newest span and the demo's service are always asked for
    reading, release = threading.Event(), threading.Event()

    def hold() -> None:
        reading.set()
        release.wait(60)

    counted.hook = hold
    with ThreadPoolExecutor(1) as pool:
        newer = pool.submit(counted.headline)
        assert reading.wait(60)
        counted.hook = None
        assert patient().as_of == first.as_of
        release.set()
        told = newer.result(60).as_of
    assert told > first.as_of
    assert patient().as_of == told
    counted.time = 120.0
    assert patient().as_of > told


@pytest.mark.parametrize(
    ("params", "expected"),
    [
        ({}, [("prompt answers v2", "v2")]),
        ({"service": "big"}, [("prompt answers v2", "v2")]),
        ({"service": "small"}, [("prompt notes v3", "v3")]),
        ({"group_by": "service"}, [("prompt answers v2", "v2"), ("prompt notes v3", "v3")]),
    ],
)
def test_a_marker_of_a_prompt_is_where_it_serves_the_traffic_shown(
    store: EmbeddedStore, params: dict[str, Any], expected: list[tuple[str, str]]
) -> None:
    """A prompt of one service in four says nothing about a chart of all; it does about a line of its own."""
    units = Units(store)
    for number in range(120):
        service, prompt, versions = (
            ("small", "notes", ("v2", "3")) if number % 4 == 0 else ("big", "answers", ("v1", "v2"))
        )
        facts = {"service": service, "prompt_name": prompt, "prompt_version": versions[number >= 60]}
        units.unit(number, at=T0 + timedelta(minutes=number), **facts)
    units.save()
    markers = ask(store, "metrics", {"name": "requests", "from": "-4h", **params}, clock=now)["markers"]
    assert sorted((marker["text"].replace("notes 3", "notes v3"), marker["label"]) for marker in markers) == expected


def test_a_replay_of_the_past_and_the_rule_that_follows_are_one_line(store: EmbeddedStore) -> None:
    """Last day is replayed with v2, then a rule uses v2: one line of v2, marked where rules began."""
    units = Units(store)
    units.add("runs", run_id="run", evaluator="judge", version="v2", judge=None, status="done", total=100,
              spec='{"matching": 100}', created_at=T0)  # fmt: skip
    for number in range(200):
        at, old = T0 + timedelta(hours=number // 100), number < 100
        units.scored(number, "judge", 1.0, at=at, version="v1" if old else "v2")
        if old:
            job = units.job(number, "judge", at=at, run_id="run")
            key = units.score(
                number, "judge", float(number % 4 > 0), at=at, version="v2", source="replay", run_id="run"
            )
            units.add("run_items", run_id="run", job_id=job, score_key=key, u=uniform(number))
    units.save()
    answer = ask(store, "metrics", {"name": "quality:judge", "from": T0, "to": T0 + timedelta(hours=2), "step": "1h"})
    first, second = answer["series"]
    assert (first["version"], second["version"]) == ("v1", "v2")
    assert [(one["value"], one["n"], one["replayed"]) for one in second["points"]] == [(0.75, 100, 100), (1.0, 100, 0)]
    assert (first["online_since"], second["online_since"]) == ("2026-11-20T12:00:00Z", "2026-11-20T13:00:00Z")
    assert [mark["t"] for mark in answer["markers"] if mark["kind"] == "version"] == ["2026-11-20T13:00:00Z"]
