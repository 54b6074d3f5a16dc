"""The views and macros: stable columns, the estimator equal to the one in Python."""

from __future__ import annotations

import random
from datetime import datetime, timedelta
from typing import Any

import pytest

from ragpulse_collector.sampling import Sampler
from ragpulse_collector.store.estimates import CLUSTER_SUMS, MOMENTS, by_class
from ragpulse_collector.store.queries.traces import Filter, TraceRow, newest
from ragpulse_collector.store.schema import VIEW_NAMES
from ragpulse_collector.store.views import FACT_COLUMNS, VIEWS
from ragpulse_evaluators.statistics import Moments, hajek

PROMISED = {
    "traces": "trace_id start_time latency_ms ttft_ms service environment name query response session_id user_id"
    " prompt_name prompt_version variant model input_tokens output_tokens cached_tokens cost_usd cost_unknown_reason"
    " error top_score n_spans n_units",
    "spans": "trace_id span_id parent_span_id start_time latency_ms name kind service status error_type query response"
    " model provider input_tokens output_tokens cached_tokens reasoning_tokens cost_usd session_id user_id prompt_name"
    " prompt_version attributes mapped_from",
    "contexts": "trace_id span_id rank id score text metadata hash",
    "scores": "trace_id span_id request_time evaluator version judge source status score normalized passing label"
    " explanation pi label_pi reason cost_usd created_at run_id",
    "decisions": "trace_id span_id evaluator rule policy pi sampled reason decided_at",
    "quality_daily": "day evaluator version judge estimate lo hi n n_eff",
    "judge_spans": "trace_id span_id parent_span_id start_time latency_ms name kind service status query response model"
    " input_tokens output_tokens cost_usd cached request_time attributes",
    "quality('e', TIMESTAMP '2026-01-01', TIMESTAMP '2027-01-01')": "version judge estimate lo hi n n_eff",
    "trace('00000000000000000000000000000001')": "trace_id span_id kind query",
}


@pytest.mark.parametrize("view", PROMISED)
def test_the_promised_columns_are_there(kit: Any, view: str) -> None:
    """A view may gain columns, never lose or rename one."""
    assert set(PROMISED[view].split()) <= set(kit.store().read(f"SELECT * FROM {view}").columns)


def test_undecided_traces_are_shown_like_decided_ones(kit: Any, rows: Any) -> None:
    """A trace is in `traces` as soon as it is on disk, with the first rag span's texts."""
    store = kit.store()
    kit.send(store, kit.span(1, kind="other"), kit.span(2, 1, "rag", query="q"), kit.span(3, 2, "llm", model="m"))
    assert rows(store, "SELECT trace_id, query, model, n_spans, decided FROM traces") == [
        (kit.trace, "q", "m", 3, False)
    ]
    assert {"unit_span_id", "decided", *FACT_COLUMNS} < set(store.read("SELECT * FROM traces").columns)


def test_ids_are_hex_and_absent_parents_null(kit: Any, rows: Any) -> None:
    """Ids beyond 2^63 keep their digits."""
    store = kit.store()
    kit.send(store, kit.span(2**64 - 1, start_ns=kit.start_ns, end_ns=kit.start_ns, trace_id="f" * 32))
    assert rows(store, "SELECT trace_id, span_id, parent_span_id FROM spans") == [("f" * 32, "f" * 16, None)]


def _score(
    store: Any, values: list[float], pi: list[float], users: list[str | None] | None = None, **fields: Any
) -> None:
    """Units with a decision and an online score each."""
    row = {"version": "v1", "judge": None, "source": "online", "status": "ok", "sampled": True, "latest": True} | fields

    def work(transaction: Any) -> None:
        ids = range(len(values))
        at = transaction.execute("SELECT TIMESTAMP '2026-03-01 12:00:00'").rows[0][0]
        transaction.append(
            "decisions",
            ("trace_id", "span_id", "request_time", "evaluator", "pi", "sampled", "latest"),
            [(f"{i + 1:032x}", 1, at, "e", pi[i], row["sampled"], row["latest"]) for i in ids],
        )
        transaction.append(
            "trace_facts",
            ("trace_id", "latest", "start_time", "user_id"),
            [(f"{i + 1:032x}", True, at, user) for i, user in enumerate(users or ())],
        )
        names = (
            "trace_id",
            "span_id",
            "request_time",
            "evaluator",
            "version",
            "judge",
            "source",
            "status",
            "normalized",
        )
        common = (row["version"], row["judge"], row["source"], row["status"])
        transaction.append("scores", names, [(f"{i + 1:032x}", 1, at, "e", *common, values[i]) for i in ids])

    store.write(work).result(60)


def _cases() -> dict[str, tuple[list[float], list[float]]]:
    random_ = random.Random(7)
    mixed = [random_.choice((0.05, 0.3, 1.0)) for _ in range(80)]
    return {
        "binary": ([float(random_.random() < 0.9) for _ in mixed], mixed),
        "graded": ([round(random_.random(), 3) for _ in mixed], mixed),
        "all pass": ([1.0] * 20, [0.5] * 20),
        "all fail": ([0.0] * 5, [0.1] * 5),
        "equal and graded": ([0.25] * 9, [0.5] * 9),
        "one": ([1.0], [0.2]),
        "few low": ([1.0] * 37 + [0.2, 0.5, 0.7], [0.5] * 40),
        "two graded": ([0.2, 0.9], [0.5, 0.1]),
        "large": ([random_.random() for _ in range(700)], [0.5] * 700),
        "out of bounds": ([-1.0, 0.5, 3.0], [0.5, 0.5, 0.5]),
    }


@pytest.mark.parametrize("case", _cases())
def test_quality_equals_the_estimator_in_python(kit: Any, rows: Any, case: str) -> None:
    """Estimate, interval, n and effective n agree to 1e-9, in the macro and in the daily view."""
    values, pi = _cases()[case]
    store = kit.store()
    _score(store, values, pi)
    expected = hajek(values, pi)
    assert expected is not None
    wanted = (expected.estimate, expected.lo, expected.hi, expected.n, expected.n_eff)
    sql = "SELECT estimate, lo, hi, n, n_eff FROM quality('e', '2026-03-01', '2026-03-02')"
    assert rows(store, sql)[0] == pytest.approx(wanted, rel=1e-9, abs=1e-9)
    assert rows(store, "SELECT estimate, lo, hi, n, n_eff FROM quality_daily")[0] == pytest.approx(wanted, abs=1e-9)


@pytest.mark.parametrize("seed", range(12))
def test_macro_sums_and_list_agree_on_generated_scores(kit: Any, rows: Any, seed: int) -> None:
    """The SQL macro, the sums that series add up and `hajek` on the list are one formula, whatever is scored."""
    random_ = random.Random(seed)
    chances = random_.choice([(0.5,), (0.02, 1.0), (0.05, 0.3, 1.0)])
    rate, n, graded = random_.random(), random_.randrange(2, 60), seed % 2 == 0
    values = [round(random_.betavariate(4 * rate + 0.1, 1), 2) if graded else float(random_.random() < rate)
              for _ in range(n)]  # fmt: skip
    pi = [random_.choice(chances) for _ in values]
    users = [f"u{random_.randrange(1 + seed * 2)}" if seed % 3 else f"u{i}" for i in range(n)]
    store, expected = kit.store(), hajek(values, pi, clusters=users)
    _score(store, values, pi, list(users))
    answers = (
        "(SELECT 1 AS line, unnest($y::DOUBLE[]) AS y, unnest($pi::DOUBLE[]) AS pi,"
        " unnest($users::VARCHAR[]) AS cluster)"
    )
    sums = f"SELECT {MOMENTS} FROM (SELECT cluster, {CLUSTER_SUMS.format(y='y')} FROM {answers} GROUP BY cluster)"
    parameters = {"y": values, "pi": pi, "users": users}
    classes = store.read(by_class(answers, "line"), parameters).rows[0][1:]
    summed = Moments.of([*store.read(sums, parameters).rows[0][:-3], *classes])
    assert expected is not None
    assert summed is not None
    told = rows(store, "SELECT estimate, lo, hi, n_eff, users FROM quality('e', '2026-03-01', '2026-03-02')")[0]
    wanted = [expected.estimate, expected.lo, expected.hi, expected.n_eff, expected.clusters]
    found = summed.estimate()
    near = [None if figure is None else pytest.approx(figure, abs=1e-9) for figure in wanted]
    assert list(told) == near
    assert [found.estimate, found.lo, found.hi, found.n_eff, found.clusters] == near
    assert (found.thin, found.reason) == (expected.thin, expected.reason)


@pytest.mark.parametrize("df", [1.0, 1.5, 2.0, 3.25, 6.6, 7.0, 30.0, 1000.0])
def test_students_quantile_in_sql_is_the_real_one(kit: Any, rows: Any, df: float) -> None:
    """The polynomials meet scipy's figure for whole and fractional degrees of freedom."""
    from scipy.stats import t

    assert rows(kit.store(), "SELECT student_975(?)", df)[0][0] == pytest.approx(t.ppf(0.975, df), rel=1e-11)


@pytest.mark.parametrize(
    "fields",
    [{"source": "replay"}, {"source": "human"}, {"status": "invalid"}, {"sampled": False}, {"latest": False}],
)
def test_only_scores_drawn_by_chance_enter_the_estimate(kit: Any, rows: Any, fields: dict[str, Any]) -> None:
    """Replays, people, failed evaluations and forced ones beyond their chance stay out."""
    store = kit.store()
    _score(store, [1.0, 0.0], [0.5, 0.5], **fields)
    assert rows(store, "SELECT * FROM quality('e', '2026-03-01', '2026-03-02')") == []


def test_versions_are_never_pooled(kit: Any, rows: Any) -> None:
    """Each version and judge has its own row."""
    store = kit.store()
    _score(store, [1.0], [1.0], version="v1")
    _score(store, [0.0], [1.0], version="v2", judge="m")
    found = rows(store, "SELECT version, judge, estimate FROM quality('e', '2026-03-01', '2026-03-02') ORDER BY 1")
    assert [row[0] for row in found] == ["v1", "v2"]


def test_scores_carry_the_latest_chance(kit: Any, rows: Any) -> None:
    """`pi` and `reason` are those of the decision in force."""
    store = kit.store()
    _score(store, [1.0], [0.05], latest=False)
    _score(store, [], [])
    store.write(
        lambda t: t.execute(
            "INSERT INTO raw.decisions BY NAME SELECT trace_id, span_id, request_time, evaluator, 1.0 AS pi,"
            " true AS sampled, 'sampled' AS reason, true AS latest FROM raw.decisions"
        )
    ).result(60)
    assert rows(store, "SELECT pi, reason FROM scores") == [(1.0, "sampled")]


def _list(store: Any, limit: int, where: str = "true", **given: Any) -> tuple[list[int], list[str]]:
    """The numbers of the newest traces and the questions that it took."""
    asked: list[str] = []

    class Counted:
        def read(self, sql: str, parameters: Any = ()) -> Any:
            asked.append(sql)
            return store.read(sql, parameters)

    found = newest(Counted(), Filter(where, given.pop("parameters", {})), limit, **given).of(TraceRow)
    assert {row.n_spans for row in found} <= {1, 2}
    return [int(row.trace_id, 16) for row in found], asked


def test_the_newest_are_those_that_wait_and_those_that_are_decided(kit: Any) -> None:
    """In order of time whether decided or not, that meet the condition, between the times, and all where few do."""
    store = kit.store()
    second = 1_000_000_000
    spans = [
        kit.span(n, kind="rag", trace_id=f"{n:032x}", service="ab"[n % 2], start_ns=kit.start_ns + n * second,
                 end_ns=kit.start_ns + n * second)
        for n in range(1, 41)
    ]  # fmt: skip
    kit.send(store, *spans[::2])
    Sampler(store).decide(kit.later(60))
    assert _list(store, 3)[0] == [39, 37, 35]
    kit.send(store, *spans[1::2])
    assert _list(store, 3)[0] == [40, 39, 38]
    assert _list(store, 3, "service = $s", parameters={"s": "b"})[0] == [39, 37, 35]
    assert _list(store, 3, "service = $s", parameters={"s": "a"})[0] == [40, 38, 36]
    at = {"at": kit.start + timedelta(seconds=38)}
    assert _list(store, 3, "start_time >= $at", parameters=at, first=at["at"])[0] == [40, 39, 38]
    assert _list(store, 2, "start_time < $at", parameters=at, last=at["at"])[0] == [37, 36]
    assert _list(store, 41)[0] == list(range(40, 0, -1))


def test_where_all_is_decided_nothing_else_is_asked(kit: Any) -> None:
    """A quiet store answers with what waits (nothing) and the decided traces in order."""
    store = kit.store()
    kit.send(store, kit.span(1, kind="rag", trace_id=f"{1:032x}"))
    assert len(_list(store, 3)[1]) == 3
    Sampler(store).decide(kit.later(60))
    found, asked = _list(store, 3)
    assert (found, len(asked), "undecided" in str(asked)) == ([1], 2, False)


def test_the_newest_of_a_great_many_undecided_are_found_by_their_time(kit: Any) -> None:
    """Where nobody decides, it is looked back step by step, also from a time; what begins there is shown whole."""
    store = kit.store()
    many = """INSERT INTO raw.spans BY NAME
        SELECT ('0000000000000000' || printf('%016x', i // 2))::UUID AS trace_id, i::UBIGINT AS span_id,
               TIMESTAMP '2026-03-01' + to_seconds(i // 2) AS start_time, start_time AS received_at, 1 AS duration_us,
               CASE WHEN i % 2 = 1 THEN (i - 1)::UBIGINT END AS parent_span_id, 'rag' AS kind, 'unset' AS status,
               'v' || (i // 2 % 300) AS prompt_version FROM range(60000) t(i)"""
    store.write(lambda t: t.execute(many)).result(60)
    found, asked = _list(store, 10)
    assert (found, len(asked)) == (list(range(29_999, 29_989, -1)), 3)
    before = datetime(2026, 3, 1, 6)
    given = {"parameters": {"before": before}, "last": before}
    found, asked = _list(store, 4, "prompt_version = 'v1' AND start_time <= $before", **given)
    assert (found, len(asked)) == ([21_301, 21_001, 20_701, 20_401], 9)
    assert len(_list(store, 40_000)[0]) == 30_000


def test_the_guard_knows_every_view() -> None:
    """A view that is missing from the names could not be read by users' SQL."""
    assert tuple(VIEWS) == VIEW_NAMES
