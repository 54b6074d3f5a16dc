"""Labels stand where attributes stand: filters, conditions, groups; sampled ones with their probability."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from asking import ask, query_of
from stored_units import T0, Units, open_store, trace_id, uniform

from ragpulse_collector.api.models import TraceList
from ragpulse_collector.operations.traces import trace_list
from ragpulse_collector.refusals import Invalid
from ragpulse_collector.store import EmbeddedStore
from ragpulse_evaluators.statistics import hajek

HOSTILE = """a.b "c" '); DROP TABLE x; -- é {0} $evaluator"""
LONG = "x" * 10_000
NOW = T0 + timedelta(hours=1)
RANGE = {"from": "2026-11-20T00:00Z", "to": "2026-11-21T00:00Z"}
ALL = {**RANGE, "step": "all"}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedStore]:
    """Nine traces with a label `language`, in nine ways, and one without."""
    opened = open_store(tmp_path_factory.mktemp("labels"))
    units = Units(opened)
    for number in range(10):
        topic = "other" if number == 9 else "returns" if number < 5 else None
        units.unit(number, service="shop", latency_ms=float(number), topic=topic)
        units.decision(number, "language")
    minute = timedelta(minutes=1)
    units.score(0, "language", 1.0, label="de")
    units.score(1, "language", 1.0, label="de", version="old", at=T0 - minute, created=T0 + minute)  # rescored by it
    units.score(1, "language", 1.0, label="en", at=T0)
    units.score(2, "language", 1.0, label="de")
    units.score(2, "language", None, label="fr", source="human", version="", created=T0 - minute)
    units.score(3, "language", None, label="de", source="human", version="")
    units.score(4, "language", 1.0, label="de", status="error")
    units.add("scores", trace_id=trace_id(5), span_id=0xBB, request_time=T0, evaluator="language", version="v1",
              source="online", status="ok", label="de", created_at=T0, score_key="5")  # fmt: skip
    units.score(6, "language", 1.0, label=LONG)
    units.score(7, "language", 1.0, label="a\x00b\x1b[31m")
    units.score(8, HOSTILE, 1.0, label="de")
    units.save()
    yield opened
    opened.close()


def grouped(store: EmbeddedStore, metric: str, by: str, **more: Any) -> dict[Any, Any]:
    """The only point of each group."""
    answer = ask(store, "metrics", {"name": metric, "group_by": f'["{by}"]', **ALL, **more}, clock=lambda: NOW)
    return {line["group"][by]: line["points"][0] for line in answer["series"]}


def test_a_group_for_each_label(store: EmbeddedStore) -> None:
    """A person's first, the version in use, the root's; unlabelled is null, a long one is cut."""
    counts = {label: point["value"] for label, point in grouped(store, "requests", "label:language").items()}
    assert counts == {"de": 2, "en": 1, "fr": 1, None: 4, LONG[:200]: 1, "a\x00b\x1b[31m": 1}
    topics = {label: point["value"] for label, point in grouped(store, "requests", "label:topic").items()}
    assert topics == {"returns": 5, "other": 1, None: 4}
    for metric in ("latency_p95", "error_rate", "quality:language", "feedback:thumbs", "coverage:language"):
        grouped(store, metric, "label:language")


@pytest.mark.parametrize(
    ("filters", "found"),
    [
        ({"label.language": "de"}, {0, 3}),
        ({"label:language": ["en", "fr"]}, {1, 2}),
        ({"labels": '{"language": ["de"], "topic": ["returns"]}'}, {0, 3}),
        ({f"label.{HOSTILE}": "de"}, {8}),
        ({"label.language": "' OR true --"}, set()),
        ({"label.nobody": "de"}, set()),
        ({"where": "label.language = 'de'"}, {0, 3}),
        ({"where": "label.language <> 'de' AND service = 'shop' AND label.topic = 'returns'"}, {1, 2}),
        ({"where": "label.language IS NULL AND latency_ms > 4"}, {5, 8, 9}),
        ({"where": "label.language LIKE 'x%'"}, {6}),
        ({"where": "label.language::INTEGER = 1"}, set()),
        ({"where": f"""label."{HOSTILE.replace('"', '""')}" = 'de'"""}, {8}),
        ({"where": "label.topic = 'other'"}, {9}),
    ],
)
def test_lists_are_filtered(store: EmbeddedStore, filters: dict[str, Any], found: set[int]) -> None:
    """By a parameter, or in a condition; figures count the same requests."""
    listed = trace_list(store, lambda: "", TraceList.parse(filters | {"from": ALL["from"]})).traces
    assert {row.trace_id for row in listed} == {trace_id(number) for number in found}
    (point,) = ask(store, "metrics", {"name": "requests", **ALL, **filters}, clock=lambda: NOW)["series"][0]["points"]
    assert point["value"] == (len(found) or None) or not found


@pytest.mark.parametrize(
    ("params", "says"),
    [
        ({"group_by": "label:"}, "cannot group by"),
        ({"where": "label.language"}, "true or false is expected"),
        ({"where": "label = 'de'"}, "no column"),
        ({"labels": "[1]"}, "labels"),
    ],
)
def test_mistakes_are_named(store: EmbeddedStore, params: dict[str, str], says: str) -> None:
    """One sentence says what is possible."""
    with pytest.raises(Invalid, match=says):
        ask(store, "metrics", {"name": "requests", **ALL, **params})


def test_lists_have_facets_of_labels(store: EmbeddedStore) -> None:
    """The values to choose from, the most frequent first; a page of a label is its filter."""
    facets = trace_list(store, lambda: "", TraceList.parse({"facets": True, "from": ALL["from"]})).facets or {}
    assert [(one.value, one.n) for one in facets["label.language"]][:2] == [("de", 2), ("a\x00b\x1b[31m", 1)]
    assert [(one.value, one.n) for one in facets[f"label.{HOSTILE}"]] == [("de", 1)]


def test_explain_and_compare_know_labels(tmp_path: Path) -> None:
    """A label that bad answers share is found; a label splits a comparison, and is a side."""
    store = open_store(tmp_path)
    units = Units(store)
    for number in range(400):
        intent = "billing" if number % 4 == 0 else "other questions"
        units.scored(number, "judge", 0.1 if number % 4 == 0 and number % 3 else 0.9, facts={"user_id": str(number)})
        units.decision(number, "intent")
        units.score(number, "intent", None, label=intent)
    units.save()
    found = ask(store, "explain", {"metric": "quality:judge", "bad": True, **RANGE}, clock=lambda: NOW)
    assert next((one["attribute"], one["value"]) for one in found["attributes"]) == ("label:intent", "billing")
    sides = {
        "a": "label.intent:other questions",
        "b": "label.intent:billing",
        "evaluator": "judge",
        **RANGE,
    }
    assert ask(store, "compare", sides, clock=lambda: NOW)["verdict"] == "worse"
    store.close()


def test_a_million_labels_are_the_largest_and_the_rest(tmp_path: Path) -> None:
    """The answer has a hundred groups, and says how many more there are."""
    store = open_store(tmp_path)
    units = Units(store)
    for number in range(300):
        units.scored(number, "kind", 1.0)
    units.save()
    store.write(lambda tx: tx.execute("UPDATE raw.scores SET label = 'label ' || rowid")).result()
    answer = ask(store, "metrics", {"name": "requests", "group_by": "label:kind", **ALL}, clock=lambda: NOW)
    assert (len(answer["series"]), answer["other_groups"]) == (101, 200)
    store.close()


def test_a_sampled_label_weights_by_the_smaller_probability(tmp_path: Path) -> None:
    """One number decides both draws; what was not drawn is stood for, what a person alone labelled stays out."""
    store = open_store(tmp_path)
    units, expected, wrong = Units(store), dict[str, list[tuple[float, float]]](), 0
    for number in range(2_000):
        u, rare = uniform(number), number % 4 == 0
        label, value = ("long" if number % 3 else "short"), uniform(number, "value") * (0.4 if rare else 1.0)
        pi_label, pi_metric = (0.1 if rare else 0.5), 0.3
        units.unit(number)
        if units.decision(number, "length", pi=pi_label, u=u):
            units.score(number, "length", None, label=label)
        elif number % 50 == 0:
            units.score(number, "length", None, label=label, source="human")
            wrong += 1
        if units.decision(number, "judge", pi=pi_metric, u=u):
            units.score(number, "judge", value)
            if u < pi_label:
                expected.setdefault(label, []).append((value, min(pi_label, pi_metric)))
    units.save()
    found = grouped(store, "quality:judge", "label:length")
    assert (wrong > 0, set(found)) == (True, {"long", "short"})
    for label, pairs in expected.items():
        values, pis = zip(*pairs, strict=True)
        estimate = hajek(values, pis)
        assert estimate is not None
        assert (found[label]["n"], found[label]["value"]) == (len(pairs), pytest.approx(estimate.estimate))
        (line,) = ask(store, "metrics", {"name": "quality:judge", "label.length": label, **ALL})["series"]
        assert line["points"][0]["value"] == pytest.approx(estimate.estimate)
    requests = grouped(store, "requests", "label:length")
    assert sum(point["value"] for point in requests.values()) == pytest.approx(2_000, rel=0.1)
    assert requests["long"]["estimated"]
    store.close()


def test_a_new_version_of_a_label_is_a_marker(tmp_path: Path) -> None:
    """Charts by a label show where its evaluator changed; the groups go on."""
    store = open_store(tmp_path)
    units = Units(store)
    for number in range(20):
        at = T0 + timedelta(minutes=number)
        units.unit(number, at=at)
        units.decision(number, "kind", at=at)
        units.score(number, "kind", 1.0, at=at, label="a", version="v1" if number < 10 else "v2")
    units.save()
    answer = ask(store, "metrics", {"name": "requests", "group_by": "label:kind", **ALL}, clock=lambda: NOW)
    assert ([line["group"] for line in answer["series"]], [mark["text"] for mark in answer["markers"]]) == (
        [{"label:kind": "a"}], ["kind v2"]
    )  # fmt: skip
    assert query_of({"label.kind": "a"}, NOW).filters.labels == ("kind",)
    store.close()


ASKED: dict[str, dict[str, Any]] = {
    "overview": {}, "metrics": {"name": ["requests", "errors", "latency_p95", "cost_usd", "quality:judge"]},
    "exemplars": {"metric": "latency_p50"}, "explain": {"metric": "latency_p50"}, "documents": {}, "blame": {},
    "failures": {}, "coverage": {}, "check": {"evaluator": "judge", "min": 0.5},
    "plan": {"evaluator": "judge", "half_width": 0.05}, "labels/suggest": {"evaluator": "judge"},
    "compare": {"a": "prompt:v0", "b": "prompt:v1"}, "calibration": {"evaluator": "judge"},
}  # fmt: skip


@pytest.fixture(scope="module")
def halves(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedStore]:
    """Answers of which each has its model as a label: `de` or `Jane's`."""
    opened = open_store(tmp_path_factory.mktemp("halves"))
    units = Units(opened)
    for number in range(60):
        name = "de" if number % 3 else "Jane's"
        facts = {"model": name, "latency_ms": 100.0 * number, "prompt_version": f"v{number % 2}", "cost_usd": 0.1}
        units.scored(number, "judge", uniform(number), facts=facts | {"error": number % 7 == 0})
        units.decision(number, "kind")
        units.score(number, "kind", None, label=name)
        units.contexts(number, ["text"], ids=[f"about {name}"])
    units.save()
    yield opened
    opened.close()


@pytest.mark.parametrize("name", ASKED)
def test_a_label_filters_every_figure_as_an_attribute_does(halves: EmbeddedStore, name: str) -> None:
    """By a parameter and in a condition: the same requests give the same answer."""

    def answer(**chosen: Any) -> Any:
        found = ask(halves, name, {**RANGE, **ASKED[name], **chosen}, clock=lambda: NOW, lead="judge")
        for one in (found, *(found.get("series") or [] if isinstance(found, dict) else [])):
            one.pop("markers", None)
        return found

    expected = answer(model="Jane's")
    assert answer(**{"label.kind": "Jane's"}) == expected != answer(model="de")
    assert answer(where="label.kind = 'Jane''s'") == expected


def test_every_figure_of_a_sampled_label_is_weighted(tmp_path: Path) -> None:
    """Of 420 requests the 20 slow ones are all labelled, the quick ones rarely: the 95th percentile is quick."""
    store = open_store(tmp_path)
    units = Units(store)
    for number in range(420):
        pi = 0.1 if number < 400 else 1.0
        units.unit(number, latency_ms=100.0 if number < 400 else 2000.0, user_id=str(number))
        if units.decision(number, "kind", pi=pi, u=number / 400 % 1.0):
            units.score(number, "kind", None, label="a")
    units.save()
    found = ask(store, "overview", {**RANGE, "label.kind": "a"}, clock=lambda: NOW)
    assert (found["n_traces"], found["latency_p95"], found["estimated"]) == (420, pytest.approx(100.0), True)
    store.close()
