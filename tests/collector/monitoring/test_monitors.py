"""Monitors: fire on evidence, recover with hysteresis, tell people once, signed."""

from __future__ import annotations

import hashlib
import hmac
import html
import json
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import pytest
from receivers import Receiver
from stored_units import T0, Units, uniform

from ragpulse_collector.analysis.quality import Figures
from ragpulse_collector.monitoring import Monitors
from ragpulse_collector.monitoring.listing import AlertSent
from ragpulse_collector.monitoring.measure import confidence_for, decide, parse
from ragpulse_collector.refusals import NotFound
from ragpulse_collector.settings import MonitorSettings, Settings, SettingsError
from ragpulse_collector.store.embedded import EmbeddedStore
from ragpulse_collector.store.queries.monitors import State, latest_states


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    """A running receiver."""
    started = Receiver()
    yield started
    started.close()


def watching(store: EmbeddedStore, *monitors: MonitorSettings, **more: Any) -> Monitors:
    """The monitors of a configuration."""
    return Monitors(store, Settings.model_validate({"monitor": monitors, **more}))


def sent(monitors: Monitors) -> list[float]:
    """Let the outbox send what is due to each destination."""
    return [monitors.outbox.deliver(name) for name in monitors.outbox.destinations]


def fill(
    store: EmbeddedStore, first: int, count: int, *, at: datetime, good: float, over: timedelta, **facts: Any
) -> None:
    """Scored units spread over a time, `good` of them passing."""
    units = Units(store)
    for number in range(first, first + count):
        when = at + over * ((number - first) / count)
        units.scored(number, "judge", float(uniform(number, "m") < good), at=when, facts=facts)
    units.save()


def test_a_threshold_fires_only_on_evidence_and_recovers(store: EmbeddedStore, receiver: Receiver) -> None:
    """Three bad answers are undecided; two hundred fire once; good hours later it recovers, and says so."""
    settings = MonitorSettings(
        name="low", metric="quality:judge", condition="< 0.85", webhook=receiver.url, secret="key"
    )
    monitors = watching(store, settings)
    hour = timedelta(hours=1)
    fill(store, 0, 3, at=T0, good=0.0, over=hour)
    monitors.check(T0 + hour)
    assert (monitors.list().monitors[0].state, receiver.taken) == ("undecided", [])
    fill(store, 10, 200, at=T0 + hour, good=0.5, over=hour)
    monitors.check(T0 + 2 * hour)
    monitors.check(T0 + 2.3 * hour)
    sent(monitors)
    assert monitors.list().monitors[0].state == "firing"
    assert len(receiver.taken) == 1
    fill(store, 300, 400, at=T0 + 3 * hour, good=0.98, over=hour)
    monitors.check(T0 + 4 * hour)
    sent(monitors)
    told = monitors.list().monitors[0]
    assert (told.state, [one.state for one in told.history]) == ("ok", ["ok", "firing", "undecided"])
    text = json.loads(receiver.taken[1][1])["text"]
    assert text.startswith("recovered low: quality:judge = 0.9")
    assert text.endswith(": is no longer < 0.85")


def test_messages_are_signed(store: EmbeddedStore, receiver: Receiver) -> None:
    """The receiver can compute the same HMAC over timestamp and body."""
    settings = MonitorSettings(
        name="m", metric="requests", condition="< 1", webhook=receiver.url, slack=receiver.url, secret="key"
    )
    assert watching(store, settings).test("m") == AlertSent(ok=True, delivery="sent")
    headers, body = receiver.taken[0]
    expected = hmac.new(b"key", headers["X-Ragpulse-Timestamp"].encode() + b"." + body, hashlib.sha256).hexdigest()
    assert headers["X-Ragpulse-Signature"] == f"sha256={expected}"
    assert json.loads(receiver.taken[1][1]) == {"text": "m: a test message of ragpulse"}


def test_a_change_is_told_with_its_time_and_suspect(store: EmbeddedStore, receiver: Receiver) -> None:
    """From 0.95 to 0.7 with prompt v8: the text names both levels, the time and the prompt version."""
    settings = MonitorSettings(
        name="drop", metric="quality:judge", condition="change", window="1h", baseline="24h", slack=receiver.url
    )
    day = timedelta(days=1)
    fill(store, 0, 2000, at=T0 - 1.5 * day, good=0.95, over=1.25 * day, prompt_version="v7")
    fill(store, 3000, 400, at=T0 - 0.25 * day, good=0.7, over=0.25 * day, prompt_version="v8")
    monitors = watching(store, settings)
    monitors.check(T0)
    sent(monitors)
    text = html.unescape(json.loads(receiver.taken[0][1])["text"])
    assert text.startswith("ALERT drop: quality:judge fell 0.948 -> 0.6")
    assert "since Fri 20 Nov 06:00 UTC" in text
    assert "prompt v8 started 06:00" in text


def test_groups_have_states_of_their_own(store: EmbeddedStore) -> None:
    """Only the bad model fires."""
    units = Units(store)
    for number in range(400):
        facts = {"model": "ab"[number % 2]}
        units.scored(number, "judge", 1.0 if number % 2 else float(number % 4 > 0), facts=facts)
    units.save()
    settings = MonitorSettings(name="m", metric="quality:judge", condition="< 0.8", group_by=("model",))
    monitors = watching(store, settings)
    monitors.check(T0 + timedelta(minutes=30))
    history = monitors.list().monitors[0].history
    assert {str(one.group): one.state for one in history} == {"{'model': 'a'}": "firing", "{'model': 'b'}": "ok"}
    assert {one.text.rpartition(": ")[2] for one in history} == {"is < 0.8", "is not < 0.8"}


@pytest.mark.parametrize(("metric", "condition"), [("quality:judge", "< 0.8"), ("error_rate", "> 0.3")])
def test_a_preview_reads_a_week_at_once(store: EmbeddedStore, metric: str, condition: str) -> None:
    """The two bad days of one service are found, with a handful of queries instead of hundreds."""
    units, day = Units(store), timedelta(days=1)
    for number in range(2000):
        at = T0 - 7 * day + number / 2000 * 7 * day
        bad = bool(number % 2) and 2 * day < T0 - at < 4 * day and number % 3 > 0
        units.scored(number, "judge", float(not bad), at=at, facts={"service": "ab"[number % 2], "error": bad})
    units.save()
    settings = MonitorSettings(name="m", metric=metric, condition=condition, group_by=("service",), window="6h")
    monitors = Monitors(store, Settings(), clock=lambda: T0)
    before = sum(store.query_times.counts)
    answer = monitors.preview(settings)
    assert answer.would_have_fired >= 1
    assert {firing.group["service"] for firing in answer.firings} == {"b"}
    ages = [T0 - firing.t for firing in answer.firings]
    assert all(1.7 * day <= age < 4 * day for age in ages)
    assert sum(store.query_times.counts) - before < 30


@pytest.mark.parametrize(("condition", "later"), [("< 0.8", 2), ("change", 15)])
def test_an_alert_of_a_group_without_answers_ends(
    store: EmbeddedStore, receiver: Receiver, condition: str, later: int
) -> None:
    """A prompt version that nobody asks any more is no alert: its message says that there is no data."""
    units = Units(store)
    for number in range(800):
        good = 1.0 if number < 400 else float(number % 4 > 1)
        at = T0 - timedelta(hours=26) + timedelta(seconds=50 * number % 14_400)
        units.scored(number, "judge", good, at=at if number < 400 else T0, facts={"prompt_version": "v7"})
    units.save()
    settings = MonitorSettings(
        name="m", metric="quality:judge", condition=condition, group_by=("prompt_version",), window="1h",
        baseline="24h", webhook=receiver.url,
    )  # fmt: skip
    monitors = watching(store, settings)
    monitors.check(T0 + timedelta(hours=1))
    monitors.check(T0 + timedelta(hours=later))
    sent(monitors)
    (state,) = monitors.list().monitors
    assert (state.state, [one.state for one in state.history]) == ("no data", ["no data", "firing"])
    alert, end = (json.loads(body) for _, body in receiver.taken)
    assert (alert["state"], end["state"], end["worst"]) == ("firing", "no data", [])
    assert end["text"] == "no data m: no evaluations by judge (prompt_version v7) in the last hour"


@pytest.mark.parametrize(
    ("metric", "condition", "mistake"),
    [
        ("nope", "< 1", "no metric"),
        ("latency_p59", "< 1", "did you mean 'latency_p"),
        ("requests", "= 1", "write '< 0.85'"),
        ("quality:", "< 1", "no metric"),
        ("cost_usd", "change", "'change' is not offered for cost_usd"),
    ],
)
def test_a_monitor_that_cannot_be_watched_is_refused(
    store: EmbeddedStore, metric: str, condition: str, mistake: str
) -> None:
    """At start, with what is possible."""
    with pytest.raises(SettingsError, match=mistake):
        watching(store, MonitorSettings(name="m", metric=metric, condition=condition))
    with pytest.raises(NotFound):
        watching(store).test("m")


@pytest.mark.parametrize(("field", "value"), [("window", "0s"), ("window", "99999999999w"), ("baseline", "0d")])
def test_a_duration_that_cannot_be_watched_is_refused(store: EmbeddedStore, field: str, value: str) -> None:
    """Before it is stored: every later list of monitors would fail."""
    draft = MonitorSettings(name="m", metric="requests", condition="< 5").model_copy(update={field: value})
    monitors = watching(store)
    with pytest.raises(ValueError, match=r"longer than 0s|at most 317 years"):
        monitors.definitions.save(draft, actor="a", replace=False)
    assert monitors.list().monitors == []


def test_hysteresis() -> None:
    """Firing needs the sharp interval beyond the limit; recovering needs the easy one wholly back."""
    limit = parse("< 0.85")
    clear, open_, back = (
        Figures(value=value, lo=lo, hi=hi)
        for value, lo, hi in ((0.8, 0.75, 0.84), (0.84, 0.8, 0.88), (0.9, 0.86, 0.94))
    )
    steps: list[tuple[Figures, Figures, State]] = [(open_, open_, "undecided"), (clear, clear, "firing"),
                                                   (open_, open_, "firing"), (open_, back, "ok")]  # fmt: skip
    state: State = "undecided"
    for sharp, easy, expected in steps:
        state = decide(limit, sharp, easy, state)
        assert state == expected


def test_false_alarms_per_year_set_the_confidence() -> None:
    """Four a year over hourly windows looked at four times each: one look in 8766."""
    assert 1.0 - confidence_for(4, 3600) == pytest.approx(2 * 4 / (4 * 8766))


def test_a_monitor_that_fails_does_not_stop_the_others(
    store: EmbeddedStore, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The others are checked, the log names it, and the next check tries it again."""
    names = ("first", "second")
    monitors = watching(
        store, *(MonitorSettings(name=name, metric="requests", condition="no data", window="1d") for name in names)
    )

    def states() -> list[str]:
        return [monitor.state for monitor in monitors.list().monitors]

    findings = monitors._findings

    def failing(monitor: MonitorSettings, *rest: Any) -> Any:
        if monitor.name == "first":
            raise RuntimeError("the query took too long")
        return findings(monitor, *rest)

    monkeypatch.setattr(monitors, "_findings", failing)
    assert monitors.check(T0) == 1
    assert states() == ["undecided", "firing"]
    assert "monitor first could not be checked" in caplog.text
    monkeypatch.setattr(monitors, "_findings", findings)
    assert monitors.check(T0 + timedelta(seconds=1)) == 1
    assert states() == ["firing", "firing"]


def test_a_clock_that_was_set_back_does_not_delay_the_next_check(store: EmbeddedStore) -> None:
    """The last look lies in the future then."""
    fill(store, 0, 20, at=T0 - timedelta(minutes=30), good=1.0, over=timedelta(minutes=20))
    monitors = watching(store, MonitorSettings(name="m", metric="requests", condition="no data", window="1h"))
    for at, state in ((T0 + timedelta(hours=5), "firing"), (T0, "ok")):
        monitors.check(at)
        assert monitors.list().monitors[0].state == state


def test_a_condition_on_traces_is_read_under_limits(store: EmbeddedStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """A `where` of the API is a user's SQL, also when a monitor reads it in the background."""
    limited: list[EmbeddedStore] = []
    monkeypatch.setattr(EmbeddedStore, "limited", lambda self: limited.append(self) or self)
    fill(store, 0, 20, at=T0 - timedelta(minutes=30), good=1.0, over=timedelta(minutes=20))
    draft = MonitorSettings(name="m", metric="requests", condition="< 5", where="service = 'a'")
    monitors = watching(store, draft)
    monitors.check(T0)
    assert limited
    limited.clear()
    monitors.preview(draft.model_copy(update={"metric": "error_rate"}))
    assert limited


@pytest.mark.parametrize("condition", ["< 0.9", "change"])
def test_a_tiny_rate_of_false_alarms_has_an_interval(store: EmbeddedStore, condition: str) -> None:
    """A confidence of 1 has no quantile: the list and every check would fail."""
    fill(store, 0, 200, at=T0 - timedelta(hours=20), good=0.5, over=timedelta(hours=20))
    draft = MonitorSettings(name="m", metric="quality:judge", condition=condition, false_alarms_per_year=1e-15)
    monitors = Monitors(store, Settings(), clock=lambda: T0)
    monitors.definitions.save(draft, actor="a", replace=False)
    assert monitors.check(T0) == 1
    assert monitors.list().monitors[0].name == "m"


MANY = 150


def crowd(store: EmbeddedStore, *, at: datetime, silent: int | None = None) -> None:
    """The requests of many users; the first hundred have two each."""
    units = Units(store)
    for number in range(MANY + 100):
        if number % MANY != silent:
            user = f"u{number % MANY:03}"
            units.unit(int(at.timestamp()) + number, at=at + timedelta(seconds=number), user_id=user)
    units.save()


@pytest.mark.parametrize(
    ("metric", "condition", "watched", "told"),
    [
        ("requests", "> 1", 101, ("no data", "user_id u000 is not among the 100 largest groups: it is watched with")),
        ("error_rate", "> 0.5", 101, ("no data", "user_id u000 is not among the 100 largest groups: it is watched")),
        ("requests", "change", 101, None),
        ("requests", "no data", 100, ("firing", "no requests (user_id u000) in the last hour")),
        ("requests", "< 1", 100, ("undecided", "requests (user_id u000) = ")),
    ],
)
def test_a_monitor_watches_the_largest_of_very_many_groups(
    store: EmbeddedStore, metric: str, condition: str, watched: int, told: tuple[str, str] | None
) -> None:
    """A hundred groups and one of all others, but none of others where the silence of a group fires."""
    monitor = MonitorSettings(name="crowd", metric=metric, condition=condition, group_by=("user_id",), min_n=1)
    monitors = watching(store, monitor)
    for day, silent in enumerate((None, 0)):
        crowd(store, at=T0 + timedelta(days=day), silent=silent)
        monitors.check(T0 + timedelta(days=day, minutes=30))
        states = latest_states(store.read, "crowd")
        assert len(states.keys() - {'{"user_id": "u000"}'}) <= watched
        (shown,) = monitors.list().monitors
        assert shown.other_groups == monitors.other_groups["crowd"] >= MANY - 100 - 1
    assert ('{"user_id": "(other)"}' in states) == (watched > 100)
    if told is not None:
        state = states['{"user_id": "u000"}']
        assert (state.state, state.text.startswith(told[1])) == (told[0], True)


@pytest.mark.parametrize(
    ("monitors", "expected"),
    [
        ([], ""),
        ([("change", 4.0)], "1 monitor: about 0.33 false alarms a month expected together"),
        ([("change", 12.0)], "1 monitor: about 1 false alarm a month expected together"),
        ([("< 0.8", 0.4)] * 12, "12 monitors: about 0.4 false alarms a month expected together"),
        ([("< 0.8", 12.0), ("no data", 100.0)], "2 monitors: about 1 false alarm a month expected together"),
        ([("no data", 4.0)], ""),
    ],
)
def test_false_alarms_of_all_monitors_add_up(
    store: EmbeddedStore, monitors: list[tuple[str, float]], expected: str
) -> None:
    """Monitors of silence have none: nothing arrived, or something did."""
    settings = [
        MonitorSettings(name=f"m{number}", metric="quality:judge", condition=condition, false_alarms_per_year=rate)
        for number, (condition, rate) in enumerate(monitors)
    ]
    assert watching(store, *settings).list().expected == expected
