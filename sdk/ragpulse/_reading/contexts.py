"""Turns what a retriever returned into typed contexts, for every library. None of those libraries is imported."""

from collections.abc import Callable, Sequence
from json.encoder import encode_basestring, encode_basestring_ascii
from typing import Any, NamedTuple
from uuid import UUID

from .hits import by_place, hits_in, nested_hits, table
from .openers import opened
from .parts import Parts, listed, number, parts_of
from .usual import usual_parts
from .values import MAX_TEXT, bounded, to_json, value_of, well_formed

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


_INDEX_KEYS = ("index", "corpus_id")
"""Where a reranker names a document by its index in the input (Cohere, Voyage, sentence-transformers)."""


class RecordedDocument(NamedTuple):
    """One retrieved context, as it was when it was returned."""

    id: str | None
    score: float | None
    text: str | None
    metadata: str | None
    """A JSON object."""


NOTHING = RecordedDocument(None, None, None, None)


def documents_in(value: Any, field: str | None = None) -> tuple[RecordedDocument, ...] | None:
    """The contexts in a retriever's result, in rank order; None when no documents are found in it.

    `field` is the name of the text in each hit, where it is not a usual one.
    """
    if type(value) is list and value and field is None and _is_usual(value[0]):
        return tuple([document(hit) for hit in value])
    hits = hits_in(value if isinstance(value, (list, tuple)) else opened(value), field)
    if hits is None:
        return None
    documents = tuple([document(hit, field) for hit in hits])
    is_unread = documents and documents[0] == NOTHING and all([item == NOTHING for item in documents])
    return None if is_unread else documents


def _is_usual(hit: Any) -> bool:
    """Whether a list that begins with this hit is a list of hits, without a closer look."""
    return (type(hit) is dict and type(hit.get("text")) is str) or usual_parts(hit) is not None


def has_texts(documents: Sequence[RecordedDocument]) -> bool:
    """Whether one of the documents has a text."""
    return any(item.text is not None for item in documents)


def with_candidate_texts(result: Any, candidates: Sequence[RecordedDocument]) -> Any:
    """A reranker's result with the texts of the documents that it names by their place in its input."""
    items = result if isinstance(result, (list, tuple)) else nested_hits(opened(result))
    if not items or not candidates:
        return result
    documents = [_candidate(item, candidates) for item in items]
    return result if None in documents else documents


def _candidate(item: Any, candidates: Sequence[RecordedDocument]) -> RecordedDocument | None:
    """The candidate at the item's index with the item's score; the item itself where it has a text."""
    document_itself = document(item)
    if document_itself.text is not None:
        return document_itself
    index, score = (
        next((value for key in _INDEX_KEYS if type(value := value_of(item, key)) is int), None),
        document_itself.score,
    )
    if index is None and isinstance(item, tuple) and len(item) == 2:
        index, score = item[0], number(item[1])
    if type(index) is not int or not 0 <= index < len(candidates):
        return None
    return candidates[index]._replace(score=score)


def document(item: Any, field: str | None = None) -> RecordedDocument:
    """One context from text, a dict, `(document, score)`, or any object with `.text`, `.content` or `.page_content`."""
    if type(item) is dict:
        get = item.get
        text, identity, score = get("text"), get("id"), get("score")
        if type(text) is str and type(identity) is str and type(score) is float and len(item) == 3:
            return _tuple(RecordedDocument, (identity, score, text if len(text) <= MAX_TEXT else bounded(text), None))
        return _described(item, field)
    if type(item) is str:
        return RecordedDocument(None, None, bounded(item), None)
    if type(item) is RecordedDocument:
        return item
    parts = usual_parts(item) if field is None else None
    if parts is not None:
        return _document(parts)
    if isinstance(item, (int, UUID)) and not isinstance(item, bool):
        return RecordedDocument(str(item), None, None, None)
    fields = _fields_of_row(item)
    if fields is not None:
        return _described(by_place([fields])[0], field)
    row = listed(item)
    if row is not None:
        return document(next(iter(table([row])), None))
    return _described(item, field)


def _fields_of_row(item: Any) -> dict[str, Any] | None:
    """The named values of a named tuple or of a row of SQLAlchemy, sqlite3 or asyncpg."""
    if hasattr(type(item), "_asdict"):
        return item._asdict()  # type: ignore[no-any-return]
    is_row = type(item).__name__ in ("Row", "Record") and hasattr(item, "keys")
    return dict(zip(item.keys(), item, strict=True)) if is_row else None


def _described(hit: Any, field: str | None) -> RecordedDocument:
    parts = usual_parts(hit) if field is None else None
    return _document(parts or parts_of(hit, field))


def _document(parts: Parts) -> RecordedDocument:
    identity, score, text, metadata = parts
    return RecordedDocument(
        identity, score, None if text is None else bounded(text), to_json(metadata) if metadata else None
    )


def to_documents_json(documents: Sequence[RecordedDocument], quote: Callable[[str], str] = _quote) -> str:
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
