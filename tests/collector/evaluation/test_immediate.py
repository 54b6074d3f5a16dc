"""Jobs that never wait: scored by the batch, the same as one by one, and giving way to whoever waits."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from stored_units import T0, Units, open_store

from ragpulse_collector.evaluation import AttemptOptions, Throttle, Worker
from ragpulse_collector.evaluation.budget import Caps, Ledger
from ragpulse_collector.sampling import OFFLINE
from ragpulse_collector.store.embedded import EmbeddedStore
from ragpulse_evaluators import Case, Evaluator, get_evaluator
from ragpulse_evaluators.runner import Retry

ANSWERS = (
    "The tower is 330 metres tall [1]. It was built in 1889 [2].",
    "The tower is 340 metres tall [3].",
    "I cannot answer that.",
    "",
    "塔高330米。",
)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[EmbeddedStore]:
    """An open store."""
    opened = open_store(tmp_path)
    yield opened
    opened.close()


def work_off(store: EmbeddedStore, *evaluators: Evaluator) -> Worker:
    """Let a worker with these evaluators finish what is queued."""
    known = {one.name: one for one in evaluators}
    ledger, options = Ledger(store, Caps()), AttemptOptions(retry=Retry(first_s=0.001))
    worker = Worker(store, lambda name, **_: known[name], ledger, options=options, clock=lambda: T0)
    worker.start()
    assert worker.wait_idle(20)
    worker.stop()
    return worker


def queue(store: EmbeddedStore, names: tuple[str, ...]) -> None:
    """One unit for each answer, one job for each name."""
    units = Units(store)
    for number, answer in enumerate(ANSWERS):
        units.unit(number, response=answer)
        units.contexts(number, ("The tower is 330 metres tall.", "It was built in 1889."))
        for name in names:
            units.job(number, name)
    units.save()


def test_a_batch_scores_as_single_jobs_do(store: EmbeddedStore, tmp_path: Path) -> None:
    """Scores, explanations, parts and keys are those of evaluators that go one by one through an event loop."""
    (tmp_path / "single").mkdir()
    columns = "evaluator, trace_id, score_key, version, status, score, normalized, passing, label, explanation, parts"
    found = []
    for opened, immediate in ((store, True), (open_store(tmp_path / "single"), False)):
        evaluators = [get_evaluator(name) for name in OFFLINE.evaluators]
        for one in evaluators:
            one.immediate = immediate
        queue(opened, OFFLINE.evaluators)
        work_off(opened, *evaluators)
        found.append(opened.read(f"SELECT {columns} FROM raw.scores ORDER BY ALL").rows)
    opened.close()
    assert found[0] == found[1]
    assert len(found[0]) == len(ANSWERS) * len(OFFLINE.evaluators)


@pytest.mark.parametrize("name", OFFLINE.evaluators)
async def test_at_once_is_what_a_call_gives(name: str) -> None:
    """Without an event loop the result is the same, skipped cases among them."""
    evaluator = get_evaluator(name)
    for case in (Case(response=ANSWERS[0], contexts=["The tower is 330 metres tall."]), Case(response="Yes."), Case()):
        assert await asyncio.to_thread(evaluator.at_once, case) == await evaluator(case)


class Failing(Evaluator):
    """Fails the first two times."""

    name, immediate, tries = "failing", True, 0

    def run(self, case: Case) -> float:
        """Raise, raise, score."""
        self.tries += 1
        if self.tries <= 2:
            raise OSError("not yet")
        return 1.0


def test_a_failing_one_is_tried_again_like_any_other(store: EmbeddedStore) -> None:
    """Its batch goes on; it gets attempts, each with its row."""
    queue(store, ("refusal",))
    units = Units(store)
    units.job(0, "failing")
    units.save()
    work_off(store, get_evaluator("refusal"), Failing())
    rows = store.read("SELECT evaluator, status, count(*) FROM raw.scores GROUP BY ALL ORDER BY ALL").rows
    assert rows == [("failing", "error", 1), ("failing", "ok", 1), ("refusal", "ok", len(ANSWERS))]


def test_a_subclass_that_runs_something_else_is_called_as_ever() -> None:
    """What a user's code waits for is not known, so it does not inherit the short way."""

    class Own(Failing):
        """Waits."""

        async def run(self, case: Case) -> float:  # type: ignore[override]
            """Score."""
            return 1.0

    assert (Failing.immediate, Own.immediate) == (True, False)


class Thread:
    """Its CPU clock, and what it slept."""

    def __init__(self, *, busy: bool) -> None:
        self.busy, self.spent, self.slept = busy, 0.0, 0.0

    def work(self, pieces: int) -> float:
        """Work for 1/1024 of a second a piece; return the seconds slept."""
        rest = Throttle(
            busy=lambda: self.busy, share=0.2, slice_s=2**-8, spent=lambda: self.spent, sleep=self._sleep
        ).start()
        for _ in range(pieces):
            self.spent += 2**-10
            rest()
        return self.slept

    def _sleep(self, seconds: float) -> None:
        self.slept += seconds


def test_work_gives_way_while_somebody_waits() -> None:
    """A fifth of a core is a fifth: an eighth of a second of work rests for half a second."""
    assert Thread(busy=True).work(128) == pytest.approx(0.5)


def test_work_does_not_rest_while_nobody_waits() -> None:
    """An idle collector catches up at full speed."""
    assert Thread(busy=False).work(128) == 0.0
