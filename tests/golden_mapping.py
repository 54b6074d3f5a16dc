"""Golden outputs of the mapping: what 5,000 generated spans of every dialect became when each was mapped by itself.

The inputs are variations of the fixtures: attributes dropped, added, of another type; documents in every style; odd
times, events, links, trace states. `python tests/golden_mapping.py` maps the spans of the golden file again and prints
how many changed in which fields; do so only where a change of meaning is intended, and say which in the commit. With
`--new` it generates new spans.
"""

from __future__ import annotations

import gzip
import json
import random
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import orjson
from spans import Span, spans_of
from wire_support import JSON, SPAN, attribute_pairs

from ragpulse_collector.conventions import decode
from ragpulse_collector.records import Batch, RawBody
from ragpulse_collector.store.ingest.prices import Call, Prices

FIXTURES = Path(__file__).parent / "collector" / "fixtures"
GOLDEN = FIXTURES / "golden" / "mapping.jsonl.gz"
BODIES, SPANS_A_BODY = 50, 100
PRICED = ("cost_usd", "cost_unknown_reason")
_ODD_VALUES = ["", "{", '"quoted"', "[]", "[1, 2]", '{"a": 1}', "12", 7, -3, 0.5, True, None, ["a", "b"], {"k": "v"}]
_START = int(SPAN["startTimeUnixNano"])
_ODD_SPANS: list[dict[str, Any]] = [
    {"status": {"code": 2, "message": "boom"}},
    {"status": {"code": 1}},
    {"droppedAttributesCount": 3},
    {"traceState": "ot=th:c"},
    {"endTimeUnixNano": "5"},
    {"startTimeUnixNano": "0"},
    {"spanId": "0" * 16},
    {"parentSpanId": "0" * 16},
    {"parentSpanId": "00000000000000ff"},
    {"links": [{"traceId": SPAN["traceId"], "spanId": SPAN["spanId"], "attributes": attribute_pairs({"a": 1})}]},
    {"events": [{"name": "exception", "timeUnixNano": str(_START + 5), "attributes": attribute_pairs(
        {"exception.type": "ValueError", "exception.message": "bad"})}]},
    {"events": [{"name": "gen_ai.choice", "timeUnixNano": str(_START + 9), "attributes": attribute_pairs(
        {"content": "An answer."})}]},
]  # fmt: skip


def bodies() -> Iterator[bytes]:
    """Yield OTLP/JSON bodies of generated spans, the same in every run: first of few shapes each, then of many."""
    rng = random.Random(20261123)
    seeds = list(_seeds())
    number = 0
    for body in range(BODIES):
        chosen = rng.sample(seeds, 4 if body % 2 else 20)
        spans = []
        for _ in range(SPANS_A_BODY):
            number += 1
            spans.append(_varied(rng, rng.choice(chosen), seeds, number))
        resource = {"service.name": f"service-{body % 3}", "deployment.environment": "prod"}
        scope = {"scope": {"name": "golden", "version": "1"}, "spans": spans}
        envelope = {"resource": {"attributes": attribute_pairs(resource)}, "scopeSpans": [scope]}
        yield orjson.dumps({"resourceSpans": [envelope]})


def outcome(batch: Batch) -> dict[str, Any]:
    """Return what a body became, in an order of its own: spans and scores by their ids."""
    spans = sorted((_plain(span) for span in spans_of(batch)), key=lambda span: span["span_id"])
    scores = sorted(
        ({name: getattr(score, name) for name in score.__slots__} for score in batch.scores),
        key=lambda score: (score["span_id"] or "", score["name"], str(score["score"])),
    )
    found = {"spans": spans, "scores": scores, "rejected": batch.rejected, "message": batch.message}
    return dict(json.loads(orjson.dumps(found)))


def golden() -> list[dict[str, Any]]:
    """Return what was recorded: bodies and their outcomes."""
    with gzip.open(GOLDEN) as lines:
        return [orjson.loads(line) for line in lines]


def _seeds() -> Iterator[dict[str, Any]]:
    """Yield the fixtures' spans in OTLP/JSON."""
    for path in sorted(FIXTURES.glob("*.json")):
        for case in json.loads(path.read_text(encoding="utf-8")):
            events = [
                {"name": event["name"], "timeUnixNano": str(_START + event.get("after_ms", 0) * 10**6),
                 "attributes": attribute_pairs(event["attributes"])}
                for event in case.get("events", ())
            ]  # fmt: skip
            yield {"name": case["title"], "attributes": attribute_pairs(case["attributes"]), "events": events,
                   "status": case.get("status", {}), "droppedAttributesCount": case.get("dropped", 0)}  # fmt: skip
    for path in sorted((FIXTURES / "recorded").glob("*.json")):
        for envelope in json.loads(path.read_text(encoding="utf-8"))["resourceSpans"]:
            for scope in envelope["scopeSpans"]:
                yield from scope["spans"]


def _varied(rng: random.Random, seed: dict[str, Any], seeds: list[dict[str, Any]], number: int) -> dict[str, Any]:
    span = json.loads(json.dumps({**SPAN, **seed}))
    start = _START + number * 10**6
    span |= {
        "traceId": f"{number // 4 + 1:032x}",
        "spanId": f"{number:016x}",
        "startTimeUnixNano": str(start),
        "endTimeUnixNano": str(start + rng.randrange(10**9)),
    }
    for pair in span["attributes"]:
        if "intValue" in pair["value"] and rng.random() < 0.8:
            pair["value"]["intValue"] = str(int(pair["value"]["intValue"]) + rng.randrange(5))
    if rng.random() < 0.3:
        _change_attributes(rng, span, seeds)
    if rng.random() < 0.2:
        span["attributes"] += attribute_pairs(_documents(rng))
    if rng.random() < 0.1:
        span |= rng.choice(_ODD_SPANS)
    return dict(span)


def _change_attributes(rng: random.Random, span: dict[str, Any], seeds: list[dict[str, Any]]) -> None:
    pairs = span["attributes"]
    choice = rng.randrange(4)
    if choice == 0 and pairs:
        pairs.pop(rng.randrange(len(pairs)))
    elif choice == 1 and pairs:
        (odd,) = attribute_pairs({rng.choice(pairs)["key"]: rng.choice(_ODD_VALUES)})
        pairs[:] = [odd if pair["key"] == odd["key"] else pair for pair in pairs]
    elif choice == 2:
        known = {pair["key"] for pair in pairs}
        other = json.loads(json.dumps(rng.choice(seeds)["attributes"]))
        pairs += [pair for pair in other if pair["key"] not in known]
    else:
        rng.shuffle(pairs)


def _documents(rng: random.Random) -> dict[str, Any]:
    documents = [
        {"id": f"doc-{rng.randrange(99)}", "score": rng.random(), "content": rng.choice(["für", "Text.", "A b c."])}
        for _ in range(rng.randrange(3, 8))
    ]
    style = rng.randrange(5)
    if style == 0:
        return {"gen_ai.retrieval.documents": json.dumps(documents)}
    if style == 1:
        return {"gen_ai.retrieval.documents": orjson.dumps(documents).decode()}
    if style == 2:
        return {
            "gen_ai.retrieval.documents": orjson.dumps([{**one, "metadata": {"n": 1}} for one in documents]).decode()
        }
    rows = enumerate(documents)
    if style == 3:
        rows = enumerate(documents[: rng.randrange(1, 4)], start=rng.randrange(2))
    return {f"retrieval.documents.{at}.document.{key}": value for at, one in rows for key, value in one.items()}


def _plain(span: Span) -> dict[str, Any]:
    """Return the fields that are not as declared; the raw attributes parsed, their order beside them."""
    found = {field.name: getattr(span, field.name) for field in fields(Span) if field.name != "contexts"}
    found = {name: value for name, value in found.items() if value is not None}
    attributes = orjson.loads(span.attributes)
    found |= {"attributes": attributes, "order": list(attributes), "mapped_from": orjson.loads(span.mapped_from)}
    if span.contexts is not None:
        found["contexts"] = [[c.rank, c.id, c.score, c.text, c.metadata] for c in span.contexts]
    cost = Prices().cost(Call(**{name: getattr(span, name) for name in Call._fields}))
    return found | {f"priced_{name}": getattr(cost, name) for name in PRICED}


def _write(recorded: list[dict[str, Any]]) -> None:
    changed: Counter[str] = Counter()
    with gzip.GzipFile(GOLDEN, "wb", mtime=0) as out:
        for before in recorded:
            found = outcome(decode(RawBody(signal="traces", content_type=JSON, body=orjson.dumps(before["body"]))))
            out.write(orjson.dumps({"body": before["body"], **found}) + b"\n")
            for was, now in zip(before.get("spans", ()), found["spans"], strict=False):
                changed.update(name for name in was | now if was.get(name) != now.get(name))
    print(changed)


if __name__ == "__main__":
    _write([{"body": orjson.loads(body)} for body in bodies()] if "--new" in sys.argv else golden())
