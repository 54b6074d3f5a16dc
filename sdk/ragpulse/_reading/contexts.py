"""Turns what a retriever returned into typed contexts, for every library. None of those libraries is imported."""

import re
from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from json.encoder import encode_basestring, encode_basestring_ascii
from typing import Any, NamedTuple
from uuid import UUID

from ragpulse.attributes import (
    DOCUMENT_DISTANCE_KEYS,
    DOCUMENT_FIELD_KEYS,
    DOCUMENT_GENERATED_ID,
    DOCUMENT_ID_KEYS,
    DOCUMENT_METADATA_KEYS,
    DOCUMENT_PARENT_KEYS,
    DOCUMENT_SCORE_KEYS,
    DOCUMENT_SOURCE_KEYS,
    DOCUMENT_TEXT_KEYS,
)

from .hits import by_place, hits_in, hits_of_groups, listed, nested_hits, table
from .replies import opened
from .values import MAX_TEXT, JsonText, bounded, plain, read, to_json, type_name, well_formed

_tuple = tuple.__new__  # what `Document(...)` calls, after a function of its own
_PLAIN_ESCAPES = b'0123456789"\\\n\r\t'
_ESCAPES = (("\\", "\\\\"), ('"', '\\"'), ("\n", "\\n"), ("\r", "\\r"), ("\t", "\\t"))


def _quote(text: str) -> str:
    """JSON of any text; the escaper for ASCII is faster and has the same result."""
    return encode_basestring_ascii(text) if text.isascii() else encode_basestring(well_formed(text))


def _quote_plain(text: str) -> str:
    return f'"{text}"'


def _quote_ordinary(text: str) -> str:
    for character, escape in _ESCAPES:
        if character in text:
            text = text.replace(character, escape)
    return f'"{text}"'


def quoting(special_characters: bytes) -> Callable[[str], str]:
    """Chooses the fastest function that makes JSON of texts with these marks (see `redaction.special_characters`)."""
    if not special_characters or special_characters.isdigit():
        return _quote_plain
    return _quote if special_characters.strip(_PLAIN_ESCAPES) else _quote_ordinary


_STATUS_KEYS = frozenset({"error", "errors", "exception", "message", "detail", "details", "status", "reason", "code"})
"""A mapping with one of these reports a failure; its texts are no documents."""
_INDEX_KEYS = ("index", "corpus_id")
"""Where a reranker names a document by its index in the input (Cohere, Voyage, sentence-transformers)."""
_GENERATED = re.compile(DOCUMENT_GENERATED_ID)


class Document(NamedTuple):
    """One retrieved context, as it was when it was returned."""

    id: str | None
    score: float | None
    text: str | None
    metadata: str | None
    """A JSON object."""


NOTHING = Document(None, None, None, None)


def documents_in(value: Any, field: str | None = None) -> tuple[Document, ...] | None:
    """The contexts in a retriever's result, in rank order; None when no documents are found in it.

    `hits` says how the list is found. `field` is the name of the text in each hit, for names that are not usual.
    """
    text_keys = DOCUMENT_TEXT_KEYS if field is None else (field, *DOCUMENT_TEXT_KEYS)
    result = value if isinstance(value, (list, tuple)) else opened(value)
    hits = [result] if isinstance(result, str) else hits_in(result)
    if hits is None:
        hits = [result] if _text(result, text_keys) is not None else _hits_by_key(result, text_keys)
    if hits is None:
        return None
    documents = tuple([document(hit, text_keys) for hit in hits])
    if documents and not has_texts(documents):
        inside = hits_of_groups(hits)
        documents = tuple([document(hit, text_keys) for hit in inside]) if inside else documents
    return None if documents and all([item == NOTHING for item in documents]) else documents


def has_texts(documents: Sequence[Document]) -> bool:
    """Whether one of the documents has a text."""
    return any([item.text is not None for item in documents])


def _hits_by_key(value: Any, text_keys: tuple[str, ...]) -> list[Any] | None:
    """The hits in `{id: text}` or `{id: document}`, and the only list of mappings in a mapping."""
    if not isinstance(value, Mapping) or not _STATUS_KEYS.isdisjoint(value):
        return None
    if all([isinstance(item, str) or _text(item, text_keys) is not None for item in value.values()]):
        return [{"id": key, "document": item} for key, item in value.items()]
    lists = [item for item in value.values() if isinstance(item, list) and item and isinstance(item[0], Mapping)]
    return lists[0] if len(lists) == 1 else None


def with_candidate_texts(result: Any, candidates: Sequence[Document]) -> Any:
    """A reranker's result with the texts of the documents that it names by their place in its input."""
    items = result if isinstance(result, (list, tuple)) else nested_hits(opened(result))
    if not items or not candidates:
        return result
    documents = [_candidate(item, candidates) for item in items]
    return result if None in documents else documents


def _candidate(item: Any, candidates: Sequence[Document]) -> Document | None:
    """The candidate at the item's index with the item's score; the item itself where it has a text."""
    document_itself = document(item)
    if document_itself.text is not None:
        return document_itself
    index, score = (
        next((value for key in _INDEX_KEYS if type(value := read(item, key)) is int), None),
        document_itself.score,
    )
    if index is None and isinstance(item, tuple) and len(item) == 2:
        index, score = item[0], _number(item[1])
    if type(index) is not int or not 0 <= index < len(candidates):
        return None
    return candidates[index]._replace(score=score)


def document(item: Any, text_keys: tuple[str, ...] = DOCUMENT_TEXT_KEYS) -> Document:
    """One context from text, a dict, `(document, score)`, or any object with `.text`, `.content` or `.page_content`."""
    if type(item) is dict:
        get = item.get
        text, identity, score = get("text"), get("id"), get("score")
        if type(text) is str and type(identity) is str and type(score) is float and len(item) == 3:
            return _tuple(Document, (identity, score, text if len(text) <= MAX_TEXT else bounded(text), None))
        return _described(item, text_keys)
    if type(item) is str:
        return Document(None, None, bounded(item), None)
    if type(item) is Document:
        return item
    if isinstance(item, (int, UUID)) and not isinstance(item, bool):
        return Document(_identity(item), None, None, None)
    fields = _fields_of_row(item)
    if fields is not None:
        return _described(by_place([fields])[0], text_keys)
    row = listed(item)
    if row is not None:
        return document(table([row])[0]) if row else NOTHING
    return _described(item, text_keys)


def _fields_of_row(item: Any) -> dict[str, Any] | None:
    """The named values of a named tuple or of a row of SQLAlchemy, sqlite3 or asyncpg."""
    if hasattr(type(item), "_asdict"):
        return item._asdict()  # type: ignore[no-any-return]
    is_row = type(item).__name__ in ("Row", "Record") and hasattr(item, "keys")
    return dict(zip(item.keys(), item, strict=True)) if is_row else None


def _described(hit: Any, text_keys: tuple[str, ...]) -> Document:
    """A hit by the names of its parts: its own, those of the document in it, and those in their metadata."""
    found = next((part for key in DOCUMENT_FIELD_KEYS if _is_object(part := read(hit, key))), None)
    parts = (hit,) if found is None else (hit, found)
    metadata = next((part for each in parts if _is_object(part := _first_value(each, DOCUMENT_METADATA_KEYS))), None)
    parts = parts if metadata is None else (*parts, metadata)
    text = next((text for part in reversed(parts) if (text := _text(part, text_keys)) is not None), None)
    if text is None and isinstance(found, Mapping):
        text = max([bounded(value) for value in found.values() if isinstance(value, str)], key=len, default=None)
    score, identity = _first_number(parts, DOCUMENT_SCORE_KEYS), _own_id(parts, metadata)
    kept = metadata if isinstance(metadata, Mapping) else found if isinstance(found, Mapping) else {}
    known = {key: value for key, value in kept.items() if value is not text and value is not score}
    if kept is found:
        known = {key: value for key, value in known.items() if str(value) != identity}
    return Document(identity, score, text, _with_names(known, parts, score is not None))


def _is_object(value: Any) -> bool:
    """Whether a value has parts of its own."""
    return value is not None and not isinstance(value, (str, int, float)) and not callable(value) and not listed(value)


def _own_id(parts: tuple[Any, ...], metadata: Any) -> str | None:
    """The id of the passage that the application gave, else one that was generated, else the id of its document.

    A number in the metadata is the last choice: it often counts the passages of one document.
    """
    others: list[tuple[int, str]] = []
    for part in parts:
        for key in DOCUMENT_ID_KEYS:
            value = read(part, key)
            identity = None if value is None or callable(value) else _identity(value)
            if identity:
                is_given, is_parent = not _GENERATED.fullmatch(identity), key in DOCUMENT_PARENT_KEYS
                if is_given and not is_parent:
                    return identity
                others.append((1 if is_parent else 2 * (part is metadata and identity.isdigit()), identity))
    return min(others, key=itemgetter(0))[1] if others else None


def _with_names(metadata: dict[str, Any], parts: tuple[Any, ...], has_score: bool) -> JsonText | None:
    """The metadata, with the name of the document and the distance where the hit has them beside it."""
    hit = parts[0]
    added = {key: value for key in DOCUMENT_SOURCE_KEYS if isinstance(value := read(hit, key), str)}
    distance = None if has_score else _first_number(parts, DOCUMENT_DISTANCE_KEYS)
    if distance is not None:
        added["distance"] = distance
    return to_json({**added, **metadata}) if metadata or added else None


def _identity(value: Any) -> str | None:
    """An id as text: a UUID or number as it is written, an object (MongoDB's) by its own text, else as JSON."""
    identity = plain(value)
    if identity == type_name(value):
        return str(value) if "__str__" in vars(type(value)) else None
    return identity if isinstance(identity, str) else str(identity) if isinstance(identity, int) else to_json(identity)


def _text(source: Any, keys: tuple[str, ...]) -> str | None:
    """The text of a document: a text, the `text` in a part, or the texts of its parts."""
    for key in keys:
        found = read(source, key)
        if isinstance(found, str):
            return bounded(found)
        if isinstance(found, Mapping) and isinstance(found.get("text"), str):  # Bedrock
            return bounded(found["text"])
        if isinstance(found, list) and found and None not in (texts := [_part_text(part) for part in found]):
            return bounded("\n".join(texts))  # type: ignore[arg-type]
    get_content = None if isinstance(source, Mapping) else read(source, "get_content")
    if callable(get_content):
        try:
            content = get_content()
        except Exception:  # noqa: BLE001 - a foreign method; the context is then kept without text
            return None
        return bounded(content) if isinstance(content, str) else None
    return None


def _part_text(part: Any) -> str | None:
    text = part if isinstance(part, str) else read(part, "text")
    return text if isinstance(text, str) else None


def _first_value(source: Any, keys: tuple[str, ...]) -> Any:
    for key in keys:
        value = read(source, key)
        if value is not None and not callable(value):
            return value
    return None


def _first_number(sources: Sequence[Any], keys: tuple[str, ...]) -> float | None:
    values = (_number(_first_value(source, keys)) for source in sources)
    return next((value for value in values if value is not None), None)


def _number(value: Any) -> float | None:
    if type(value) is float:
        return value
    if value is None or isinstance(value, (bytes, bool)):
        return None
    try:
        return float(value) if isinstance(value, str) or hasattr(value, "__float__") else None
    except Exception:  # noqa: BLE001 - e.g. an array of several numbers: not a score
        return None


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
        elif identity is None and score is None and metadata is None:
            parts.append(',"content":""')  # keeps its rank: the collector refuses a list with an item that has nothing
        if metadata is not None:
            parts += (',"metadata":', metadata)
        parts.append("}")
    parts.append("]" if parts else "[]")
    return "".join(parts)
