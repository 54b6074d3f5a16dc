"""The table of recorded clients: every body goes through a store and a decision, as in production."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from ragpulse_collector.conventions import decode
from ragpulse_collector.records import RawBody
from ragpulse_collector.sampling import Sampler
from ragpulse_collector.store import EmbeddedStore, Prices
from ragpulse_collector.store.protocol import utc_now
from ragpulse_collector.units.cases import Unit, cases_of

RECORDED = Path(__file__).parents[1] / "collector" / "fixtures" / "recorded"
PAGE = Path(__file__).parents[2] / "docs" / "conventions.md"
HEAD = "| client | query | response | contexts | tokens | error |\n|---|---|---|---|---|---|"
QUESTION, BROKEN, ANSWER = "How long does a refund take?", "Please break.", "Five working days."


class Row(NamedTuple):
    """One client: the fields of a unit of its traces, and their sources."""

    client: str
    query: str
    response: str
    contexts: int
    tokens: str
    error: str

    def line(self) -> str:
        """Return the row of the table."""
        return "| " + " | ".join(str(cell) for cell in self) + " |"


def recorded() -> dict[str, dict[str, Any]]:
    """Return the recorded bodies that have the versions of their client."""
    bodies = {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in sorted(RECORDED.glob("*.json"))}
    return {name: body for name, body in bodies.items() if "client" in body}


def rows() -> Iterator[Row]:
    """Yield a row for each recorded client."""
    with TemporaryDirectory() as folder:
        for name, body in recorded().items():
            yield row(Path(folder) / f"{name}.duckdb", body)


def row(path: Path, body: dict[str, Any]) -> Row:
    """Return the row of a body."""
    store = EmbeddedStore(path, decode=decode, price=Prices())
    try:
        content = json.dumps({"resourceSpans": body["resourceSpans"]}).encode()
        raw = RawBody(signal="traces", content_type="application/json", body=content)
        store.submit(raw).result()
        Sampler(store, lambda: []).decide(utc_now() + timedelta(minutes=1))
        return _row(store, body["client"])
    finally:
        store.close()


def _row(store: EmbeddedStore, client: str) -> Row:
    traces = store.read("SELECT * FROM traces WHERE decided ORDER BY start_time").dicts()
    answered = (trace for trace in traces if trace["query"] not in (None, "", BROKEN) and not trace["error"])
    trace = next(answered, traces[0])
    unit = Unit(trace["trace_id"], trace["unit_span_id"], trace["start_time"])
    case = cases_of(store, [unit])[unit]
    ids = {"trace": trace["trace_id"], "span": trace["unit_span_id"]}
    rows = store.read("SELECT mapped_from FROM spans WHERE trace_id = $trace AND span_id = $span", ids).rows
    sources = json.loads(rows[0][0])
    tokens = "-" if case.input_tokens is None else f"{case.input_tokens} + {case.output_tokens}"
    response = (case.response or "").strip()
    return Row(
        client,
        _cell(case.query, sources.get("query"), good=QUESTION in (case.query or "")),
        _cell(case.response, sources.get("response"), good=response == ANSWER),
        len(case.contexts or ()),
        tokens,
        _error(traces),
    )


def _error(traces: list[dict[str, Any]]) -> str:
    """Return whether the refused question became an error."""
    if any(trace["error"] for trace in traces):
        return "yes"
    return "no" if any(trace["query"] == BROKEN for trace in traces) else "not tried"


def _cell(text: str | None, source: str | None, *, good: bool) -> str:
    """Return the source of a text: the attribute, or the spans below."""
    if text is None:
        return "-"
    source_text = "spans below" if re.match("span [0-9a-f]{16}", source or "") else f"`{source}`"
    return source_text if good else f"{source_text} (other: {text[:40]!r})"


def main() -> None:
    """Print the table and write it into the page."""
    table = "\n".join([HEAD, *(each.line() for each in rows())])
    page = PAGE.read_text(encoding="utf-8")
    before, _, after = page.partition(HEAD)
    rest = after.partition("\n\n")[2]
    PAGE.write_text(f"{before}{table}\n\n{rest}", encoding="utf-8")
    print(table)


if __name__ == "__main__":
    main()
