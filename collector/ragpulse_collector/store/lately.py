"""The spans that were stored last, by column: rows of the list that DuckDB need not read.

Planning a roll-up over thirty columns takes it longer than anything else the list asks for, while which traces are the
newest is told by four. So the writer keeps what it stored last. Nothing is shown from memory alone: the table says
which spans a trace has, and only a trace of which as many are kept is rolled up here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from itertools import chain
from operator import itemgetter
from typing import Any, NamedTuple, TypeVar

from ragpulse_collector.store.columnar import Part, Same
from ragpulse_collector.store.views import OF_FIRST

T = TypeVar("T")
Parts = Mapping[str, Sequence[Part]]

KEPT = ("spans", "contents")
"""The tables whose rows are kept."""

_EPOCH = datetime(1970, 1, 1)
_FRESH = timedelta(seconds=5)
"""After so long without a span nothing waits, and the table alone is quicker."""
_MOST_TEXT = 2 * 2**20
"""Characters of questions and answers."""
_TOO_SHORT, _REST = timedelta(seconds=0.5), timedelta(seconds=5)
"""Where all that may be kept comes in less time, nothing is for a while: memory that is not free at once when a
transaction is over costs a tenth of the throughput."""
_COLUMNS = (
    "trace_id", "span_id", "parent_span_id", "start_time", "duration_us", "kind", "status", "model", "input_tokens",
    "output_tokens", "cached_tokens", "top_score", "upstream_pi", *OF_FIRST,
)  # fmt: skip
_TOKENS = ("input_tokens", "output_tokens", "cached_tokens")

_PLACE = {name: place for place, name in enumerate(_COLUMNS)}
_ID, _START = _PLACE["trace_id"], _PLACE["start_time"]

Row = tuple[Any, ...]
"""A span, in the order of _COLUMNS."""


class Key(NamedTuple):
    """A trace as the table has it at one moment."""

    trace_id: bytes
    n_spans: int
    last_at: datetime
    """When the last of its spans came."""


@dataclass(frozen=True)
class _Group:
    """What one transaction stored; written as it is, put in order when it is first looked at."""

    at: datetime
    size: int
    text: int
    spans: Parts
    contents: Parts

    @cached_property
    def rows(self) -> list[Row]:
        """The spans one by one."""
        return list(zip(*[_whole(self.spans.get(name), self.size) for name in _COLUMNS], strict=True))

    @cached_property
    def texts(self) -> dict[tuple[bytes, bytes], tuple[str | None, str | None]]:
        """Question and answer of those spans that have any."""
        if not self.contents:
            return {}
        size = _length(self.contents["span_id"])
        trace, span, query, response = (
            _whole(self.contents.get(name), size) for name in ("trace_id", "span_id", "query", "response")
        )
        return dict(zip(zip(trace, span, strict=True), zip(query, response, strict=True), strict=True))


class Lately:
    """The spans of the last transactions, at most `most`; one thread writes, any reads."""

    def __init__(self, *, most: int, clock: Callable[[], datetime]) -> None:
        self._most, self._clock = most, clock
        self._groups: tuple[_Group, ...] = ()
        self._new: dict[str, list[Parts]] = {table: [] for table in KEPT}
        self._changed = False
        self._rests_until = datetime.min

    def add(self, table: str, parts: Parts) -> None:
        """Note what the transaction appends."""
        if table in self._new and self._most:
            self._new[table].append(parts)

    def change(self) -> None:
        """The transaction changes or deletes spans that were stored before: nothing kept can be relied on."""
        self._changed = True

    def commit(self, at: datetime) -> None:
        """The transaction is on disk."""
        groups, spans, contents = self._groups, self._new["spans"], self._new["contents"]
        if self._changed or len(spans) > 1 or len(contents) > 1 or at < self._rests_until:
            groups = ()
        elif spans or contents:
            groups = self._within((*groups, _group(at, next(iter(spans), {}), next(iter(contents), {}))))
        self._groups = groups
        self.forget()

    def forget(self) -> None:
        """The transaction is over."""
        self._new, self._changed = {table: [] for table in KEPT}, False

    def _within(self, groups: tuple[_Group, ...]) -> tuple[_Group, ...]:
        """Return the last groups that are not too many spans or too much text."""
        size = text = 0
        for place in range(len(groups) - 1, -1, -1):
            size, text = size + groups[place].size, text + groups[place].text
            if size > self._most or text > _MOST_TEXT:
                return self._rest(groups[-1].at) if groups[-1].at - groups[0].at < _TOO_SHORT else groups[place + 1 :]
        return groups

    def _rest(self, at: datetime) -> tuple[_Group, ...]:
        self._rests_until = at + _REST
        return ()

    def begin(self, count: int) -> datetime | None:
        """Return when the earliest of the `count` newest spans starts; None where fewer are kept, or none came lately.

        Among those kept: others may be newer.
        """
        groups = self._groups
        if sum(group.size for group in groups) < count or self._clock() - groups[-1].at > _FRESH:
            return None
        starts = [row[_START] for group in groups for row in group.rows]
        return _EPOCH + timedelta(microseconds=sorted(starts)[-count])

    def rolled_up(self, keys: Sequence[Key]) -> list[dict[str, Any]] | None:
        """Return the traces as `undecided_since` shows them (without times of the trace); None where one is not whole.

        Spans that came after a trace was looked at are left out.
        """
        groups = self._groups
        last = {key.trace_id: key.last_at for key in keys}
        spans: dict[bytes, list[Row]] = {key.trace_id: [] for key in keys}
        for group in groups:
            for row in group.rows:
                if row[_ID] in last and group.at <= last[row[_ID]]:
                    spans[row[_ID]].append(row)
        if any(len(spans[key.trace_id]) != key.n_spans for key in keys):
            return None
        return [_rolled_up(spans[key.trace_id], groups) for key in keys]


def _rolled_up(spans: list[Row], groups: Iterable[_Group]) -> dict[str, Any]:
    """One trace: of most columns the first value, the spans taken in the order of `place` in views.py."""
    kind, parent = _PLACE["kind"], _PLACE["parent_span_id"]
    by_time = sorted(spans, key=itemgetter(_START))
    placed = sorted(by_time, key=lambda span: (span[kind] != "rag", span[parent] is not None))
    calls = [span for span in by_time if span[kind] == "llm"]
    searches = [span for span in by_time if span[kind] == "retriever"]
    duration, status = _first(placed, "duration_us"), _first(placed, "status")
    unit = placed[0][_ID], placed[0][_PLACE["span_id"]]
    query, response = next((group.texts[unit] for group in groups if unit in group.texts), (None, None))
    return {
        **{name: _first(placed, name) for name in OF_FIRST},
        **{name: _over(sum, calls, name) for name in _TOKENS},
        "latency_ms": None if duration is None else duration / 1000,
        "error": None if status is None else status == "error",
        "model": _first(calls, "model"),
        "retriever": _first(searches, "name"),
        "top_score": _over(max, spans, "top_score"),
        "upstream_pi": _over(min, spans, "upstream_pi"),
        "query": query,
        "response": response,
    }


def _first(spans: Iterable[Row], name: str) -> Any:
    place = _PLACE[name]
    for span in spans:
        if span[place] is not None:
            return span[place]
    return None


def _over(take: Callable[[list[Any]], T], spans: Iterable[Row], name: str) -> T | None:
    place = _PLACE[name]
    values = [span[place] for span in spans if span[place] is not None]
    return take(values) if values else None


def _group(at: datetime, spans: Parts, contents: Parts) -> _Group:
    text = sum(_text(part) for name in ("query", "response") for part in contents.get(name, ()))
    kept = {name: spans[name] for name in _COLUMNS if name in spans}
    return _Group(at, _length(spans.get("span_id", ())), text, kept, contents)


def _text(part: Part) -> int:
    values = (part.value,) if isinstance(part, Same) else part
    return sum(len(value) for value in values if type(value) is str)


def _length(parts: Iterable[Part]) -> int:
    return sum(part.length if isinstance(part, Same) else len(part) for part in parts)


def _whole(parts: Sequence[Part] | None, size: int) -> list[Any]:
    """Return the values of a column one by one."""
    if parts is None:
        return [None] * size
    return list(chain.from_iterable([part.value] * part.length if isinstance(part, Same) else part for part in parts))
