"""How `collector/fixtures/store-0.1.duckdb.gz` was made: `ragpulse serve` of version 0.1, every table filled.

Run it with that version only (`python tests/golden_store.py OUT`): the file is what later versions must read.
"""

from __future__ import annotations

import gzip
import json
import sys
import tempfile
import urllib.request
from datetime import datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

from loopback import LoopbackModel
from served import Served
from traffic import rag_trace, send
from waiting import eventually

from ragpulse_collector.conventions import decode
from ragpulse_collector.store.embedded import EmbeddedStore

START_NS = 1_795_000_000_000_000_000
CONFIG = """
[collector]
retention_days = 36500
[judge]
model = "openai/loopback"
api_base = "{api_base}"
budget_usd_per_day = 1.0
[[rule]]
name = "offline-checks"
evaluators = ["groundedness", "refusal"]
rate = 1.0
[[rule]]
name = "judged"
evaluators = ["conciseness"]
rate = 0.5
[[monitor]]
name = "traffic"
metric = "requests"
condition = "> 1"
window = "1h"
"""


def write(out: Path) -> None:
    """Fill every table and write the closed file, compressed."""
    model = LoopbackModel(lambda _: '{"score": 0.8, "verdict": "yes", "reasoning": "Short.", "explanation": "Short."}')
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "store.duckdb"
        config = Path(folder) / "ragpulse.toml"
        config.write_text(CONFIG.format(api_base=model.url))
        with Served(file, "--config", str(config)) as served:
            _fill(served.url)
            served.terminate()
        _add_money_and_monitors(file)
        out.write_bytes(gzip.compress(file.read_bytes(), mtime=0))
    model.close()


def _fill(url: str) -> None:
    for number in range(24):
        send(url, rag_trace(number, prompt_version=f"v{number % 2 + 6}", error=number % 7 == 0))
    _send_logs(url)
    _until(url, "SELECT count(*) >= 24 FROM scores WHERE evaluator = 'groundedness'")
    _until(url, "SELECT count(*) >= 3 FROM scores WHERE evaluator = 'conciseness'")
    trace = _post(url, "sql", query="SELECT trace_id FROM traces ORDER BY trace_id LIMIT 1")["rows"][0][0]
    _post(url, "labels", trace_id=trace, evaluator="groundedness", passing=True, annotator="ann", comment="fine")
    _post(url, "scores", trace_id=trace, name="thumbs", score=1)
    _post(url, "rules", name="more", evaluators=["citation_check"], rate=0.5)
    _post(url, "replays", evaluators=["context_utilization"])
    _until(url, "SELECT count(*) >= 24 FROM scores WHERE source = 'replay'")
    _post(url, "prune", older_than="3650d")
    _post(url, "remap")
    _until(url, "SELECT count(*) > 0 FROM decisions")


def _add_money_and_monitors(file: Path) -> None:
    """A loopback judge costs nothing and monitors look once a minute: their rows are appended by the store itself."""
    store = EmbeddedStore(file, decode=decode)
    at = datetime(2026, 11, 23)
    names = ("entry_id", "day", "evaluator", "job_id", "run_id", "kind", "usd", "created_at")
    spent = [
        (uuid4().hex, at.date(), "conciseness", uuid4().hex, None, kind, 0.01, at) for kind in ("reserve", "settle")
    ]
    store.write(lambda transaction: transaction.append("ledger", names, spent)).result()
    names = ("monitor", "group", "state", "value", "lo", "hi", "text", "delivery", "statistic", "created_at")
    state = [("traffic", "{}", "firing", 24.0, None, None, "requests is > 1", None, None, at)]
    store.write(lambda transaction: transaction.append("monitor_states", names, state)).result()
    store.close()


def _send_logs(url: str) -> None:
    log = {
        "traceId": f"{1:032x}", "spanId": f"{1:016x}", "timeUnixNano": str(START_NS), "eventName": "gen_ai.choice",
        "body": {"kvlistValue": {"values": [{"key": "content", "value": {"stringValue": "Told by a log."}}]}},
    }  # fmt: skip
    waiting = {**log, "spanId": "00000000000000ff"}
    score = {
        "timeUnixNano": str(START_NS), "eventName": "gen_ai.evaluation.result", "traceId": f"{2:032x}",
        "attributes": [
            {"key": "gen_ai.evaluation.name", "value": {"stringValue": "helpful"}},
            {"key": "gen_ai.evaluation.score.value", "value": {"doubleValue": 0.5}},
        ],
    }  # fmt: skip
    body = {"resourceLogs": [{"scopeLogs": [{"logRecords": [log, waiting, score]}]}]}
    _ask(f"{url}/v1/logs", body)


def _until(url: str, query: str) -> None:
    eventually(lambda: _post(url, "sql", query=query)["rows"][0][0])


def _post(url: str, path: str, **body: Any) -> Any:
    return _ask(f"{url}/api/v1/{path}", body)


def _ask(address: str, body: Any) -> Any:
    request = urllib.request.Request(address, json.dumps(body).encode(), {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.loads(answer.read() or b"null")


if __name__ == "__main__":
    write(Path(sys.argv[1]))
