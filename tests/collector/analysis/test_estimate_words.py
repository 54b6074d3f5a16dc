"""Estimates in words: uneven intervals, narrow ones, few answers, few errors, sessions, a changed evaluator."""

from __future__ import annotations

from datetime import timedelta

import pytest
from asking import ask, query_of
from stored_units import T0, Units

from ragpulse_collector.cli.tables import interval
from ragpulse_collector.monitoring import Targets
from ragpulse_collector.settings import TargetSettings
from ragpulse_collector.store.embedded import EmbeddedStore
from ragpulse_collector.words import few_errors, half_width
from ragpulse_collector.words.figures import estimate, metric_name, unit_of

DAY = {"from": "2026-11-20", "to": "2026-11-21"}


@pytest.mark.parametrize(
    ("metric", "words", "unit"),
    [
        ("quality:groundedness", "groundedness", "ratio"), ("quality:refusal", "answered", "share"),
        ("fail_rate:groundedness", "fail rate of groundedness", "share"),
        ("pass_rate:my_check", "pass rate of my check", "share"), ("coverage:my_check", "my check", "share"),
        ("topic_share:refund_2, late", "topic share of refund_2, late", "share"),
        ("topic_share:cost: how much", "topic share of cost: how much", "share"),
        ("other_share", "other share", "share"),
        ("question_drift", "question drift", "ratio"), ("feedback:thumbs", "thumbs (people)", "ratio"),
        ("latency_p95", "latency p95", "ms"), ("cost_usd", "cost", "usd"), ("error_rate", "error rate", "share"),
    ],
)  # fmt: skip
def test_a_metric_has_a_name_and_a_unit(metric: str, words: str, unit: str) -> None:
    """Of every family; names of topics stay as they are."""
    assert (metric_name(metric), unit_of(metric)) == (words, unit)


@pytest.mark.parametrize(
    ("value", "lo", "hi", "unit", "shown"),
    [
        (0.87, 0.84, 0.90, "ratio", "0.87 ± 0.03"),
        (1.0, 0.21, 1.0, "ratio", "1.00 (0.21-1.00)"),
        (0.95, 0.87, 0.98, "ratio", "0.95 (0.87-0.98)"),
        (0.994, 0.991, 0.997, "ratio", "0.994 ± 0.003"),
        (0.99, 0.991, 0.997, "ratio", "0.990 (0.991-0.997)"),
        (0.9996, 0.9991, 0.9998, "ratio", "0.9996 (0.9991-0.9998)"),
        (0.5, 0.4999, 0.5001, "ratio", "0.5000 ± 0.0001"),
        (0.0, 0.0, 0.0, "ratio", "0.00 (0.00-0.00)"),
        (-0.08, -0.13, -0.02, "ratio", "-0.08 (-0.13 to -0.02)"),
        (0.68, 0.661, 0.699, "share", "68 % ± 2 %"),
        (1.0, 0.21, 1.0, "share", "100 % (21 %-100 %)"),
        (0.994, 0.991, 0.997, "share", "99.4 % ± 0.3 %"),
    ],
)
def test_an_interval_is_written_by_one_rule(value: float, lo: float, hi: float, unit: str, shown: str) -> None:
    """On pages and in terminals; uneven ends never have ±, and rounding never says that nothing is uncertain."""
    point = {"value": value, "lo": lo, "hi": hi}
    assert estimate(point, unit).replace("\u00a0", " ") == shown
    if unit == "ratio":
        assert interval({**point, "n": 7}) == f"{shown} n=7"


@pytest.mark.parametrize(
    ("facts", "values", "words"),
    [
        (("user_id", "session_id"), [1.0] * 10 + [0.0] * 2, " · 10 of 12 passed · 12 users"),
        (("session_id",), [1.0] * 10 + [0.0] * 2, " · 10 of 12 passed · 12 sessions"),
        ((), [1.0] * 12, " · 12 of 12 passed · without user ids"),
        (("session_id",), [1.0] * 35 + [0.0] * 5, "0.88 (0.74-0.95) · 40 answers · 40 sessions"),
        (("user_id",), [1.0] * 29 + [0.0], " · 30 answers · 30 users"),
    ],
)
def test_few_answers_are_counted_and_sessions_called_so(
    store: EmbeddedStore, facts: tuple[str, ...], values: list[float], words: str
) -> None:
    """The same words in headline, series, check and both sides' counts; where a user is known, users are counted."""
    units = Units(store)
    for number, value in enumerate(values):
        units.scored(number, "judge", value, facts={name: f"{name}{number}" for name in facts})
    units.save()
    (headline,) = ask(store, "overview", DAY)["quality"]
    (line,) = ask(store, "metrics", {**DAY, "name": "quality:judge", "step": "all"})["series"]
    checked = ask(store, "check", {**DAY, "evaluator": "judge", "min": 0.5})
    assert {headline["words"], line["points"][0]["words"], checked["words"]} == {headline["words"]}
    assert headline["words"].endswith(words)
    traffic = ask(store, "metrics", {**DAY, "name": "error_rate", "step": "all"})["series"][0]["points"][0]
    assert traffic["users_are"] == headline["users_are"]


def test_too_few_sessions_are_no_users(store: EmbeddedStore) -> None:
    """The reason for no interval names what was counted."""
    units = Units(store)
    for number in range(40):
        units.scored(number, "judge", float(number % 3 > 0), facts={"session_id": f"s{number % 3}"})
    units.save()
    (headline,) = ask(store, "overview", DAY)["quality"]
    assert headline["words"] == "0.65, not enough sessions for an interval · 40 answers · 3 sessions"


@pytest.mark.parametrize(("half", "shown"), [(0.03, "± 0.03"), (0.0004, "± 0.0004"), (0.0042, "± 0.004")])
def test_half_a_width_is_never_rounded_to_none(half: float, shown: str) -> None:
    """In the preview of a rule."""
    assert half_width(half) == shown


@pytest.mark.parametrize(
    ("errors", "n", "words"),
    [
        (0, 99_837, "0 errors in 99,837"),
        (1, 500, "1 error in 500"),
        (9, 120, "9 errors in 120"),
        (10, 120, None),
        (None, 120, None),
        (0, 0, None),
    ],
)
def test_few_errors_are_counted(errors: int | None, n: int, words: str | None) -> None:
    """A rate of none or few errors says less than their number."""
    assert few_errors(errors, n) == words


@pytest.mark.parametrize(("kept", "words"), [(1.0, "2 errors in 50"), (0.25, None)])
def test_an_error_rate_in_a_series_counts_its_errors(store: EmbeddedStore, kept: float, words: str | None) -> None:
    """Unless an upstream sampler dropped requests: then nobody counted them, neither for the headline."""
    units = Units(store)
    for number in range(50):
        units.unit(number, user_id=f"u{number}", error=number < 2, upstream_pi=kept)
    units.save()
    (line,) = ask(store, "metrics", {**DAY, "name": "error_rate", "step": "all"})["series"]
    assert line["points"][0]["words"] == words
    summary = ask(store, "overview", DAY)
    assert few_errors(summary["n_errors"], summary["n_traces"]) == words


@pytest.mark.parametrize(
    ("versions", "judges", "new", "state", "note"),
    [
        (("v1", "v2"), (None, None), 12, "undecided", "12 answers of v2 count, not 100 of v1"),
        (("v1", "v2"), (None, None), 60, "met", "60 answers of v2 count, not 100 of v1"),
        (("v1", "v1"), ("gpt", "opus"), 12, "undecided", "12 answers of v1 by opus count, not 100 of v1 by gpt"),
        (("v1", "v1"), (None, None), 12, "missed", None),
    ],
)
def test_a_target_waits_for_a_new_version(
    store: EmbeddedStore,
    versions: tuple[str, str],
    judges: tuple[str | None, str | None],
    new: int,
    state: str,
    note: str | None,
) -> None:
    """A bad old version, a perfect new one: no verdict from a dozen answers, and the change is said."""
    units = Units(store)
    for number in range(100 + new):
        late = number >= 100
        units.scored(
            number, "judge", float(late or number % 3 > 0), at=T0 + timedelta(hours=late), version=versions[late],
            judge=judges[late], facts={"user_id": f"u{number}"},
        )  # fmt: skip
    units.save()
    target = TargetSettings(metric="quality:judge", min=0.8 if new == 12 and note else 0.9)
    (told,) = Targets(store, [target])(query_of(DAY, T0)).targets
    assert told.state == state
    assert (told.note or "").removeprefix("the evaluator changed in this range: ") == (note or "")
