"""Turns what a retriever returned into typed contexts, for every library. None of those libraries is imported."""

from collections.abc import Callable, Mapping, Sequence
from json.encoder import encode_basestring, encode_basestring_ascii
from typing import Any, NamedTuple
from uuid import UUID

from ragpulse.attributes import (
    DOCUMENT_ID_KEYS,
    DOCUMENT_LIST_KEYS,
    DOCUMENT_METADATA_KEYS,
    DOCUMENT_SCORE_KEYS,
    DOCUMENT_TEXT_KEYS,
)

from .openers import opened
from .values import MAX_TEXT, bounded, plain, read, to_json, well_formed

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


_ID_KEYS = (*DOCUMENT_ID_KEYS, "_id", "uuid")
_FIELDS = ("_source", "properties", "entity")
"""Where a hit has its fields: Elasticsearch and OpenSearch, Weaviate, Milvus."""
_INDEX_KEYS = ("index", "corpus_id")
"""Where a reranker names a document by its index in the input (Cohere, Voyage, sentence-transformers)."""


_STATUS_KEYS = frozenset({"error", "errors", "exception", "message", "detail", "details", "status", "reason", "code"})
"""A mapping with one of these reports a failure; its texts are no documents."""


class Document(NamedTuple):
    """One retrieved context, as it was when it was returned."""

    id: str | None
    score: float | None
    text: str | None
    metadata: str | None
    """A JSON object."""


NOTHING = Document(None, None, None, None)


def documents_in(value: Any) -> tuple[Document, ...] | None:
    """The contexts in a retriever's result, in rank order; None when no documents are found in it."""
    if type(value) is tuple:
        value = _list_in(value)
    if not isinstance(value, (list, tuple)):
        return _documents_of_object(opened(value))
    documents = tuple([document(item) for item in _flat_hits(value)])
    is_unread = documents and documents[0] == NOTHING and all([item == NOTHING for item in documents])
    return None if is_unread else documents


def _list_in(value: tuple[Any, ...]) -> Sequence[Any]:
    """The list of documents in `(documents, total)`, `(text, documents)` or `(documents, scores)`."""
    lists = [part for part in value if isinstance(part, list)]
    if len(lists) == 2 and len(lists[0]) == len(lists[1]) and None not in map(_number, lists[1]):
        return list(zip(*lists, strict=True))
    return lists[0] if len(lists) == 1 else value


def _flat_hits(value: Sequence[Any]) -> Sequence[Any]:
    """The hits of one or several queries in one list: Milvus returns a list for each query."""
    if not value or not isinstance(value[0], list):
        return value
    ranked = all([isinstance(hits, list) and hits and isinstance(hits[0], Mapping) for hits in value])
    return [hit for hits in value for hit in hits] if ranked else value


def _documents_of_object(value: Any) -> tuple[Document, ...] | None:
    """The contexts in a result that is no list: one text, a larger result, columns, a table, a mapping."""
    if isinstance(value, str):
        return (document(value),)
    if isinstance(value, Mapping) and isinstance(value.get("ids"), list):
        return _columns(value)
    nested = nested_documents(value)
    if nested is not None:
        return documents_in(nested)
    rows = _rows(value)
    if rows is not None:
        return tuple([_row_of_table(row) for row in rows])
    if _text(value) is not None:
        return (document(value),)
    if isinstance(value, Mapping) and all(
        [key not in _STATUS_KEYS and (isinstance(item, str) or _text(item) is not None) for key, item in value.items()]
    ):
        return tuple([document(item)._replace(id=_identity(key)) for key, item in value.items()])
    return None


def nested_documents(value: Any) -> Sequence[Any] | None:
    """The list of documents that a larger result (an answer with its sources, a search response) carries."""
    for key in DOCUMENT_LIST_KEYS:
        documents = read(value, key)
        if isinstance(documents, (list, tuple)):
            return documents
        if key == "hits" and isinstance(documents, Mapping) and isinstance(documents.get("hits"), list):
            return documents["hits"]  # type: ignore[no-any-return]  # Elasticsearch, OpenSearch
    return None


def _rows(value: Any) -> list[dict[str, Any]] | None:
    """The rows of a data frame (pandas, polars) or a table of Arrow; None for anything else."""
    if read(value, "columns") is None or isinstance(value, Mapping):
        return None
    by_row = read(value, "to_dicts") or read(value, "to_pylist")
    try:
        rows = by_row() if callable(by_row) else value.to_dict("records")
    except Exception:  # noqa: BLE001 - something else that has columns
        return None
    return rows if isinstance(rows, list) else None


def _row_of_table(row: dict[str, Any]) -> Document:
    """A row by the names of its columns; where none is called a text, by what its values look like."""
    by_name = document(row)
    return by_name if by_name.text is not None else _row(tuple(row.values()))


def _row(values: tuple[Any, ...]) -> Document:
    """A row, `(id, text, score)` in any order: the longest text, another value as the id, a number as the score."""
    texts = [value for value in values if isinstance(value, str)]
    if not texts:
        return NOTHING
    text = max(texts, key=len)
    others = [value for value in values if value is not text]
    identity = next(
        (value for value in others if isinstance(value, (str, int, UUID)) and not isinstance(value, bool)), None
    )
    scores = [score for value in others if value is not identity and (score := _number(value)) is not None]
    metadata = next((value for value in others if isinstance(value, Mapping) and value), None)
    return Document(
        None if identity is None else _identity(identity),
        scores[-1] if scores else None,
        bounded(text),
        None if metadata is None else to_json(metadata),
    )


def with_candidate_texts(result: Any, candidates: Sequence[Document]) -> Any:
    """A reranker's result with the texts of the documents that it names by their place in its input."""
    items = result if isinstance(result, (list, tuple)) else nested_documents(opened(result))
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


def document(item: Any) -> Document:
    """One context from text, a dict, `(document, score)`, or any object with `.text`, `.content` or `.page_content`."""
    if type(item) is dict:
        get = item.get
        text, identity, score = get("text"), get("id"), get("score")
        if type(text) is str and type(identity) is str and type(score) is float and len(item) == 3:
            return _tuple(Document, (identity, score, text if len(text) <= MAX_TEXT else bounded(text), None))
        return _described(item, item)
    if type(item) is str:
        return Document(None, None, bounded(item), None)
    if type(item) is Document:
        return item
    if isinstance(item, (tuple, list)) and not hasattr(type(item), "_asdict"):
        return _pair_or_row(tuple(item))
    if isinstance(item, (int, UUID)) and not isinstance(item, bool):
        return Document(_identity(item), None, None, None)
    if hasattr(type(item), "_asdict") or type(item).__name__ == "Row":  # named tuples, rows of sqlite3 and SQLAlchemy
        return _row_of_table(
            item._asdict() if hasattr(type(item), "_asdict") else dict(zip(item.keys(), item, strict=True))
        )
    node = read(item, "node")
    return _described(item, node if node is not None else item)


def _pair_or_row(item: tuple[Any, ...]) -> Document:
    if len(item) != 2 or all(isinstance(part, (str, UUID)) for part in item):
        return _row(item)
    first, second = item
    if _number(first) is not None and _number(second) is None:
        first, second = second, first
    if isinstance(first, int):
        return _row(item)
    return document(first)._replace(score=_number(second))


def _described(outer: Any, inner: Any) -> Document:
    for key in _FIELDS:
        fields = read(inner, key)
        if isinstance(fields, Mapping) and fields:
            return _hit(inner, fields)
    metadata = _first_value(inner, DOCUMENT_METADATA_KEYS)
    has_metadata = isinstance(metadata, Mapping) and bool(metadata)
    score = _number(_first_value(outer, DOCUMENT_SCORE_KEYS))
    if score is None and has_metadata:
        score = _number(_first_value(metadata, DOCUMENT_SCORE_KEYS))
    text = _text(inner)
    if text is None and has_metadata:
        text = _text(metadata)
    identity = _first_value(inner, _ID_KEYS)
    if identity is None and inner is not outer:
        identity = _first_value(outer, _ID_KEYS)
    return Document(
        None if identity is None else _identity(identity),
        score,
        text,
        to_json(metadata) if has_metadata else None,
    )


def _identity(value: Any) -> str:
    """An id as text: a UUID or number as it is written, anything else as JSON."""
    identity = plain(value)
    return (
        identity
        if isinstance(identity, str)
        else str(identity)
        if isinstance(identity, int)
        else str(to_json(identity))
    )


def _hit(hit: Any, fields: Mapping[str, Any]) -> Document:
    """A hit with its fields in one mapping; its text is the field of that name, else the longest text."""
    text = _text(fields)
    if text is None:
        text = max([bounded(value) for value in fields.values() if isinstance(value, str)], key=len, default=None)
    metadata = {key: value for key, value in fields.items() if value != text}
    score = _first_value(hit, DOCUMENT_SCORE_KEYS)
    if score is None:
        score = _first_value(read(hit, "metadata"), DOCUMENT_SCORE_KEYS)
    return Document(
        _identity(_first_value(hit, _ID_KEYS)), _number(score), text, to_json(metadata) if metadata else None
    )


def _text(source: Any) -> str | None:
    for key in DOCUMENT_TEXT_KEYS:
        text = read(source, key)
        if isinstance(text, str):
            return bounded(text)
    get_content = None if isinstance(source, Mapping) else read(source, "get_content")
    if callable(get_content):
        try:
            content = get_content()
        except Exception:  # noqa: BLE001 - a foreign method; the context is then kept without text
            return None
        return bounded(content) if isinstance(content, str) else None
    return None


def _first_value(source: Any, keys: tuple[str, ...]) -> Any:
    for key in keys:
        value = read(source, key)
        if value is not None and not callable(value):
            return value
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
        elif identity is None and score is None and metadata is None:
            parts.append(',"content":""')  # keeps its rank: the collector refuses a list with an item that has nothing
        if metadata is not None:
            parts += (',"metadata":', metadata)
        parts.append("}")
    parts.append("]" if parts else "[]")
    return "".join(parts)
