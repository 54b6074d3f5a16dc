"""Spans that look alike are mapped together, column by column: the same rules and the same outcome, a third of the CPU.

A block is mapped only where all its spans agree: every field is read from the same attribute, nothing is odd about any
of them. Where they do not, they are mapped one by one (record.py), which is the way that says what mapping means.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import chain, islice
from typing import Any, TypeAlias

import orjson

from ragpulse_collector.conventions import names
from ragpulse_collector.conventions.documents import documents, documents_at_once
from ragpulse_collector.conventions.lifting import PLAIN, escape, json_objects
from ragpulse_collector.conventions.openinference import plain_query, plain_response
from ragpulse_collector.conventions.rules import TEXTS, Carrier, Found, Options, Plan, Read
from ragpulse_collector.conventions.values import count, seconds, text, unquoted
from ragpulse_collector.otlp import WireBlock
from ragpulse_collector.records import ContextColumns, SpanBlock

Column: TypeAlias = Sequence[Any]

_NO_TRACE, _NO_SPAN = bytes(16), bytes(8)
_STATUS = {0: "unset", 1: "ok"}


def mapped(block: WireBlock, plan: Plan, origin: dict[str, Any]) -> SpanBlock | None:
    """Return the block's spans in canonical columns, None where they are to be mapped one by one.

    `origin` holds the fields that resource and scope give.
    """
    if plan.watched or names.TRUNCATED in block.attributes or not _in_order(block):
        return None
    mapping = _Mapping(block, plan)
    if not all(mapping.settle(field, options) for field, options in plan.ways.items()):
        return None
    columns, shared = mapping.columns, mapping.shared
    if "status" in mapping.mapped_from or _exceeds(mapping):
        return None
    for unsaid in (columns, shared):
        unsaid.pop("status_message", None)
    if "cost_usd" in mapping.mapped_from:
        shared["cost_source"] = "provider"
    columns |= {"name": block.names, "start_ns": block.start_ns, "end_ns": block.end_ns}
    columns["attributes"] = mapping.attributes_texts()
    shared |= {"status": _STATUS[block.status_code], "mapped_from": orjson.dumps(mapping.mapped_from).decode()}
    return SpanBlock(
        trace_ids=block.trace_ids,
        span_ids=block.span_ids,
        parent_span_ids=[parent if _is_id(parent) else None for parent in block.parent_span_ids],
        columns=columns,
        shared={name: value for name, value in origin.items() if name not in columns} | shared,
        contexts=mapping.contexts,
    )


def _in_order(block: WireBlock) -> bool:
    """Tell whether all ids are valid and all times make sense."""
    return (
        set(map(len, block.trace_ids)) == {16}
        and set(map(len, block.span_ids)) == {8}
        and _NO_TRACE not in block.trace_ids
        and _NO_SPAN not in block.span_ids
        and min(block.start_ns) > 0
        and all(map(int.__le__, block.start_ns, block.end_ns))
    )


def _is_id(parent: bytes) -> bool:
    return len(parent) == 8 and parent != _NO_SPAN


def _exceeds(mapping: _Mapping) -> bool:
    """Tell whether a span states more cached tokens than input, which is noted on that span alone."""
    cached = mapping.values("cached_tokens")
    whole = mapping.values("input_tokens")
    return cached is not None and (whole is None or any(map(int.__gt__, cached, whole)))


class _Mapping:
    """The fields of a block so far."""

    def __init__(self, block: WireBlock, plan: Plan) -> None:
        self._block = block
        self._raw: dict[str, Column] = dict(block.attributes)
        self._types = {name: set(map(type, column)) for name, column in self._raw.items()}
        self._templates: dict[str, list[Any]] = {}
        for family, members in plan.families.items():
            suffixes = [suffix for _, suffix in members]
            rows = zip(*(self._raw[name] for name, _ in members), strict=True)
            self._raw[family] = [dict(zip(suffixes, row, strict=True)) for row in rows]
        self.columns: dict[str, Column] = {}
        self.shared: dict[str, Any] = {}
        self.contexts: ContextColumns | None = None
        self.mapped_from: dict[str, str] = {}

    def values(self, field: str) -> Column | None:
        """Return the values of a field as settled."""
        if field in self.shared:
            return [self.shared[field]] * len(self._block)
        return self.columns.get(field)

    def settle(self, field: str, options: Options) -> bool:
        """Read a field of all spans; False where they differ in where it is from."""
        for _, name, read in options:
            found = self._at_once(name, read) or self._one_by_one(name, read)
            if isinstance(found, list):
                missing = found.count(None)
                if missing == len(found):
                    continue
                if missing or not self._unpack(name, found):
                    return False
            self.mapped_from[field] = name
            self._keep(field, found)
            if field in TEXTS:
                self._lift(field, options)
            return field != "kind" or field in self.shared
        return True

    def attributes_texts(self) -> list[str]:
        """Return the raw attributes of each span as JSON text, lifted values replaced by their references."""
        attributes = dict(self._block.attributes)
        if not PLAIN.issuperset(chain(*self._types.values())):
            attributes = {name: list(map(escape, column)) for name, column in attributes.items()}
        for name, templates in self._templates.items():
            pairs = zip(templates, attributes[name], strict=True)
            attributes[name] = [value if template is None else template for template, value in pairs]
        return json_objects(attributes, len(self._block))

    def _at_once(self, name: str, read: Read) -> Column | ContextColumns | None:
        at_once = _AT_ONCE.get(read)
        found = at_once(self._raw[name], self._types.get(name, {dict})) if at_once else None
        if isinstance(found, Found):
            templates = found.templates.items()
            self._templates |= {name + suffix: [each] * len(self._block) for suffix, each in templates}
            columns: ContextColumns = found.value
            return columns
        return found

    def _one_by_one(self, name: str, read: Read) -> list[Any]:
        column = self._raw[name]
        span = _Span(self._block, self.shared.get("kind"))
        found = [read(column[0], span)]
        if self._types.get(name) == {str} and not span.looked_at and column.count(column[0]) == len(column):
            return found * len(column)
        for span.at, value in islice(enumerate(column), 1, None):
            found.append(read(value, span))
        return found

    def _keep(self, field: str, found: Column | ContextColumns) -> None:
        if isinstance(found, ContextColumns):
            self.contexts = found
        elif field == "contexts":
            self.contexts = ContextColumns.of(found)
        elif found.count(found[0]) == len(found) and type(found[0]) is not list:
            self.shared[field] = found[0]
        else:
            self.columns[field] = found

    def _unpack(self, name: str, found: list[Any]) -> bool:
        """Put values in the place of `Found`, templates noted; False where contexts were cut."""
        prefix = name.removesuffix("N.")
        for at, result in enumerate(found):
            if type(result) is Found:
                if result.truncated:
                    return False
                found[at] = result.value
                for suffix, template in result.templates.items():
                    self._templates.setdefault(prefix + suffix, [None] * len(found))[at] = template
        return True

    def _lift(self, field: str, options: Options) -> None:
        """Reference a text wherever an attribute that could have given it says exactly the same."""
        texts = self.values(field) or ()
        reference = {"$lifted": field}
        for name in dict.fromkeys(name for _, name, _ in options):
            if name not in self._block.attributes:
                continue  # a family: its reader has noted which member it lifted
            lifted = [reference if value == said else None for value, said in zip(self._raw[name], texts, strict=True)]
            noted = self._templates.get(name, lifted)
            self._templates[name] = [old or new for old, new in zip(noted, lifted, strict=True)]


class _Span(Carrier):
    """One span of a block as readers see it, made when they look: most want the value alone."""

    def __init__(self, block: WireBlock, kind: str | None) -> None:
        self._block = block
        self.at = 0
        self.looked_at = False
        self.dropped_attributes, self.events, self.kind = 0, (), kind

    @property
    def attributes(self) -> dict[str, Any]:  # type: ignore[override]
        """All its attributes."""
        self.looked_at = True
        return {name: column[self.at] for name, column in self._block.attributes.items()}

    @property
    def start_ns(self) -> int:  # type: ignore[override]
        """When it began."""
        self.looked_at = True
        return self._block.start_ns[self.at]


def _texts(column: Column, types: set[type]) -> Column | None:
    return column if types == {str} and all(column) else None


def _unquoted(column: Column, types: set[type]) -> Column | None:
    return column if types == {str} and all(column) and '"' not in "".join(column) else None


def _counts(column: Column, types: set[type]) -> Column | None:
    return column if types == {int} and min(column) >= 0 else None


def _seconds(column: Column, types: set[type]) -> Column | None:
    usual = types == {float} and all(map(math.isfinite, column)) and min(column) >= 0
    return [value * 1000.0 for value in column] if usual else None


def _plain_texts(column: Column, types: set[type]) -> Column | None:
    usual = types == {str} and all(column) and _JSON_BEGINS.isdisjoint([value[0] for value in column])
    return column if usual else None


_JSON_BEGINS = frozenset('{["')
_AT_ONCE: dict[Read, Callable[[Column, set[type]], Column | Found | None]] = {
    plain_query: _plain_texts,
    plain_response: _plain_texts,
    text: _texts,
    unquoted: _unquoted,
    count: _counts,
    documents: documents_at_once,
    seconds: _seconds,
}
"""Readers that read a whole column at once where all its values are as they should be; None where not."""
