"""For users' own tests: what their decorated code recorded, in memory, with fixed identities and time.

In a `conftest.py`: `pytest_plugins = ["ragpulse.testing"]`, then take the fixture `ragpulse_spans`. Without pytest:
`with ragpulse.testing.capture() as spans:`. Nothing is sent, and no thread is started.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from typing import Any

from . import _names as names
from ._guard import GUARD
from ._reading.usage import USAGE_NAMES, Usage
from ._record.call import STATE
from ._record.content import ContentPolicy, FeedbackRecord
from ._record.redaction import redaction
from ._record.span import OwnSpan
from ._record.tracer import Ids, Tracer, TraceSampler
from ._runtime import PROCESS

_EPOCH_NS = 1_700_000_000_000_000_000
_TICK_NS = 1_000_000


class CountingIds(Ids):
    """1, 2, 3, ... instead of random identities."""

    def __init__(self) -> None:
        super().__init__()
        self._numbers = count(1)

    def trace_id(self) -> int:
        """The next number."""
        return self.span_id()

    def span_id(self) -> int:
        """The next number."""
        return next(self._numbers)


class RecordedContext(dict[str, Any]):
    """One retrieved context: `id`, `score`, `content`, `metadata`, those that were recorded; `text` is its content."""

    @property
    def text(self) -> str | None:
        """The text."""
        return self.get("content")

    def __missing__(self, key: str) -> Any:
        if key == "text":
            return self.text
        raise KeyError(key)


@dataclass(frozen=True, kw_only=True, slots=True)
class RecordedSpan:
    """One finished span, as it would have been sent."""

    name: str
    kind: str
    trace_id: str
    span_id: str
    parent_span_id: str | None
    start_ns: int
    end_ns: int
    attributes: dict[str, Any]
    events: list[tuple[str, dict[str, Any]]]
    """Names and attributes; of an exception its message and stack."""
    error: str | None
    error_message: str | None

    @property
    def query(self) -> str | None:
        """The query."""
        return self.attributes.get(names.INPUT_VALUE)

    @property
    def response(self) -> str | None:
        """The response."""
        return self.attributes.get(names.OUTPUT_VALUE)

    @property
    def contexts(self) -> list[RecordedContext]:
        """The retrieved contexts, in rank order."""
        found = json.loads(self.attributes.get(names.RETRIEVAL_DOCUMENTS, "[]"))
        return [RecordedContext(context) for context in found]

    @property
    def model(self) -> str | None:
        """The requested model, else the responding one."""
        return self.attributes.get(names.REQUEST_MODEL) or self.attributes.get(names.RESPONSE_MODEL)

    @property
    def usage(self) -> Usage | None:
        """The tokens of the call; None when none were found."""
        counts = {name: self.attributes[key] for name, key in USAGE_NAMES.items() if key in self.attributes}
        return Usage(**counts, estimated=names.USAGE_ESTIMATED in self.attributes) if counts else None

    @property
    def cost_usd(self) -> float | None:
        """The cost that the provider or the application stated."""
        return self.attributes.get(names.COST_TOTAL)


class RecordedSpans:
    """The spans of a test, in the order in which they ended."""

    def __init__(self) -> None:
        self._spans: list[OwnSpan] = []

    def offer(self, span: Any, /) -> None:
        """Takes a finished span, as the exporter would."""
        if not isinstance(span, FeedbackRecord):
            self._spans.append(span)

    def __iter__(self) -> Iterator[RecordedSpan]:
        return map(_recorded, self._spans)

    def __len__(self) -> int:
        return len(self._spans)

    def clear(self) -> None:
        """Removes what was recorded so far."""
        self._spans.clear()

    def one(self, name: str | None = None, *, kind: str | None = None) -> RecordedSpan:
        """The only span of that name (its last part is enough) or kind; AssertionError when there is not just one."""
        matches = [
            span
            for span in self
            if (name is None or span.name == name or span.name.rpartition(".")[2] == name)
            and (kind is None or span.kind == kind)
        ]
        if len(matches) != 1:
            have = ", ".join(f"{span.name} ({span.kind})" for span in self) or "none"
            raise AssertionError(
                f"expected one span with name={name!r} kind={kind!r}, found {len(matches)} among: {have}"
            )
        return matches[0]

    def assert_nested(self, child: str, parent: str) -> None:
        """AssertionError unless the span `child` was made directly below the span `parent`."""
        inner, outer = self.one(child), self.one(parent)
        if (inner.trace_id, inner.parent_span_id) != (outer.trace_id, outer.span_id):
            raise AssertionError(f"{child} is not directly below {parent}")


def _recorded(span: OwnSpan) -> RecordedSpan:
    attributes = dict(span.attributes)
    return RecordedSpan(
        name=span.name,
        kind=str(attributes.get("ragpulse.span.kind", "")),
        trace_id=format(span.trace_number, "032x"),
        span_id=format(span.span_number, "016x"),
        parent_span_id=format(span.parent_id, "016x") if span.parent_id else None,
        start_ns=span.start_ns,
        end_ns=span.end_ns,
        attributes=attributes,
        events=[(event.name, dict(event.attributes or {})) for event in span.events],
        error_message=span.status.description,
        error=attributes.get("error.type"),
    )


@contextmanager
def capture() -> Iterator[RecordedSpans]:
    """Records into memory within the block instead of sending; strict.

    It is redacted, cut and withheld as it would be sent: as `configure` asked for before, else by the defaults.
    """
    spans = RecordedSpans()
    runtime = PROCESS.runtime
    before, strict = STATE.starter, GUARD.strict
    STATE.starter = Tracer(
        spans.offer,
        policy=runtime.settings.policy if runtime else ContentPolicy(redact=redaction("default")),
        sampler=TraceSampler(),
        resource={},
        isolated=True,
        ids=CountingIds(),
        clock=count(_EPOCH_NS + _TICK_NS, _TICK_NS).__next__,  # one millisecond later at each look
    )
    GUARD.strict = True
    try:
        yield spans
    finally:
        STATE.starter, GUARD.strict = before, strict


try:
    import pytest
except ImportError:
    pass
else:

    @pytest.fixture
    def ragpulse_spans() -> Iterator[RecordedSpans]:
        """The spans that the test's decorated calls recorded."""
        with capture() as spans:
            yield spans
