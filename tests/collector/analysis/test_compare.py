"""Comparing, gating, planning: the decisions that numbers are for."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
from asking import ask
from stored_units import T0, Units, uniform

from ragpulse_collector.refusals import NotFound
from ragpulse_collector.store.embedded import EmbeddedStore
from ragpulse_evaluators.statistics import needed_n


def now() -> datetime:
    """An hour after noon."""
    return T0 + timedelta(hours=1)


def versions(store: EmbeddedStore, count: int, *, flips: int) -> None:
    """Units scored by v1 (all pass) and v2 (the first `flips` fail)."""
    units = Units(store)
    for number in range(count):
        units.scored(number, "judge", 1.0, facts={"query": f"q{number}"})
        units.score(number, "judge", float(number >= flips), version="v2", explanation=f"why {number}")
    units.save()


def test_two_versions_are_paired(store: EmbeddedStore) -> None:
    """Twenty answers flip to failing: worse by 0.1, McNemar, flips with both explanations."""
    versions(store, 200, flips=20)
    told = ask(store, "compare", {"a": "judge@v1", "b": "judge@v2"}, clock=now)
    assert (told["paired"], told["verdict"], told["test"]["name"]) == (True, "stricter", "McNemar")
    assert told["difference"]["value"] == pytest.approx(-0.1)
    assert told["test"]["p"] < 1e-4
    assert (len(told["flips"]), told["flips"][0]["a"], told["flips"][0]["b"]) == (20, 1.0, 0.0)
    assert told["flips"][0]["explanation_b"].startswith("why ")


def test_two_judges_and_a_replay_are_sides_too(store: EmbeddedStore) -> None:
    """Of one version; `judge:` takes a name without its parameters. It is the judge that is stricter, in all strata."""
    units = Units(store)
    for number in range(200):
        units.scored(number, "judge", 1.0, judge="old temperature=0.0", facts={"query": f"q{number}", "service": "a"})
        key = units.score(number, "judge", float(number >= 20), judge="new", source="replay", run_id="r1")
        units.add("run_items", run_id="r1", u=number / 200, score_key=key)
    for number in range(200, 240):
        units.scored(number, "judge", 0.0, judge="old temperature=0.0", facts={"query": f"q{number}", "service": "a"})
    units.add("runs", run_id="r1", evaluator="judge", version="v1", judge="new", spec='{"matching": 200}',
              status="done", total=200, created_at=T0)  # fmt: skip
    units.save()
    for a, b in (("judge:old", "judge:new"), ("judge:old", "run:r1")):
        told = ask(store, "compare", {"a": a, "b": b, "evaluator": "judge", "by": "service"}, clock=now)
        assert (told["paired"], told["shared"], told["verdict"]) == (True, 200, "stricter")
        assert [one["verdict"] for one in told["strata"]] == ["stricter"]
        assert (told["a"]["value"], told["a"]["n"], told["b"]["value"]) == (1.0, 200, 0.9)  # of the shared answers
    with pytest.raises(NotFound, match="no scores"):
        ask(store, "compare", {"a": "judge:ol", "b": "judge:new", "evaluator": "judge"}, clock=now)


def test_only_live_answers_that_were_drawn_are_compared(store: EmbeddedStore) -> None:
    """Test runs are left out unless asked for, and so is a forced verdict on an answer that was not drawn."""
    versions(store, 100, flips=0)
    units = Units(store)
    for number in range(100, 150):
        facts = {"query": f"q{number}", "environment": "regress" if number < 140 else "prod"}
        units.unit(number, **facts)
        test = "test_run" if number < 140 else None
        units.decision(number, "judge", pi=float(number < 140), reason=test)
        for version in ("v1", "v2"):
            units.score(number, "judge", 0.0, version=version)
    units.save()
    for environment, n in ((None, 100), ("regress", 40)):
        told = ask(store, "compare", {"a": "judge@v1", "b": "judge@v2", "environment": environment}, clock=now)
        assert (told["a"]["n"], told["b"]["n"], told["shared"]) == (n, n, n)


def test_equal_versions_do_not_differ(store: EmbeddedStore) -> None:
    """No flip at all: no difference, and no test can be significant; fifty could still hide one of 7 %."""
    versions(store, 100, flips=0)
    told = ask(store, "compare", {"a": "judge@v1", "b": "judge@v2"}, clock=now)
    assert (told["verdict"], told["test"]["p"], told["flips"]) == ("no difference", 1.0, [])


def arms(store: EmbeddedStore, count: int, *, users: int, effect: float) -> None:
    """Two prompt versions over users; v8's answers pass with `effect` less chance and are slower."""
    units = Units(store)
    for number in range(count):
        version = "v7" if number % 2 else "v8"
        limit = 0.9 - (effect if version == "v8" else 0.0)
        facts: dict[str, Any] = {
            "prompt_version": version,
            "user_id": f"u{number % users}",
            "latency_ms": 100.0 + 50 * uniform(number, "l"),
        }
        facts["latency_ms"] += 100 if version == "v8" else 0
        units.scored(number, "judge", float(uniform(number, "y") < limit), facts=facts)
    units.save()


def test_groups_are_compared_sequentially_by_user(store: EmbeddedStore) -> None:
    """A planted drop of 0.3 is found `worse`, latency too; users are the clusters."""
    arms(store, 1200, users=401, effect=0.3)
    told = ask(store, "compare", {"a": "prompt:v7", "b": "prompt:v8", "evaluator": "judge"}, clock=now)
    assert (told["paired"], told["verdict"], told["test"]["name"]) == (False, "worse", "sequential, by user")
    assert told["difference"]["value"] == pytest.approx(-0.3, abs=0.06)
    assert told["effect_size"] == pytest.approx(-0.65, abs=0.15)
    assert {one["metric"]: one["verdict"] for one in told["also"]}["latency"] == "worse"
    unnamed = ask(store, "compare", {"a": "prompt:v7", "b": "prompt:v8"}, clock=now)
    assert unnamed["evaluator"] == "judge"  # none of the well-known ones: the one there is


def strata(store: EmbeddedStore, effects: dict[str, float]) -> None:
    """Two prompt versions in each service; v8 passes with so much less chance and its users like it less."""
    units = Units(store)
    for number in range(400 * len(effects)):
        service, effect = list(effects.items())[number % len(effects)]
        version = "v7" if number // len(effects) % 2 else "v8"
        lost = effect if version == "v8" else 0.0
        facts: dict[str, Any] = {"prompt_version": version, "service": service, "user_id": f"u{number}"}
        facts["feedback"] = 1.0 if uniform(number, "f") < 0.8 - lost else -1.0
        units.scored(number, "judge", float(uniform(number, "y") < 0.9 - lost), facts=facts)
    units.save()


def test_each_stratum_has_its_own_verdict(store: EmbeddedStore) -> None:
    """Worse where it was made worse and nowhere else; acceptance (feedback) is compared beside quality."""
    strata(store, {"billing": 0.4, "travel": 0.0, "health": 0.0})
    told = ask(store, "compare", {"a": "prompt:v7", "b": "prompt:v8", "evaluator": "judge", "by": "service"}, clock=now)
    verdicts = {one["value"]: one["verdict"] for one in told["strata"]}
    assert (told["by"], verdicts.pop("billing")) == ("service", "worse")
    assert set(verdicts) == {"travel", "health"}
    assert not set(verdicts.values()) & {"better", "worse"}
    assert {one["metric"]: one["verdict"] for one in told["also"]}["acceptance"] == "worse"
    assert all(one["test"]["p_adjusted"] >= one["test"]["p"] for one in told["strata"])
    liked = {one["value"]: next(m for m in one["also"] if m["metric"] == "acceptance") for one in told["strata"]}
    assert {value: one["verdict"] for value, one in liked.items() if one["verdict"] == "worse"} == {"billing": "worse"}
    assert all(one["p_adjusted"] >= one["p"] for one in liked.values())
    assert all((one["need_more"] is None) == (one["verdict"] != "not enough data") for one in liked.values())


def test_questions_that_both_prompts_answered_are_counted_and_their_changes_shown(store: EmbeddedStore) -> None:
    """Separate requests are no pairs, but 32 questions were asked under both; the answer that fell is among them."""
    units = Units(store)
    for number in range(80):
        version, question = ("v6", number) if number < 40 else ("v7", number - 32)
        facts = {"prompt_version": version, "query": f"question {question}"}
        units.scored(number, "judge", float(number != 50), facts=facts)
    units.save()
    found = ask(store, "compare", {"a": "prompt:v6", "b": "prompt:v7"}, clock=now)
    assert (found["paired"], found["shared"]) == (False, 32)
    assert [(one["query"], one["a"], one["b"]) for one in found["flips"]] == [("question 18", 1.0, 0.0)]


def test_paired_strata_are_adjusted_for_having_looked_at_all(store: EmbeddedStore) -> None:
    """Among twenty services one with p = 0.031 by itself is no verdict; alone it would be one."""
    units = Units(store)
    for number in range(600):
        service = number % 20
        units.scored(number, "judge", 1.0, facts={"service": f"s{service}", "query": "q"})
        fails = service == 7 and number < 120
        units.score(number, "judge", float(not fails), version="v2")
    units.save()
    params = {"a": "judge@v1", "b": "judge@v2", "by": "service"}
    (alone,) = ask(store, "compare", params | {"service": "s7"}, clock=now)["strata"]
    among = next(one for one in ask(store, "compare", params, clock=now)["strata"] if one["value"] == "s7")
    assert (alone["verdict"], among["verdict"]) == ("stricter", "not enough data")
    assert alone["test"]["p_adjusted"] == pytest.approx(0.03125)
    assert among["test"]["p_adjusted"] == pytest.approx(0.625)


def test_a_stratum_on_one_side_only_has_no_verdict(store: EmbeddedStore) -> None:
    """Nothing to compare is said so; a dimension that does not exist is refused, and two at once."""
    arms(store, 40, users=40, effect=0.0)
    sides = {"a": "prompt:v7", "b": "prompt:v8", "evaluator": "judge"}
    told = ask(store, "compare", sides | {"by": "prompt_version"}, clock=now)["strata"]
    assert [(one["verdict"], one["difference"]) for one in told] == [("not enough data", None)] * 2
    with pytest.raises(ValueError, match="cannot group by 'colour'"):
        ask(store, "compare", sides | {"by": "colour"}, clock=now)
    with pytest.raises(ValueError, match="one dimension"):
        ask(store, "compare", sides | {"by": "model,service"}, clock=now)


def test_few_users_are_not_enough(store: EmbeddedStore) -> None:
    """A thousand answers of ten users decide nothing: below thirty clusters an arm there is no verdict."""
    arms(store, 1000, users=11, effect=0.3)
    told = ask(store, "compare", {"a": "prompt:v7", "b": "prompt:v8", "evaluator": "judge"}, clock=now)
    assert told["verdict"] == "not enough data"
    assert told["need_more"] >= 19
    assert told["need_more_of"] == "users"


def test_sides_that_cannot_be_read(store: EmbeddedStore) -> None:
    """A side is named with how to write it; one without scores is said to have none."""
    versions(store, 5, flips=0)
    with pytest.raises(ValueError, match="write NAME@VERSION"):
        ask(store, "compare", {"a": "judge", "b": "judge@v2"}, clock=now)
    with pytest.raises(NotFound, match="no scores of judge"):
        ask(store, "compare", {"a": "judge@v1", "b": "judge@v9"}, clock=now)
    with pytest.raises(NotFound, match="no replay"):
        ask(store, "compare", {"a": "run:nope", "b": "judge@v2"}, clock=now)


@pytest.mark.parametrize(("minimum", "verdict"), [(0.8, "above"), (0.9, "undecided"), (0.97, "below")])
def test_the_gate_decides_only_outside_the_interval(store: EmbeddedStore, minimum: float, verdict: str) -> None:
    """At 270 of 300 (0.86 to 0.93) a limit inside the interval is undecided."""
    units = Units(store)
    for number in range(300):
        units.scored(number, "judge", float(number % 10 > 0))
    units.save()
    told = ask(store, "check", {"evaluator": "judge", "min": minimum}, clock=now)
    assert told["verdict"] == verdict
    assert f"**{verdict}**" in told["markdown"]


def test_the_gate_counts_sessions_as_one(store: EmbeddedStore) -> None:
    """Answers that are all alike within ten sessions are ten observations, not three hundred."""
    units = Units(store)
    for number in range(300):
        units.scored(number, "judge", float(number // 30 > 0), facts={"session_id": f"s{number // 30}"})
    units.save()
    assert ask(store, "check", {"evaluator": "judge", "min": 0.8}, clock=now)["verdict"] == "undecided"


def test_the_gate_cannot_run_without_scores(store: EmbeddedStore) -> None:
    """Nothing scored is an error of its own (exit 2), a missing limit too."""
    with pytest.raises(NotFound, match="scored nothing"):
        ask(store, "check", {"evaluator": "judge", "min": 0.8}, clock=now)
    with pytest.raises(ValueError, match="give min or max"):
        ask(store, "check", {"evaluator": "judge"}, clock=now)


def test_a_plan_inverts_the_interval(store: EmbeddedStore) -> None:
    """At 0.9 and ± 0.02 some 860 scores are needed; with 2400 traces a day that is a third of them."""
    units = Units(store)
    for number in range(100):
        units.scored(number, "judge", float(number % 10 > 0))
    units.save()
    store.write(lambda tx: tx.execute("UPDATE raw.scores SET cost_usd = 0.001")).result()
    told = ask(
        store,
        "plan",
        {"evaluator": "judge", "half_width": 0.02, "from": "-1h"},
        clock=lambda: T0 + timedelta(minutes=1),
    )
    assert 800 < told["n"] < 900
    assert told["traces_per_day"] == pytest.approx(2400)
    assert told["rate_for_daily"] == pytest.approx(told["n"] / 2400)
    assert told["cost_usd"] == pytest.approx(told["n"] * 0.001)


def test_a_plan_counts_users(store: EmbeddedStore) -> None:
    """Sixty users ask ten times, each always well or always badly served: the plan is about users, not answers."""
    units = Units(store)
    for number in range(600):
        user = number // 10
        units.scored(number, "judge", float(user % 10 > 0), facts={"user_id": f"u{user}"})
    units.save()
    told = ask(store, "plan", {"evaluator": "judge", "half_width": 0.05, "from": "-1h"}, clock=now_plus_minute)
    alone = needed_n(0.9, 0.05)
    assert told["users"] > alone
    assert told["n"] == pytest.approx(10 * told["users"], rel=0.01)
    assert told["users_per_day"] == pytest.approx(60 * 24)
    assert told["assumed_from"] == "measured: a user asks 10.0 times, answers alike by 1.00"
    narrow = ask(store, "plan", {"evaluator": "judge", "half_width": 0.005, "from": "-1h"}, clock=now_plus_minute)
    assert narrow["rate_for_daily"] is None
    assert narrow["days_at_full_rate"] == pytest.approx(narrow["users"] / narrow["users_per_day"])


def now_plus_minute() -> datetime:
    """A minute after the units, so that a range of an hour holds them."""
    return T0 + timedelta(minutes=1)


def test_a_plan_without_history_says_what_it_assumes(store: EmbeddedStore) -> None:
    """Nothing measured: a stated guess, and no rate where there is no traffic."""
    told = ask(store, "plan", {"evaluator": "judge", "half_width": 0.05}, clock=now)
    assert (told["assumed"], told["rate_for_daily"], told["cost_usd"]) == (0.9, None, None)


@pytest.mark.parametrize("half", ["x", "", "nan", "inf", "0", "-0.1", "0.5", "1e-300", "5e-324", "0.00009", True])
def test_a_plan_for_no_possible_width_is_refused(store: EmbeddedStore, half: Any) -> None:
    """Words, nothing, and widths that no number of scores reaches: the message says which ones are possible."""
    with pytest.raises(ValueError, match="half_width"):
        ask(store, "plan", {"evaluator": "judge", "half_width": half}, clock=now)


def constant(store: EmbeddedStore, count: int, *, cost_usd: tuple[float, float], passing: tuple[float, float]) -> None:
    """Two prompt versions; cost and score are the same for every answer of a version."""
    units = Units(store)
    for number in range(count):
        side = number % 2
        facts = {"prompt_version": ("v7", "v8")[side], "user_id": f"u{number}", "cost_usd": cost_usd[side]}
        units.scored(number, "judge", passing[side], facts=facts)
    units.save()


@pytest.mark.parametrize(
    ("cost_usd", "verdict"),
    [((0.0, 0.0), "no difference"), ((0.002, 0.002), "no difference"), ((0.002, 0.004), "worse")],
)
def test_constant_costs_are_compared(store: EmbeddedStore, cost_usd: tuple[float, float], verdict: str) -> None:
    """Equal costs are equal, and another constant is a difference: no spread does not mean no data."""
    constant(store, 80, cost_usd=cost_usd, passing=(1.0, 1.0))
    answer = ask(store, "compare", {"a": "prompt:v7", "b": "prompt:v8", "evaluator": "judge"}, clock=now)
    cost = next(one for one in answer["also"] if one["metric"] == "cost")
    assert (cost["verdict"], cost["need_more"]) == (verdict, None)
    assert cost["difference"]["value"] == pytest.approx(cost_usd[1] - cost_usd[0])


def test_constant_scores_are_compared(store: EmbeddedStore) -> None:
    """Every answer fails after a change: worse, although no side has any spread."""
    constant(store, 80, cost_usd=(0.0, 0.0), passing=(1.0, 0.0))
    sides = {"a": "prompt:v7", "b": "prompt:v8", "evaluator": "judge"}
    answer = ask(store, "compare", sides, clock=now)
    assert (answer["verdict"], answer["difference"]["value"]) == ("worse", -1.0)
    assert answer["test"]["p"] < 1e-9


@pytest.mark.parametrize(
    ("count", "verdict"), [(20, "not enough data"), (80, "not enough data"), (400, "no difference")]
)
def test_equal_constant_scores_need_answers(store: EmbeddedStore, count: int, verdict: str) -> None:
    """All answers of both sides pass: so few could still hide a difference of 0.05, so many could not."""
    constant(store, count, cost_usd=(0.0, 0.0), passing=(1.0, 1.0))
    answer = ask(store, "compare", {"a": "prompt:v7", "b": "prompt:v8", "evaluator": "judge"}, clock=now)
    assert answer["verdict"] == verdict
    assert (answer["need_more"] is None) == (verdict == "no difference")
    assert answer["also"][0]["verdict"] == ("not enough data" if count == 20 else "no difference")


def crashing(store: EmbeddedStore, *, lost: str, count: int = 300) -> None:
    """Answers of v6 pass four in five times, of v7 three in five; nine in ten bad ones of v7 have no verdict."""
    units = Units(store)
    for number in range(2 * count):
        new = bool(number % 2)
        bad = uniform(number, "bad") < (0.4 if new else 0.2)
        missing = bad and new and uniform(number, "lost") < 0.9
        units.unit(number, prompt_version="v7" if new else "v6", user_id=f"u{number}")
        units.decision(number, "judge", capped=missing and lost == "dropped", reason="budget")
        if missing and lost == "error":
            units.score(number, "judge", None, status="error")
        elif not missing:
            units.score(number, "judge", float(not bad))
    units.save()


@pytest.mark.parametrize("lost", ["error", "dropped"])
def test_a_version_whose_bad_answers_have_no_verdict_is_not_better(store: EmbeddedStore, lost: str) -> None:
    """The failing evaluator hides a fall from .8 to .6; the deciding interval holds the truth, and the words say so."""
    crashing(store, lost=lost)
    outcome = ask(store, "compare", {"a": "prompt:v6", "b": "prompt:v7", "evaluator": "judge"}, clock=now)
    assert outcome["difference"]["lo"] > 0.0
    assert outcome["least"] < -0.2 < outcome["most"]
    assert (outcome["verdict"], outcome["need_more"], outcome["need_more_of"]) == ("not enough data", None, "verdicts")
    assert outcome["a"]["missing"] == 0
    assert 80 < outcome["b"]["missing"] < 140
    assert f"{outcome['b']['missing']} missing" in outcome["b"]["words"]


def test_a_comparison_ends_before_the_oldest_answer_that_waits(store: EmbeddedStore) -> None:
    """Later answers are evaluated in any order; where nearly all would be left out, the waiting ones are."""
    units = Units(store)
    for number in range(200):
        at = T0 + timedelta(seconds=number)
        units.unit(number, at=at, prompt_version="v7" if number % 2 else "v6", user_id=f"u{number}")
        units.decision(number, "judge", at=at)
        if number not in (150, 151):
            units.score(number, "judge", 1.0, at=at)
    units.save()
    outcome = ask(store, "compare", {"a": "prompt:v6", "b": "prompt:v7", "evaluator": "judge"}, clock=now)
    assert (outcome["a"]["n"], outcome["b"]["n"], outcome["b"]["missing"]) == (75, 75, 0)


def test_fail_rates_are_compared(store: EmbeddedStore) -> None:
    """17 % against 27 % fail, with scores whose means differ little: the rate says worse, whatever the mean says."""
    units = Units(store)
    for number in range(2400):
        new = bool(number % 2)
        fails = uniform(number, "fails") < (0.273 if new else 0.172)
        units.unit(number, prompt_version="v7" if new else "v6", user_id=f"u{number}")
        units.decision(number, "judge")
        units.score(number, "judge", 0.58 if fails else 0.62, passing=not fails)
    units.save()
    outcome = ask(store, "compare", {"a": "prompt:v6", "b": "prompt:v7", "evaluator": "judge"}, clock=now)
    (rate,) = (one for one in outcome["also"] if one["metric"] == "fail_rate")
    assert rate["verdict"] == "worse"
    assert (rate["a"], rate["b"]) == (pytest.approx(0.172, abs=0.03), pytest.approx(0.273, abs=0.03))
    assert rate["difference"]["lo"] > 0.0
