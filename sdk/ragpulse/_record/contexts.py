"""Turns what a retriever returned into typed contexts, for every library. None of those libraries is imported."""

from collections.abc import Callable, Mapping, Sequence
from json.encoder import encode_basestring, encode_basestring_ascii
from typing import Any, NamedTuple

from ragpulse.attributes import (
    DOCUMENT_ID_KEYS,
    DOCUMENT_LIST_KEYS,
    DOCUMENT_METADATA_KEYS,
    DOCUMENT_SCORE_KEYS,
    DOCUMENT_TEXT_KEYS,
)

from .values import KEPT, keep, read, to_json

_tuple = tuple.__new__  # what `Document(...)` calls, after a function of its own
_PLAIN_ESCAPES = b'0123456789"\\\n\r\t'
_ESCAPES = (("\\", "\\\\"), ('"', '\\"'), ("\n", "\\n"), ("\r", "\\r"), ("\t", "\\t"))


def _quote(text: str) -> str:
    """JSON of any text; the escaper for ASCII is the faster one, and makes the same of it."""
    return encode_basestring_ascii(text) if text.isascii() else encode_basestring(text)


def _quote_plain(text: str) -> str:
    return f'"{text}"'


def _quote_ordinary(text: str) -> str:
    for character, escape in _ESCAPES:
        if character in text:
            text = text.replace(character, escape)
    return f'"{text}"'


def quoting(marks: bytes) -> Callable[[str], str]:
    """Chooses the fastest function that makes JSON of texts with these marks (see `redaction.marks`)."""
    if not marks or marks.isdigit():
        return _quote_plain
    return _quote if marks.strip(_PLAIN_ESCAPES) else _quote_ordinary


class Document(NamedTuple):
    """One retrieved context, as it was when it was returned."""

    id: str | None
    score: float | None
    text: str | None
    metadata: str | None
    """A JSON object."""


def documents_in(value: Any) -> tuple[Document, ...] | None:
    """The contexts in a retriever's result, in rank order; None when the result is no list of documents."""
    if isinstance(value, (list, tuple)):
        return tuple([document(item) for item in value])
    if isinstance(value, str):
        return (document(value),)
    if isinstance(value, Mapping) and isinstance(value.get("ids"), list):
        return _columns(value)
    nested = nested_documents(value)
    return None if nested is None else documents_in(nested)


def nested_documents(value: Any) -> Sequence[Any] | None:
    """The list of documents that a larger result (an answer with its sources, a search response) carries."""
    for key in DOCUMENT_LIST_KEYS:
        found = read(value, key)
        if isinstance(found, (list, tuple)):
            return found
    return None


def document(item: Any) -> Document:
    """One context from text, a dict, `(document, score)`, or any object with `.text`, `.content` or `.page_content`."""
    if type(item) is dict:
        get = item.get
        text, identity, score = get("text"), get("id"), get("score")
        if type(text) is str and type(identity) is str and type(score) is float and len(item) == 3:
            return _tuple(Document, (identity, score, text if len(text) <= KEPT else keep(text), None))
        return _described(item, item)
    if type(item) is str:
        return Document(None, None, keep(item), None)
    if type(item) is tuple and len(item) == 2:
        first, second = item
        if _number(first) is not None and _number(second) is None:
            first, second = second, first
        return document(first)._replace(score=_number(second))
    node = read(item, "node")
    return _described(item, node if node is not None else item)


def _described(outer: Any, inner: Any) -> Document:
    metadata = _first(inner, DOCUMENT_METADATA_KEYS)
    has_metadata = isinstance(metadata, Mapping) and bool(metadata)
    score = _number(_first(outer, DOCUMENT_SCORE_KEYS))
    if score is None and has_metadata:
        score = _number(_first(metadata, DOCUMENT_SCORE_KEYS))
    text = _text(inner)
    if text is None and has_metadata:
        text = _text(metadata)
    identity = _first(inner, DOCUMENT_ID_KEYS)
    if identity is None and inner is not outer:
        identity = _first(outer, DOCUMENT_ID_KEYS)
    return Document(
        None if identity is None else str(identity) if isinstance(identity, (str, int)) else str(to_json(identity)),
        score,
        text,
        to_json(metadata) if has_metadata else None,
    )


def _text(source: Any) -> str | None:
    for key in DOCUMENT_TEXT_KEYS:
        found = read(source, key)
        if isinstance(found, str):
            return keep(found)
    get_content = None if isinstance(source, Mapping) else read(source, "get_content")
    if callable(get_content):
        try:
            content = get_content()
        except Exception:  # noqa: BLE001 - a foreign method; the context is then kept without text
            return None
        return keep(content) if isinstance(content, str) else None
    return None


def _first(source: Any, keys: tuple[str, ...]) -> Any:
    for key in keys:
        found = read(source, key)
        if found is not None and not callable(found):
            return found
    return None


def _number(value: Any) -> float | None:
    if type(value) is float:
        return value
    if value is None or isinstance(value, (str, bytes, bool)):
        return None
    try:
        return float(value) if hasattr(value, "__float__") else None
    except Exception:  # noqa: BLE001 - e.g. an array of several numbers: not a score
        return None


def _columns(value: Mapping[str, Any]) -> tuple[Document, ...]:
    """Column-wise results as vector stores return them: ids, documents, distances, metadatas (perhaps per query)."""

    def column(name: str) -> list[Any]:
        found = value.get(name)
        if not isinstance(found, list):
            return []
        return found[0] if found and isinstance(found[0], list) else found

    ids, texts, metadata = column("ids"), column("documents"), column("metadatas")
    rows = []
    for rank, identity in enumerate(ids):
        text = texts[rank] if rank < len(texts) else None
        extra = metadata[rank] if rank < len(metadata) else None
        rows.append(
            Document(str(identity), None, text if isinstance(text, str) else None, to_json(extra) if extra else None)
        )
    return tuple(rows)


def to_documents_json(documents: Sequence[Document], quote: Callable[[str], str] = _quote) -> str:
    """The documents as the one JSON string that goes on the span."""
    parts: list[str] = []
    for identity, score, text, metadata in documents:
        parts.append(",{" if parts else "[{")
        if identity is not None:
            parts += ('"id":', _quote(identity), ",")
        parts += ('"score":', repr(score) if score is not None and score - score == 0 else "null")
        if text is not None:
            parts += (',"content":', quote(text))
        if metadata is not None:
            parts += (',"metadata":', metadata)
        parts.append("}")
    parts.append("]" if parts else "[]")
    return "".join(parts)
