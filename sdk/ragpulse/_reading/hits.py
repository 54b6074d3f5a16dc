"""Finds the hits in a search's result by the shape of the result, for every library.

The rule, in this order:

1. A list holds hits. A list of lists holds the hits of several queries, which are joined.
2. A mapping or an object has its list under a usual name (`DOCUMENT_LIST_KEYS` and those after it), perhaps in a
   mapping of its own. Lists of equal length beside it (`ids`, `distances`, `metadatas`, ...) are columns of the hits.
3. Rows without names, `(id, text, score)`, and columns without names, `(ids, texts, scores)` or `zip(*hits)`: a column
   holds values of one kind. Where that is true in both directions, a tuple holds columns and a list holds rows.
4. Columns without names: the text has the most words; an address or a file is the source; the id is a number or UUID
   before the text, else different words without spaces; the last numbers are the score. Hits come best first, so
   numbers that rise from hit to hit are distances.
5. A table (pandas, polars, Arrow) has a mapping for each row.
"""

import re
from collections.abc import Mapping, Sequence, Set, ValuesView
from itertools import chain, pairwise, zip_longest
from operator import itemgetter
from typing import Any
from uuid import UUID

from ragpulse import attributes as names

from .values import fields_of, plain, read, to_json, type_name

_COLUMNS = frozenset(
    (*names.DOCUMENT_ID_KEYS, *names.DOCUMENT_SCORE_KEYS, *names.DOCUMENT_DISTANCE_KEYS, *names.DOCUMENT_METADATA_KEYS)
)
_TEXTS = frozenset(names.DOCUMENT_TEXT_KEYS)
_SEARCH_KEYS = (
    *names.DOCUMENT_LIST_KEYS,
    *names.DOCUMENT_WRAPPER_KEYS,
    *names.DOCUMENT_SEARCH_KEYS,
    *names.DOCUMENT_TEXT_KEYS,
)
_SOURCE = re.compile(r"\w+://\S+|\S+\.(?:pdf|mdx?|txt|html?|docx?|pptx?|xlsx?|csv|json|xml|rst)", re.IGNORECASE)
_CODE = re.compile(r"(?=\S*\d)\S*[^\s.!?。]")
"""A word with a digit: `faq-12` beside a score alone is an id, and no text."""
_SENTENCE = re.compile(r"\s|[.!?。]$")
_GENERATED = re.compile(r"\d+|[0-9a-fA-F]{8}-?(?:[0-9a-fA-F]{4}-?){3}[0-9a-fA-F]{12}|[0-9a-fA-F]{64}")
"""An id that a library or a store makes where the application gives none: a number, a UUID, a SHA-256."""
_NO_IDS = frozenset(
    {
        *("error", "errors", "exception", "message", "detail", "details", "status", "reason", "code"),
        *("query", "question", "input", "answer", "response", "output", "result"),
    }
)
"""A mapping with one of these is no `{id: text}`: it reports a failure, or something else than documents."""


def hits_in(value: Any, text_keys: tuple[str, ...] = names.DOCUMENT_TEXT_KEYS) -> Sequence[Any] | None:
    """The hits in a result, in rank order; None when there is no list of hits."""
    items = _items(value)
    if items is None:
        return [value] if text_of(value, text_keys) is not None else _hits_by_key(value, text_keys)
    is_group = len(items) > 0 and not isinstance(items[0], str) and text_of(items[0], text_keys) is None
    return hits_of_groups(items) or items if is_group else items


def _items(value: Any) -> Sequence[Any] | None:
    if isinstance(value, str):
        return [value]
    items = listed(value)
    if items is None:
        rows = _rows(value)
        return nested_hits(value, _SEARCH_KEYS) if rows is None else rows
    if type(value) is tuple:
        lists = [part for item in items if (part := listed(item)) is not None]
        if len(lists) < 2:
            is_one = {_kind(item) == "number" for item in items} == {True, False}
            return lists[0] if lists else [items] if is_one else items
        return table(lists, by_column=True) if len({*map(len, lists)}) == 1 else lists[0]
    return table(items) if items and listed(items[0]) and all([listed(item) for item in items]) else items


def listed(value: Any) -> Sequence[Any] | None:
    """The items of a list, an array or a column of a table; None for anything else."""
    if isinstance(value, (list, tuple)):
        return None if hasattr(type(value), "_asdict") else value
    if value is None or isinstance(value, (str, bytes, bytearray, memoryview, Mapping)):
        return None
    if isinstance(value, (Sequence, Set, ValuesView)):
        return list(value)
    method = read(value, "to_pylist")
    if read(value, "dtype") is not None:
        method = read(value, "tolist") or read(value, "to_list")
    items = method() if callable(method) and read(value, "columns") is None else None
    return items if isinstance(items, list) else None


def nested_hits(value: Any, keys: Sequence[str] = names.DOCUMENT_LIST_KEYS, depth: int = 3) -> Sequence[Any] | None:
    """The list of hits that a larger result (an answer with its sources, a search response) carries."""
    for key in keys:
        found = read(value, key)
        items = listed(found)
        if items is None and (key == "hits" or key in names.DOCUMENT_WRAPPER_KEYS):
            items = nested_hits(found, keys, depth - 1) if depth and not callable(found) else None
        elif items is not None:
            items = _with_columns(value, key, _joined(items))
        if items is not None:
            return items
    groups = [read(value, key) for key in names.DOCUMENT_GROUP_KEYS]
    return next((hits for group in groups if (hits := hits_of_groups(listed(group) or ()))), None)


def hits_of_groups(items: Sequence[Any]) -> list[Any]:
    """The hits of several results in one list: of several queries, or of several citations."""
    return [hit for item in items if not isinstance(item, str) for hit in nested_hits(item) or ()]


def _hits_by_key(value: Any, text_keys: tuple[str, ...]) -> list[Any] | None:
    """The hits in `{id: text}` or `{id: document}`, or the only list of mappings in a mapping."""
    if not isinstance(value, Mapping) or not _NO_IDS.isdisjoint(value):
        return None
    if all([isinstance(item, str) or text_of(item, text_keys) is not None for item in value.values()]):
        return [{"id": key, "document": item} for key, item in value.items()]
    lists = [item for item in value.values() if isinstance(item, list) and item and isinstance(item[0], Mapping)]
    return lists[0] if len(lists) == 1 else None


def _joined(items: Sequence[Any]) -> Sequence[Any]:
    """Lists of several queries as one list."""
    lists = [listed(item) for item in items]
    return list(chain.from_iterable(lists)) if lists and None not in lists else items  # type: ignore[arg-type]


def _with_columns(value: Any, key: str, items: Sequence[Any]) -> Sequence[Any]:
    """The items with what the columns beside them hold."""
    columns = {}
    for name, found in fields_of(value).items():
        column = _singular(name)
        cells = listed(found) if column in _COLUMNS and name != key else None
        if cells is not None and len(cells := _joined(cells)) == len(items):
            columns[column] = cells
    if not columns:
        return items
    name = "id" if key == "ids" else "document"
    return [{name: item, **dict(zip(columns, cells, strict=True))}
            for item, *cells in zip(items, *columns.values(), strict=True)]  # fmt: skip


def _singular(name: str) -> str:
    return name[:-3] + "y" if name.endswith("ies") else name.removesuffix("s")


def _rows(value: Any) -> Sequence[Any] | None:
    """The rows of a data frame or a table of Arrow, by their names where one is known; None for anything else."""
    if isinstance(value, (str, Mapping)) or read(value, "columns") is None:
        return None
    by_row = read(value, "to_dicts") or read(value, "to_pylist")
    try:
        rows = by_row() if callable(by_row) else value.to_dict("records")
    except Exception:  # noqa: BLE001 - something else that has columns
        return None
    return by_place(rows) if isinstance(rows, list) else None


def by_place(rows: Sequence[dict[str, Any]]) -> Sequence[dict[str, Any]]:
    """Rows with names, of which none is that of a text: the other names' columns get roles as if they had none."""
    if not rows or not _TEXTS.isdisjoint(rows[0]):
        return rows
    unknown = [name for name in rows[0] if name not in _COLUMNS]
    roles = _hits_of_columns([[row[name] for row in rows] for name in unknown]) or [{}] * len(rows)
    return [{**role, **row} for role, row in zip(roles, rows, strict=True)]


# --- rows and columns without names ----------------------------------------------------------------------------------
def table(items: Sequence[Any], *, by_column: bool = False) -> Sequence[Any]:
    """Rows or columns without names as hits; `by_column` where they may be either."""
    lines = [listed(item) or () for item in items]
    if all([listed(cell) is not None for line in lines for cell in line]):  # arrays with a row for each query
        lines = [_joined(line) for line in lines]
    cells = list(chain.from_iterable(lines))
    kinds = {_kind(cell) for cell in cells if cell is not None}
    if kinds <= {"mapping", "object"} or (kinds == {"sentence"} and not by_column and type(items[0]) is list):
        return cells
    turned = list(zip_longest(*lines))
    for exact in (True, False):
        fits = [all([_is_of_one_kind(line, exact) for line in way]) for way in (lines, turned)]
        if True in fits:
            return _hits_of_columns(lines if fits[0] and (by_column or not fits[1]) else turned)
    return _hits_of_columns(turned)


def _kind(cell: Any) -> str:
    if isinstance(cell, str):
        return "sentence" if _SENTENCE.search(cell) else "word"
    if isinstance(cell, Mapping):
        return "mapping"
    if isinstance(cell, UUID):
        return "key"
    if hasattr(cell, "__float__"):
        return "number"
    return "object" if listed(cell) is None else "list"


def _is_of_one_kind(cells: Sequence[Any], exact: bool) -> bool:
    kinds = {_kind(cell) for cell in cells if cell is not None}
    return len(kinds if exact else {"text" if kind in ("sentence", "word") else kind for kind in kinds}) < 2


def _hits_of_columns(columns: Sequence[Sequence[Any]]) -> list[dict[str, Any]]:
    """Gives each column one role for all hits, and returns a mapping for each hit."""
    kinds = [{_kind(cell) for cell in column if cell is not None} for column in columns]
    texts = [index for index, kind in enumerate(kinds) if kind and kind <= {"sentence", "word"}]
    sources = [index for index in texts if all([cell is None or _SOURCE.fullmatch(cell) for cell in columns[index]])]
    texts = [index for index in texts if index not in sources]
    documents = [index for index, kind in enumerate(kinds) if kind & {"mapping", "object"}]
    is_code = len(texts) == 1 and not sources and all([_CODE.fullmatch(cell or "") for cell in columns[texts[0]]])
    document = _longest(columns, texts) if texts and not is_code else documents[0] if documents else -1
    numbers = [index for index, kind in enumerate(kinds) if kind == {"number"}]
    ids = [index for index, kind in enumerate(kinds) if kind == {"key"}]
    ids += [index for index in numbers if (index < document or len(numbers) > 1) and _are_whole(columns[index])]
    ids += [index for index in texts if (index < document or not sources) and _are_names(columns[index])]
    identity = min([index for index in ids if index != document], default=-1)
    score = next((index for index in reversed(numbers) if index != identity), -1)
    roles = {
        "document": document, "id": identity, "distance" if score >= 0 and _rise(columns[score]) else "score": score,
        "metadata": next((index for index in documents if index != document), -1), "source": next(iter(sources), -1),
    }  # fmt: skip
    used = {role: columns[index] for role, index in roles.items() if index >= 0}
    return [dict(zip(used, cells, strict=True)) for cells in zip(*used.values(), strict=True)]


def _longest(columns: Sequence[Sequence[Any]], indexes: Sequence[int]) -> int:
    """The column with the most words, and of those with as many the most characters."""
    sizes = {index: "".join([cell or "" for cell in columns[index]]) for index in indexes}
    return max(indexes, key=lambda index: (sizes[index].count(" "), len(sizes[index])))


def _rise(column: Sequence[Any]) -> bool:
    return len(column) > 1 and None not in column and all([a < b for a, b in pairwise(column)])


def _are_whole(column: Sequence[Any]) -> bool:
    return all([isinstance(cell, int) or hasattr(cell, "__index__") for cell in column])


def _are_names(column: Sequence[Any]) -> bool:
    return len(set(column)) == len(column) and not any([cell is None or _SENTENCE.search(cell) for cell in column])


# --- the parts of a hit ----------------------------------------------------------------------------------------------
def parts_of(
    hit: Any, text_keys: tuple[str, ...] = names.DOCUMENT_TEXT_KEYS
) -> tuple[str | None, float | None, str | None, dict[Any, Any]]:
    """Id, score, text and metadata of a hit, by name: its own, those of the document in it, those in the metadata.

    The metadata also get the name of the document and the distance where the hit has them beside it.
    """
    found = next((part for key in names.DOCUMENT_FIELD_KEYS if _is_object(part := read(hit, key))), None)
    parts = (hit,) if found is None else (hit, found)
    metadata = next((data for part in parts if _is_object(data := _value(part, names.DOCUMENT_METADATA_KEYS))), None)
    parts = parts if metadata is None else (*parts, metadata)
    text = next((text for part in reversed(parts) if (text := text_of(part, text_keys)) is not None), None)
    if text is None and isinstance(found, Mapping):
        text = max([value for value in found.values() if isinstance(value, str)], key=len, default=None)
    score, identity = _first_number(parts, names.DOCUMENT_SCORE_KEYS), own_id(parts, metadata)
    kept = metadata if isinstance(metadata, Mapping) else found if isinstance(found, Mapping) else {}
    known = {
        key: value
        for key, value in kept.items()
        if kept is metadata or (value is not text and value is not score and str(value) != identity)
    }
    added: dict[Any, Any] = {key: name for key in names.DOCUMENT_SOURCE_KEYS if isinstance(name := read(hit, key), str)}
    distance = _first_number(parts, names.DOCUMENT_DISTANCE_KEYS) if score is None else None
    return identity, score, text, {**added, **({} if distance is None else {"distance": distance}), **known}


def _is_object(value: Any) -> bool:
    """Whether a value has parts of its own."""
    return value is not None and not isinstance(value, (str, int, float)) and not callable(value) and not listed(value)


def own_id(parts: tuple[Any, ...], metadata: Any) -> str | None:
    """The id of the passage that the application gave, else one that was generated, else the id of its document.

    A number in the metadata is the last choice: it often counts the passages of one document.
    """
    others: list[tuple[int, str]] = []
    for part in parts:
        for key in names.DOCUMENT_ID_KEYS:
            value = read(part, key)
            identity = None if value is None or callable(value) else _identity(value)
            if identity:
                is_given, is_parent = not _GENERATED.fullmatch(identity), key in names.DOCUMENT_PARENT_KEYS
                if is_given and not is_parent:
                    return identity
                others.append((1 if is_parent else 2 * (part is metadata and identity.isdigit()), identity))
    return min(others, key=itemgetter(0))[1] if others else None


def _identity(value: Any) -> str | None:
    """An id as text: a UUID or number as it is written, an object (MongoDB's) by its own text, else as JSON."""
    identity = plain(value)
    if identity == type_name(value):
        return str(value) if "__str__" in vars(type(value)) else None
    return identity if isinstance(identity, str) else str(identity) if isinstance(identity, int) else to_json(identity)


def text_of(source: Any, keys: tuple[str, ...]) -> str | None:
    """The text of a document: a text, the `text` in a part, or the texts of its parts."""
    for key in keys:
        found = read(source, key)
        if isinstance(found, str):
            return found
        if isinstance(found, Mapping) and isinstance(found.get("text"), str):  # Bedrock
            return str(found["text"])
        if isinstance(found, list) and found and None not in (texts := [_part_text(part) for part in found]):
            return "\n".join(texts)  # type: ignore[arg-type]
    get_content = None if isinstance(source, Mapping) else read(source, "get_content")
    if callable(get_content):
        try:
            content = get_content()
        except Exception:  # noqa: BLE001 - a foreign method; the context is then kept without text
            return None
        return content if isinstance(content, str) else None
    return None


def _part_text(part: Any) -> str | None:
    text = part if isinstance(part, str) else read(part, "text")
    return text if isinstance(text, str) else None


def _value(source: Any, keys: tuple[str, ...]) -> Any:
    for key in keys:
        value = read(source, key)
        if value is not None and not callable(value):
            return value
    return None


def _first_number(sources: Sequence[Any], keys: tuple[str, ...]) -> float | None:
    values = (number(_value(source, keys)) for source in sources)
    return next((value for value in values if value is not None), None)


def number(value: Any) -> float | None:
    if type(value) is float:
        return value
    if value is None or isinstance(value, (bytes, bool)):
        return None
    try:
        return float(value) if isinstance(value, str) or hasattr(value, "__float__") else None
    except Exception:  # noqa: BLE001 - e.g. an array of several numbers: not a score
        return None
