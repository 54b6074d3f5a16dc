"""kill -9 of a collector with runs of each kind in flight: nothing is lost, doubled, orphaned, or beyond a budget.

    python benchmarks/runs.py [--kills 50]

A rule judges what arrives; beside it run a replay with a cap, one of a caller (`replay --here`, killed at every fifth
round), a check over frozen answers, and a check of the judge on labelled answers with a cap. As one ends, the next one
of its kind starts. At the end all runs come to their end, and the tables are read.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
from _served import Server

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from loopback import LoopbackModel
from traffic import rag_trace, send

from ragpulse_collector.client import Client, ClientError, connect

CAP, DAY = 20.0, 60.0
TRACES = 12
"""New ones in each round."""
TOML = """
[collector]
settle_s = 0
grpc = false
[judge]
model = "{url}#m"
budget_usd_per_day = {day}
max_tokens = 50
[prices."m"]
input = 10
output = 10
[[evaluator]]
name = "again"
use = "faithfulness"
[[rule]]
name = "live"
evaluators = ["faithfulness"]
rate = 1.0
"""
MINE = """
import time
from ragpulse_evaluators import evaluator

@evaluator(version="1")
def mine(response: str) -> float:
    time.sleep(0.02)
    return 1.0
"""
LOST = """
    SELECT count(*) FROM raw.eval_jobs j LEFT JOIN (SELECT run_id, arg_max(status, created_at) AS status FROM raw.runs
        GROUP BY run_id) r ON r.run_id = j.run_id
    WHERE (r.status IS NULL OR r.status = 'done')
      AND j.job_id NOT IN (SELECT job_id FROM raw.scores WHERE status <> 'error' OR attempt >= 5)
      AND j.job_id NOT IN (SELECT job_id FROM raw.run_items WHERE job_id IS NOT NULL)"""
DOUBLED = """
    SELECT count(*) - count(DISTINCT job_id) FROM (SELECT job_id FROM raw.scores WHERE status <> 'error'
        UNION ALL SELECT job_id FROM raw.run_items WHERE reused)"""
BEYOND = f"""
    SELECT count(*) FROM (SELECT run_id, sum(usd) AS usd FROM raw.ledger GROUP BY run_id, CASE WHEN run_id IS NULL
        THEN day END) WHERE usd > CASE WHEN run_id IS NULL THEN {DAY} ELSE {CAP} END"""
KINDS = """
    SELECT CASE WHEN spec LIKE '%"labelled":true%' THEN 'check of the judge' WHEN kind = 'check' THEN 'frozen answers'
        WHEN spec LIKE '%"external"%' THEN 'caller' ELSE 'replay' END, count(DISTINCT run_id),
        count(*) FILTER (status = 'done' AND result IS NULL) FROM raw.runs GROUP BY 1 ORDER BY 1"""


def reply(prompt: str) -> str:
    """The judge's answer, a moment later."""
    time.sleep(0.01)
    return '{"reason": "", "winner": "1"}' if '"winner"' in prompt else '{"reason": "stated", "verdict": "YES"}'


class Rounds:
    """A collector that is killed again and again."""

    def __init__(self, folder: Path, judge: LoopbackModel) -> None:
        self.db, self.config, self.mine = folder / "runs.duckdb", folder / "ragpulse.toml", folder / "mine.py"
        self.config.write_text(TOML.format(url=judge.url, day=DAY))
        self.mine.write_text(MINE)
        self.sent, self.orphans, self._below = 0, 0, list[int]()
        self._caller: subprocess.Popen[bytes] | None = None

    def serve(self) -> tuple[Server, Client]:
        server = Server(self.db, "--config", str(self.config))
        client = connect(f"http://127.0.0.1:{server.port}")
        self.orphans += sum(Path(f"/proc/{pid}").exists() for pid in self._below)  # a start takes seconds
        until(f"a start after {self.sent} traces", lambda: answers(client))
        return server, client

    def keep_going(self, server: Server, client: Client) -> None:
        """Send traces, and start what is not there or has ended."""
        numbers = range(self.sent, self.sent + TRACES)
        spans = [span for n in numbers for span in rag_trace(n, query=f"Question {n}?", response=f"It is {n} m tall.")]
        send(f"http://127.0.0.1:{server.port}", spans)
        self.sent += TRACES
        runs = client.call("GET runs")["runs"]
        going = {(run["population"]["of"], run["by"]) for run in runs if run["state"] == "running"}
        if ("range", "collector") not in going:
            client.call("POST replays", {"evaluators": ["again"], "since": "1d", "max_usd": CAP})
        if ("labelled", "collector") not in going:
            client.call("POST judge/check", {"max_usd": CAP})
        if ("dataset", "collector") not in going:
            try:
                if not client.call("GET drift")["watched"]:
                    client.call("POST drift/anchors", {"evaluator": "faithfulness"})
                client.call("POST drift/run", {"evaluator": "faithfulness"})
            except ClientError as error:
                print(error, file=sys.stderr)  # there are no ten verdicts yet
        self._call(server)

    def _call(self, server: Server) -> None:
        """Go on with the caller's replay."""
        if self._caller is not None and self._caller.poll() is None:
            return
        command = [sys.executable, "-m", "ragpulse_collector", "replay", "-e", "mine", "--load", str(self.mine)]
        command += ["--since", "1d", "--yes", "--json", "--url", f"http://127.0.0.1:{server.port}"]
        null = subprocess.DEVNULL
        self._caller = subprocess.Popen(command, stdout=null, stderr=null, cwd=self.db.parent)

    def kill(self, server: Server, *, caller: bool) -> None:
        """End the collector, and the caller as well."""
        self._below = children(server.pid)
        server.kill()
        if caller and self._caller is not None:
            self._caller.kill()
        if self._caller is not None:
            self._caller.wait()  # nothing answers it

    def finish(self) -> None:
        """Let everything come to its end."""
        server, client = self.serve()
        self._call(server)
        assert self._caller is not None
        self._caller.wait()
        until(
            "no open run",
            lambda: [run for run in client.call("GET runs")["runs"] if run["total"] and run["state"] == "running"],
            [],
        )
        until("no pending job", lambda: client.call("GET status")["evaluations"]["waiting"], [])
        server.stop()


def answers(client: Client) -> bool:
    """Whether the collector has started."""
    try:
        return bool(client.call("GET status"))
    except ClientError:
        return False


def children(pid: int) -> list[int]:
    """The processes below one."""
    found = [
        int(each) for task in Path(f"/proc/{pid}/task").iterdir() for each in (task / "children").read_text().split()
    ]
    return found + [below for child in found for below in children(child)]


def until(what: str, look: Callable[[], Any], wanted: Any = True, within_s: float = 300.0) -> None:
    """Poll until it is as wanted."""
    end = time.monotonic() + within_s
    while (found := look()) != wanted:
        if time.monotonic() > end:
            sys.exit(f"after {within_s:g} s still not: {what}; {found}")
        time.sleep(0.1)


def main() -> None:
    """Kill, finish, read."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=50)
    kills, dice = parser.parse_args().kills, random.Random(1)
    judge = LoopbackModel(reply)
    with tempfile.TemporaryDirectory() as name:
        rounds = Rounds(Path(name), judge)
        for number in range(kills):
            server, client = rounds.serve()
            rounds.keep_going(server, client)
            time.sleep(dice.uniform(0.5, 6.0))
            rounds.kill(server, caller=number % 5 == 0)
            print(".", end="", flush=True, file=sys.stderr)
        rounds.finish()
        tables = duckdb.connect(str(rounds.db), read_only=True)
        lost, doubled, beyond = (tables.execute(query).fetchall()[0][0] for query in (LOST, DOUBLED, BEYOND))
        (live,) = tables.execute("SELECT count(DISTINCT trace_id) FROM raw.scores WHERE source = 'online'").fetchall()[
            0
        ]
        kinds = [f"{count} x {kind} ({done} to the end)" for kind, count, done in tables.execute(KINDS).fetchall()]
        states = tables.execute("SELECT DISTINCT arg_max(status, created_at) FROM raw.runs GROUP BY run_id").fetchall()
        tables.close()
    judge.close()
    print(f"{kills} x kill -9: {rounds.sent} traces, {live} judged as they arrived; {', '.join(kinds)};")
    print(f"states {sorted(state for (state,) in states)}; the judge was asked {len(judge.asked)} times;")
    print(f"jobs lost {lost}, doubled {doubled}, budgets exceeded {beyond}, processes left {rounds.orphans}")
    sys.exit(bool(lost or doubled or beyond or rounds.orphans or live != rounds.sent))


if __name__ == "__main__":
    main()
