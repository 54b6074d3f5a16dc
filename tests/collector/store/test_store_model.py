"""Queue, store and sampler against a model: any order of bodies, failures, full queues, restarts, decisions."""

from __future__ import annotations

import pickle
import shutil
import tempfile
import threading
from concurrent.futures import Future
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from spans import Span, batch_of

from ragpulse_collector.records import Batch, DecodeError, RawBody
from ragpulse_collector.sampling import Rule, Sampler
from ragpulse_collector.store import Busy, EmbeddedStore

START = datetime(2026, 3, 1)
KEYS = st.tuples(st.integers(1, 5), st.integers(1, 6))
RULE = Rule(name="r", evaluators=("e",), rate=0.5)


class StoreMachine(RuleBasedStateMachine):
    """The model is a set of span identities; whatever happens, the tables equal it."""

    @initialize()
    def open(self) -> None:
        """Begin with an empty file."""
        self.folder = Path(tempfile.mkdtemp())
        self.now = START
        self.model: set[tuple[int, int]] = set()
        self.work_done = 0
        self.gate: threading.Event | None = None
        self.waiting: list[tuple[Future[Any], Any]] = []
        self._open()

    def _open(self) -> None:
        self.store = EmbeddedStore(
            self.folder / "t.duckdb", decode=_decode, clock=lambda: self.now, threads=1, queue_items=6, recent_spans=8
        )
        self.sampler = Sampler(self.store, lambda: [RULE], every_s=0)

    def _accept(self, put: Any, outcome: Any) -> None:
        """Submit; while the writer is held, remember what should come of it, else wait for it."""
        try:
            future = put()
        except Busy:
            assert self.gate is not None, "Busy without a backlog"
            return
        self.waiting.append((future, outcome))
        if self.gate is None:
            self._settle()

    def _settle(self) -> None:
        for future, outcome in self.waiting:
            outcome(future)
        self.waiting = []

    @rule(keys=st.lists(KEYS, min_size=1, max_size=6))
    def send(self, keys: list[tuple[int, int]]) -> None:
        """A body of spans, some of them sent before; each is stored once."""

        def outcome(future: Future[Any]) -> None:
            assert future.result(60).duplicates == len(keys) - len(set(keys) - self.model)
            self.model |= set(keys)

        self._accept(lambda: self.store.submit(_body(keys)), outcome)

    @rule()
    def send_malformed(self) -> None:
        """A body that is none fails alone."""
        broken = RawBody(signal="traces", content_type="application/json", body=b"?")
        self._accept(lambda: self.store.submit(broken), lambda f: _raises(f, DecodeError))

    @rule(keys=st.lists(KEYS, min_size=1, max_size=3))
    def send_unstorable(self, keys: list[tuple[int, int]]) -> None:
        """A body that the database refuses fails alone and leaves no trace, in memory either."""
        self._accept(
            lambda: self.store.submit(_body([*keys, (9, 9)], metadata="\ud800")), lambda f: _raises(f, DecodeError)
        )

    @rule(fails=st.booleans())
    def work(self, fails: bool) -> None:
        """A unit of work, done whole or not at all."""

        def run(transaction: Any) -> None:
            transaction.append("audit", ("action",), [("work",)])
            if fails:
                raise LookupError

        def outcome(future: Future[Any]) -> None:
            if fails:
                _raises(future, LookupError)
            else:
                future.result(60)
                self.work_done += 1

        self._accept(lambda: self.store.write(run), outcome)

    @precondition(lambda self: self.gate is None)
    @rule()
    def hold(self) -> None:
        """The disk is slow: what comes now forms one group, and may fill the queue."""
        gate, running = threading.Event(), threading.Event()

        def wait(_transaction: Any) -> None:
            running.set()
            gate.wait(60)

        held = self.store.write(wait)
        running.wait(60)
        self.gate = gate
        self.waiting.append((held, lambda future: future.result(60)))

    @precondition(lambda self: self.gate is not None)
    @rule()
    def release(self) -> None:
        """The disk is back."""
        assert self.gate is not None
        self.gate.set()
        self.gate = None
        self._settle()

    @rule()
    def restart(self) -> None:
        """Close, which drains, and open again."""
        if self.gate is not None:
            self.release()
        self.store.close()
        self.now += timedelta(seconds=10)
        self._open()

    @precondition(lambda self: self.gate is None)
    @rule()
    def decide(self) -> None:
        """Every stored trace ends with one latest row of facts that counts its spans."""
        self.now += timedelta(seconds=60)
        self.sampler.decide(self.now)
        found = self.store.read("SELECT trace_id, n_spans FROM traces WHERE decided ORDER BY 1", timeout_s=60).rows
        counts = {trace: sum(1 for key in self.model if key[0] == trace) for trace, _ in self.model}
        assert found == [(f"{trace:032x}", counts[trace]) for trace in sorted(counts)]
        doubled = "SELECT count(*) - count(DISTINCT (trace_id, span_id, evaluator)) FROM raw.decisions WHERE latest"
        assert self.store.read(doubled).rows == [(0,)]

    @invariant()
    def tables_equal_the_model(self) -> None:
        """Nothing lost, nothing doubled, nothing half."""
        if self.gate is not None:
            return
        stored = self.store.read("SELECT trace_id, span_id FROM spans ORDER BY 1, 2").rows
        assert stored == sorted((f"{trace:032x}", f"{span:016x}") for trace, span in self.model)
        assert self.store.read("SELECT count(*) FROM raw.audit").rows == [(self.work_done,)]
        assert self.store.backlog().bytes == 0

    def teardown(self) -> None:
        """Close and remove the file."""
        if self.gate is not None:
            self.gate.set()
        self.store.close()
        shutil.rmtree(self.folder)


def _body(keys: list[tuple[int, int]], **fields: Any) -> RawBody:
    start = 1_772_323_200_000_000_000
    spans = [
        Span(
            trace_id=f"{trace:032x}",
            span_id=f"{span:016x}",
            parent_span_id=None if span == 1 else f"{1:016x}",
            start_ns=start + span,
            end_ns=start + span,
            name="n",
            **fields,
        )
        for trace, span in keys
    ]
    return RawBody(signal="traces", content_type="application/json", body=pickle.dumps(batch_of(spans)))


def _decode(body: RawBody) -> Batch:
    try:
        batch: Batch = pickle.loads(body.body)
    except pickle.UnpicklingError as error:
        raise DecodeError(str(error)) from error
    return batch


def _raises(future: Future[Any], kind: type[BaseException]) -> None:
    assert isinstance(future.exception(60), kind)


StoreMachine.TestCase.settings = settings(
    max_examples=8, stateful_step_count=20, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
TestStoreAgainstAModel = StoreMachine.TestCase
