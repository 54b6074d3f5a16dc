"""Jobs that never wait: scored by the batch, the same as one by one, in a process of their own or in a thread."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from ending_checks import DECLINED, Ending
from stored_units import T0, Units, open_store
from waiting import eventually

from ragpulse_collector.evaluation import AttemptOptions, Worker
from ragpulse_collector.evaluation.budget import Caps, Ledger
from ragpulse_collector.sampling import OFFLINE
from ragpulse_collector.store.embedded import EmbeddedStore
from ragpulse_evaluators import Case, Evaluator, get_evaluator
from ragpulse_evaluators.checks import Checks
from ragpulse_evaluators.runner import Retry

ANSWERS = (
    "The tower is 330 metres tall [1]. It was built in 1889 [2].",
    "The tower is 340 metres tall [3].",
    DECLINED,
    "",
    "塔高330米。",
)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[EmbeddedStore]:
    """An open store."""
    opened = open_store(tmp_path)
    yield opened
    opened.close()


def work_off(store: EmbeddedStore, *evaluators: Evaluator, own_process: bool = False) -> Worker:
    """Let a worker with these evaluators finish what is queued."""
    known = {one.name: one for one in evaluators}
    ledger, options = Ledger(store, Caps()), AttemptOptions(retry=Retry(first_s=0.001))
    checks = Checks(own_process=own_process)
    worker = Worker(store, lambda name, **_: known[name], ledger, checks=checks, options=options, clock=lambda: T0)
    worker.start()
    assert worker.wait_idle(90)
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


def test_a_batch_scores_as_single_jobs_do(tmp_path: Path) -> None:
    """In a thread and in a process: scores, explanations, parts and keys are those of one by one in an event loop."""
    columns = "evaluator, trace_id, score_key, version, status, score, normalized, passing, label, explanation, parts"
    found = []
    for name, immediate, own_process in (("thread", True, False), ("process", True, True), ("single", False, False)):
        (tmp_path / name).mkdir()
        opened = open_store(tmp_path / name)
        evaluators = [get_evaluator(name) for name in OFFLINE.evaluators]
        for one in evaluators:
            one.immediate = immediate
        queue(opened, OFFLINE.evaluators)
        work_off(opened, *evaluators, own_process=own_process)
        found.append(opened.read(f"SELECT {columns} FROM raw.scores ORDER BY ALL").rows)
        opened.close()
    assert found[0] == found[1] == found[2]
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
    assert rows == [("failing", "error", 2), ("failing", "ok", 1), ("refusal", "ok", len(ANSWERS))]


def test_a_subclass_that_runs_something_else_is_called_as_ever() -> None:
    """What a user's code waits for is not known, so it does not inherit the short way."""

    class Own(Failing):
        """Waits."""

        async def run(self, case: Case) -> float:  # type: ignore[override]
            """Score."""
            return 1.0

    assert (Failing.immediate, Own.immediate) == (True, False)


def test_a_case_that_ends_the_process_fails_alone(store: EmbeddedStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """The process is started again; the others of its batch are scored, this one is given up after its attempts."""
    monkeypatch.setenv("COLLECTOR", str(os.getpid()))
    queue(store, ("refusal", "ending"))
    work_off(store, get_evaluator("refusal"), Ending(), own_process=True)
    rows = store.read("SELECT evaluator, status, count(*), max(explanation) FROM raw.scores GROUP BY 1, 2 ORDER BY ALL")
    assert [row[:3] for row in rows.rows] == [("ending", "error", 1), ("ending", "ok", 4), ("refusal", "ok", 5)]
    assert rows.rows[0][3] == "the evaluator ended its process with exit code 3"


@pytest.mark.skipif(os.name != "posix", reason="it asks the system for processes")
def test_the_process_ends_with_its_collector(tmp_path: Path) -> None:
    """Even where the collector is killed while a batch is scored."""
    code = (
        "import asyncio, sys\nsys.path[:0] = sys.argv[2:]\nfrom ending_checks import Slow\n"
        "from ragpulse_evaluators import Case\nfrom ragpulse_evaluators.checks import Checks\n"
        "asyncio.run(Checks(own_process=True).score([(Slow(), Case(response=sys.argv[1]))]))"
    )
    noted = tmp_path / "pid"
    parent = subprocess.Popen([sys.executable, "-c", code, str(noted), str(Path(__file__).parents[2])])
    pid = eventually(lambda: int(noted.read_text() or 0) if noted.exists() else 0)
    assert os.getpriority(os.PRIO_PROCESS, pid) >= 10
    parent.kill()
    parent.wait()
    eventually(lambda: not _runs(pid))


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
