"""Turns what a retriever returned into typed contexts, for every library. None of those libraries is imported."""

from collections.abc import Callable, Sequence
from functools import lru_cache
from json.encoder import encode_basestring, encode_basestring_ascii
from typing import Any, NamedTuple
from uuid import UUID

from .hits import by_place, hits_in, nested_hits, table
from .openers import opened
from .parts import listed, number, parts_of
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
    is_plain = type(value) is list and value and type(value[0]) is dict and type(value[0].get("text")) is str
    hits = value if is_plain else hits_in(value if isinstance(value, (list, tuple)) else opened(value), field)
    if hits is None:
        return None
    documents = tuple([document(hit, field) for hit in hits])
    is_unread = documents and documents[0] == NOTHING and all([item == NOTHING for item in documents])
    return None if is_unread else documents


def has_texts(documents: Sequence[RecordedDocument]) -> bool:
    """Whether one of the documents has a text."""
    for item in documents:  # noqa: SIM110 - a generator takes three times as long, in each search
        if item.text is not None:
            return True
    return False


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
    cls: Any = type(item)
    if cls is dict:
        get = item.get
        text, identity, score = get("text"), get("id"), get("score")
        if type(text) is str and type(identity) is str and type(score) is float and len(item) == 3:
            return _tuple(RecordedDocument, (identity, score, text if len(text) <= MAX_TEXT else bounded(text), None))
        return _described(item, field)
    if type(item) is str:
        return _described(item, field)
    if type(item) is RecordedDocument:
        return item
    if isinstance(item, (int, UUID)) and not isinstance(item, bool):
        return RecordedDocument(str(item), None, None, None)
    if _is_row(cls):
        fields = item._asdict() if hasattr(item, "_asdict") else dict(zip(item.keys(), item, strict=True))
        return _described(by_place([fields])[0], field)
    row = listed(item)
    if row is not None:
        return document(next(iter(table([row])), None))
    return _described(item, field)


@lru_cache(maxsize=1024)
def _is_row(cls: Any) -> bool:
    """Whether objects of a class are named tuples or rows of SQLAlchemy, sqlite3, asyncpg or neo4j."""
    return hasattr(cls, "_asdict") or (cls.__name__ in ("Row", "Record") and hasattr(cls, "keys"))


def _described(hit: Any, field: str | None) -> RecordedDocument:
    identity, score, text, metadata = parts_of(hit, field)
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
