"""Bytes a span on disk with texts as long as real ones, and what another way to store less would save.

    python benchmarks/text_size.py

Each trace has a question of 12 words, five documents of 800 characters, a prompt that repeats them, and an answer of
90 words. The texts are docstrings of installed packages; a few documents are found often. `referring` replaces each
document inside a prompt by a mark, which the collector does not (decision 18).
"""

from __future__ import annotations

import argparse
import json
import random
import re
import site
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import duckdb

from ragpulse_collector.conventions import decode
from ragpulse_collector.records import RawBody
from ragpulse_collector.store import EmbeddedStore
from ragpulse_collector.store.retention import vacuum

CHUNKS, CHARACTERS, FOUND, A_BODY = 3000, 800, 5, 200
RANDOM = random.Random(3)


def prose() -> str:
    """Return the docstrings of installed packages, as one text."""
    found: list[str] = []
    for path in sorted(Path(site.getsitepackages()[0]).rglob("*.py"))[::7]:
        found += re.findall(r'"""(.{300,}?)"""', path.read_text("utf-8", "replace"), re.DOTALL)
        if sum(map(len, found)) > CHUNKS * CHARACTERS * 1.5:
            break
    return " ".join(" ".join(found).split())


def span(number: int, place: int, name: str, at: int, attributes: dict[str, str]) -> dict[str, Any]:
    """Return one span; the first of a trace is its root."""
    root = number * 8 + 1
    return {
        "traceId": f"{number + 1:032x}", "spanId": f"{root + place:016x}", "name": name,
        **({"parentSpanId": f"{root:016x}"} if place else {}),
        "startTimeUnixNano": str(at), "endTimeUnixNano": str(at + 10**8),
        "attributes": [{"key": key, "value": {"stringValue": value}} for key, value in attributes.items()],
    }  # fmt: skip


def trace(number: int, chunks: list[str], words: list[str], at: int) -> list[dict[str, Any]]:
    """Return a question, its search and its model call."""

    def some(count: int) -> str:
        first = RANDOM.randrange(len(words) - count)
        return " ".join(words[first : first + count])

    found = RANDOM.choices(range(len(chunks)), [1 / (place + 10) ** 0.8 for place in range(len(chunks))], k=FOUND)
    question, answer = some(12), some(90)
    documents = json.dumps([{"id": f"doc-{one}", "score": 0.5, "content": chunks[one]} for one in found])
    prompt = "\n\n".join(["Answer from the context only.", *(chunks[one] for one in found), f"Question: {question}"])
    return [
        span(number, 0, "answer", at, {"ragpulse.span.kind": "rag", "input.value": question, "output.value": answer}),
        span(number, 1, "search", at, {"ragpulse.span.kind": "retriever", "gen_ai.retrieval.documents": documents}),
        span(number, 2, "chat", at, {
            "ragpulse.span.kind": "llm", "gen_ai.request.model": "gpt-5-mini",
            "gen_ai.input.messages": json.dumps([{"role": "user", "parts": [{"type": "text", "content": prompt}]}]),
            "gen_ai.output.messages": json.dumps([{"role": "assistant", "content": answer}]),
        }),
    ]  # fmt: skip


def fill(path: Path, traces: int) -> None:
    """Store the traces as a collector does."""
    text = prose()
    chunks = [text[at : at + CHARACTERS] for at in range(0, CHUNKS * CHARACTERS, CHARACTERS)]
    words, begun = text.split(), time.time_ns() - 3600 * 10**9
    store = EmbeddedStore(path, decode=decode)
    for first in range(0, traces, A_BODY):
        numbers = range(first, first + A_BODY)
        spans = [one for number in numbers for one in trace(number, chunks, words, begun + number * 10**7)]
        body = json.dumps({"resourceSpans": [{"resource": {}, "scopeSpans": [{"spans": spans}]}]}).encode()
        store.submit(RawBody(signal="traces", content_type="application/json", body=body)).result()
    store.close()


def referring(path: Path) -> int:
    """Return the size after each prompt refers to the documents of its trace."""
    with duckdb.connect(str(path)) as connection:
        documents = defaultdict(list)
        for trace_id, text in connection.execute("SELECT trace_id, text FROM raw.contexts").fetchall():
            documents[trace_id].append(text)
        rows = connection.execute(
            "SELECT trace_id, span_id, query FROM raw.contents WHERE len(query) > 1000"
        ).fetchall()
        short = []
        for trace_id, _, text in rows:
            for place, document in enumerate(documents[trace_id]):
                text = text.replace(document, f"\x1b{place}")
            short.append(text)
        given = {"t": [str(row[0]) for row in rows], "s": [row[1] for row in rows], "q": short}
        connection.execute(
            "UPDATE raw.contents SET query = u.q FROM (SELECT unnest($t::UUID[]) AS t, unnest($s::UBIGINT[]) AS s,"
            " unnest($q::VARCHAR[]) AS q) u WHERE trace_id = u.t AND span_id = u.s",
            given,
        )
    return vacuum(path)[1]


def main() -> None:
    """Print a line for each way."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--traces", type=int, default=4000)
    traces = parser.parse_args().traces
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "text.duckdb"
        fill(path, traces)
        stopped, size = path.stat().st_size, vacuum(path)[1]
        for name, found in (("stopped", stopped), ("vacuumed", size), ("referring", referring(path))):
            print(f"{name:10} {found / traces / 3:6.0f} B/span, {1 - found / size:4.0%} less")


if __name__ == "__main__":
    main()
