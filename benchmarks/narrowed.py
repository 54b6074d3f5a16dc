"""CPU of a judge's figures with the check that narrows them, beside the same figures without it.

    python benchmarks/narrowed.py [--short]

Makes two stores (400,000 traces of two days, --short 80,000): every answer has a check, each tenth a verdict. In the
first store the verdicts are a judge's, so that the check narrows them; in the second they name no judge, so that
nothing does. Prints CPU milliseconds of answers about the last day, best of seven, in turns, and their ratio.

`page` asks for the overview and a chart of the judge; every row has an empty cache but the one a minute later.
`joining` is the least that narrowing needs beyond the plain figures: the decisions of both, the check's scores and the
users of the day joined, and added up by user.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

from ragpulse_collector.analysis.cache import Snapshots
from ragpulse_collector.api.operations import Operations, declared
from ragpulse_collector.operations import figures
from ragpulse_collector.records import Batch
from ragpulse_collector.settings.lead import Lead
from ragpulse_collector.store import EmbeddedStore, Store
from ragpulse_collector.store.protocol import Clock

END = datetime(2026, 11, 20, 12)
Asked = tuple[str, dict[str, Any]]
"""An operation and its parameters beside `from=-24h`."""
OVERVIEW: Asked = ("overview", {"step": "1h"})
CHART: Asked = ("metrics", {"name": "quality:faithfulness", "step": "1h"})
LIMIT: Asked = ("check", {"evaluator": "faithfulness", "min": 0.5})
SIDES = {"a": "metadata.tenant:legal", "b": "metadata.tenant:shop", "evaluator": "faithfulness"}
PAGE = (OVERVIEW, CHART)
ASKED: dict[str, tuple[Asked, ...]] = {
    "page": PAGE,
    "overview": (OVERVIEW,),
    "series, 24 points": (CHART,),
    "series, by tenant": (("metrics", {**CHART[1], "group_by": "metadata.tenant"}),),
    "check": (LIMIT,),
    "check, one tenant": (("check", {**LIMIT[1], "metadata.tenant": "legal"}),),
    "compare": (("compare", SIDES),),
}
JOINING = """
    SELECT count(*), sum(n), sum(x * x) FROM (
        SELECT hash(t.user_id) AS cluster, count(*) AS n, sum(s.normalized) AS x
        FROM raw.decisions d JOIN raw.trace_facts t ON t.trace_id = d.trace_id
        JOIN raw.decisions k ON k.trace_id = d.trace_id AND k.span_id = d.span_id
        JOIN raw.scores s ON s.trace_id = d.trace_id AND s.span_id = d.span_id
        WHERE d.evaluator = 'faithfulness' AND d.latest AND d.request_time >= $first AND t.latest
          AND t.start_time >= $first AND k.evaluator = 'groundedness' AND k.latest AND k.request_time >= $first
          AND s.evaluator = 'groundedness' AND s.request_time >= $first GROUP BY cluster)"""
ROUNDS = 7

_ANSWERS = """
    SELECT md5(i::VARCHAR)::UUID AS trace_id, 170::UBIGINT AS span_id, 'u' || i % ({total} // 5) AS user_id,
           TIMESTAMP '{end}' - to_seconds(172800.0 * i / {total}) AS moment, hash(i, 'ease') % 10000 / 10000.0 AS ease,
           hash(i, 'u') % 100000 / 100000.0 AS u, hash(i, 'noise') % 10000 / 10000.0 AS noise
    FROM range({total}) r(i)"""
_FACTS = """
    INSERT INTO raw.trace_facts BY NAME
    SELECT trace_id, 0 AS revision, true AS latest, moment AS decided_at, span_id AS unit_span_id, moment AS start_time,
           'answer' AS name, 'Why?' AS query, 'Because.' AS response, 1 AS n_spans, 1 AS n_units, 0 AS late_spans,
           1000.0 AS latency_ms, false AS error, 1.0 AS upstream_pi, user_id, 0.001 AS cost_usd,
           MAP {{'tenant': CASE WHEN ease < 0.4 THEN 'legal' ELSE 'shop' END}} AS metadata FROM ({answers})"""
_DECISIONS = """
    INSERT INTO raw.decisions BY NAME
    SELECT trace_id, span_id, moment AS request_time, '{evaluator}' AS evaluator, 'r' AS rule, 'p' AS policy,
           {pi}::DOUBLE AS pi, u, u < {pi} AS sampled, CASE WHEN sampled THEN 'sampled' ELSE 'not_sampled' END
           AS reason, moment AS decided_at, 0 AS revision, true AS latest FROM ({answers})"""
_SCORES = """
    INSERT INTO raw.scores BY NAME
    SELECT '{evaluator}' || trace_id AS score_key, trace_id, span_id, moment AS request_time,
           '{evaluator}' AS evaluator, 'v1' AS version, {judge}::VARCHAR AS judge, 'online' AS source,
           'ok' AS status, {value}::DOUBLE AS score, score AS normalized, score >= 0.5 AS passing, 0.0 AS cost_usd,
           1 AS attempt, moment AS created_at
    FROM ({answers}) WHERE u < {pi}"""
_CHECK = "least(1.0, greatest(0.0, ease + 0.3 * (noise - 0.5)))"


def main() -> None:
    """Make the stores and print a row for each answer."""
    total = 80_000 if "--short" in sys.argv else 400_000
    with tempfile.TemporaryDirectory() as folder:
        stores = [made(Path(folder) / name, total, judge) for name, judge in (("judge", "'gpt'"), ("plain", "NULL"))]
        print(f"{total // 2:,} traces of a day, {total // 20:,} judged; CPU ms, best of {ROUNDS}")
        print(f"{'':22}{'narrowed':>9}{'plain':>9}{'ratio':>7}")
        viewers = [Viewer(store) for store in stores]
        for label, asked in ASKED.items():
            show(label, [partial(viewer.first, *asked) for viewer in viewers])
        show("page, a minute later", [partial(viewer.again, *PAGE) for viewer in viewers])
        first = {"first": END - timedelta(days=1)}
        print(f"{'joining':22}{in_turns([partial(stores[0].read, JOINING, first)])[0]:9.0f}")
        for store in stores:
            store.close()


def show(label: str, runs: list[Callable[[], object]]) -> None:
    """Print the CPU of the answer with the check and without it."""
    narrowed, plain = in_turns(runs)
    print(f"{label:22}{narrowed:9.0f}{plain:9.0f}{narrowed / plain:7.2f}", flush=True)


def made(path: Path, total: int, judge: str) -> EmbeddedStore:
    """A store with a check of every answer, and verdicts of each tenth that name this judge."""
    store = EmbeddedStore(path, decode=lambda _: Batch())
    answers = _ANSWERS.format(total=total, end=END)
    statements = [_FACTS.format(answers=answers)]
    for evaluator, pi, value, by in (
        ("groundedness", 1.0, _CHECK, "NULL"), ("faithfulness", 0.1, "(ease > 0.2)::INTEGER", judge),
    ):  # fmt: skip
        of = {"answers": answers, "evaluator": evaluator, "pi": pi}
        statements += [_DECISIONS.format(**of), _SCORES.format(**of, value=value, judge=by)]
    for statement in statements:
        store.write(lambda t, statement=statement: t.execute(statement)).result()
    store.read("CHECKPOINT")
    return store


class Viewer:
    """Asks a collector whose cache is empty, as the first request does."""

    def __init__(self, store: EmbeddedStore) -> None:
        self._store, self._now = store, END
        self.forget()

    def forget(self) -> None:
        """Empty the cache."""
        snapshots = Snapshots(self._store, timer=lambda: self._now.timestamp())
        services = {
            Store: lambda: self._store,
            Clock: lambda: lambda: self._now,
            Lead: lambda: lambda: "faithfulness",
            Snapshots: lambda: snapshots,
        }
        self._operations = {one.name: one for one in Operations(declared(figures), services)}

    def first(self, *asked: Asked) -> None:
        """Answer with an empty cache."""
        self.forget()
        self.again(*asked)

    def again(self, *asked: Asked) -> None:
        """Answer a minute later, when the cached figures are too old."""
        self._now += timedelta(minutes=1)
        for name, params in asked:
            operation = self._operations[f"GET {name}"]
            operation.answer_to(operation.params.parse({"from": "-24h", **params}))


def in_turns(runs: list[Callable[[], object]]) -> list[float]:
    """The least CPU milliseconds of each; they take turns."""
    best = [float("inf")] * len(runs)
    for _ in range(ROUNDS):
        for place, run in enumerate(runs):
            begun = time.process_time()
            run()
            best[place] = min(best[place], (time.process_time() - begun) * 1e3)
    return best


if __name__ == "__main__":
    main()
