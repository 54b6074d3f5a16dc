"""Writes units directly into a store, for tests of the stages after the sampler."""

from __future__ import annotations

import hashlib
import json
import tempfile
import uuid
from collections.abc import Iterable
from datetime import datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any

from ragpulse_collector.records import Batch
from ragpulse_collector.store import FileReader
from ragpulse_collector.store.embedded import EmbeddedStore
from ragpulse_collector.store.queries.jobs import given_up

T0 = datetime(2026, 11, 20, 12)
"""The default time of every unit."""


def open_store(path: Path) -> EmbeddedStore:
    """Open an embedded store that decodes no bodies."""
    file = path / "test.duckdb"
    create_empty(file)
    return EmbeddedStore(file, decode=lambda _: Batch())


def create_empty(path: Path) -> None:
    """Create an empty store's file unless there is a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists():
        path.write_bytes(_empty())


def stored_reports(db: str) -> list[dict[str, Any]]:
    """The reports of runs in a closed file."""
    if not Path(db).exists():
        return []
    store = FileReader(db)
    try:
        texts = store.read("SELECT result FROM raw.runs WHERE result IS NOT NULL ORDER BY created_at").values
        return [json.loads(text) for text in texts]
    finally:
        store.close()


@cache
def _empty() -> bytes:
    """The file of an empty store, made once: creating tables and views takes longer than most tests."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "empty.duckdb"
        EmbeddedStore(path, decode=lambda _: Batch()).close()
        return path.read_bytes()


def trace_id(number: int) -> str:
    """The id of the n-th unit's trace."""
    return hashlib.md5(str(number).encode(), usedforsecurity=False).hexdigest()


def uniform(number: int, salt: str = "") -> float:
    """A fixed pseudo-random number in [0, 1) for the n-th unit."""
    return int(hashlib.sha256(f"{salt}{number}".encode()).hexdigest()[:12], 16) / 16**12


SPAN_ID = "00000000000000aa"
_SPAN, _SEARCH = 0xAA, 0xBB


class Units:
    """Rows collected in memory; `save` writes them in one transaction."""

    def __init__(self, store: EmbeddedStore) -> None:
        self._store = store
        self._rows: dict[tuple[str, ...], list[list[Any]]] = {}

    def save(self) -> None:
        """Write the collected rows."""
        rows, self._rows = self._rows, {}

        def work(tx: Any) -> None:
            for (table, *columns), values in rows.items():
                tx.append(table, columns, values)

        self._store.write(work).result()

    def add(self, table: str, **row: Any) -> None:
        """Add a row of `raw.<table>`."""
        self._rows.setdefault((table, *row), []).append(list(row.values()))

    def unit(
        self, number: int, *, at: datetime = T0, query: str | None = "Why?", response: str = "Because.", **facts: Any
    ) -> None:
        """Add a decided trace: its one span, its texts and its facts (columns of `traces` as keywords)."""
        ids = {"trace_id": trace_id(number), "span_id": _SPAN}
        columns = (
            "service",
            "model",
            "prompt_version",
            "session_id",
            "user_id",
            "variant",
            "prompt_name",
            "environment",
            "top_k",
            "index_version",
        )
        shared = {column: facts.get(column) for column in columns}
        self.add(
            "spans",
            **ids,
            start_time=at,
            received_at=at,
            duration_us=round(1000 * (facts.get("latency_ms") or 1000.0)),
            name="answer",
            kind="rag",
            status="ok",
            has_text=True,
            upstream_pi=1.0,
            **shared,
        )
        self.add("contents", **ids, start_time=at, query=query, response=response)
        defaults = {
            "latency_ms": 1000.0,
            "ttft_ms": None,
            "error": False,
            "cost_usd": None,
            "cost_unknown_reason": None,
            "input_tokens": None,
            "output_tokens": None,
            "feedback": None,
            "answer": None,
            "top_score": None,
            "topic": None,
            "question_distance": None,
            "upstream_pi": 1.0,
        }
        self.add(
            "trace_facts",
            trace_id=ids["trace_id"],
            revision=0,
            latest=True,
            decided_at=at,
            unit_span_id=_SPAN,
            start_time=at,
            name="answer",
            query=query,
            response=response,
            n_spans=1,
            n_units=facts.get("n_units", 1),
            late_spans=0,
            **shared,
            **{key: facts.get(key, value) for key, value in defaults.items()},
        )

    def contexts(
        self, number: int, texts: Iterable[str | None], *, at: datetime = T0, ids: Iterable[str] | None = None,
        metadata: Iterable[str] | None = None,
    ) -> None:  # fmt: skip
        """Add a retriever's span below the unit with these contexts."""
        documents = list(texts)
        names = list(ids) if ids is not None else [f"doc{rank}" for rank in range(1, len(documents) + 1)]
        self.add(
            "spans",
            trace_id=trace_id(number),
            span_id=_SEARCH,
            parent_span_id=_SPAN,
            start_time=at + timedelta(milliseconds=1),
            received_at=at,
            duration_us=1000,
            name="search",
            kind="retriever",
            status="ok",
            contexts_state="present",
            n_contexts=len(documents),
        )
        about = metadata or [None] * len(documents)
        for rank, (name, text, facts) in enumerate(zip(names, documents, about, strict=True), 1):
            digest = None if text is None else hashlib.sha256(text.encode()).hexdigest()
            self.add(
                "contexts",
                trace_id=trace_id(number),
                span_id=_SEARCH,
                start_time=at + timedelta(milliseconds=1),
                rank=rank,
                id=name,
                score=1.0 / rank,
                text=text,
                metadata=facts,
                hash=digest,
            )

    def decision(
        self,
        number: int,
        evaluator: str,
        *,
        pi: float = 1.0,
        u: float | None = None,
        at: datetime = T0,
        reason: str | None = None,
        revision: int = 0,
        decided: datetime | None = None,
        capped: bool = False,
        rule: str = "r",
    ) -> bool:
        """Add a decision; returns whether the unit was sampled and not excluded by a cap."""
        u = uniform(number) if u is None else u
        sampled = u < pi and not capped
        self.add(
            "decisions",
            trace_id=trace_id(number),
            span_id=_SPAN,
            request_time=at,
            evaluator=evaluator,
            rule=rule,
            policy="p",
            pi=pi,
            u=u,
            sampled=sampled,
            reason=reason or ("sampled" if sampled else "not_sampled"),
            decided_at=decided or at,
            revision=revision,
            latest=True,
        )
        return sampled

    def job(
        self,
        number: int,
        evaluator: str,
        *,
        at: datetime = T0,
        run_id: str | None = None,
        u: float | None = None,
        rule: str | None = None,
    ) -> str:
        """Add a job; returns its id."""
        job_id = uuid.uuid5(uuid.NAMESPACE_OID, f"{number} {evaluator} {run_id}").hex
        self.add(
            "eval_jobs",
            job_id=job_id,
            trace_id=trace_id(number),
            span_id=_SPAN,
            request_time=at,
            evaluator=evaluator,
            run_id=run_id,
            source="replay" if run_id else "online",
            u=uniform(number) if u is None else u,
            created_at=at,
            rule=rule,
        )
        return job_id

    def score(
        self,
        number: int,
        evaluator: str,
        value: float | None,
        *,
        at: datetime = T0,
        status: str = "ok",
        version: str = "v1",
        judge: str | None = None,
        source: str = "online",
        created: datetime | None = None,
        **more: Any,
    ) -> str:
        """Add a score; returns its key."""
        key = f"{number}/{evaluator}/{version}/{judge}"
        row = {
            "passing": None if value is None else value >= 0.5,
            "explanation": None,
            "cost_usd": 0.0,
            "run_id": None,
            "attempt": 1,
            "score": value,
            "job_id": uuid.uuid5(uuid.NAMESPACE_OID, key).hex,
        } | more
        self.add(
            "scores",
            score_key=key,
            trace_id=trace_id(number),
            span_id=_SPAN,
            request_time=at,
            evaluator=evaluator,
            version=version,
            judge=judge,
            source=source,
            status=status,
            normalized=value,
            created_at=created or at,
            **row,
        )
        return key

    def scored(
        self,
        number: int,
        evaluator: str,
        value: float | None,
        *,
        pi: float = 1.0,
        at: datetime = T0,
        status: str = "ok",
        version: str = "v1",
        judge: str | None = None,
        facts: dict[str, Any] | None = None,
        u: float | None = None,
    ) -> bool:
        """Add a whole unit: facts, decision and, if it was sampled, its score; returns whether it was sampled."""
        self.unit(number, at=at, **(facts or {}))
        sampled = self.decision(number, evaluator, pi=pi, at=at, u=u)
        if sampled:
            self.score(number, evaluator, value, at=at, status=status, version=version, judge=judge)
        return sampled


def given_up_jobs(store: EmbeddedStore) -> list[tuple[int, str]]:
    """Return attempt and reason of the last error of each abandoned job."""
    return store.read(f"SELECT attempt, explanation FROM raw.scores s WHERE {given_up('s')} ORDER BY ALL").rows
