"""Traffic of which an upstream sampler kept every failure and one in sixteen of the rest: each figure has its truth.

600 requests are stored, 60 of them failures; the other 540 stand for 16 alike each. The truth is counted over 8,700.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import pytest
from asking import ask, query_of
from stored_units import T0, Units, open_store

from ragpulse_collector.analysis.traffic import NAMES, tails
from ragpulse_collector.monitoring import Monitors, Targets
from ragpulse_collector.settings import MonitorSettings, Settings, TargetSettings
from ragpulse_collector.store.embedded import EmbeddedStore
from ragpulse_collector.store.queries.trace_lists import session_figures
from ragpulse_collector.store.topics import OTHER_TOPIC
from ragpulse_evaluators.statistics import wilson

NOW, KEPT = T0 + timedelta(hours=1), 1 / 16
Facts = Mapping[str, Any]


def facts_of(number: int) -> Facts:
    """Failures are slow, cheap and disliked; they alone were all kept."""
    failed = number < 60
    return {
        "error": failed,
        "latency_ms": 2000.0 + number if failed else 100.0 + number,
        "ttft_ms": 500.0 if failed else number / 10,
        "cost_usd": None if number % (3 if failed else 5) == 0 else 0.0001 if failed else 0.01 + number / 10_000,
        "input_tokens": 10 if failed else 100,
        "output_tokens": 1 if failed else number % 7,
        "feedback": -1.0 if failed else 1.0 if number % 2 else None,
        "answer": "empty" if failed else "refused" if number % 10 == 0 else "answered",
        "variant": "ab"[number % 2],
        "topic": OTHER_TOPIC if failed or number % 4 == 0 else "refunds",
        "question_distance": None if number % 3 == 0 else 0.75 if failed else number / 1000,
        "upstream_pi": 1.0 if failed else KEPT,
    }


STORED = [facts_of(number) for number in range(600)]
GOOD = [facts for facts in STORED if not facts["error"] for _ in range(16)]
ALL = [facts for facts in STORED for _ in range(round(1 / facts["upstream_pi"]))]


def known(column: str, among: Sequence[Facts] = ALL) -> list[float]:
    """The values of a column, sorted."""
    return sorted(facts[column] for facts in among if facts[column] is not None)


def quantile(column: str, share: float, among: Sequence[Facts] = ALL) -> float:
    """The quantile of requests, interpolated as by DuckDB."""
    values = known(column, among)
    rank = share * (len(values) - 1)
    low = values[int(rank)]
    return float(low + (rank - int(rank)) * (values[int(rank) + 1] - low))


def share(true: Callable[[Facts], bool], among: Sequence[Facts] = ALL) -> float:
    """The share of the requests that are so."""
    return fmean(true(facts) for facts in among)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedStore]:
    """The stored requests; failures found one document, the others another one."""
    opened = open_store(tmp_path_factory.mktemp("upstream"))
    units = Units(opened)
    for number, facts in enumerate(STORED):
        units.unit(number, at=T0, **facts)
        units.contexts(number, ["text"], ids=["bad" if facts["error"] else "good"])
        units.decision(number, "judge", pi=facts["upstream_pi"], u=0.0)
        units.score(number, "judge", 1.0)
    units.save()
    yield opened
    opened.close()


TRUTH: dict[str, float] = {
    "requests": len(ALL),
    "errors": 60,
    "error_rate": 60 / len(ALL),
    "other_share": share(lambda facts: facts["topic"] == OTHER_TOPIC),
    "latency_p50": quantile("latency_ms", 0.5),
    "latency_p95": quantile("latency_ms", 0.95),
    "latency_p99": quantile("latency_ms", 0.99),
    "ttft_p50": quantile("ttft_ms", 0.5),
    "ttft_p95": quantile("ttft_ms", 0.95),
    "input_tokens": sum(known("input_tokens")),
    "output_tokens": sum(known("output_tokens")),
    "cost_usd": sum(known("cost_usd")),
    "throughput": len(ALL) / 3600,
    "empty_rate": share(lambda facts: facts["answer"] == "empty"),
    "refused_rate": share(lambda facts: facts["answer"] == "refused"),
    "unanswered_rate": share(lambda facts: facts["answer"] != "answered"),
    "question_drift": fmean(known("question_distance")),
    "acceptance": fmean(max(0.0, value) for value in known("feedback")),
}


class Row(NamedTuple):
    """One figure: where it is asked, and its truth."""

    name: str
    found: Callable[[EmbeddedStore], Any]
    truth: Any


def metric(name: str, field: str = "value", **more: Any) -> Callable[[EmbeddedStore], Any]:
    """Ask for a figure of the only point of a metric."""
    params = {"name": name, "from": "-1h", "step": "all", **more}
    return lambda store: ask(store, "metrics", params, clock=lambda: NOW)["series"][0]["points"][0][field]


def headline(field: str) -> Callable[[EmbeddedStore], Any]:
    """Ask for a figure of the headline."""
    return lambda store: ask(store, "overview", {"from": "-2h"}, clock=lambda: NOW)[field]


def compared(name: str) -> Callable[[EmbeddedStore], Any]:
    """Ask for both sides of a figure beside quality."""

    def sides(store: EmbeddedStore) -> list[float]:
        units = {"a": "variant:a", "b": "variant:b", "evaluator": "judge"}
        told = ask(store, "compare", units, clock=lambda: NOW)
        (found,) = (one for one in told["also"] if one["metric"] == name)
        return [found["a"], found["b"]]

    return sides


def of_sides(column: str) -> list[float]:
    """The true means of a column, a thumb down as 0."""
    return [fmean(max(0.0, x) for x in known(column, [f for f in ALL if f["variant"] == side])) for side in "ab"]


def documents(store: EmbeddedStore) -> dict[str, int]:
    """Ask how often each document was retrieved."""
    told = ask(store, "documents", {"from": "-2h"}, clock=lambda: NOW)
    return {one["id"]: one["retrieved"] for one in told["documents"]}


def explained(store: EmbeddedStore) -> tuple[int, int]:
    """Ask how many requests the bars of Explain show, and how many failures."""
    told = ask(store, "explain", {"metric": "error_rate", "from": "-2h", "bad": "true"}, clock=lambda: NOW)
    return sum(bar["n"] for bar in told["bars"]), sum(bar["bad"] for bar in told["bars"])


def slowest(store: EmbeddedStore) -> int:
    """Ask how many requests Explain takes for the slowest tenth."""
    told = ask(store, "explain", {"metric": "latency_p95", "from": "-2h", "bad": "true"}, clock=lambda: NOW)
    return sum(bar["bad"] for bar in told["bars"])


def tail(store: EmbeddedStore) -> tuple[float, float]:
    """The slow share and the cost per request, in which changes are searched."""
    query = query_of({"from": "-2h"}, NOW)
    (found,) = tails(store, query.whole.window, query.filters)
    return found.slow / found.n, found.cost / found.paid


ROWS = [
    *(Row(f"metric {name}", metric(name), TRUTH[name]) for name in NAMES),
    Row("unknown cost", metric("cost_usd", "unknown_share"), share(lambda facts: facts["cost_usd"] is None)),
    Row("percentile of a group", metric("latency_p95", group_by="error"), quantile("latency_ms", 0.95, GOOD)),
    Row("headline requests", headline("n_traces"), len(ALL)),
    Row("headline errors", headline("error_rate"), TRUTH["error_rate"]),
    Row("headline p95", headline("latency_p95"), TRUTH["latency_p95"]),
    Row("headline cost", headline("cost_usd"), TRUTH["cost_usd"]),
    Row("headline tokens", headline("tokens"), TRUTH["input_tokens"] + TRUTH["output_tokens"]),
    Row("headline unknown cost", headline("cost_unknown_share"), share(lambda facts: facts["cost_usd"] is None)),
    Row("headline empty", headline("n_empty"), sum(facts["answer"] == "empty" for facts in ALL)),
    Row("headline refused", headline("n_refused"), sum(facts["answer"] == "refused" for facts in ALL)),
    Row("headline answers", headline("n_answers"), len(ALL)),
    Row("headline says so", headline("estimated"), True),
    Row("compare latency", compared("latency"), of_sides("latency_ms")),
    Row("compare cost", compared("cost"), of_sides("cost_usd")),
    Row("compare acceptance", compared("acceptance"), of_sides("feedback")),
    Row("documents", documents, {"good": len(ALL) - 60, "bad": 60}),
    Row("explain bars", explained, (len(ALL), 60)),
    Row("explain the slowest tenth", slowest, pytest.approx(len(ALL) / 10, rel=0.01)),
    Row("tails", tail, (pytest.approx(0.1, abs=0.002), pytest.approx(fmean(known("cost_usd"))))),
]


@pytest.mark.parametrize("row", ROWS, ids=[row.name for row in ROWS])
def test_a_figure_is_that_of_all_requests(store: EmbeddedStore, row: Row) -> None:
    """Not that of the stored ones, of which a tenth are failures."""
    found = row.found(store)
    assert found == (pytest.approx(row.truth) if isinstance(row.truth, (int, float, list)) else row.truth)


def test_the_interval_of_the_error_rate_holds_the_truth_and_is_narrow(store: EmbeddedStore) -> None:
    """It is no wider than that of 1,000 requests, although 600 are stored: every failure was kept."""
    lo, hi = headline("error_interval")(store)
    of_few = wilson(TRUTH["error_rate"] * 1000, 1000)
    assert of_few is not None
    assert of_few.lo < lo < TRUTH["error_rate"] < hi < of_few.hi


LIMITS = [("error_rate", 0.05), ("latency_p95", 1500.0), ("ttft_p95", 400.0), ("empty_rate", 0.05)]


@pytest.mark.parametrize(("name", "limit"), LIMITS)
def test_no_target_is_missed_for_nothing(store: EmbeddedStore, name: str, limit: float) -> None:
    """The stored requests are beyond the limit, all requests are not."""
    target = TargetSettings.model_validate({"metric": name, "max": limit})
    (found,) = Targets(store, [target])(query_of({"from": "-2h"}, NOW)).targets
    assert found.value == pytest.approx(TRUTH[name])
    assert found.state == "met"


@pytest.mark.parametrize(("name", "limit"), LIMITS)
def test_no_monitor_fires_for_nothing(tmp_path: Path, name: str, limit: float) -> None:
    """Nor does one of the same limits; one below the truth does."""
    opened = open_store(tmp_path)
    units = Units(opened)
    for number, facts in enumerate(STORED):
        units.unit(number, at=T0, **facts)
    units.save()
    limits = {"quiet": limit, "loud": TRUTH[name] / 10}
    settings = [
        MonitorSettings.model_validate({"name": key, "metric": name, "condition": f"> {end:.6f}", "window": "1h"})
        for key, end in limits.items()
    ]
    monitors = Monitors(opened, Settings.model_validate({"monitor": settings}))
    monitors.check(NOW)
    found = {one.name: one.state for one in monitors.list().monitors}
    opened.close()
    assert found["quiet"] != "firing"
    assert found["loud"] == "firing"


def test_a_session_has_the_figures_of_all_its_turns(tmp_path: Path) -> None:
    """One failed turn and two that stand for four each."""
    opened = open_store(tmp_path)
    units = Units(opened)
    for number, kept in enumerate((1.0, 0.25, 0.25)):
        units.unit(number, session_id="s", input_tokens=10, cost_usd=0.5, upstream_pi=kept)
    units.unit(3, session_id="all stored")
    units.save()
    found = session_figures(opened, "s")
    listed = dict(opened.read("SELECT session_id, estimated FROM sessions").rows)
    opened.close()
    assert listed == {"s": True, "all stored": False}
    assert found is not None
    assert (found.n_turns, found.input_tokens, found.cost_usd, found.estimated) == (9, 90, 4.5, True)
