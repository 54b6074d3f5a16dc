"""What do rules over an agent's steps tell of its success? 108 runs of tau-bench (airline), the runs' lengths beside.

    python benchmarks/agents.py

Success is known by the state of a database at the end. Each row is the area under the curve with an interval from
2,000 resamples of tasks, as several runs of one task are alike. "A short run" is the baseline: no rule that does not
beat it tells more than the number of steps does.
"""

from __future__ import annotations

import json
import os
import random
import sys
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from ragpulse_evaluators import Case, get_evaluator
from ragpulse_evaluators.statistics import roc_auc

_RULES = ("steps", "tool_errors", "repeated_calls", "turns", "asked_again", "abandoned")
_RESAMPLES = 2_000


def area(pairs: Sequence[tuple[float, bool]]) -> float | None:
    """How often a run that succeeded has the better value than one that failed."""
    return roc_auc([value for value, _ in pairs], [success for _, success in pairs])


def main() -> int:
    """Print the table; exit 0 where the data are absent, and say so."""
    folder = Path(os.environ.get("RAGPULSE_SHARED_DATA", Path(__file__).parents[2] / "shared" / "data"))
    path = folder / "agent_runs.jsonl"
    if not path.exists():
        print(f"skipped: {path.name} is not here, set RAGPULSE_SHARED_DATA to its folder")
        return 0
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    values: dict[str, list[tuple[int, float, bool]]] = defaultdict(list)
    for row in rows:
        said = [one for one in row["messages"] if one["role"] in ("user", "assistant") and one.get("content")]
        *before, last = Case(history=said).history or ()
        case = Case(query=last.query, response=last.response, history=before, trace=row["messages"])
        values["a short run (messages)"].append((row["task"], -float(len(row["messages"])), row["success"]))
        for name in _RULES:
            result = get_evaluator(name).at_once(case)
            if result.score is not None:
                values[name].append((row["task"], -result.score, row["success"]))
    print(
        f"{len(rows)} runs of {len({row['task'] for row in rows})} tasks, {sum(r['success'] for r in rows)} succeeded"
    )
    print(f"{'rule (less is better)':26}{'runs':>5}{'AUC':>7}  95 % by task")
    draw = random.Random(7)
    for name, triples in values.items():
        tasks: dict[int, list[tuple[float, bool]]] = defaultdict(list)
        for task, value, success in triples:
            tasks[task].append((value, success))
        runs = list(tasks.values())
        drawn = (area([pair for task in draw.choices(runs, k=len(runs)) for pair in task]) for _ in range(_RESAMPLES))
        spread = sorted(one for one in drawn if one is not None)
        low, high = spread[int(0.025 * len(spread))], spread[int(0.975 * len(spread)) - 1]
        whole = area([(value, success) for _, value, success in triples])
        print(f"{name:26}{len(triples):5}{whole:7.2f}  [{low:.2f}, {high:.2f}]")
    return 0


if __name__ == "__main__":
    sys.exit(main())
