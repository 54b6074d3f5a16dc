"""What one row of each named relation is."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import fields
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from stored_units import SPAN_ID, T0, Units, open_store, trace_id

from ragpulse_collector.api.models import TraceList
from ragpulse_collector.operations.traces import list_sql, trace_list
from ragpulse_collector.store.embedded import EmbeddedStore
from ragpulse_collector.store.queries import decisions, documents, scored_traces, scores, traces
from ragpulse_collector.store.queries.traces import Filter
from ragpulse_collector.store.views import FACT_COLUMNS

DAY = {"first": T0 - timedelta(hours=12), "last": T0 + timedelta(hours=12)}
SPAN = int(SPAN_ID, 16)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[EmbeddedStore]:
    """An open store."""
    with closing(open_store(tmp_path)) as opened:
        yield opened


@pytest.fixture
def units(store: EmbeddedStore) -> Units:
    """Rows for the store."""
    return Units(store)


def test_a_decided_trace_is_one_row_of_its_latest_revision(store: EmbeddedStore, units: Units) -> None:
    """A late span makes a second revision; the first one is no longer shown."""
    units.unit(1, model="small")
    units.save()
    sql = "UPDATE raw.trace_facts SET latest = false"
    store.write(lambda tx: tx.execute(sql)).result()
    units.unit(1, model="large")
    units.unit(2, model="small")
    units.save()
    found = store.read(f"SELECT model FROM ({traces.facts_of(Filter(), ('model',))}) ORDER BY 1").rows
    assert found == [("large",), ("small",)]
    kept = Filter("model = $wanted", {"wanted": "large"})
    assert store.read(traces.facts_of(kept), kept.parameters).dicts()[0]["trace_id"].hex == trace_id(1)


def test_trace_rows_come_in_the_order_asked_for_with_the_latest_score(store: EmbeddedStore, units: Units) -> None:
    """An id without a decided trace has no row."""
    for number in (1, 2):
        units.scored(number, "judge", 0.2)
    units.score(1, "judge", 0.9, version="v2", created=T0 + timedelta(hours=1))
    units.save()
    found = scored_traces.trace_rows(store, [trace_id(2), trace_id(9), trace_id(1)])
    assert [one.trace_id for one in found] == [trace_id(2), trace_id(1)]
    assert [one.scores["judge"].normalized for one in found] == [0.2, 0.9]
    assert found[0].start_time == T0
    assert scored_traces.trace_rows(store, []) == []


def test_a_page_and_a_file_have_the_same_newest_scores(store: EmbeddedStore, units: Units) -> None:
    """The newest of each evaluator; judges of one name and people are told apart, one judge needs no identifier."""
    units.unit(1)
    for hour, (name, value, more) in enumerate((
        ("judge", 0.1, {"identifier": "a"}), ("judge", 0.2, {"identifier": "a"}), ("judge", 0.3, {"identifier": "b"}),
        ("judge", 0.4, {"source": "human"}), ("alone", 0.5, {"identifier": "a"}), ("bare", 0.6, {}),
    )):  # fmt: skip
        units.score(1, name, value, created=T0 + timedelta(hours=hour), version=str(hour), **more)
    units.save()
    (row,) = trace_list(store, str, TraceList.parse({"from": "2026-01-01T00:00Z"})).traces
    file = list_sql(store, str, TraceList.parse({"from": "2026-01-01T00:00Z"}), max_rows=10)
    expected = {"judge (a)": 0.2, "judge (b)": 0.3, "feedback:judge": 0.4, "alone": 0.5, "bare": 0.6}
    assert {name: score.normalized for name, score in row.scores.items()} == expected
    assert store.read(file.sql, file.parameters).dicts()[0]["scores"] == expected


H, PERSON = timedelta(hours=1), {"source": "human", "passing": None}
HISTORIES: dict[str, tuple[list[tuple[float | None, dict[str, Any]]], float | None]] = {
    "one": ([(0.3, {})], 0.3),
    "a later version": ([(0.1, {}), (0.9, {"version": "v2", "run_id": "r"})], 0.9),
    "an earlier low": ([(0.9, {}), (0.2, {"version": "v2", "run_id": "r"})], 0.2),
    "a person": ([(1.0, {}), (0.0, PERSON)], 0.0),
    "a person, then a replay": ([(1.0, PERSON), (0.0, {"version": "v2", "run_id": "r"})], 1.0),
    "a person twice": ([(0.5, {}), (0.0, PERSON), (1.0, PERSON)], 1.0),
    "two judges": ([(0.9, {"source": "code", "identifier": "a"}), (0.2, {"source": "code", "identifier": "b"})], 0.2),
    "sent again": ([(0.1, {"source": "code"}), (0.9, {"source": "code"})], 0.9),
    "a failure": ([(0.4, {}), (None, {"status": "error", "attempt": 2})], 0.4),
    "invalid now": ([(0.4, {}), (None, {"status": "invalid", "version": "v2", "run_id": "r"})], None),
}


def test_filters_sorts_and_lists_use_one_score(store: EmbeddedStore, units: Units) -> None:
    """The newest of each judge, a person's before them; a failure supersedes no answer, an older verdict is gone."""
    for number, (history, _) in enumerate(HISTORIES.values()):
        units.unit(number)
        for hour, (value, more) in enumerate(history):
            units.score(number, "judge", value, created=T0 + hour * H, **{"version": f"v{hour}", **more})
    units.save()
    ids = {trace_id(number): name for number, name in enumerate(HISTORIES)}
    expected = {name: value for name, (_, value) in HISTORIES.items() if value is not None}

    def names(**params: Any) -> list[str]:
        choice = TraceList.parse({"from": "2026-01-01T00:00Z", "evaluator": "judge", **params})
        file = list_sql(store, str, choice, max_rows=100)
        rows = trace_list(store, str, choice).traces
        assert {ids[row["trace_id"]] for row in store.read(file.sql, file.parameters).dicts()} == {
            ids[row.trace_id] for row in rows
        }
        return [ids[row.trace_id] for row in rows]

    assert set(names()) == set(expected)
    for limit in (0.0, 0.25, 0.5, 1.0):
        assert set(names(max_score=limit)) == {name for name, value in expected.items() if value <= limit}
        assert set(names(min_score=limit)) == {name for name, value in expected.items() if value >= limit}
    assert set(names(failing=True)) == {name for name, value in expected.items() if value < 0.5}
    assert names(sort="worst")[0] == "a person"
    assert names(sort="best")[0] in {name for name, value in expected.items() if value == 1.0}
    (row,) = [one for one in trace_list(store, str, TraceList.parse({"from": "2026-01-01T00:00Z"})).traces
              if ids[one.trace_id] == "a failure"]  # fmt: skip
    assert row.scores["judge"].normalized == 0.4


def test_rows_of_lists_are_rows_of_the_view() -> None:
    """Every column of the facts is a field, in the same order."""
    assert tuple(column.name for column in fields(traces.TraceRow)) == ("trace_id", *FACT_COLUMNS)


def test_the_first_version_of_a_prompt_is_no_start(store: EmbeddedStore, units: Units) -> None:
    """Each later one starts with its first request in the range."""
    for number, (version, minute) in enumerate([("v1", 0), ("v2", 5), ("v2", 9), ("v3", 7)]):
        units.unit(number, at=T0 + timedelta(minutes=minute), prompt_name="p", prompt_version=version)
    units.save()
    found = [(row[2], row[3] - T0) for row in store.read(traces.version_starts(Filter()), DAY).rows]
    assert sorted(found) == [("v2", timedelta(minutes=5)), ("v3", timedelta(minutes=7))]


def test_a_version_that_was_in_use_before_the_range_does_not_start_in_it(store: EmbeddedStore, units: Units) -> None:
    """Two versions side by side, then a third: only the third starts, in a short range as well."""
    for number, (version, minute) in enumerate([("v1", -90), ("v2", -80), ("v2", 1), ("v1", 2), ("v3", 7)]):
        units.unit(number, at=T0 + timedelta(minutes=minute), prompt_name="p", prompt_version=version)
    units.save()
    asked = {"first": T0, "last": T0 + timedelta(hours=1)}
    assert [row[2] for row in store.read(traces.version_starts(Filter()), asked).rows] == ["v3"]


def test_the_newest_span_and_a_service_are_found(store: EmbeddedStore, units: Units) -> None:
    """Of an empty store there are none."""
    assert traces.newest_span(store) == (None, None)
    units.unit(1, service="demo")
    units.save()
    assert traces.newest_span(store) == (T0, T0)
    assert traces.has_service(store, "demo", DAY)
    assert not traces.has_service(store, "other", DAY)
    assert not traces.has_service(store, "demo", {"first": T0 - timedelta(days=2), "last": T0})


def test_only_latest_decisions_of_the_range_count(store: EmbeddedStore, units: Units) -> None:
    """A unit that came too late is no decided unit; of several versions a unit is eligible once."""
    units.decision(1, "judge@v1", pi=0.2, u=0.1)
    units.decision(1, "judge@v2", pi=0.5, u=0.4)
    units.decision(2, "judge", pi=0.5, u=0.9, reason="late")
    units.decision(3, "judge", pi=0.5, u=0.9, at=T0 + timedelta(days=1))
    units.decision(4, "judge", pi=0.0, u=0.9)
    units.save()
    assert len(store.read(decisions.DECISIONS, DAY).rows) == 4
    assert len(store.read(decisions.DECIDED_UNITS, DAY).rows) == 3
    eligible = store.read(decisions.ELIGIBLE, {**DAY, "evaluator": "judge"}).dicts()
    assert [(one["trace_id"].hex, one["pi"], one["sampled"]) for one in eligible] == [(trace_id(1), 0.5, True)]
    covered = store.read(decisions.COVERED, {**DAY, "check": "judge"}).rows
    assert sorted(row[2] for row in covered) == [0.0, 0.5, 0.5]


@pytest.mark.parametrize(("evaluator", "count"), [(None, 2), ("judge", 1)])
def test_dropped_units_are_those_that_a_budget_turned_down(
    store: EmbeddedStore, units: Units, evaluator: str | None, count: int
) -> None:
    """Units that were not selected for another reason are not dropped."""
    units.decision(1, "judge", pi=0.5, u=0.9, reason="budget")
    units.decision(2, "judge", pi=0.5, u=0.9)
    units.decision(3, "other", pi=0.5, u=0.9, reason="budget")
    units.save()
    named = {"evaluator": evaluator} if evaluator else {}
    assert len(store.read(decisions.without_verdict(evaluator), {**DAY, **named}).rows) == count


def test_a_label_is_the_latest_one_of_a_unit(store: EmbeddedStore, units: Units) -> None:
    """Of another evaluator it says nothing."""
    for minute, (evaluator, value) in enumerate([("judge", 0.0), ("judge", 1.0), ("other", 0.5)]):
        row: dict[str, Any] = {"evaluator": evaluator, "score": value, "label_pi": 0.1 * (minute + 1)}
        units.add("labels", trace_id=trace_id(1), span_id=SPAN, created_at=T0 + timedelta(minutes=minute), **row)
    units.save()
    assert [row[2:] for row in store.read(scores.LABELS, {"evaluator": "judge"}).rows] == [(1.0, 0.2)]


def test_events_are_verdicts_by_the_time_they_were_made(store: EmbeddedStore, units: Units) -> None:
    """Skipped units and people's scores are no events."""
    units.score(1, "judge", 1.0, created=T0 + timedelta(days=2))
    units.score(2, "judge", None, status="skipped")
    units.score(3, "judge", 1.0, source="human")
    units.score(4, "other", None, status="error")
    units.save()
    found = store.read(scores.EVENTS, {**DAY, "evaluator": None}).dicts()
    assert [(one["trace_id"], one["span_id"], one["status"]) for one in found] == [(trace_id(4), SPAN_ID, "error")]
    assert store.read(scores.EVENTS, {**DAY, "evaluator": "judge"}).rows == []


def test_costs_and_names_of_evaluators(store: EmbeddedStore, units: Units) -> None:
    """A verdict without a known cost is counted as unknown."""
    units.score(1, "judge", 1.0, cost_usd=0.02)
    units.score(2, "judge", 1.0, cost_usd=None)
    units.score(3, "person", 1.0, source="human", cost_usd=None)
    units.save()
    assert scores.evaluators_in(store, DAY) == ["judge"]
    assert scores.mean_cost(store, "judge") == (pytest.approx(0.02), 0.5)
    assert scores.mean_cost(store, "nobody") == (None, None)


def test_a_rerankers_documents_replace_what_it_was_given(store: EmbeddedStore, units: Units) -> None:
    """A document without an id is named by its hash."""
    for number in (1, 2):
        units.unit(number)
        units.contexts(number, ["one", None, "three"])
    reranked: dict[str, Any] = {"trace_id": trace_id(2), "span_id": 0xCC, "start_time": T0 + timedelta(seconds=1)}
    units.add("spans", **reranked, kind="reranker", contexts_state="present", received_at=T0)
    units.add("contexts", **reranked, rank=1, id=None, text="best", hash="0123456789abcdef0123")
    units.save()
    found = store.read(documents.documents_of(Filter()), DAY).dicts()
    names = documents.named_documents(store, [one["doc"] for one in found], DAY)
    second = store.read("SELECT hash($id::UUID)", {"id": trace_id(2)}).rows[0][0]
    shown = sorted((one["trace"] == second, names[one["doc"]].id, one["has_text"]) for one in found)
    assert shown == [
        (False, "doc1", True),
        (False, "doc2", False),
        (False, "doc3", True),
        (True, "0123456789abcdef", True),
    ]


def test_shared_documents_come_with_every_request_that_had_them(store: EmbeddedStore, units: Units) -> None:
    """Counted among the requests asked about, returned for all, with the number of documents they were chosen from."""
    for number in range(4):
        units.unit(number)
        units.contexts(number, ["text"], ids=["shared" if number else "rare"])
    for number in (4, 5):
        units.unit(number)
        units.contexts(number, ["text"], ids=["of others"])
    units.save()
    ids = [trace_id(number) for number in range(6)]
    found = documents.shared_documents(store, ids, [0, 1, 2], [], DAY, least=2).rows
    assert sorted(found) == [("shared", 1, 2), ("shared", 2, 2), ("shared", 3, 2)]
    searches = documents.retrievals(store, [trace_id(0)], DAY).rows
    assert searches == [(0, "search", 1)]
