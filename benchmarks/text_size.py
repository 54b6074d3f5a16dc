"""Bytes a span on disk with texts of realistic length, and what references to repeated documents would save.

    python benchmarks/text_size.py

Each trace has a question of 12 words, five documents of 800 characters, a prompt that repeats them, and an answer of
90 words. The texts are docstrings of installed packages; a few documents are retrieved often. `referring` replaces
each document inside a prompt by a mark, which the collector does not (decision 18).
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

CHUNKS, CHARACTERS, DOCUMENTS, TRACES_A_BODY = 3000, 800, 5, 200
RANDOM = random.Random(3)


def prose() -> str:
    """Return the docstrings of installed packages, as one text."""
    texts: list[str] = []
    for path in sorted(Path(site.getsitepackages()[0]).rglob("*.py"))[::7]:
        texts += re.findall(r'"""(.{300,}?)"""', path.read_text("utf-8", "replace"), re.DOTALL)
        if sum(map(len, texts)) > CHUNKS * CHARACTERS * 1.5:
            break
    return " ".join(" ".join(texts).split())


def span(number: int, index: int, name: str, start: int, attributes: dict[str, str]) -> dict[str, Any]:
    """Return one span; the first of a trace is its root."""
    root = number * 8 + 1
    return {
        "traceId": f"{number + 1:032x}", "spanId": f"{root + index:016x}", "name": name,
        **({"parentSpanId": f"{root:016x}"} if index else {}),
        "startTimeUnixNano": str(start), "endTimeUnixNano": str(start + 10**8),
        "attributes": [{"key": key, "value": {"stringValue": value}} for key, value in attributes.items()],
    }  # fmt: skip


def trace(number: int, chunks: list[str], words: list[str], start: int) -> list[dict[str, Any]]:
    """Return a question, its search and its model call."""

    def phrase(count: int) -> str:
        first = RANDOM.randrange(len(words) - count)
        return " ".join(words[first : first + count])

    weights = [1 / (rank + 10) ** 0.8 for rank in range(len(chunks))]
    ids = RANDOM.choices(range(len(chunks)), weights, k=DOCUMENTS)
    question, answer = phrase(12), phrase(90)
    documents = json.dumps([{"id": f"doc-{each}", "score": 0.5, "content": chunks[each]} for each in ids])
    prompt = "\n\n".join(["Answer from the context only.", *(chunks[each] for each in ids), f"Question: {question}"])
    kind = "ragpulse.span.kind"
    return [
        span(number, 0, "answer", start, {kind: "rag", "input.value": question, "output.value": answer}),
        span(number, 1, "search", start, {kind: "retriever", "gen_ai.retrieval.documents": documents}),
        span(number, 2, "chat", start, {
            kind: "llm", "gen_ai.request.model": "gpt-5-mini",
            "gen_ai.input.messages": json.dumps([{"role": "user", "parts": [{"type": "text", "content": prompt}]}]),
            "gen_ai.output.messages": json.dumps([{"role": "assistant", "content": answer}]),
        }),
    ]  # fmt: skip


def fill(path: Path, traces: int) -> None:
    """Store the traces as a collector does."""
    text = prose()
    chunks = [text[start : start + CHARACTERS] for start in range(0, CHUNKS * CHARACTERS, CHARACTERS)]
    words, begun = text.split(), time.time_ns() - 3600 * 10**9
    store = EmbeddedStore(path, decode=decode)
    for first in range(0, traces, TRACES_A_BODY):
        numbers = range(first, first + TRACES_A_BODY)
        spans = [each for number in numbers for each in trace(number, chunks, words, begun + number * 10**7)]
        body = json.dumps({"resourceSpans": [{"resource": {}, "scopeSpans": [{"spans": spans}]}]}).encode()
        store.submit(RawBody(signal="traces", content_type="application/json", body=body)).result()
    store.close()


def referring(path: Path) -> int:
    """Make each prompt refer to the documents of its trace; return the size of the file."""
    with duckdb.connect(str(path)) as connection:
        documents = defaultdict(list)
        for trace_id, text in connection.execute("SELECT trace_id, text FROM raw.contexts").fetchall():
            documents[trace_id].append(text)
        rows = connection.execute(
            "SELECT trace_id, span_id, query FROM raw.contents WHERE len(query) > 1000"
        ).fetchall()
        short = []
        for trace_id, _, text in rows:
            for index, document in enumerate(documents[trace_id]):
                text = text.replace(document, f"\x1b{index}")
            short.append(text)
        updates = {"t": [str(row[0]) for row in rows], "s": [row[1] for row in rows], "q": short}
        connection.execute(
            "UPDATE raw.contents SET query = u.q FROM (SELECT unnest($t::UUID[]) AS t, unnest($s::UBIGINT[]) AS s,"
            " unnest($q::VARCHAR[]) AS q) u WHERE trace_id = u.t AND span_id = u.s",
            updates,
        )
    return vacuum(path)[1]


def main() -> None:
    """Print the bytes a span of each file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--traces", type=int, default=4000)
    traces = parser.parse_args().traces
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "text.duckdb"
        fill(path, traces)
        stopped, size = path.stat().st_size, vacuum(path)[1]
        for name, each in (("stopped", stopped), ("vacuumed", size), ("referring", referring(path))):
            print(f"{name:10} {each / traces / 3:6.0f} B/span, {1 - each / size:4.0%} less")


if __name__ == "__main__":
    main()
