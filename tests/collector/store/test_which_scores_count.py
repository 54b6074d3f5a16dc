"""Scores of exploratory replays: SQL, compare and `run:ID` see them; nothing else does until the replay is in use."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from asking import ask, query_of
from stored_units import T0, Units, open_store, trace_id

from ragpulse_collector.api.http import plain
from ragpulse_collector.api.models import Filters, OneTrace, TraceList
from ragpulse_collector.evaluation import DriftWatch
from ragpulse_collector.monitoring import Targets
from ragpulse_collector.operations.trace import pytest_case
from ragpulse_collector.operations.traces import list_sql, session_detail, session_list, trace_list
from ragpulse_collector.refusals import Refusal
from ragpulse_collector.settings import TargetSettings
from ragpulse_collector.store.embedded import EmbeddedStore
from ragpulse_collector.store.queries import decisions, runs, scores, trace_answers
from ragpulse_collector.store.queries.datasets import dataset_items
from ragpulse_collector.store.queries.traces import Filter
from ragpulse_collector.store.retention import delete_run
from ragpulse_evaluators import get_evaluator

NOW = T0 + timedelta(hours=1)
DAY = {"first": T0 - timedelta(hours=12), "last": T0 + timedelta(hours=12)}
FROM = "2026-11-20T00:00Z"
N = 12


@pytest.fixture
def store(tmp_path: Path) -> Iterator[EmbeddedStore]:
    """Twelve answers of six users: groundedness v1 passed them online; two selected ones have no verdict."""
    with closing(open_store(tmp_path)) as opened:
        units = Units(opened)
        for number in range(N):
            at = T0 + timedelta(minutes=number)
            facts = {"user_id": f"u{number % 6}", "session_id": f"s{number % 3}", "service": "shop"}
            units.scored(number, "groundedness", 0.9 - number / 100, at=at, facts=facts)
            units.contexts(number, ["Because."], at=at, ids=[f"doc{number % 3}"])
            row: dict[str, Any] = {"evaluator": "groundedness", "score": 1.0, "label_pi": 0.5, "created_at": at}
            units.add("labels", trace_id=trace_id(number), span_id=0xAA, **row)
        for number in (N, N + 1):
            units.unit(number, session_id="s0")
            units.decision(number, "groundedness")
        units.save()
        yield opened


def replayed(store: EmbeddedStore, evaluator: str = "groundedness", *, in_use: bool | None, run_id: str = "r1") -> None:
    """Add a finished replay that fails every answer, those without a verdict as well."""
    units = Units(store)
    for number in range(N + 2):
        at = T0 + timedelta(minutes=number) if number < N else T0
        key = units.score(
            number, evaluator, number / 100, at=at, version="v2", source="replay", run_id=run_id, label="bad",
            created=NOW,
        )  # fmt: skip
        units.add("run_items", run_id=run_id, score_key=key, trace_id=trace_id(number), span_id=0xAA, u=number / 100)
    units.add("runs", run_id=run_id, evaluator=evaluator, version="v2", spec="{}", status="done", total=N + 2,
              created_at=NOW, in_use=in_use)  # fmt: skip
    units.save()


def use(store: EmbeddedStore, run_id: str = "r1", *, in_use: bool = True) -> None:
    """What "Use it from now on" does, and its undo."""
    store.write(lambda tx: runs.set_in_use(tx, run_id, in_use=in_use)).result()


def _listed(**params: Any) -> Callable[[EmbeddedStore], Any]:
    return lambda store: plain(trace_list(store, lambda: "groundedness", TraceList.parse({"from": FROM, **params})))


def _asked(operation: str, /, **params: Any) -> Callable[[EmbeddedStore], Any]:
    def read(store: EmbeddedStore) -> Any:
        given = {"from": "-12h", "to": "+12h"} | params
        given["to"] = "2026-11-20T22:00Z"
        try:
            return ask(store, operation, given, clock=lambda: NOW, lead="groundedness")
        except Refusal as refused:
            return str(refused)

    return read


def _file(store: EmbeddedStore) -> Any:
    file = list_sql(store, lambda: "groundedness", TraceList.parse({"from": FROM}), max_rows=99)
    return sorted(map(str, store.read(file.sql, file.parameters).dicts()))


def _sessions(store: EmbeddedStore) -> Any:
    return plain(session_list(store, lambda: "groundedness", Filters.parse({"from": FROM}), sort="worst"))


def _pytest(store: EmbeddedStore) -> Any:
    scored = trace_answers.scored_by(store, OneTrace(trace_id=trace_id(N)).trace_id)
    return scored, bool(pytest_case(store, OneTrace(trace_id=trace_id(1))))


def _targets(store: EmbeddedStore) -> Any:
    settings = [TargetSettings(metric="quality:groundedness", min=0.5)]
    return plain(Targets(store, settings, evaluators=lambda: {"groundedness"})(query_of({"from": "-12h"}, NOW)))


def _refused(store: EmbeddedStore) -> Any:
    store.write(lambda tx: tx.execute("UPDATE raw.scores SET passing = NULL, label = 'unclear' WHERE version = 'v2'"))
    try:
        scores.refuse_unclear(store, "pass_rate:groundedness")
    except Refusal as refused:
        return str(refused)
    return None


def _anchors(store: EmbeddedStore) -> Any:
    watch = DriftWatch(store=store, resolve=lambda *_, **__: get_evaluator("groundedness"), clock=lambda: NOW)
    report = watch.freeze("groundedness", query_of({"from": "-12h"}, NOW))
    return report.version, [item.scores[0]["normalized"] for item in dataset_items(store, report.dataset)]


READERS: dict[str, Callable[[EmbeddedStore], Any]] = {
    "columns of the list": _listed(),
    "filter failing": _listed(failing=True),
    "filter by score": _listed(max_score=0.3, evaluator="groundedness"),
    "order worst": _listed(sort="worst"),
    "filter label": _listed(label="bad"),
    "file of the list": _file,
    "sessions": _sessions,
    "turns of a session": lambda store: plain(session_detail(store, "s0").turns),
    "series": _asked("metrics", name="quality:groundedness"),
    "series of failures": _asked("metrics", name="fail_rate:groundedness"),
    "series by label": _asked("metrics", name="requests", group_by="label"),
    "overview": _asked("overview"),
    "exemplars": _asked("exemplars", metric="quality:groundedness"),
    "explain": _asked("explain", metric="quality:groundedness", bad=True),
    "documents": _asked("documents"),
    "retrieval or generation": _asked("blame"),
    "gate": _asked("check", evaluator="groundedness", min=0.5),
    "plan": _asked("plan", evaluator="groundedness", half_width=0.05),
    "calibration": _asked("calibration", evaluator="groundedness"),
    "answers to label": _asked("labels/suggest", evaluator="groundedness"),
    "prompts compared": _asked("compare", a="service:shop", b="service:shop", evaluator="groundedness"),
    "targets": _targets,
    "frozen answers": _anchors,
    "regression test of a trace": _pytest,
    "unclear answers of a pass rate": _refused,
    "units without a verdict": lambda s: sorted(
        map(str, s.read(decisions.without_verdict("groundedness"), {**DAY, "evaluator": "groundedness"}).rows)
    ),
    "events for other systems": lambda s: sorted(map(str, s.read(scores.EVENTS, {**DAY, "evaluator": None}).rows)),
}  # fmt: skip
"""Every reader of scores that shows or decides something."""


@pytest.mark.parametrize("reader", READERS)
def test_an_exploratory_replay_changes_nothing_until_it_is_used(store: EmbeddedStore, reader: str) -> None:
    """Lists, sessions, charts, figures and alerts say the same before and after it; its use changes each, undo back."""
    read = READERS[reader]
    before = read(store)
    replayed(store, in_use=False)
    assert read(store) == before
    use(store)
    used = read(store)
    assert used != before
    use(store, in_use=False)
    assert read(store) == before


@pytest.mark.parametrize(
    "reader", ["columns of the list", "filter failing", "overview", "sessions", "documents", "series by label"]
)
def test_an_evaluator_that_was_never_in_use_stays_out(store: EmbeddedStore, reader: str) -> None:
    """`is_json` over a week made nearly all traces fail."""
    before = READERS[reader](store)
    replayed(store, "is_json", in_use=False)
    assert READERS[reader](store) == before
    assert scores.evaluators_in(store, DAY) == ["groundedness"]
    assert "is_json" in scores.met_evaluators(store)


def test_other_scores_of_an_exploratory_replay_are_no_figures(store: EmbeddedStore) -> None:
    """Those on a scale of their own, such as `latency`."""
    units = Units(store)
    key = units.score(1, "latency", None, version="v2", source="replay", run_id="r2")
    units.add("run_items", run_id="r2", score_key=key, u=0.1)
    units.add("runs", run_id="r2", evaluator="latency", spec="{}", status="done", created_at=NOW, in_use=False)
    units.save()
    assert scores.other_scores(store, DAY, Filter()) == []
    use(store, "r2")
    assert [one.name for one in scores.other_scores(store, DAY, Filter())] == ["latency"]


def test_sql_compare_and_the_run_see_all(store: EmbeddedStore) -> None:
    """SQL tells exploratory scores by a column."""
    replayed(store, in_use=False)
    found = store.read("SELECT version, exploratory, count(*) FROM scores GROUP BY ALL ORDER BY ALL").rows
    assert found == [("v1", False, N), ("v2", True, N + 2)]
    for side in ("groundedness@v2", "run:r1"):
        answer = _asked("compare", a="groundedness@v1", b=side)(store)
        assert (answer["shared"], answer["verdict"]) == (N, "stricter")


@pytest.mark.parametrize(("run_id", "counts"), [(None, True), ("r2", True), ("r3", False)])
def test_a_verdict_that_another_evaluation_uses_counts_for_it(
    store: EmbeddedStore, run_id: str | None, counts: bool
) -> None:
    """An exploratory verdict that an online evaluation or a replay in use found stored; not one that is exploratory."""
    replayed(store, in_use=False)
    units = Units(store)
    if run_id:
        units.add("runs", run_id=run_id, evaluator="groundedness", version="v2", spec="{}", status="done",
                  total=1, created_at=NOW, in_use=counts)  # fmt: skip
    units.add("run_items", run_id=run_id, score_key="3/groundedness/v2/None", u=0.5, reused=True)
    units.save()
    shown = {row.trace_id for row in trace_list(store, str, TraceList.parse({"from": FROM, "label": "bad"})).traces}
    assert shown == ({trace_id(3)} if counts else set())
    delete_run(store, "r1", actor="test")
    left = store.read("SELECT score_key FROM scores WHERE version = 'v2'").rows
    assert left == [("3/groundedness/v2/None",)]
    shown = {row.trace_id for row in trace_list(store, str, TraceList.parse({"from": FROM, "label": "bad"})).traces}
    assert shown == ({trace_id(3)} if counts else set())


def test_the_chance_of_an_exploratory_replay_weighs_nothing(store: EmbeddedStore) -> None:
    """Its items may be verdicts that a rule drew with a rate: their weight stays that of the rate."""
    units = Units(store)
    units.unit(50, service="rare")
    units.decision(50, "groundedness", pi=0.1, u=0.05)
    units.score(50, "groundedness", 0.2)
    units.save()
    before = READERS["series"](store)
    units.add("run_items", run_id="r4", score_key="50/groundedness/v1/None", trace_id=trace_id(50), u=0.5, reused=True)
    units.add("runs", run_id="r4", evaluator="groundedness", version="v1", spec="{}", status="done", total=1,
              created_at=NOW, in_use=False)  # fmt: skip
    units.save()
    assert READERS["series"](store) == before
    use(store, "r4")
    assert READERS["series"](store) != before


def test_a_replay_of_an_earlier_version_of_the_store_stays_in_use(store: EmbeddedStore) -> None:
    """An upgrade changes no figure; it can be set aside, and what another old replay shares with it stays."""
    replayed(store, in_use=None)
    shown = READERS["filter label"](store)
    assert len(shown["traces"]) == N + 2
    units = Units(store)
    units.add("runs", run_id="r2", evaluator="groundedness", version="v2", spec="{}", status="done", total=1,
              created_at=NOW)  # fmt: skip
    units.add("run_items", run_id="r2", score_key="3/groundedness/v2/None", u=0.5)
    units.save()
    assert runs.put_in_use(store.read, "groundedness") == set()
    use(store, in_use=False)
    assert [row["trace_id"] for row in READERS["filter label"](store)["traces"]] == [trace_id(3)]
    use(store)
    assert READERS["filter label"](store) == shown
    assert runs.put_in_use(store.read, "groundedness") == {("v2", None)}


SEES_ALL = {
    "migrations.py": (3, "people's scores; checks of judges of older versions"),
    "views.py": (4, "SQL: the views; the one home of what counts"),
    "retention.py": (2, "deletion"),
    "queries/jobs.py": (6, "which jobs are finished, which verdict exists, length of replies"),
    "queries/runs/__init__.py": (6, "the run itself"),
    "queries/runs/results.py": (1, "the replay itself; what it is held against is in use"),
    "queries/deciding.py": (4, "online scores and people's"),
    "queries/decisions.py": (2, "online scores; which jobs are finished"),
    "queries/health.py": (4, "work done by the evaluators"),
    "queries/labels.py": (2, "the versions that label online; the labels are of `COUNTED`"),
    "queries/trace_lists.py": (3, "online outcomes; people's scores of a session"),
    "queries/scores.py": (8, "compare; names, money; versions that are stored; deletion"),
    "queries/scored_traces.py": (1, "a page without scores of replays"),
}
"""How often each file of the store names `raw.scores`, and why an exploratory replay matters to none of these."""


def test_every_reader_of_scores_is_known() -> None:
    """A new one reads `COUNTED` and gets a row in READERS, or a reason in SEES_ALL."""
    folder = Path(scores.__file__).parents[1]
    named = {
        str(path.relative_to(folder)): len(re.findall(r"raw\.scores\b", path.read_text(encoding="utf-8")))
        for path in folder.rglob("*.py")
    }
    assert {name: number for name, number in named.items() if number} == {name: n for name, (n, _) in SEES_ALL.items()}
