"""People's labels reach decisions: check, targets and monitors with a judge of a planted error."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
from asking import ask, query_of
from stored_units import T0, Units, trace_id, uniform

from ragpulse_collector.monitoring import Monitors, Targets
from ragpulse_collector.settings import MonitorSettings, Settings, TargetSettings
from ragpulse_collector.store.embedded import EmbeddedStore

DAY = {"from": "2026-11-20T12:00:00Z", "to": "2026-11-21"}
NOW = T0 + timedelta(hours=2)
TRUTH = 0.8725
LIMIT = 0.80
"""Between the judge's mean of .75 and the truth."""


def judged(
    store: EmbeddedStore,
    *,
    labelled: float = 0.2,
    most: int = 10_000,
    drawn: bool = True,
    version: str = "v1",
    judge: str | None = "gpt",
    ago: timedelta = timedelta(),
    passes: float = 0.85,
    first: int = 0,
    count: int = 2000,
) -> None:
    """A judge that passes `passes` of the good answers and a tenth of the bad ones, and labels of people, who know."""
    units, n = Units(store), 0
    for number in range(first, first + count):
        good, at = uniform(number, "truth") < TRUTH, T0 - ago
        verdict = float(uniform(number, "judge") < (passes if good else 0.1))
        units.scored(
            number, "judge", verdict, at=at, version=version, judge=judge, facts={"user_id": f"u{number // 2}"}
        )
        if uniform(number, "label") < labelled and n < most:
            n += 1
            units.add("labels", trace_id=trace_id(number), span_id=0xAA, request_time=at, evaluator="judge",
                      score=float(good), passing=good, annotator="a", label_pi=labelled if drawn else None,
                      created_at=at)  # fmt: skip
    units.save()


LONG_AGO = timedelta(days=30)


@pytest.mark.parametrize(
    ("stores", "corrected", "verdict", "words"),
    [
        ([{}], True, "above", r"corrected by \d+ labels, the judge alone says 0\.7\d ± 0\.02"),
        ([{}], False, "below", r"by the judge alone; corrected by \d+ labels it is 0\.8\d"),
        ([{"most": 60}], True, "undecided", r"corrected by 60 labels, the judge alone says"),
        ([{"most": 20}], True, "below", r"20 of 60 labels until correction: by them the judge's error could make it "),
        ([{"most": 59}], True, "below", r"59 of 60 labels until correction: by them"),
        ([{"labelled": 0.0}], True, "below", "0 of 60 labels until correction"),
        ([{"labelled": 0.0, "judge": None}], True, "below", None),
        ([{"drawn": False}], True, "below", "0 of 60 labels until correction"),
        ([{"ago": LONG_AGO, "version": "v0"}, {"labelled": 0.0, "first": 2000}], True, "below", "0 of 60 labels"),
        ([{"ago": LONG_AGO, "judge": "old"}, {"labelled": 0.0, "first": 2000}], True, "below", "0 of 60 labels"),
        ([{"ago": LONG_AGO}, {"labelled": 0.0, "first": 2000}], True, "above", r"corrected by \d+ labels, the judge"),
        (
            [{"ago": LONG_AGO, "passes": 1.0}, {"labelled": 0.0, "first": 2000}],
            True,
            "below",
            r"not corrected: labels are of another mix, where the judge's mean is 0\.8\d, not 0\.7\d",
        ),
    ],
)
def test_enough_random_labels_decide(
    store: EmbeddedStore, stores: list[dict[str, Any]], corrected: bool, verdict: str, words: str | None
) -> None:
    """Of this version, judge and mix; check and target say the same, and how they came to it."""
    for planted in stores:
        judged(store, **planted)
    asked = {**DAY, "evaluator": "judge", "min": LIMIT, "corrected": str(corrected).lower()}
    checked = ask(store, "check", asked)
    settings = TargetSettings(metric="quality:judge", min=LIMIT, corrected=corrected)
    (target,) = Targets(store, [settings])(query_of(DAY, NOW)).targets
    assert checked["verdict"] == verdict
    assert target.state == {"above": "met", "below": "missed"}.get(verdict, verdict)
    assert (target.value, target.lo, target.hi) == (checked["value"], checked["least"], checked["most"])
    assert target.correction == checked["correction"]
    if words is None:
        assert checked["correction"] is None
        return
    assert re.match(words, checked["correction"])
    applied = checked["uncorrected"] is not None
    assert applied == checked["correction"].startswith("corrected by")
    assert applied == (checked["correction"] in checked["words"]) == (checked["correction"] in checked["markdown"])
    if applied:
        params = {**DAY, "name": "quality:judge", "step": "all", "corrected": "true"}
        (line,) = ask(store, "metrics", params)["series"]
        assert {key: line["points"][0][key] for key in ("value", "lo", "hi")} == {
            key: checked[key] for key in ("value", "lo", "hi")
        }
        assert checked["lo"] < TRUTH < checked["hi"]


def test_a_measure_that_labels_do_not_have_keeps_its_figure(store: EmbeddedStore) -> None:
    """The correction is of the score: a fail rate is the judge's."""
    judged(store)
    checked = ask(store, "check", {**DAY, "evaluator": "judge", "max": 0.2, "measure": "fail_rate"})
    assert checked["value"] == pytest.approx(0.25, abs=0.02)
    assert (checked["verdict"], checked["uncorrected"], checked["correction"]) == ("above", None, None)


def test_missing_answers_widen_the_corrected_figure(store: EmbeddedStore) -> None:
    """First the correction, then the worst and the best that the missing answers could be."""
    judged(store)
    units = Units(store)
    for number in range(5000, 5400):
        units.unit(number, user_id=f"u{number}")
        units.decision(number, "judge")
    units.save()
    checked = ask(store, "check", {**DAY, "evaluator": "judge", "min": LIMIT})
    share = 400 / 2400
    assert checked["missing_share"] == pytest.approx(share)
    assert checked["least"] == pytest.approx(checked["lo"] * (1 - share))
    assert checked["most"] == pytest.approx(checked["hi"] * (1 - share) + share)
    assert (checked["verdict"], checked["uncorrected"] is not None) == ("undecided", True)


@pytest.mark.parametrize(("metric", "told"), [("quality:judge", True), ("fail_rate:judge", False), ("requests", False)])
def test_a_monitor_keeps_the_judge_and_says_the_correction(store: EmbeddedStore, metric: str, told: bool) -> None:
    """Its exact tests need the judge's own answers."""
    judged(store)
    monitor = MonitorSettings(name="m", metric=metric, condition="< 0.8", window="1d")
    monitors = Monitors(store, Settings(monitor=[monitor]), evaluators=lambda: {"judge"}, clock=lambda: NOW)
    monitors.check(NOW)
    (shown,) = monitors.list().monitors
    assert (shown.correction or "").startswith("by the judge alone; corrected by ") is told
    if told:
        assert shown.state == "firing"
        assert shown.value == pytest.approx(0.755, abs=0.02)
