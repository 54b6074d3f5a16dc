"""What "pending" means: a job that has no result yet and will still be evaluated. All who count jobs agree."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest
from stored_units import SPAN_ID, T0, Units, open_store, trace_id

from ragpulse_collector.analysis.quality.coverage import queue
from ragpulse_collector.api.status import Status
from ragpulse_collector.evaluation.jobs import pending
from ragpulse_collector.otlp.intake import Counters
from ragpulse_collector.settings import Settings
from ragpulse_collector.store.embedded import EmbeddedStore
from ragpulse_collector.store.queries import jobs
from ragpulse_collector.store.queries.decisions import force
from ragpulse_collector.store.queries.runs import close_finished, set_status

LATER = T0 + timedelta(minutes=1)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[EmbeddedStore]:
    """An empty store."""
    with closing(open_store(tmp_path)) as store:
        yield store


def relation(store: EmbeddedStore) -> set[str]:
    """The evaluators of the pending jobs, by the relation."""
    return {name for (name,) in store.read(f"SELECT evaluator FROM ({jobs.pending()})").rows}


def taken(store: EmbeddedStore) -> set[str]:
    """The evaluators of the jobs that the worker would evaluate, which knows the running replays."""
    return {job.evaluator for job in pending(store, limit=100, runs=["running"]).jobs}


def counts(store: EmbeddedStore) -> tuple[int, int, int]:
    """How many jobs are pending by `GET status` (under both names) and by the overview."""
    figures_shown = Status(store, Settings(), Counters())().evaluations
    return figures_shown.pending, figures_shown.due, queue(store, now=T0 + timedelta(hours=1)).pending


def run(units: Units, run_id: str, status: str) -> None:
    """Gather a replay that started and then came to this status."""
    known = {"run_id": run_id, "evaluator": run_id, "version": "v1", "judge": None, "spec": "{}", "total": 1}
    units.add("runs", **known, status="running", created_at=T0)
    units.add("runs", **known, status=status, created_at=LATER)


def test_a_job_is_pending_until_it_has_a_result_or_nobody_will_evaluate_it(store: EmbeddedStore) -> None:
    """Every state of a job, one evaluator each, named after it."""
    units = Units(store)
    units.unit(0)

    def job(name: str, status: str | None = None, *, attempt: int = 1, judge: str | None = None) -> None:
        job_id = units.job(0, name)
        if status is not None:
            units.score(0, name, None, status=status, job_id=job_id, attempt=attempt, judge=judge, created=LATER)

    job("new")
    job("ok", "ok")
    job("skipped", "skipped")
    job("invalid", "invalid")
    job("failed twice", "error", attempt=2)
    job("given up", "error", attempt=3)
    job("judge failed four times", "error", attempt=4, judge="j")
    job("judge given up", "error", attempt=5, judge="j")
    job("scored by a person")
    units.score(0, "scored by a person", 1.0, source="human")
    units.add("run_items", run_id=None, score_key="k", job_id=units.job(0, "met by an equal score"))
    job("dropped by the budget")
    units.decision(0, "dropped by the budget", pi=0.0, reason="budget", decided=LATER)
    job("made after a drop")
    units.decision(0, "made after a drop", pi=0.0, reason="budget", decided=T0 - timedelta(minutes=1))
    for status in ("running", "external", "cancelled", "capped", "failed", "done"):
        run(units, status, status)
        units.job(0, status, run_id=status)
    units.decision(0, "running", pi=0.0, reason="budget", decided=LATER)  # the day's budget is not that of a replay
    units.save()
    online = {"new", "failed twice", "judge failed four times", "scored by a person", "made after a drop"}
    assert relation(store) == online | {"running", "external"}
    assert taken(store) == online | {"running"}
    assert counts(store) == (7, 7, 7)


def test_a_resumed_replay_and_a_dead_letter_asked_for_again_are_pending(store: EmbeddedStore) -> None:
    """Cancelling leaves nothing pending; a person who asks for what was given up gets one new job."""
    units = Units(store)
    units.unit(0)
    run(units, "running", "running")
    units.job(0, "replayed", run_id="running")
    dead = units.job(0, "dead")
    units.score(0, "dead", None, status="error", job_id=dead, attempt=3)
    units.save()
    assert relation(store) == {"replayed"}
    store.write(lambda tx: set_status(tx, "running", "cancelled")).result()
    assert (relation(store), counts(store)) == (set(), (0, 0, 0))
    store.write(lambda tx: set_status(tx, "running", "running", only_from=("cancelled",))).result()
    asked = [store.write(lambda tx: force(tx, trace_id(0), SPAN_ID, ["dead"], u=None)).result() for _ in range(2)]
    assert asked == [1, 0]
    assert relation(store) == taken(store) == {"replayed", "dead"}


def test_a_replay_is_done_when_none_of_its_jobs_is_unfinished(store: EmbeddedStore) -> None:
    """A job that was given up or met by an equal score holds no replay open."""
    units = Units(store)
    units.unit(0)
    for run_id in ("finished", "open"):
        run(units, run_id, "running")
    given_up = units.job(0, "a", run_id="finished")
    units.score(0, "a", None, status="error", job_id=given_up, attempt=3, run_id="finished", source="replay")
    met = units.job(0, "b", run_id="finished")
    units.add("run_items", run_id="finished", score_key="k", job_id=met)
    units.job(0, "a", run_id="open")
    units.save()
    assert close_finished(store) == ["finished"]
