"""Unclear answers: complete rates, a pass rate that does not know them, and the words for a changed wording."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from asking import ask, query_of
from stored_units import T0, Units, trace_id

from ragpulse_collector.analysis.quality import wording_change
from ragpulse_collector.monitoring.monitors import Monitors
from ragpulse_collector.monitoring.targets import Targets
from ragpulse_collector.refusals import Invalid
from ragpulse_collector.settings import MonitorSettings, Settings, TargetSettings
from ragpulse_collector.store import EmbeddedStore
from ragpulse_collector.store.protocol import utc_now
from ragpulse_collector.store.queries.scores import MEASURES, refuse_unclear


def mixed(store: EmbeddedStore, *, unclear: int) -> None:
    """100 answers of `words`: 10 fail, `unclear` are unclear, the others pass."""
    units = Units(store)
    for number in range(100):
        units.scored(number, "words", 0.2 if number < 10 else 0.9)
    units.save()
    store.write(
        lambda tx: tx.execute(
            "UPDATE raw.scores SET passing = normalized > 0.5;"
            f"UPDATE raw.scores SET passing = NULL, label = 'unclear' WHERE score_key IN ("
            f"SELECT score_key FROM raw.scores WHERE normalized > 0.5 ORDER BY request_time LIMIT {unclear})"
        )
    ).result()


def test_rates_are_complete(store: EmbeddedStore) -> None:
    """Unclear answers neither fail nor widen an interval."""
    mixed(store, unclear=30)
    for measure, value in (("fail_rate", 0.1), ("unclear_rate", 0.3)):
        params = {"evaluator": "words", "measure": measure, "max": 0.5, "from": "-520w"}
        answer = ask(store, "check", params, clock=lambda: datetime.now(UTC).replace(tzinfo=None))
        assert answer["value"] == pytest.approx(value)
        assert (answer["n"], answer["missing"], answer["verdict"]) == (100, 0, "below")


def test_a_pass_rate_with_unclear_answers_is_no_gate(store: EmbeddedStore) -> None:
    """Above 5 % it is refused with the metrics to use instead."""
    mixed(store, unclear=30)
    with pytest.raises(Invalid, match=r"30 % of the answers are unclear.*fail_rate:words"):
        refuse_unclear(store, "pass_rate:words")
    for measure in MEASURES.keys() - {"pass_rate"}:
        refuse_unclear(store, f"{measure}:words")


@pytest.mark.parametrize(
    ("now", "before", "words"),
    [
        ((0.41, 500), (0.70, 500), "wording changed: it decides 41 % instead of 70 %"),
        ((0.69, 500), (0.70, 500), None),
        ((0.41, 10), (0.70, 10), None),
    ],
)
def test_a_sure_move_of_the_decided_share_is_told(
    now: tuple[float, int], before: tuple[float, int], words: str | None
) -> None:
    """Only what chance hardly does."""
    assert wording_change(now, before) == words


@pytest.mark.parametrize(
    ("metric", "limit", "state"),
    [
        ("pass_rate:words", {"min": 0.1}, "undecided"),
        ("fail_rate:words", {"max": 0.3}, "met"),
        ("fail_rate:words", {"max": 0.02}, "missed"),
        ("unclear_rate:words", {"max": 0.1}, "missed"),
    ],
)
def test_a_target_on_a_pass_rate_is_marked(
    store: EmbeddedStore, metric: str, limit: dict[str, float], state: str
) -> None:
    """Where too many answers are unclear, it says why it is not decided; the complete rates are decided."""
    mixed(store, unclear=30)
    targets = Targets(store, [TargetSettings.model_validate({"metric": metric, **limit})])
    (told,) = targets(query_of({"from": "-520w"}, utc_now())).targets
    assert told.state == state
    assert ("30 % of the answers are unclear" in (told.refused or "")) is metric.startswith("pass_rate")


@pytest.mark.parametrize(
    ("metric", "condition", "state"),
    [
        ("fail_rate:words", "> 0.02", "firing"),
        ("fail_rate:words", "> 0.5", "ok"),
        ("unclear_rate:words", "> 0.1", "firing"),
        ("unclear_rate:words", "> 0.6", "ok"),
    ],
)
def test_monitors_watch_the_complete_rates(store: EmbeddedStore, metric: str, condition: str, state: str) -> None:
    """A share of failing or unclear answers above the limit fires, one below it is well."""
    mixed(store, unclear=30)
    monitor = MonitorSettings(name="m", metric=metric, condition=condition, window="24h")
    monitors = Monitors(store, Settings.model_validate({"monitor": [monitor]}))
    monitors.check(T0 + timedelta(hours=1))
    assert monitors.list().monitors[0].state == state


def test_people_and_a_judge_are_held_against_each_other_where_it_decided(store: EmbeddedStore) -> None:
    """Of a hundred labelled answers thirty are unclear: their scores say neither pass nor fail."""
    mixed(store, unclear=30)
    units = Units(store)
    for number in range(100):
        units.add("labels", trace_id=trace_id(number), span_id=0xAA, request_time=T0, evaluator="words", score=0.0,
                  passing=False, label_pi=1.0, created_at=T0)  # fmt: skip
    units.save()
    asked = {"evaluator": "words", "from": "-520w"}
    (report,) = ask(store, "calibration", asked, clock=lambda: datetime.now(UTC).replace(tzinfo=None))["versions"]
    assert (report["n"], report["specificity"]) == (100, pytest.approx(10 / 70))


@pytest.mark.parametrize(
    ("reason", "cost"), [(None, None), ("1 of 1 calls: unpriced", None), ("no call with usage", 0.25)]
)
def test_the_cost_of_a_session_is_that_of_all_its_turns(
    store: EmbeddedStore, reason: str | None, cost: float | None
) -> None:
    """One of unknown cost, said or not, makes it unknown; a turn without a call costs nothing."""
    units = Units(store)
    units.unit(1, session_id="s", cost_usd=0.25)
    units.unit(2, session_id="s", cost_unknown_reason=reason)
    units.save()
    assert store.read("SELECT cost_usd FROM sessions").rows == [(cost,)]
