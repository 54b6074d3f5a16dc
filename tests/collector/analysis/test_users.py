"""Users who ask several times, and answers that are missing: what the headline, the gate and targets make of them."""

from __future__ import annotations

import itertools
import math
import random
import re
import statistics
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

import pytest
from asking import ask, measures, query_of
from starlette.applications import Starlette
from starlette.testclient import TestClient
from stored_units import T0, Units, trace_id, uniform

from ragpulse_collector.analysis.calibration import JudgedUnit
from ragpulse_collector.analysis.figures import Condition, readings
from ragpulse_collector.analysis.suggestions import label_draw
from ragpulse_collector.monitoring.targets import Targets, TargetStates
from ragpulse_collector.settings import TargetSettings
from ragpulse_collector.store.embedded import EmbeddedStore
from ragpulse_dashboards import routes
from ragpulse_evaluators.statistics import hajek

SERVICES = 24
DAY = {"from": "2026-11-20T00:00Z", "to": "2026-11-21T00:00Z"}


def now() -> datetime:
    """An hour after everything happened."""
    return T0 + timedelta(hours=1)


def traffic(store: EmbeddedStore, *, known: bool = True, days: int = 1) -> None:
    """Services of 20 users x 5 answers a day, pass rate 0.8, ICC 0.5: independent replications in one store."""
    random_, units = random.Random(18), Units(store)
    for service, day, user in itertools.product(range(SERVICES), range(days), range(20)):
        rate = random_.betavariate(0.8, 0.2)
        for answer in range(5):
            number = service * 100 + user * 5 + answer
            at = T0 - timedelta(days=day) + timedelta(minutes=number % 100)
            facts = {"service": f"s{service}", "user_id": f"u{service}-{day}-{user}" if known else None}
            units.scored(number + 100 * SERVICES * day, "judge", float(random_.random() < rate), facts=facts, at=at)
    units.save()


def test_users_count_as_dependent_everywhere(store: EmbeddedStore) -> None:
    """Headline, series, gate, monitors, targets and `quality()` cover the truth; few decide wrongly at the limit.

    Without ids, answers taken as independent, 18 of the 24 intervals held the truth; the gate decided wrongly for 6
    services, and 4 were better or worse than the day before.
    """
    traffic(store, days=2)
    targets = Targets(store, [TargetSettings(metric="quality:judge", min=0.8)])
    covered = dict.fromkeys(("series", "headline", "gate"), 0)
    verdicts, states, moves, alarms = [], [], [], 0
    for service in range(SERVICES):
        asked = {**DAY, "service": f"s{service}"}
        (line,) = ask(store, "metrics", {**asked, "name": "quality:judge", "step": "all"})["series"]
        (headline,) = ask(store, "overview", asked)["quality"]
        gate = ask(store, "check", {**asked, "evaluator": "judge", "min": 0.8})
        for name, found in zip(covered, (line["points"][0], headline, gate), strict=True):
            covered[name] += found["lo"] <= 0.8 <= found["hi"]
            assert (found["n"], found["users"]) == (100, 20)
        assert "100 answers · 20 users" in headline["words"]
        verdicts.append(gate["verdict"])
        moves.append(headline["verdict"])
        (read,) = readings(store, "quality:judge", query_of(asked, T0), Condition("<", 0.8)).values()
        watched = read(0.95)
        alarms += not (watched.lo or 0.0) <= 0.8 <= (watched.hi or 0.0)
        states.append(targets(query_of(asked, T0)).targets[0].state)
    assert min(covered.values()) >= 0.9 * SERVICES
    assert max(verdicts.count("above"), verdicts.count("below")) <= 3
    assert max(states.count("met"), states.count("missed")) <= 3
    assert alarms <= 3
    assert moves.count("undecided") >= SERVICES - 3
    (whole,) = store.read("SELECT n, users FROM quality('judge', '2026-11-20', '2026-11-21')").rows
    assert whole == (100 * SERVICES, 20 * SERVICES)


def test_without_ids_the_words_say_that_answers_are_taken_as_independent(store: EmbeddedStore) -> None:
    """In the headline and in `compare`; the number of users is null, never 0."""
    traffic(store, known=False)
    (headline,) = ask(store, "overview", DAY)["quality"]
    assert headline["users"] is None
    assert "without user ids" in headline["words"]
    told = ask(store, "compare", {**DAY, "a": "service:s0", "b": "service:s1"})
    assert "without user ids" in told["a"]["words"]


def test_a_user_who_asks_in_many_buckets_is_one(store: EmbeddedStore) -> None:
    """The headline of a day is not the sum of its hours: four users have no interval, whatever the hours say."""
    units = Units(store)
    for number in range(400):
        units.scored(number, "judge", float(uniform(number) < 0.9), facts={"user_id": f"u{number % 4}"},
                     at=T0 + timedelta(minutes=number))  # fmt: skip
    units.save()
    (headline,) = ask(store, "overview", DAY)["quality"]
    assert (headline["n"], headline["users"], headline["lo"], headline["reason"]) == (400, 4, None, "not enough users")
    assert "not enough users" in headline["words"]
    assert ask(store, "check", {**DAY, "evaluator": "judge", "min": 0.5})["verdict"] == "undecided"


def test_failed_requests_of_a_user_count_as_dependent(store: EmbeddedStore) -> None:
    """The error rate of the headline and the series covers the truth, as the estimator does, with its users."""
    random_, units, users, failed = random.Random(19), Units(store), range(20), {}
    for service, user in itertools.product(range(SERVICES), users):
        rate = random_.betavariate(0.2, 0.8)
        for number in range(5):
            failed[service, user, number] = random_.random() < rate
            units.unit(service * 100 + user * 5 + number, service=f"s{service}", user_id=f"u{service}-{user}",
                       error=failed[service, user, number], at=T0 + timedelta(minutes=number))  # fmt: skip
    units.save()
    covered = dict.fromkeys(("series", "headline"), 0)
    for service in range(SERVICES):
        asked = {**DAY, "service": f"s{service}"}
        (line,) = ask(store, "metrics", {**asked, "name": "error_rate", "step": "all"})["series"]
        (point,) = line["points"]
        mine = {key: float(value) for key, value in failed.items() if key[0] == service}
        expected = hajek(list(mine.values()), [1.0] * 100, clusters=[key[1] for key in mine])
        assert expected is not None
        assert [point["value"], point["lo"], point["hi"]] == pytest.approx([expected.estimate, *expected], abs=1e-9)
        assert (point["n"], point["users"], point["unknown_share"], point["estimated"]) == (100, 20, 0.0, False)
        low, high = ask(store, "overview", asked)["error_interval"]
        covered["series"] += point["lo"] <= 0.2 <= point["hi"]
        covered["headline"] += low <= 0.2 <= high
    assert min(covered.values()) >= 0.9 * SERVICES


def test_few_users_leave_the_error_rate_without_an_interval(store: EmbeddedStore) -> None:
    """Four users are not enough in any chart; a user of many buckets is one in the headline."""
    units = Units(store)
    for number in range(400):
        units.unit(number, user_id=f"u{number % 4}", error=number % 9 == 0, at=T0 + timedelta(minutes=number))
    units.save()
    (line,) = ask(store, "metrics", {**DAY, "name": "error_rate", "step": "1h"})["series"]
    seen = [one for one in line["points"] if one["n"]]
    assert {(one["lo"], one["users"], one["reason"]) for one in seen} == {(None, 4, "not enough users")}
    told = ask(store, "overview", DAY)
    assert (told["error_rate"], told["error_interval"]) == (pytest.approx(45 / 400), None)


@pytest.mark.parametrize(
    ("reason", "status", "note"),
    [
        ("budget", None, "120 missing: 120 left out by the budget"),
        (None, "error", "120 missing: 120 failed"),
        (None, None, "120 missing: 120 pending"),
    ],
)
def test_missing_answers_decide_in_every_bucket(
    store: EmbeddedStore, reason: str | None, status: str | None, note: str
) -> None:
    """Good in the morning, nothing known of the afternoon: the bounds hold the truth, and nothing is decided."""
    units = Units(store)
    for number in range(200):
        units.scored(number, "judge", float(number % 40 > 0), facts={"user_id": f"u{number}"})
    for number in range(200, 320):
        at = T0 + timedelta(hours=6)
        units.unit(number, at=at, user_id=f"u{number}")
        units.decision(number, "judge", pi=1.0, at=at, reason=reason, capped=reason is not None)
        if status:
            units.score(number, "judge", None, status=status, at=at)
    units.save()
    (headline,) = ask(store, "overview", DAY)["quality"]
    low, high = headline["bounds"]
    assert (headline["missing"], low, high) == (120, pytest.approx(195 / 320), pytest.approx(315 / 320))
    assert headline["most"] > high > low > headline["least"]
    assert note in headline["words"]
    assert "of 320 answers" in headline["words"]
    assert ask(store, "check", {**DAY, "evaluator": "judge", "min": 0.9})["verdict"] == "undecided"
    (target,) = Targets(store, [TargetSettings(metric="quality:judge", min=0.9)])(query_of(DAY, T0)).targets
    assert target.state == "undecided"
    (line,) = ask(store, "metrics", {**DAY, "name": "quality:judge", "step": "1h"})["series"]
    afternoon = [one for one in line["points"] if one["missing"]]
    assert [(one["value"], one["bounds"], one["missing"]) for one in afternoon] == [(None, [0.0, 1.0], 120)]


@pytest.mark.parametrize(("known", "whose"), [(True, "58 users"), (False, "without user ids")])
def test_the_line_above_a_chart_says_what_it_rests_on(store: EmbeddedStore, known: bool, whose: str) -> None:
    """The same figures as the estimator's words, read from the page; corrected by labels, too."""
    units = Units(store)
    for number in range(200):
        facts = {"user_id": f"u{number % 58}"} if known else {}
        units.scored(number, "judge", float(number % 10 > 0), pi=0.5, u=0.25, facts=facts)
        if number < 60:
            units.add("labels", trace_id=trace_id(number), span_id=0xAA, request_time=T0, evaluator="judge",
                      score=float(number % 10 > 1), passing=number % 10 > 1, annotator="a", label_pi=0.5,
                      created_at=T0)  # fmt: skip
    for number in range(200, 220):
        units.unit(number, **({"user_id": "u1"} if known else {}))
        units.decision(number, "judge", pi=0.5, u=0.25, reason="budget", capped=True)
    units.save()

    operations = measures(store)

    async def api(operation: str, params: Mapping[str, Any]) -> Any:
        return TargetStates([]) if operation == "GET targets" else await operations.call(operation, params)

    pages = TestClient(Starlette(routes=routes(api)), base_url="http://127.0.0.1")
    for corrected in ("", "&corrected=true"):
        path = f"/figures?metric=quality:judge&from={DAY['from']}&to={DAY['to']}&step=all{corrected}"
        page = " ".join(re.sub("<[^>]+>", " ", pages.get(path).text).split())
        assert " · 200 answers Why? " in page
    (line,) = ask(store, "metrics", {**DAY, "name": "quality:judge", "step": "all", "corrected": True})["series"]
    assert line["corrected"]
    assert f"200 of 440 answers · {whose} · 20 missing" in line["points"][0]["words"]


def test_an_evaluator_without_any_verdict_is_in_the_headline(store: EmbeddedStore) -> None:
    """Nothing is known of it but how much is missing: anything from 0 to 1."""
    units = Units(store)
    for number in range(30):
        units.unit(number)
        units.decision(number, "judge", pi=1.0, reason="budget", capped=True)
    units.save()
    (headline,) = ask(store, "overview", DAY)["quality"]
    assert (headline["evaluator"], headline["value"], headline["missing"]) == ("judge", None, 30)
    assert (headline["least"], headline["most"], headline["missing_share"]) == (0.0, 1.0, 1.0)
    assert headline["words"] == "30 missing: 30 left out by the budget"


def test_test_runs_are_left_out_of_live_quality_unless_asked(store: EmbeddedStore) -> None:
    """A hundred failing test runs beside a hundred good answers."""
    units = Units(store)
    for number in range(200):
        test = number >= 100
        units.unit(number, user_id=f"u{number}", environment="regress" if test else "production")
        units.decision(number, "judge", pi=1.0, reason="test_run" if test else None)
        units.score(number, "judge", 0.0 if test else 1.0)
    units.save()
    (headline,) = ask(store, "overview", DAY)["quality"]
    assert (headline["value"], headline["n"], headline["missing"]) == (1.0, 100, 0)
    (asked,) = ask(store, "overview", {**DAY, "environment": "regress"})["quality"]
    assert (asked["value"], asked["n"]) == (0.0, 100)
    (found,) = store.read("SELECT estimate, n FROM quality('judge', '2026-11-20', '2026-11-21')").rows
    assert found == (1.0, 100)


def test_throughput_divides_by_the_time_covered(store: EmbeddedStore) -> None:
    """600 requests in the ten minutes since the collector began are one a second, also in a bucket of a day."""
    units = Units(store)
    for number in range(600):
        units.unit(number, at=T0 + timedelta(seconds=number))
    units.save()
    now = T0 + timedelta(minutes=10)
    asked = {"name": "throughput", "from": "-24h", "step": "all"}
    (line,) = ask(store, "metrics", asked, clock=lambda: now)["series"]
    assert line["points"][0]["value"] == pytest.approx(1.0, rel=0.01)


def test_agreement_with_labels_counts_users(store: EmbeddedStore) -> None:
    """The judge errs about three of twenty users: kappa and sensitivity have the intervals of twenty, not of 200."""
    reports = []
    for evaluator, told in (("by_user", True), ("alone", False)):
        units = Units(store)
        for number in range(200):
            user, place = number % 20, number + 1000 * told
            human = float(number % 40 >= 14)
            facts = {"user_id": f"u{user}" if told else None}
            units.scored(place, evaluator, 1.0 - human if user < 3 else human, facts=facts)
            units.add("labels", trace_id=trace_id(place), span_id=0xAA, request_time=T0, evaluator=evaluator,
                      score=human, passing=human > 0, annotator="a", label_pi=0.5, created_at=T0)  # fmt: skip
        units.save()
        reports += ask(store, "calibration", {"evaluator": evaluator, "from": "-4h"}, clock=now)["versions"]
    users, alone = reports
    assert (users["kappa"], users["sensitivity"]) == (alone["kappa"], alone["sensitivity"])
    for low, high in (("lo", "hi"), ("sensitivity_lo", "sensitivity_hi")):
        assert users[high] - users[low] > 1.5 * (alone[high] - alone[low])


def test_labels_of_many_sittings_are_weighted_right() -> None:
    """Twenty suggestions are labelled, then two hundred: the mean of all labels stays that of all answers."""
    truth = [float(number % 7 > 1) for number in range(600)]
    judged = [
        JudgedUnit(f"{number:032x}", T0, "v1", None,
                    (0.3, 0.5, 0.9)[number % 3] if good else (0.1, 0.5)[number % 2], 1.0,
                number, None, None)
        for number, good in enumerate(truth)
    ]  # fmt: skip
    for count in (60, 200, 500):
        means = []
        for draw in range(60):
            order = sorted((*label_draw(f"judge{draw}", one), place) for place, one in enumerate(judged))
            values, chances = [truth[one[3]] for one in order[:count]], [one[2] for one in order[:count]]
            means.append(hajek(values, chances).estimate)
        error = statistics.stdev(means) / math.sqrt(len(means))
        assert abs(statistics.mean(means) - statistics.mean(truth)) < 3 * error + 0.005
