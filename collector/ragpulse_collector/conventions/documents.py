"""Retrieved documents in every shape they travel in → context records, in rank order."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import chain
from typing import Any

import orjson

from ragpulse_collector.conventions.lifting import STYLES, Path, lifted_documents, lifted_many, style_of
from ragpulse_collector.conventions.rules import Carrier, Found, Read
from ragpulse_collector.conventions.values import dumped, number, parsed
from ragpulse_collector.records import ContextColumns, ContextRecord

_TEXT_KEYS = ("text", "page_content", "document", "chunk", "body")
_ID_KEYS = ("id", "document_id", "doc_id", "node_id", "id_", "chunk_id")
_SCORE_KEYS = ("score", "relevance_score", "similarity", "similarity_score")
_MEMBERS = (("id", _ID_KEYS), ("score", _SCORE_KEYS), ("metadata", ("metadata", "meta", "extra_info")))
_INNER_KEYS = ("document", "node", "kwargs", "payload")
_LIST_KEYS = (
    "documents",
    "results",
    "matches",
    "nodes",
    "source_documents",
    "source_nodes",
    "contexts",
    "docs",
    "chunks",
)
_FLAT = re.compile(r"([0-9]{1,6})\.document\.(id|content|score|metadata)")
_PLAIN = frozenset({"id", "score", "content", "metadata"})
_USUAL = frozenset({"id", "score", "content"})
_MEMBER_TYPES = (frozenset({str, type(None)}), frozenset({float, type(None)}), frozenset({str}))
_NOTHING = Carrier({})


def documents(value: Any, _: Carrier) -> Found | None:
    """Read a list of documents, JSON text or structured."""
    content = parsed(value)
    if not isinstance(content, list):
        return None
    return _found(value, content, content, ())


def documents_at_once(column: Sequence[Any], types: set[type]) -> Found | None:
    """Read a column of JSON texts of documents with the same plain members, which is what nearly all retrievers send.

    The value is all of them by column; None where anything is otherwise.
    """
    lists = _parsed_lists(column) if types == {str} else []
    if set(map(type, lists)) != {list} or not all(lists):
        return None
    every = list(chain.from_iterable(lists))
    if set(map(type, every)) != {dict} or len(set(map(tuple, every))) != 1 or not _USUAL.issuperset(every[0]):
        return None
    members = [[item.get(key) for item in every] for key in ("id", "score", "content")]
    if not all(kinds.issuperset(map(type, member)) for kinds, member in zip(_MEMBER_TYPES, members, strict=True)):
        return None
    style = style_of(column[0], lists[0]) if all(members[-1]) else None
    if style is None or not _are_written(lists, column, style):
        return None
    template = {"$lifted": "contexts", "keys": list(every[0]), "style": style}
    ids, scores, texts = members
    return Found(ContextColumns(list(map(len, lists)), ids, scores, texts, [None] * len(every)), {"": template})


def _parsed_lists(column: Sequence[str]) -> list[Any]:
    try:
        return list(map(orjson.loads, column))
    except orjson.JSONDecodeError:
        return []


def _are_written(lists: Sequence[Any], column: Sequence[str], style: str) -> bool:
    """Tell whether this style writes every list as exactly its text."""
    try:
        return list(map(STYLES[style], lists)) == list(column)
    except (TypeError, ValueError, RecursionError):  # nested too deep, or a number no JSON can say
        return False


def documents_of_retrieval(value: Any, carrier: Carrier) -> Found | None:
    """Read documents from an output, of retrievers and rerankers only: other lists of texts are not contexts."""
    if carrier.kind not in ("retriever", "reranker"):
        return None
    content = parsed(value)
    if isinstance(content, list):
        return _found(value, content, content, ())
    key = next((key for key in _LIST_KEYS if isinstance(content, dict) and isinstance(content.get(key), list)), None)
    return None if key is None else _found(value, content, content[key], (key,))


def flattened(members: Any, carrier: Carrier) -> Found | None:
    """Read OpenInference's `N.document.*` names; a gap in N or dropped attributes: some are missing."""
    rows: dict[int, dict[str, Any]] = {}
    for suffix, value in members.items():
        match = _FLAT.fullmatch(suffix)
        if match:
            rows.setdefault(int(match[1]), {})[match[2]] = value
    if not rows:
        return None
    templates = {
        f"{index}.document.content": {"$lifted": "contexts", "rank": index + 1}
        for index, row in rows.items()
        if type(row.get("content")) is str and row["content"]
    }
    records = [_record(index + 1, row) for index, row in sorted(rows.items())]
    return Found(records, templates, truncated=carrier.dropped_attributes > 0 or max(rows) != len(rows) - 1)


def result_events(prefix: str) -> Read:
    """Make a reader of one event per document, as vector database clients send them."""

    def read(events: Any, _: Carrier) -> list[ContextRecord]:
        rows = [{key: event.attributes.get(prefix + key) for key in _EVENT_KEYS} for event in events]
        return [_record(rank, row) for rank, row in enumerate(rows, start=1)]

    return read


_EVENT_KEYS = ("id", "score", "document", "metadata")


def _found(value: Any, content: Any, items: list[Any], at: Path) -> Found | None:
    """Build the records and lift their texts out of `value`, whose list of documents lies at the path `at`."""
    records: list[ContextRecord] = []
    paths: list[Path] = []
    for rank, item in enumerate(items, start=1):
        row, path = _row(item)
        if row is None:
            return None
        records.append(_record(rank, row))
        paths.append(path)
    template = lifted_documents(value, items, records) if type(value) is str and not at else None
    if template is None:
        template = _texts_lifted(value, content, records, paths, at)
    return Found(records, {} if template is None else {"": template})


def _texts_lifted(value: Any, content: Any, records: list[ContextRecord], paths: list[Path], at: Path) -> Any:
    references = [
        ((*at, record.rank - 1, *path), {"$lifted": "contexts", "rank": record.rank})
        for record, path in zip(records, paths, strict=True)
        if record.text is not None
    ]
    return lifted_many(value, content, references) if references else None


def _row(item: Any) -> tuple[dict[str, Any] | None, Path]:
    """Return the members of one document and the path of its text; None where it is no document."""
    if type(item) is str:
        return {"content": item}, ()
    if type(item) is list and len(item) == 2 and isinstance(item[0], dict):
        row, path = _row(item[0])
        return None if row is None else {**row, "score": item[1]}, (0, *path)
    if not isinstance(item, dict):
        return None, ()
    if type(item.get("content")) is str:
        return item if _PLAIN.issuperset(item) else {**_members(item), "content": item["content"]}, ("content",)
    return _unusual_row(item)


def _unusual_row(item: dict[str, Any]) -> tuple[dict[str, Any] | None, Path]:
    text_key = next((key for key in _TEXT_KEYS if isinstance(item.get(key), str)), None)
    if text_key is not None:
        return {**_members(item), "content": item[text_key]}, (text_key,)
    inner_key = next((key for key in _INNER_KEYS if isinstance(item.get(key), dict)), None)
    if inner_key is not None:
        row, path = _row(item[inner_key])
        return {**(row or {}), **_members(item)} or None, (inner_key, *path)
    return _members(item) or None, ()


def _members(item: dict[str, Any]) -> dict[str, Any]:
    row: dict[str, Any] = {}
    for name, keys in _MEMBERS:
        for key in keys:
            if item.get(key) is not None:
                row[name] = item[key]
                break
    return row


def _record(rank: int, row: dict[str, Any]) -> ContextRecord:
    words = row.get("content", row.get("document"))
    identity = row.get("id")
    score = row.get("score")
    metadata = row.get("metadata")
    return ContextRecord(
        rank,
        identity if type(identity) is str or identity is None else str(identity),
        None if score is None else number(score, _NOTHING),
        words if type(words) is str and words else None,
        _object(metadata) if metadata else None,
    )


def _object(value: Any) -> str | None:
    content = parsed(value)
    return dumped(content) if isinstance(content, dict) and content else None
