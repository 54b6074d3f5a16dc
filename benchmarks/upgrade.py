"""Upgrade rehearsal: a store that an older commit left with everything in flight, opened by this one.

    python benchmarks/upgrade.py COMMIT

The older commit receives traffic, freezes answers, fires a monitor, begins a replay and one of a caller, and is killed.
This one must start, end the replays, ask nothing twice, keep frozen answers and checks, and send no false "resolved".
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).parents[1]
UNITS = 40
MINE = """
import asyncio, pathlib
from ragpulse_evaluators import evaluator

def note(name):
    with pathlib.Path(__file__).with_name("asked").open("a") as file:
        file.write(name + "\\n")

@evaluator(version="1")
def towers(response: str) -> float:
    note("towers")
    return float("Tower" in response)

@evaluator(version="1")
async def slow(response: str) -> float:
    note("slow")
    await asyncio.sleep(2.0)
    return 1.0
"""
TOML = """
[drift]
every = "7d"
[[rule]]
name = "mine"
evaluators = ["towers"]
rate = 1.0
[[monitor]]
name = "refused"
metric = "refused_rate"
condition = "> 0.1"
window = "1h"
"""
THEIRS = {"evaluator": "theirs", "version": "0123456789ab", "judge": None}


def main(commit: str) -> None:
    """Check out the older commit, let it write, then open its store."""
    with tempfile.TemporaryDirectory() as name:
        folder, older = Path(name), Path(name) / "older"
        (folder / "mine.py").write_text(MINE)
        (folder / "ragpulse.toml").write_text(TOML)
        subprocess.run(["git", "-C", REPOSITORY, "worktree", "add", "-q", "--detach", older, commit], check=True)
        try:
            run(older, "write", folder)
            run(REPOSITORY, "read", folder)
        finally:
            subprocess.run(["git", "-C", REPOSITORY, "worktree", "remove", "--force", older], check=True)


def run(code: Path, step: str, folder: Path) -> None:
    """Run one step with the packages of a checkout; the first ends with a kill."""
    packages = [str(code / name) for name in ("collector", "evaluators", "sdk", "dashboards", "tests")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(packages)}
    done = subprocess.run([sys.executable, __file__, step, folder], env=environment, check=False)
    if done.returncode not in ((-signal.SIGKILL,) if step == "write" else (0,)):
        sys.exit(f"{step}: exit {done.returncode}")


def collector(folder: Path) -> Any:
    """A client of a running collector over the store."""
    from ragpulse_collector.app import Collector
    from ragpulse_collector.client import connect
    from ragpulse_collector.configuration import load_settings

    options = {"db": str(folder / "store.duckdb"), "port": 0, "settle_s": 0.1, "quiet_s": 0.1}
    settings = load_settings(folder / "ragpulse.toml").with_options("collector", options)
    running = Collector(settings, loads=[str(folder / "mine.py")])
    running.start()
    return connect(running.url)


def until(look: Callable[[], Any], within_s: float = 150.0) -> Any:
    """Poll until there is something."""
    end = time.monotonic() + within_s
    while not (found := look()):
        assert time.monotonic() < end, "it took too long"
        time.sleep(0.3)
    return found


def write(folder: Path) -> None:
    """Leave everything in flight, and die."""
    from traffic import rag_trace, send

    client = collector(folder)
    for number in range(UNITS):
        answer = "The Tower is 330 m tall." if number % 2 else "I do not know."
        send(client.url, rag_trace(number, query=f"How tall is tower {number}?", session=f"s{number}", response=answer))
    until(lambda: len(client.scores("evaluator = 'towers' and status = 'ok'").rows()) == UNITS)
    client.call("POST drift/anchors", {"evaluator": "towers"})
    client.call("POST drift/run", {"evaluator": "towers"})
    until(lambda: client.call("GET drift", {"evaluator": "towers"})["checks"])
    until(lambda: states(client).get("refused") == "firing")
    external = client.call("POST replays", {"external": [THEIRS], "since": "1d"})["replays"][0]["run_id"]
    cases = client.call(f"GET replays/{external}/cases")["cases"][:7]
    results = [{"job_id": one["job_id"], "result": {**THEIRS, "score": 1.0, "normalized": 1.0}} for one in cases]
    client.call(f"POST replays/{external}/results", {"results": results})
    replay = client.call("POST replays", {"evaluators": ["slow"], "since": "1d"})["replays"][0]["run_id"]
    until(lambda: client.call(f"GET replays/{replay}")["done"] >= 5)
    left = {"replay": replay, "external": external, "drift": client.call("GET drift", {"evaluator": "towers"})}
    (folder / "left.json").write_text(json.dumps(left, default=str))
    os.kill(os.getpid(), signal.SIGKILL)


def states(client: Any) -> dict[str, str]:
    """The monitors' states."""
    return {monitor["name"]: monitor["state"] for monitor in client.call("GET monitors")["monitors"]}


def read(folder: Path) -> None:
    """Open the store and check what became of it."""
    left, client = json.loads((folder / "left.json").read_text()), collector(folder)
    assert states(client)["refused"] == "firing", states(client)
    replay = until(lambda: (one := client.call(f"GET replays/{left['replay']}"))["status"] == "done" and one)
    assert (replay["done"], replay["ok"]) == (UNITS, UNITS), replay
    external = client.call(f"GET replays/{left['external']}")
    cases = client.call(f"GET replays/{left['external']}/cases", {"limit": UNITS})["cases"]
    assert (external["done"], len(cases)) == (7, UNITS - 7), external
    drift = client.call("GET drift", {"evaluator": "towers"})
    former = {key: left["drift"][key] for key in ("n", "frozen_at", "verdict")}
    assert {key: drift[key] for key in former} == former, drift
    moves = [[check["judge_move"] for check in one["checks"]] for one in (drift, left["drift"])]
    assert moves[0] == moves[1], moves
    asked = (folder / "asked").read_text().split()
    assert asked.count("towers") == 2 * UNITS, "the rule, and one check"
    assert asked.count("slow") <= UNITS + 8, "those that ran when it was killed"
    print(
        f"{UNITS} units: the replay ended ({asked.count('slow')} asked), the caller's goes on, frozen answers are kept"
    )
    os._exit(0)


if __name__ == "__main__":
    step, *rest = sys.argv[1:]
    {"write": write, "read": read}[step](Path(rest[0])) if rest else main(step)
