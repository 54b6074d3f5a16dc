"""Checks that end the process they run in, or keep it busy: a process of its own can import them."""

from __future__ import annotations

import os
import time
from pathlib import Path

from ragpulse_evaluators import Case, Evaluator

DECLINED = "I cannot answer that."


class Ending(Evaluator):
    """Ends its process where the answer says so, and only in a process of its own."""

    name, immediate, needs = "ending", True, frozenset({"response"})

    def run(self, case: Case) -> float:
        """Score, or end."""
        if case.response == DECLINED and os.getppid() == int(os.environ["COLLECTOR"]):
            os._exit(3)
        return 1.0


class Slow(Ending):
    """Works for ten minutes, after it said who it is."""

    immediate = True

    def run(self, case: Case) -> float:
        """Write the id of this process to the file that the case names."""
        Path(case.response or "").write_text(str(os.getpid()))
        until = time.monotonic() + 600.0
        while time.monotonic() < until:
            pass
        return 1.0
