"""Golden outputs of units: what lists, views and decisions hold of 5,000 generated traces and of the fixtures.

The traces are of our own SDK, OpenInference and the GenAI conventions: trees and orphans, errors, sessions, missing
texts, weights of an upstream sampler, repeated usage, judges, several requests in a trace, late spans. They are read
while they are undecided, and again when the sampler has decided them. The golden file has a digest of each column.
`python tests/golden_units.py` writes it again and prints the columns that changed. Run it only after an intended change
of meaning, and name that change in the commit.
"""

from __future__ import annotations

import hashlib
import json
import random
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import orjson
from stored_units import create_empty

from ragpulse_collector.api.http import plain
from ragpulse_collector.api.models import Filters, TraceList
from ragpulse_collector.conventions import decode
from ragpulse_collector.operations.traces import session_list, trace_list
from ragpulse_collector.records import RawBody
from ragpulse_collector.sampling import Rule, Sampler
from ragpulse_collector.settings import Price
from ragpulse_collector.store import EmbeddedStore, Store
from ragpulse_collector.store.ingest.prices import Prices
from ragpulse_collector.units import cases

FIXTURES = Path(__file__).parent / "collector" / "fixtures"
GOLDEN = FIXTURES / "golden" / "units.json"
START = datetime(2026, 3, 1, 12)
_START_NS = 1_772_366_400_000_000_000
_MS = 10**6
TRACES = 5_000
_A_BODY = 250
RULES = (
    Rule(name="all", evaluators=("answered",), rate=1.0),
    Rule(name="some", evaluators=("groundedness",), rate=0.3, where="n_spans > 2 AND NOT error"),
    Rule(name="talks", evaluators=("relevancy",), rate=0.5, unit="session"),
)
_PRICES = {"m-small": Price(input=1, output=2, cached_input=0.5), "m-large": Price(input=10, output=20)}
_IGNORED = {"decided_at", "created_at", "received_at", "job_id"}
"""Columns that hold the time of the test, or an id made of it."""
_ROWS = {
    "facts": "FROM raw.trace_facts", "decisions": "FROM raw.decisions", "jobs": "FROM raw.eval_jobs",
    "contents": "FROM raw.contents", "traces": "FROM traces", "sessions": "FROM sessions",
}  # fmt: skip
_LISTS = tuple({"limit": 1000, "sort": sort} for sort in ("time", "expensive", "long"))


_DIALECTS: dict[str, dict[str, Any]] = {
    "own": {
        "kind": "ragpulse.span.kind", "query": "input.value", "response": "output.value", "session": "session.id",
        "user": "user.id", "version": "gen_ai.prompt.version", "prompt": "gen_ai.prompt.name",
        "model": "gen_ai.request.model", "input": "gen_ai.usage.input_tokens", "output": "gen_ai.usage.output_tokens",
        "id": "gen_ai.response.id", "variant": "ragpulse.variant",
    },
    "openinference": {
        "kind": "openinference.span.kind", "query": "input.value", "response": "output.value", "session": "session.id",
        "user": "user.id", "version": "llm.prompt_template.version", "prompt": "prompt.id", "model": "llm.model_name",
        "input": "llm.token_count.prompt", "output": "llm.token_count.completion", "id": "gen_ai.response.id",
        "variant": "ragpulse.variant",
    },
    "genai": {
        "kind": "gen_ai.operation.name", "query": "gen_ai.input.messages", "response": "gen_ai.output.messages",
        "session": "gen_ai.conversation.id", "user": "user.id", "version": "gen_ai.prompt.version",
        "prompt": "gen_ai.prompt.name", "model": "gen_ai.request.model", "input": "gen_ai.usage.input_tokens",
        "output": "gen_ai.usage.output_tokens", "id": "gen_ai.response.id", "variant": "ragpulse.variant",
    },
}  # fmt: skip
_GENAI = {"rag": "invoke_workflow", "chain": "invoke_workflow", "llm": "chat", "retriever": "retrieval",
          "agent": "invoke_agent", "tool": "execute_tool", "embedding": "embeddings"}  # fmt: skip
_RARE: dict[str, tuple[Any, ...]] = {
    "gen_ai.agent.name": ("planner", "writer"), "gen_ai.data_source.id": ("wiki",), "gen_ai.retrieval.top_k": (3, 5),
    "gen_ai.usage.cache_read.input_tokens": (1, 2), "ragpulse.control_flow": ("Retry",),
}  # fmt: skip
_TREES: tuple[tuple[tuple[str, int | None], ...], ...] = (
    (("rag", None),),
    (("rag", None), ("retriever", 0), ("llm", 0)),
    (("rag", None), ("retriever", 0), ("embedding", 1), ("reranker", 0), ("llm", 0)),
    (("rag", None), ("rag", 0), ("llm", 1)),
    (("other", None), ("rag", 0), ("llm", 1), ("rag", 0), ("llm", 3)),
    (("agent", None), ("llm", 0), ("tool", 0), ("llm", 0)),
    (("chain", None), ("chain", 0), ("llm", 1), ("llm", 2)),
    (("llm", None), ("llm", 0)),
    (("other", None), ("other", 0), ("retriever", 1), ("llm", 1), ("evaluator", 0), ("llm", 4)),
    (("evaluator", None), ("llm", 0)),
    (("llm", 9), ("retriever", 9)),  # the parent was never received
    (("chain", None), ("retriever", 0), ("llm", 0), ("guardrail", 0)),
)
"""Kinds and parents of the spans of a trace."""


def generated(seed: int = 36) -> Iterator[tuple[bytes, bool]]:
    """Yield OTLP bodies, each with whether it arrives only after the traces are decided."""
    rng = random.Random(seed)
    early: list[dict[str, Any]] = []
    late: list[dict[str, Any]] = []
    for number in range(TRACES):
        group = _trace(rng, number)
        spans = group["scopeSpans"][0]["spans"]
        if len(spans) > 2 and rng.random() < 0.05:
            late.append({**group, "scopeSpans": [{"spans": [spans.pop()]}]})
        early.append(group)
    for groups, is_late in ((early, False), (late, True)):
        for begin in range(0, len(groups), _A_BODY):
            yield orjson.dumps({"resourceSpans": groups[begin : begin + _A_BODY]}), is_late


def _trace(rng: random.Random, number: int) -> dict[str, Any]:
    dialect = rng.choice(tuple(_DIALECTS))
    session = f"session {rng.randrange(TRACES // 5)}" if rng.random() < 0.6 else None
    begin = _START_NS + number * 40 * _MS
    if rng.random() < 0.01:
        begin -= 3 * 86_400 * 10**9  # of another clock, or sent late
    spans = [
        _span(rng, number, dialect, place, kind, parent, begin, session)
        for place, (kind, parent) in enumerate(rng.choice(_TREES))
    ]
    rng.shuffle(spans)
    resource = {"service.name": rng.choice(("desk", "shop")), "service.version": rng.choice(("1.0", "1.1"))}
    if rng.random() < 0.7:
        resource["deployment.environment.name"] = rng.choice(("production", "staging"))
    return {"resource": {"attributes": _attributes(resource)}, "scopeSpans": [{"spans": spans}]}


def _span(
    rng: random.Random, number: int, dialect: str, place: int, kind: str, parent: int | None, begin: int,
    session: str | None,
) -> dict[str, Any]:  # fmt: skip
    start = begin + place * 3 * _MS + rng.randrange(_MS)
    if place and rng.random() < 0.004:
        start += 5 * 86_400 * 10**9  # the clock of another machine
    span = {
        "traceId": f"{number + 1:032x}", "spanId": f"{place + 1:016x}", "name": f"{kind} {place}",
        "startTimeUnixNano": str(start), "endTimeUnixNano": str(start + rng.randrange(2_000) * _MS),
        "attributes": _attributes(_content(rng, number, dialect, place, kind, session)),
    }  # fmt: skip
    if parent is not None:
        span["parentSpanId"] = f"{parent + 1:016x}"
    if rng.random() < 0.06:
        span["status"] = {"code": 2, "message": "failed"}
    if number % 7 == 0:
        span["traceState"] = f"ot=th:{'c' if number % 2 else '8'}"
    return span


def _content(
    rng: random.Random, number: int, dialect: str, place: int, kind: str, session: str | None
) -> dict[str, Any]:
    words = _DIALECTS[dialect]
    found = _texts(rng, number, words, dialect, kind)
    value = kind.upper() if dialect == "openinference" else _GENAI.get(kind) if dialect == "genai" else kind
    if value is not None and kind != "other":
        found[words["kind"]] = value
    if kind in ("llm", "embedding", "agent"):
        found |= _usage(rng, number, words, kind)
    for name, values in (("version", ("v1", "v2")), ("prompt", ("qa",)), ("variant", ("a", "b")), ("user", "uvw")):
        if rng.random() < 0.3:
            found[words[name]] = rng.choice(values)
    if rng.random() < 0.05:
        about = "trace.annotations.0.annotation."
        found |= {about + "name": f"style {place}" if place else "user_feedback", about + "annotator_kind": "HUMAN",
                  about + "score": rng.randrange(-2, 3) / 2}  # fmt: skip
    found |= {name: rng.choice(values) for name, values in _RARE.items() if rng.random() < 0.08}
    if session and (place == 0 or rng.random() < 0.5):
        found[words["session"]] = session
    if rng.random() < 0.1:
        found |= {"metadata": json.dumps({"tenant": f"t{number % 5}", "n": number % 3}), "tag.tags": ["beta", "de"]}
    return found | _documents(rng, dialect, kind)


def _texts(rng: random.Random, number: int, words: Mapping[str, str], dialect: str, kind: str) -> dict[str, Any]:
    found = {}
    if rng.random() < (0.8 if kind != "other" else 0.2):
        text = f"how do I return item {number}?"
        found[words["query"]] = _messages("user", text) if dialect == "genai" else text
    if rng.random() < 0.7:
        text = rng.choice((f"within {number} days", "I cannot help with that.", " "))
        found[words["response"]] = _messages("assistant", text) if dialect == "genai" else text
    return found


def _documents(rng: random.Random, dialect: str, kind: str) -> dict[str, Any]:
    if kind not in ("retriever", "reranker") or dialect == "genai":
        return {}
    name = "retrieval.documents" if kind == "retriever" else "reranker.output_documents"
    documents: dict[str, Any] = {}
    for rank in range(rng.randrange(3)):
        documents |= {f"{name}.{rank}.document.content": f"text {rank}",
                      f"{name}.{rank}.document.score": rng.randrange(100) / 100}  # fmt: skip
    return documents


def _usage(rng: random.Random, number: int, words: Mapping[str, str], kind: str) -> dict[str, Any]:
    usage: dict[str, Any] = {words["model"]: rng.choice(("m-small", "m-large", "m-unpriced"))}
    if rng.random() < 0.8:
        usage |= {words["input"]: rng.randrange(1, 900), words["output"]: rng.randrange(1, 300)}
    if kind == "llm" and rng.random() < 0.4:
        usage[words["id"]] = f"reply {number}"
    if kind == "llm" and rng.random() < 0.3:
        usage["gen_ai.response.finish_reasons"] = [rng.choice(("stop", "length", "content_filter"))]
    if kind == "llm" and rng.random() < 0.2:
        usage["gen_ai.response.time_to_first_chunk"] = rng.randrange(900) / 1000
    return usage


def _messages(role: str, text: str) -> str:
    return json.dumps([{"role": role, "parts": [{"type": "text", "content": text}]}])


def of_fixtures() -> Iterator[tuple[bytes, bool]]:
    """Yield a body for each file of fixtures: each span alone, and all of them below a root."""
    for number, path in enumerate(sorted(FIXTURES.glob("*.json"))):
        spans = []
        for place, fixture in enumerate(json.loads(path.read_text())):
            start = _START_NS + (number * 100 + place) * _MS
            span = {"spanId": f"{place + 2:016x}", "name": fixture["title"], "startTimeUnixNano": str(start),
                    "endTimeUnixNano": str(start + 50 * _MS),
                    "attributes": _attributes(fixture["attributes"])}  # fmt: skip
            spans.append({**span, "traceId": f"{0xF0000 + number * 1000 + place:032x}"})
            spans.append({**span, "traceId": f"{0xE0000 + number:032x}", "parentSpanId": f"{1:016x}"})
        root = {**spans[-1], "spanId": f"{1:016x}", "name": path.stem, "attributes": []}
        del root["parentSpanId"]
        yield orjson.dumps({"resourceSpans": [{"scopeSpans": [{"spans": [*spans, root]}]}]}), False


def _attributes(values: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [{"key": name, "value": _any_value(value)} for name, value in values.items()]


def _any_value(value: Any) -> dict[str, Any]:
    match value:
        case bool():
            return {"boolValue": value}
        case int():
            return {"intValue": str(value)}
        case float():
            return {"doubleValue": value}
        case list():
            return {"arrayValue": {"values": [_any_value(each) for each in value]}}
        case dict():
            return {"kvlistValue": {"values": _attributes(value)}}
        case None:
            return {}
    return {"stringValue": str(value)}


def outputs(folder: Path, name: str) -> dict[str, str]:
    """Store the bodies of a source, decide them, and return digests of columns and lists, before and after."""
    path = folder / "units.duckdb"
    create_empty(path)
    now = [START + timedelta(minutes=5)]
    price = Prices(_PRICES) if name == "generated" else None  # fixtures name models of the table
    store = EmbeddedStore(path, decode=decode, clock=lambda: now[0], price=price)
    refused = lambda texts: [text.startswith("I cannot") for text in texts]  # noqa: E731
    sampler = Sampler(store, lambda: RULES, session_quiet_s=30.0, refused=refused)
    late = []
    try:
        for body, is_late in SOURCES[name]():
            late += [body] * is_late
            if not is_late:
                _send(store, body)
        found = {f"undecided {name}": digest for name, digest in _digests(store).items()}
        for arriving in ([], late):
            for body in arriving:
                _send(store, body)
            now[0] += timedelta(minutes=2)
            sampler.decide(now[0])
        return found | {f"decided {name}": digest for name, digest in (_digests(store) | _cases(store)).items()}
    finally:
        store.close()


def _send(store: Store, body: bytes) -> None:
    store.submit(RawBody(signal="traces", content_type="application/json", body=body)).result(60)


def _digests(store: Store) -> dict[str, str]:
    found = {}
    for name, relation in _ROWS.items():
        rows = store.read(relation)
        records = sorted((dict(zip(rows.columns, row, strict=True)) for row in rows.rows), key=_key)
        found |= {f"{name}.{column}": _digest([record[column] for record in records])
                  for column in rows.columns if column not in _IGNORED}  # fmt: skip
    for choice in _LISTS:
        found[f"list {choice['sort']}"] = _digest(plain(trace_list(store, str, TraceList.parse(choice))))
    newest = plain(trace_list(store, str, TraceList.parse({"facets": True, "total": True, "q": "item"})))
    sessions = plain(session_list(store, str, Filters(), limit=500))
    return found | {"list facets": _digest(newest), "list sessions": _digest(sessions)}


def _key(record: Mapping[str, Any]) -> str:
    names = ("trace_id", "session_id", "span_id", "evaluator", "revision", "request_time", "query_from", "rule")
    return "/".join(str(record.get(name)) for name in names)


def _cases(store: Store) -> dict[str, str]:
    rows = store.read("SELECT trace_id, unit_span_id, start_time FROM traces WHERE unit_span_id IS NOT NULL").rows
    units = [cases.Unit(*row) for row in sorted(rows)[:: max(1, len(rows) // 500)]]
    return {"cases": _digest([case.model_dump(mode="json") for case in cases.cases_of(store, units).values()])}


def _digest(values: Any) -> str:
    """Return the digest of values; sums of floats are the same in any order to nine digits."""
    return hashlib.sha256(json.dumps(_steady(values), sort_keys=True, default=str).encode()).hexdigest()[:12]


def _steady(value: Any) -> Any:
    match value:
        case float():
            return float(f"{value:.9g}")
        case dict():
            return {str(name): _steady(each) for name, each in value.items()}
        case list() | tuple():
            return [_steady(each) for each in value]
    return value


SOURCES: Mapping[str, Any] = {"generated": generated, "fixtures": of_fixtures}


def main() -> None:
    """Write the golden file again; print what changed."""
    before = json.loads(GOLDEN.read_text()) if GOLDEN.exists() else {}
    after: dict[str, dict[str, str]] = {}
    for name in SOURCES:
        with tempfile.TemporaryDirectory() as folder:
            after[name] = outputs(Path(folder), name)
    GOLDEN.write_text(json.dumps(after, indent=1, sort_keys=True) + "\n")
    print({name: _changed(before.get(name, {}), found) for name, found in after.items()})


def _changed(before: Mapping[str, str], after: Mapping[str, str]) -> Sequence[str]:
    return sorted(name for name in {*before, *after} if before.get(name) != after.get(name))


if __name__ == "__main__":
    main()
