"""Overview, exemplars, explain, blame, documents, cost of a good answer: shapes and planted facts."""

from __future__ import annotations

import random
from datetime import datetime, timedelta
from typing import Any

import pytest
from asking import ask
from stored_units import T0, Units, trace_id, uniform

from ragpulse_collector.analysis.attribution import verdict_on
from ragpulse_collector.store.embedded import EmbeddedStore


def now() -> datetime:
    """A quarter past noon."""
    return T0 + timedelta(minutes=15)


DAY = {"from": "-1h"}


def test_an_empty_store_has_an_overview(store: EmbeddedStore) -> None:
    """Nothing measured is null, not zero."""
    told = ask(store, "overview", DAY, clock=now)
    assert (told["newest_span"], told["lag_s"], told["error_rate"], told["cost_usd"]) == (None, None, None, None)
    assert (told["n_traces"], told["quality"], told["queued"], told["cost_per_good_answer"]) == (0, [], 0, None)


def test_the_overview_compares_with_the_window_before(store: EmbeddedStore) -> None:
    """A fall from 0.9 to 0.5 is `worse`; errors, cost and the share of unknown cost are told."""
    units = Units(store)
    for number in range(400):
        at = T0 - timedelta(minutes=90 if number < 200 else 30)
        good = number % 10 > 0 if number < 200 else number % 2 > 0
        facts = {"error": number % 4 == 0, "cost_usd": 0.01 if number % 2 else None, "input_tokens": 5}
        facts["cost_unknown_reason"] = None if number % 2 else "no model name"
        units.scored(number, "groundedness", float(good), at=at, facts=facts)
    for number in range(400, 410):  # the first bucket of the window before is not that window
        units.scored(number, "groundedness", 0.2, at=T0 - timedelta(minutes=100))
    units.save()
    told = ask(store, "overview", DAY, clock=now)
    (quality,) = told["quality"]
    assert (quality["value"], quality["verdict"]) == (0.5, "worse")
    assert quality["previous"]["value"] == pytest.approx((200 * 0.9 + 10 * 0.2) / 210)
    assert (quality["passing_rate"], quality["n"], quality["version"]) == (0.5, 200, "v1")
    assert quality["always"] is None
    assert (told["n_traces"], told["error_rate"], told["tokens"]) == (200, 0.25, 1000)
    assert told["error_interval"] == pytest.approx([0.195, 0.314], abs=0.001)
    assert told["cost_usd"] == pytest.approx(1.0)
    assert (told["cost_unknown_share"], told["cost_unknown_reason"]) == (0.5, "no model name")
    assert told["coverage"][0]["scored"] == 200


def test_coverage_counts_what_is_missing(store: EmbeddedStore) -> None:
    """Selected, skipped, invalid, dropped and never covered are told apart."""
    units = Units(store)
    for number, status in enumerate(("ok", "ok", "skipped", "invalid", "error")):
        units.scored(number, "judge", 1.0 if status == "ok" else None, status=status)
    units.unit(5)
    units.decision(5, "judge", pi=0.0, u=0.5, reason="filtered")
    units.unit(6)
    units.add("decisions", trace_id=trace_id(6), span_id=0xAA, request_time=T0, evaluator="judge", rule="r", policy="p",
              pi=0.9, u=0.1, sampled=False, reason="budget", decided_at=T0, revision=1, latest=True)  # fmt: skip
    units.save()
    (row,) = ask(store, "coverage", DAY, clock=now)["coverage"]
    assert row == {"evaluator": "judge", "eligible": 7, "selected": 6, "scored": 2, "skipped": 1, "invalid": 1,
                   "error": 1, "dropped": 1, "uncovered_share": pytest.approx(1 / 7)}  # fmt: skip


def test_coverage_is_a_series_with_groups(store: EmbeddedStore) -> None:
    """Per bucket and model: the scored share of n eligible units, and where the others are; none eligible is a gap."""
    units = Units(store)
    for number, status in enumerate(("ok", "skipped", "ok", "ok")):
        facts = {"model": "b" if number == 3 else "a"}
        units.scored(number, "judge", 1.0 if status == "ok" else None, status=status, facts=facts)
    units.unit(4, model="a")
    units.decision(4, "judge", pi=0.0, u=0.5, reason="filtered")
    units.save()
    asked = {"name": "coverage:judge", "step": "15m", "group_by": ["model"], **DAY}
    lines = ask(store, "metrics", asked, clock=now)["series"]
    points = [[point for point in line["points"] if point["n"]] for line in lines]
    assert [line["group"] for line in lines] == [{"model": "a"}, {"model": "b"}]
    assert [(point["value"], point["n"]) for (point,) in points] == [(0.5, 4), (1.0, 1)]
    assert points[0][0]["counts"] == {"skipped": 1, "invalid": 0, "error": 0, "unselected": 0, "uncovered": 1}
    assert {point["value"] for point in lines[1]["points"] if not point["n"]} == {None}


def test_several_metrics_are_one_question(store: EmbeddedStore) -> None:
    """A list of names is answered in its order, each as if it were asked alone; an unknown one is refused."""
    units = Units(store)
    units.scored(0, "groundedness", 1.0)
    units.save()
    names = ["error_rate", "quality:groundedness", "coverage:groundedness"]
    told = ask(store, "metrics", {**DAY, "name": names}, clock=now)
    assert told["metrics"] == [ask(store, "metrics", {**DAY, "name": name}, clock=now) for name in names]
    with pytest.raises(ValueError, match="no metric 'speed'"):
        ask(store, "metrics", {**DAY, "name": ["requests", "speed"]}, clock=now)


def test_the_traffic_alone_is_told_without_reading_scores(store: EmbeddedStore) -> None:
    """`only` = `traffic` gives what the whole headline says of the requests, and nothing else."""
    units = Units(store)
    units.scored(0, "groundedness", 1.0, facts={"cost_usd": 0.5})
    units.save()
    whole, traffic = (
        ask(store, "overview", DAY, clock=now),
        ask(store, "overview", {**DAY, "only": "traffic"}, clock=now),
    )
    of_scores = {"quality": [], "coverage": [], "queued": 0, "dropped": 0, "changes": [], "others": [],
                 "cost_per_good_answer": None}  # fmt: skip
    assert traffic == whole | of_scores
    assert traffic["cost_usd"] == 0.5


def test_exemplars_are_the_ends_and_the_middle(store: EmbeddedStore) -> None:
    """Of eleven traces the five slowest, the five in the middle and the five fastest, each with its scores."""
    units = Units(store)
    for number in range(11):
        units.scored(number, "groundedness", number / 10, facts={"latency_ms": 100.0 * number})
    units.save()
    slow = ask(store, "exemplars", {"name": "latency_p95", **DAY}, clock=now)
    assert [trace["latency_ms"] for trace in slow["worst"]] == [1000, 900, 800, 700, 600]
    assert sorted(trace["latency_ms"] for trace in slow["median"]) == [300, 400, 500, 600, 700]
    assert [trace["latency_ms"] for trace in slow["best"]] == [0, 100, 200, 300, 400]
    poor = ask(
        store, "exemplars", {"name": "quality:groundedness", "t": "2026-11-20T12:00:00Z", "step": "1h"}, clock=now
    )
    assert [trace["scores"]["groundedness"]["normalized"] for trace in poor["worst"]] == [0.0, 0.1, 0.2, 0.3, 0.4]


def test_explain_finds_the_planted_cause(store: EmbeddedStore) -> None:
    """Slow requests all came from model b: it leads the list, with lift and a small adjusted p."""
    units = Units(store)
    for number in range(300):
        slow = number % 10 == 0
        facts: dict[str, Any] = {
            "latency_ms": 5000.0 if slow else 100.0,
            "model": "b" if slow else "a",
            "service": "xy"[number % 2],
        }
        units.unit(number, at=T0 - timedelta(minutes=number % 40), **facts)
    units.save()
    told = ask(store, "explain", {"metric": "latency_p95", "sel_lo": 1000, **DAY}, clock=now)
    assert (told["n_selected"], told["n_baseline"]) == (30, 270)
    first = told["attributes"][0]
    assert (first["attribute"], first["value"], first["selected"]["share"]) == ("model", "b", 1.0)
    assert first["p_adjusted"] < 1e-10
    assert sum(map(sum, told["heatmap"]["cells"])) == 300


def test_explain_names_the_document(store: EmbeddedStore) -> None:
    """A document that only bad answers retrieved is found."""
    units = Units(store)
    for number in range(60):
        bad = number < 12
        units.scored(number, "groundedness", float(not bad))
        units.contexts(number, ["text"], ids=["stale" if bad else f"doc{number}"])
    units.save()
    told = ask(store, "explain", {"metric": "quality:groundedness", "sel_hi": 0.5, **DAY}, clock=now)
    assert (told["attributes"][0]["attribute"], told["attributes"][0]["value"]) == ("document", "stale")


def test_explain_names_nothing_where_only_chance_differs(store: EmbeddedStore) -> None:
    """Of 300 documents some are more common among the bad answers by chance: all of them were looked at."""
    units, draw = Units(store), random.Random(2)
    for number in range(3000):
        units.scored(number, "groundedness", 0.1 if draw.random() < 0.1 else 0.9, at=T0)
        units.contexts(number, ["text", "more"], ids=[f"doc-{draw.randrange(300)}" for _ in range(2)])
    units.save()
    told = ask(store, "explain", DAY | {"metric": "quality:groundedness", "bad": True}, clock=now)
    assert [row for row in told["attributes"] if row["p_adjusted"] <= 0.05] == []


def test_explain_names_the_retriever_and_how_much_it_found(store: EmbeddedStore) -> None:
    """Bad answers had one context where the others had two, and Russian questions: both are told from chance."""
    units = Units(store)
    for number in range(60):
        bad = number < 12
        units.scored(number, "groundedness", float(not bad), facts={"query": "Почему?" if bad else "Why?"})
        units.contexts(number, ["text"] if bad else ["text", "more"])
    units.save()
    told = ask(store, "explain", {"metric": "quality:groundedness", "sel_hi": 0.5, **DAY}, clock=now)["attributes"]
    found = {(one["attribute"], one["value"]): one["p_adjusted"] for one in told}
    assert found["contexts retrieved", "1"] < 1e-6
    assert found["query script", "Cyrillic"] < 1e-6
    assert found["retriever", "search"] == found["name", "answer"] == 1.0


@pytest.mark.parametrize(
    ("told", "kind"),
    [
        ({"answered": False, "sufficient": False}, "refusal_right"),
        ({"answered": False, "sufficient": True}, "refusal_wrong"),
        ({"answered": False}, "unknown"),
        ({"answered": True, "sufficient": False, "faithful": True}, "retrieval"),
        ({"answered": True, "sufficient": True, "faithful": False}, "generation"),
        ({"answered": True, "sufficient": True, "faithful": True}, "good"),
        ({"faithful": False, "used": False}, "retrieval"),
        ({"faithful": False, "used": True}, "generation"),
        ({"sufficient": True}, "unknown"),
    ],
)
def test_blame_of_one_answer(told: dict[str, bool], kind: str) -> None:
    """Each combination of verdicts has one reading."""
    blank: dict[str, Any] = dict.fromkeys(("faithful", "sufficient", "used", "answered"))
    assert verdict_on(**{**blank, **told}) == kind


def test_equal_values_have_one_bin(store: EmbeddedStore) -> None:
    """Of a cost of a cent nobody sees a dollar."""
    units = Units(store)
    for number in range(9):
        units.unit(number, cost_usd=0.01)
    units.save()
    heatmap = ask(store, "explain", {"metric": "cost_usd", **DAY}, clock=now)["heatmap"]
    assert (heatmap["y"], sum(map(sum, heatmap["cells"]))) == ([0.01], 9)


def test_blame_counts_an_answer_once(store: EmbeddedStore) -> None:
    """Half of the answers are selected: each stands for two, and the others for none, whatever else scored them.

    What is unclear is not decided.
    """
    units = Units(store)
    for number in range(40):
        units.unit(number)
        if units.decision(number, "groundedness", pi=0.5, u=number % 2 * 0.9):
            units.score(number, "groundedness", 0.9, passing=None, label="unclear" if number % 4 else "good")
        units.decision(number, "refusal")
        units.score(number, "refusal", 1.0)
    units.save()
    (cell,) = ask(store, "blame", {**DAY, "step": "1h"}, clock=now)["cells"]
    assert (cell["good"], cell["unknown"], cell["n"]) == (20.0, 20.0, 20)


@pytest.mark.parametrize("lost", ["unclear", "error", "skipped"])
def test_unknown_answers_stay_in_the_denominator(store: EmbeddedStore, lost: str) -> None:
    """Ten of forty have no verdict: they are unknown; those with nothing to judge are not counted."""
    units = Units(store)
    for number in range(40):
        units.unit(number)
        units.decision(number, "groundedness")
        if number % 4:
            units.score(number, "groundedness", float(number % 2))
        elif lost == "unclear":
            units.score(number, "groundedness", 0.9, passing=None, label="unclear")
        else:
            units.score(number, "groundedness", None, status=lost)
    units.save()
    (cell,) = ask(store, "blame", {**DAY, "step": "1h"}, clock=now)["cells"]
    assert (cell["good"], cell["generation"], cell["n"]) == (20.0, 10.0, 30)
    assert cell["unknown"] == (0.0 if lost == "skipped" else 10.0)


def test_blame_weighs_by_the_chance_of_selection(store: EmbeddedStore) -> None:
    """Ten unsupported answers that drew on contexts, each sampled at 0.1, stand for a hundred."""
    units = Units(store)
    for number in range(10):
        units.scored(number, "groundedness", 0.0, pi=0.1, u=0.01, facts={"prompt_version": "v7"})
        units.decision(number, "context_utilization", pi=1.0)
        units.score(number, "context_utilization", 0.5)
    units.save()
    (cell,) = ask(store, "blame", {**DAY, "step": "1h", "group_by": "prompt_version"}, clock=now)["cells"]
    assert (cell["group"], cell["n"], cell["generation"], cell["good"]) == ({"prompt_version": "v7"}, 10, 100.0, 0.0)


def test_blame_counts_each_request_once_where_judges_have_rates_of_their_own(store: EmbeddedStore) -> None:
    """Of 1,000 good answers half are judged, a tenth by both judges: they stand for a thousand, not for more."""
    units = Units(store)
    for number in range(1_000):
        units.unit(number)
        for evaluator, pi in (("groundedness", 0.5), ("context_recall", 0.1)):
            if units.decision(number, evaluator, pi=pi, u=number / 1_000):
                units.score(number, evaluator, 0.9)
    units.save()
    (cell,) = ask(store, "blame", {**DAY, "step": "1h"}, clock=now)["cells"]
    assert (cell["n"], cell["good"], cell["unknown"]) == (100, pytest.approx(1_000), 0.0)


@pytest.mark.parametrize(
    ("used", "verdict", "kind"),
    [
        ({"normalized": 0.0}, {"passing": False}, "retrieval"),
        ({"normalized": 0.5}, {"passing": False}, "generation"),
        ({"normalized": 0.0}, {"normalized": 0.1}, "retrieval"),
        ({"normalized": 0.5}, {"normalized": 0.9}, "good"),
        ({"normalized": 0.5}, {"normalized": 0.9, "label": "odd"}, "good"),
        ({"normalized": 0.0, "label": "unclear"}, {"passing": False}, "generation"),
    ],
)
def test_a_verdict_needs_neither_pass_nor_label(
    store: EmbeddedStore, used: dict[str, Any], verdict: dict[str, Any], kind: str
) -> None:
    """`context_utilization` has none of both, nor have many judges: their scores decide all the same."""
    units = Units(store)
    for number in range(40):
        units.unit(number)
        for name, given in (("groundedness", verdict), ("context_utilization", used)):
            units.decision(number, name)
            score = {"passing": None, "normalized": 0.0} | given
            units.score(number, name, score.pop("normalized"), **score)
    units.save()
    (cell,) = ask(store, "blame", {**DAY, "step": "1h"}, clock=now)["cells"]
    assert {name: cell[name] for name in ("good", "retrieval", "generation", "unknown") if cell[name]} == {kind: 40.0}


def test_a_good_answer_needs_neither_pass_nor_label(store: EmbeddedStore) -> None:
    """The cost of one, by a judge that gives a score alone."""
    units = Units(store)
    for number in range(40):
        units.unit(number, cost_usd=0.01)
        units.decision(number, "groundedness")
        units.score(number, "groundedness", 1.0 - number % 2, passing=None)
    units.save()
    told = ask(store, "overview", DAY, clock=now)
    assert told["cost_per_good_answer"]["value"] == pytest.approx(0.02)


def test_documents_show_who_hurts(store: EmbeddedStore) -> None:
    """The stale document's answers are bad; its estimate is shrunk towards the rest and it sorts first."""
    units = Units(store)
    for number in range(200):
        bad = number % 4 == 0
        units.scored(number, "groundedness", float(not bad), facts={"query": f"q{number}"})
        units.decision(number, "context_utilization")
        units.score(number, "context_utilization", 0.5, parts='{"used": [1]}')
        units.contexts(number, ["one", "two"], ids=["stale" if bad else f"good{number % 8}", f"never{number % 3}"])
    units.save()
    told = ask(store, "documents", {**DAY, "sort": "worst"}, clock=now)
    first = told["documents"][0]
    assert (first["id"], first["retrieved"], first["quality"]["value"]) == ("stale", 50, 0.0)
    assert 0.0 < first["shrunk"] < 0.3
    assert first["quality_without"] == 1.0
    assert (first["used_share"], first["hub"], told["never_used"]) == (1.0, True, 3)
    assert first["text"] == "one"


def test_a_document_of_many_questions_but_few_requests_is_no_hub(store: EmbeddedStore) -> None:
    """16 of 200 requests retrieved it, 16 of 47 different questions: the other questions are asked again and again."""
    units = Units(store)
    for number in range(200):
        rare = number < 16
        units.scored(number, "groundedness", 1.0, facts={"query": f"q{number}" if rare else f"often{number % 31}"})
        units.contexts(number, ["one"], ids=["rare" if rare else "common"])
    units.save()
    hubs = {one["id"]: one["hub"] for one in ask(store, "documents", DAY, clock=now)["documents"]}
    assert hubs == {"common": True, "rare": False}


def test_a_document_without_scores_is_listed_without_numbers(store: EmbeddedStore) -> None:
    """Retrieved but never scored is null."""
    units = Units(store)
    units.unit(1)
    units.contexts(1, ["text"])
    units.save()
    (row,) = ask(store, "documents", DAY, clock=now)["documents"]
    assert (row["retrieved"], row["quality"]["value"], row["shrunk"], row["used_share"]) == (1, None, None, None)


def test_estimates_and_order_of_documents_are_those_of_the_moments(store: EmbeddedStore) -> None:
    """What SQL draws to the mean is what the estimator says of each document; a short list begins the whole one."""
    units, answers = Units(store), {}
    for number in range(240):
        user, pi, found = f"u{number % 11}", (1.0, 0.5, 0.1)[number % 3], {f"d{number % 7}", f"d{number % 31}"}
        score = number * 7 % 13 / 60 + (0.8 if number % 31 < 12 else 0.0)
        units.scored(number, "groundedness", score, pi=pi, u=0.01, facts={"query": f"q{number}", "user_id": user})
        units.contexts(number, sorted(found), ids=sorted(found))
        answers[number] = (score, 1 / pi, user, found)
    units.save()
    told = ask(store, "documents", {**DAY, "sort": "worst"}, clock=now)["documents"]
    expected = _shrunk(list(answers.values()))
    assert {one["id"]: one["shrunk"] for one in told} == pytest.approx(expected)
    assert len(set(expected.values())) > 20  # documents differ, so that not all are drawn to the mean
    assert [one["shrunk"] for one in told] == sorted(one["shrunk"] for one in told)
    short = ask(store, "documents", {**DAY, "sort": "worst", "limit": 5}, clock=now)
    assert ([one["id"] for one in short["documents"]], short["total"]) == ([one["id"] for one in told[:5]], 31)


def _shrunk(answers: list[tuple[float, float, str, set[str]]]) -> dict[str, float]:
    """The empirical Bayes estimate of each document, written down from the sums of its answers."""
    prior = sum(y * w for y, w, _, _ in answers) / sum(w for _, w, _, _ in answers)
    means, errors, totals = {}, {}, {}
    for doc in set().union(*(found for *_, found in answers)):
        held = [(y, w, user) for y, w, user, found in answers if doc in found]
        totals[doc] = total = sum(w for _, w, _ in held)
        means[doc] = mean = sum(y * w for y, w, _ in held) / total
        residuals: dict[str, float] = {}
        for y, w, user in held:
            residuals[user] = residuals.get(user, 0.0) + w * (y - mean)
        error = sum(one**2 for one in residuals.values()) / total**2
        errors[doc] = max(error, max(0.01, prior * (1 - prior)) * sum(w * w for _, w, _ in held) / total**2)
    spread = sum(totals[doc] * ((means[doc] - prior) ** 2 - errors[doc]) for doc in means)
    between = max(0.0, spread / sum(totals.values()))
    return {doc: prior + (means[doc] - prior) * between / (between + errors[doc]) for doc in means}


def test_a_trace_with_two_scored_units_retrieved_its_document_once(store: EmbeddedStore) -> None:
    """`retrieved` counts requests, however many scores one of them has."""
    units = Units(store)
    for number in range(3):
        units.scored(number, "groundedness", 1.0, facts={"query": f"q{number}"})
        units.score(number, "groundedness", 0.5, version="2")
        units.contexts(number, ["text"], ids=["doc"])
    units.save()
    (row,) = ask(store, "documents", DAY, clock=now)["documents"]
    assert (row["retrieved"], row["queries"], row["quality"]["n"]) == (3, 3, 6)


def test_cost_per_good_answer(store: EmbeddedStore) -> None:
    """100 answers at one cent, 80 supported: 1.25 cents each, with the interval of the share turned over."""
    units = Units(store)
    for number in range(100):
        units.scored(number, "groundedness", float(number % 5 > 0), facts={"cost_usd": 0.01})
    units.save()
    told = ask(store, "overview", DAY, clock=now)
    cost = told["cost_per_good_answer"]
    assert cost["value"] == pytest.approx(0.0125)
    assert cost["lo"] < 0.0125 < cost["hi"]
    assert (cost["evaluators"], told["cost_unknown_share"]) == (["groundedness"], 0.0)


def test_a_failed_request_is_no_good_answer(store: EmbeddedStore) -> None:
    """Half of the requests failed: they cost as much, and each good answer costs twice."""
    units = Units(store)
    for number in range(100):
        units.scored(number, "groundedness", 1.0, facts={"cost_usd": 0.01})
        units.unit(100 + number, error=True, cost_usd=0.01)
    units.save()
    assert ask(store, "overview", DAY, clock=now)["cost_per_good_answer"]["value"] == pytest.approx(0.02)


def test_a_good_answer_costs_what_its_price_is_where_it_is_known(store: EmbeddedStore) -> None:
    """Half of the costs are unknown, and a quarter of the verdicts unclear: neither changes the cost of a good one."""
    units = Units(store)
    for number in range(80):
        units.unit(number, cost_usd=0.01 if number % 2 else None)
        units.decision(number, "groundedness")
        verdict: dict[str, Any] = {"passing": True} if number % 4 else {"passing": None, "label": "unclear"}
        units.score(number, "groundedness", 0.9, **verdict)
    units.save()
    cost = ask(store, "overview", DAY, clock=now)["cost_per_good_answer"]
    assert cost["value"] == pytest.approx(0.01)


@pytest.mark.parametrize(("lead", "used"), [("", "faithfulness"), ("groundedness", "groundedness"), ("tone", "tone")])
def test_the_evaluator_that_leads_decides_what_is_bad(store: EmbeddedStore, lead: str, used: str) -> None:
    """Overview, documents, failures and comparisons read the same one; the cost of a good answer too."""
    units = Units(store)
    for number in range(40):
        units.scored(number, "faithfulness", 1.0, facts={"cost_usd": 0.01, "model": "ab"[number % 2]})
        for name in ("groundedness", "tone"):
            units.decision(number, name)
            units.score(number, name, 0.5, passing=True)
        units.contexts(number, ["text"], ids=["doc"])
    units.save()

    def asked(name: str, **params: str) -> Any:
        return ask(store, name, {**DAY, **params}, clock=now, lead=lead)

    assert asked("overview")["lead"] == lead
    assert asked("overview")["cost_per_good_answer"]["evaluators"] == [used]
    assert asked("documents")["evaluator"] == used
    assert asked("blame")["evaluators"]["faithful"] == used
    assert asked("compare", a="model:a", b="model:b")["evaluator"] == used
    assert asked("documents", evaluator="groundedness")["evaluator"] == "groundedness"


def test_explain_finds_the_stretch_of_bad_answers_and_folds_what_follows_from_it(store: EmbeddedStore) -> None:
    """One document spoils the answers of two hours; the service that alone retrieves it says nothing more.

    The order is that of lift, which a larger but weaker cause does not change.
    """
    units = Units(store)
    for number in range(600):
        hours = number // 100
        bad = hours in (2, 3) and number % 3 == 0
        facts = {"service": "legacy" if bad else "main", "model": "b" if bad or number % 2 else "a"}
        units.scored(number, "judge", float(not bad), at=T0 - timedelta(hours=6 - hours, minutes=-5), facts=facts)
        units.contexts(number, ["text"], ids=["stale" if bad or number == 5 else f"doc{number}"])
    units.save()
    found = ask(store, "explain", {"metric": "quality:judge", "bad": True, "step": "1h", "from": "-7h"}, clock=now)
    assert (found["n_selected"], found["n_baseline"]) == (67, 533)
    assert found["dip"] == {"from": "2026-11-20T08:00:00Z", "to": "2026-11-20T10:00:00Z"}
    rows = [(one["attribute"], one["value"], one["explained_by"]) for one in found["attributes"][:3]]
    assert rows[0] == ("service", "legacy", None)
    assert rows[1] == ("document", "stale", {"attribute": "service", "value": "legacy"})
    assert rows[2][2] is not None
    sure = [one["lift"] or 1e9 for one in found["attributes"] if one["p_adjusted"] <= 0.05]
    assert sure == sorted(sure, reverse=True)
    assert sum(bar["bad"] for bar in found["bars"]) == 67


def test_explain_takes_errors_as_what_failed(store: EmbeddedStore) -> None:
    """A request without a status did not fail; the error itself does not explain the error rate."""
    units = Units(store)
    for number in range(100):
        units.unit(number, error=number < 20, model="b" if number < 20 else "a")
    units.save()
    found = ask(store, "explain", {"metric": "error_rate", "bad": True, **DAY}, clock=now)
    assert found["n_selected"] == 20
    assert (found["attributes"][0]["attribute"], found["attributes"][0]["value"]) == ("model", "b")


@pytest.mark.parametrize("failed", [0, 100])
def test_explain_of_requests_that_are_all_alike_names_nothing(store: EmbeddedStore, failed: int) -> None:
    """None failed: none is marked. All failed: all are, and there is nothing to compare them with."""
    units = Units(store)
    for number in range(100):
        units.unit(number, error=number < failed, model="b" if number < 20 else "a")
    units.save()
    found = ask(store, "explain", {"metric": "errors", "bad": True, **DAY}, clock=now)
    assert (found["n_selected"], found["n_baseline"], found["attributes"]) == (failed, 100 - failed, [])


@pytest.mark.parametrize(
    ("unclear", "metric"),
    [({"passing": None, "label": "unclear"}, "quality"), ({"passing": None, "label": "unclear"}, "fail_rate"),
     ({"passing": None}, "quality"), ({"passing": None, "label": "odd"}, "score")],
)  # fmt: skip
def test_bad_answers_are_compared_with_passing_ones(store: EmbeddedStore, unclear: dict[str, Any], metric: str) -> None:
    """17 of 110 bad answers had the planted document, 14 of 524 passing ones, and most unclear ones: these are apart.

    So they are in the bars.
    """
    units, number = Units(store), 0
    for verdict, total, having in (({}, 110, 17), ({"passing": True}, 524, 14), (unclear, 300, 200)):
        for place in range(total):
            number += 1
            at = T0 - timedelta(minutes=number % 40)
            units.unit(number, at=at, query=f"q{number}")
            units.decision(number, "judge", at=at)
            units.score(number, "judge", 0.4, **{"passing": False, **verdict}, at=at)
            units.contexts(number, ["text"], ids=["planted" if place < having else f"doc{number % 7}"], at=at)
    units.save()
    found = ask(store, "explain", {"metric": f"{metric}:judge", "bad": True, **DAY}, clock=now)
    (planted,) = (one for one in found["attributes"] if one["value"] == "planted")
    assert (planted["selected"]["n"], planted["baseline"]["n"]) == (17, 14)
    assert planted["lift"] == pytest.approx((17 / 110) / (14 / 524))
    assert planted["p_adjusted"] < 1e-4
    assert (found["n_selected"], found["n_baseline"]) == (110, 524)
    assert [sum(bar[key] for bar in found["bars"]) for key in ("n", "bad")] == [634, 110]


@pytest.mark.parametrize("metric", ["error_rate", "errors"])
def test_errors_since_a_moment_are_compared_with_what_did_not_fail(store: EmbeddedStore, metric: str) -> None:
    """All requests after it have release v2, and those of model b fail: v2 says what changed, b what fails."""
    units = Units(store)
    for number in range(600):
        late, at = number >= 300, T0 - timedelta(seconds=6 * (600 - number))
        model = "b" if number % 3 == 0 else "a"
        units.unit(number, at=at, model=model, prompt_version="v2" if late else "v1", error=late and model == "b")
    units.save()
    asked = {"metric": metric, "at": "2026-11-20T11:30:00Z", "from": "-3h"}
    found = ask(store, "explain", asked, clock=lambda: T0)
    assert (found["n_selected"], found["n_baseline"]) == (100, 200)
    sure = {(one["attribute"], one["value"]) for one in found["attributes"] if one["p_adjusted"] <= 0.05}
    assert ("model", "b") in sure
    assert not any(name == "prompt_version" for name, _ in sure)


def test_explain_takes_requests_of_one_user_as_dependent(store: EmbeddedStore) -> None:
    """Three of twenty users fail always; that two of them, and five others, use one model is chance."""
    units = Units(store)
    for number in range(600):
        user, model = number % 20, "a" if number % 20 in (0, 1, 5, 6, 7, 8, 9) else "b"
        units.scored(number, "judge", float(user > 2), facts={"user_id": f"u{user}", "model": model})
    units.save()
    told = ask(store, "explain", {"metric": "quality:judge", "bad": True, **DAY}, clock=now)["attributes"]
    (found,) = (one for one in told if (one["attribute"], one["value"]) == ("model", "a"))
    assert found["lift"] == pytest.approx(2 / 3 / (5 / 17))
    assert found["p_adjusted"] > 0.05


@pytest.mark.parametrize(("users", "sure"), [(1, True), (4, True), (20, False)])
def test_explain_names_the_cause_in_a_small_team_too(store: EmbeddedStore, users: int, sure: bool) -> None:
    """Where a few users ask everything, each request stands alone; one user of twenty proves nothing."""
    units = Units(store)
    for number in range(400):
        failed = number % 20 == 0
        facts = {"user_id": f"u{number % users}", "model": "b" if failed else "a", "error": failed}
        units.unit(number, **facts)
    units.save()
    told = ask(store, "explain", {"metric": "error_rate", "bad": True, **DAY}, clock=now)["attributes"]
    (found,) = (one for one in told if (one["attribute"], one["value"]) == ("model", "b"))
    assert (found["p_adjusted"] <= 0.05) is sure


@pytest.mark.parametrize("seed", range(3))
def test_the_planted_document_comes_first_among_rare_ones(store: EmbeddedStore, seed: int) -> None:
    """Five documents have 60 answers, 55 have two, nine of ten pass; the bad one has 30, of which two in five pass."""
    units, number = Units(store), 0
    for doc in range(61):
        count, rate = (30, 0.4) if doc == 60 else (60 if doc < 5 else 2, 0.9)
        for _ in range(count):
            value = float(uniform(number, f"answer {seed}") < rate)
            units.scored(number, "groundedness", value, facts={"query": f"q{number}"})
            units.contexts(number, ["text"], ids=[f"d{doc}"])
            number += 1
    units.save()
    told = ask(store, "documents", {**DAY, "sort": "worst", "limit": 1}, clock=now)["documents"]
    assert [one["id"] for one in told] == ["d60"]
