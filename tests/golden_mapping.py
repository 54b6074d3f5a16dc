"""Golden outputs of the mapping: the records of 5,000 spans of every dialect.

The spans are variations of the fixtures: attributes removed, added, of another type; documents in every style; unusual
times, events, links, trace states. The golden file holds bodies and records; the generator is in the history (71b2c75).
`python tests/golden_mapping.py` maps the spans of the golden file again and prints the number of changes of each field.
Run it only after an intended change of meaning, and name that change in the commit.
"""

from __future__ import annotations

import gzip
import json
from collections import Counter
from dataclasses import fields
from pathlib import Path
from typing import Any

import orjson
from spans import Span, spans_of
from wire_support import JSON

from ragpulse_collector.conventions import decode
from ragpulse_collector.records import Batch, RawBody
from ragpulse_collector.store.ingest.prices import PricedCall, Prices

GOLDEN = Path(__file__).parent / "collector" / "fixtures" / "golden" / "mapping.jsonl.gz"
PRICED = ("cost_usd", "cost_unknown_reason")


def outcome(batch: Batch) -> dict[str, Any]:
    """Return the records of a body, sorted by their ids."""
    spans = sorted((_plain(span) for span in spans_of(batch)), key=lambda span: span["span_id"])
    scores = sorted(
        ({name: getattr(score, name) for name in score.__slots__} for score in batch.scores),
        key=lambda score: (score["span_id"] or "", score["name"], str(score["score"])),
    )
    records = {"spans": spans, "scores": scores, "rejected": batch.rejected, "message": batch.message}
    return dict(json.loads(orjson.dumps(records)))


def golden() -> list[dict[str, Any]]:
    """Return the recorded bodies and their records."""
    with gzip.open(GOLDEN) as lines:
        return [orjson.loads(line) for line in lines]


def _plain(span: Span) -> dict[str, Any]:
    """Return the fields that have a value, the raw attributes parsed, and their order."""
    values = {field.name: getattr(span, field.name) for field in fields(Span) if field.name != "contexts"}
    values = {name: value for name, value in values.items() if value is not None}
    attributes = orjson.loads(span.attributes)
    values |= {"attributes": attributes, "order": list(attributes), "mapped_from": orjson.loads(span.mapped_from)}
    if span.contexts is not None:
        values["contexts"] = [[c.rank, c.id, c.score, c.text, c.metadata] for c in span.contexts]
    cost = Prices().cost(PricedCall(**{name: getattr(span, name) for name in PricedCall._fields}))
    return values | {f"priced_{name}": getattr(cost, name) for name in PRICED}


def main() -> None:
    """Map the recorded bodies again, write the golden file, print the changed fields."""
    recorded, changed = golden(), Counter[str]()
    with gzip.GzipFile(GOLDEN, "wb", mtime=0) as out:
        for before in recorded:
            after = outcome(decode(RawBody(signal="traces", content_type=JSON, body=orjson.dumps(before["body"]))))
            out.write(orjson.dumps({"body": before["body"], **after}) + b"\n")
            for old, new in zip(before["spans"], after["spans"], strict=False):
                changed.update(name for name in old | new if old.get(name) != new.get(name))
    print(changed)


if __name__ == "__main__":
    main()
