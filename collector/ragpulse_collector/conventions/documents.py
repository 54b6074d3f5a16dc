"""Retrieved documents, in every shape that clients send, to context records in rank order."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from math import isfinite
from typing import Any

from ragpulse._reading.hits import hits_in, nested_hits, table
from ragpulse._reading.parts import is_given, parts_of
from ragpulse_collector.conventions import names
from ragpulse_collector.conventions.lifting import cut, style_of
from ragpulse_collector.conventions.rules import BareSpan, Kinds, Read, Result, SpanView, of_column
from ragpulse_collector.conventions.texts import is_message
from ragpulse_collector.conventions.values import SEARCHES, dumped, number, parsed
from ragpulse_collector.records import ContextRecord

_FLAT = re.compile(r"([0-9]{1,6})\.document\.(id|content|score|metadata|name|url|mime_type)")
_MAX_FLAT_LENGTH = len("999999.document.mime_type")
_ABOUT = ("name", "url", "mime_type")
"""What a document says about itself beside its metadata."""
_PLAIN = frozenset({"id", "score", "content", "metadata"})
_BARE = _PLAIN - {"metadata"}
_TEXT_OR_NONE = frozenset({str, type(None)})
_NO_SPAN = BareSpan()
_LISTS = frozenset((*names.DOCUMENT_LIST_KEYS, *names.DOCUMENT_GROUP_KEYS, "sourceDocuments", "searchResults"))
_ANSWERING = ("chain", "agent", "rag", "other", None)


def documents(value: Any, _: SpanView) -> Result | None:
    """Read a list of documents, JSON text or structured."""
    content = parsed(value)
    if not isinstance(content, list):
        return None
    return documents_result(value, content)


def documents_of_retrieval(value: Any, span: SpanView) -> Result | None:
    """Read documents from the output of a retriever or reranker, and the sources beside the answer of a root."""
    if span.kind in SEARCHES:
        content = parsed(value)
        items = None if isinstance(content, str) else hits_in(content)
        return None if items is None else documents_result(value, items)
    content = parsed(value) if span.kind in _ANSWERING and span.is_root else None
    sources = nested_hits(content) if isinstance(content, dict) and not _LISTS.isdisjoint(content) else None
    if not sources or any(type(item) is str and " " not in item.strip() for item in sources):
        return None  # names of files
    result = documents_result(value, sources)
    return result if result is not None and all(record.text for record in result.value) else None


@of_column(documents_of_retrieval)
def _documents_of_retrievals(column: Sequence[Any], kinds: Kinds) -> Sequence[Any] | None:
    return [None] * len(column) if kinds().isdisjoint((*SEARCHES, *_ANSWERING)) else None


def documents_in_output(value: Any, _: SpanView) -> Result | None:
    """Read documents from any output: a list whose items all have a text and an id, a score or a page."""
    items = parsed(value)
    if isinstance(items, dict):  # under the only name, or a usual one
        items = next(iter(items.values())) if len(items) == 1 else nested_hits(items)
    items = items if isinstance(items, list) else None
    return documents_result(value, items) if items and all(map(_is_document, items)) else None


def holds_documents(value: Any) -> bool:
    """Return whether an output is a list of documents and nothing else."""
    content = parsed(value)
    if isinstance(content, dict) and len(content) != 1:
        return False
    return documents_in_output(content, _NO_SPAN) is not None


def search_kind(attribute: str, function: str) -> Read:
    """Make a reader that returns `retriever` for a function, so marked by an attribute, that returns documents."""

    def read_kind(value: Any, span: SpanView) -> str | None:
        return "retriever" if span.attributes.get(attribute) == function and holds_documents(value) else None

    return read_kind


def _is_document(item: Any) -> bool:
    if not isinstance(item, dict) or is_message(item):
        return False
    id_, score, text, _ = parts_of(item, named_only=True)
    return bool(text) and (id_ is not None or score is not None or "page_content" in item)


def flattened(members: Any, span: SpanView) -> Result | None:
    """Read OpenInference's `N.document.*` names; after a gap in N or dropped attributes some are missing."""
    rows: dict[int, dict[str, Any]] = {}
    for suffix, value in members.items():
        position = _flat_position(suffix) if len(suffix) <= _MAX_FLAT_LENGTH else None
        if position is not None:
            rows.setdefault(position[0], {})[position[1]] = value
    if not rows:
        return None
    templates = {
        f"{index}.document.content": {"$lifted": "contexts", "rank": index + 1}
        for index, row in rows.items()
        if type(row.get("content")) is str and row["content"]
    }
    records = [_record(index + 1, _with_source(row)) for index, row in sorted(rows.items())]
    return Result(records, templates, truncated=span.dropped_attributes > 0 or max(rows) != len(rows) - 1)


def _with_source(row: dict[str, Any]) -> dict[str, Any]:
    """Return a document with its name, address and type among its metadata."""
    about = {name: row.pop(name) for name in _ABOUT if name in row}
    return {**row, "metadata": {**(parsed(row.get("metadata")) or {}), **about}} if about else row


@lru_cache(maxsize=4096)
def _flat_position(suffix: str) -> tuple[int, str] | None:
    """Return the index and the member of a document in a name; all searches use the same few names."""
    match = _FLAT.fullmatch(suffix)
    return (int(match[1]), match[2]) if match else None


def result_events(prefix: str) -> Read:
    """Make a reader of events of vector database clients, one for each document."""

    def read_events(events: Any, _: SpanView) -> list[ContextRecord]:
        rows = [{key: event.attributes.get(prefix + key) for key in _EVENT_KEYS} for event in events]
        return [_record(rank, row) for rank, row in enumerate(rows, start=1)]

    return read_events


_EVENT_KEYS = ("id", "score", "document", "metadata")


def documents_result(value: Any, items: Sequence[Any]) -> Result | None:
    """Build the records, and lift their texts out of `value`, which contains the list of documents."""
    if type(value) is str:
        exact = _exact_documents(value, items)
        if exact is not None:
            return exact
    found = [None if is_message(item) else _record_in(rank, item) for rank, item in enumerate(items, start=1)]
    if None in found:
        return None
    records = list(filter(None, found))
    texts = [
        (record.text, {"$lifted": "contexts", "rank": record.rank}) for record in records if record.text is not None
    ]
    template = cut(value, texts) if texts else None
    return Result(records, {} if template is None else {"": template})


def _exact_documents(value: str, items: Sequence[Any]) -> Result | None:
    """Read documents that contexts store completely: the whole list becomes a reference. None if one does not fit."""
    keys = list(items[0]) if items and type(items[0]) is dict else []
    if not keys or not _PLAIN.issuperset(keys):
        return None
    records = []
    for rank, item in enumerate(items, start=1):
        record = _exact(rank, item) if type(item) is dict and list(item) == keys else None
        if record is None:
            return None
        records.append(record)
    style = style_of(value, items)
    return None if style is None else Result(records, {"": {"$lifted": "contexts", "keys": keys, "style": style}})


def _exact(rank: int, item: dict[str, Any]) -> ContextRecord | None:
    """Return a document whose members are of the types that a context stores; None for another."""
    get = item.get
    id_, score, text, metadata = get("id"), get("score"), get("content"), get("metadata")
    if type(id_) not in _TEXT_OR_NONE or type(text) not in _TEXT_OR_NONE or text == "":
        return None
    if score is not None and (type(score) is not float or not isfinite(score)):
        return None
    if metadata is None:
        return ContextRecord(rank, id_, score, text)
    if text is None and parts_of(item)[2] is not None:  # it is in the metadata
        return None
    is_own = type(metadata) is dict and metadata and (is_given(id_) or parts_of(item)[0] == id_)
    return ContextRecord(rank, id_, score, text, dumped(metadata)) if is_own else None


def _record(rank: int, item: Any) -> ContextRecord:
    return _record_in(rank, item) or ContextRecord(rank)


def _record_in(rank: int, item: Any) -> ContextRecord | None:
    """Read one hit by the rule of the SDK, None if it has nothing; metadata may be JSON in a text."""
    if isinstance(item, list):
        item = next(iter(table([item])), None)
    elif isinstance(item, dict) and type(item.get("metadata")) is str:
        item = {**item, "metadata": parsed(item["metadata"])}
    if type(item) is dict and item.get("id") and item.get("content") and _BARE.issuperset(item):
        record = _exact(rank, item)
        if record is not None:
            return record
    id_, score, text, metadata = parts_of(item)
    if (id_, score, text) == (None, None, None) and not metadata:
        return None
    return ContextRecord(rank, id_, None if score is None else number(score, _NO_SPAN), text or None, _object(metadata))


def _object(value: Any) -> str | None:
    content = parsed(value)
    return dumped(content) if isinstance(content, dict) and content else None
