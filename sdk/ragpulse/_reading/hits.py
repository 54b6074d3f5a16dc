"""Finds the hits in a search's result by the shape of the result, for every library.

The rule, in this order:

1. A list holds hits. A list of lists holds the hits of several queries, which are joined.
2. A mapping, an object or a named tuple has its list under a usual name (`DOCUMENT_LIST_KEYS` and those after it),
   perhaps in a mapping of its own, else it is the only list whose items have names. Lists of equal length beside it
   (`ids`, `distances`, `metadatas`, ...) are columns of the hits.
3. Rows without names, `(id, text, score)`, and columns without names, `(ids, texts, scores)` or `zip(*hits)`: a column
   holds values of one kind. Where that is true in both directions, a tuple holds columns and a list holds rows.
4. Columns without names: the text reads most like a passage (`parts.passage_rank`); an address or a file is the
   source; the id is a number or UUID before the text, else different words without spaces; the last numbers are the
   score. Hits come best first, so numbers that rise from hit to hit are distances.
5. A table (pandas, polars, Arrow) has a mapping for each row.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, pairwise, zip_longest
from typing import Any
from uuid import UUID

from ragpulse import _names as names

from .parts import is_source, listed, parts_of, passage_rank, spellings, text_of
from .values import fields_of, value_of

Items = Sequence[Any]
_COLUMNS = frozenset(
    (
        *names.DOCUMENT_ID_KEYS,
        *names.DOCUMENT_SOURCE_KEYS,
        *names.DOCUMENT_SCORE_KEYS,
        *names.DOCUMENT_DISTANCE_KEYS,
        *names.DOCUMENT_METADATA_KEYS,
    )
)
_TEXTS = frozenset(names.DOCUMENT_TEXT_KEYS)
_SEARCH_KEYS = (
    *names.DOCUMENT_LIST_KEYS,
    *names.DOCUMENT_WRAPPER_KEYS,
    *names.DOCUMENT_SEARCH_KEYS,
    *names.DOCUMENT_TEXT_KEYS,
)
_CODE = re.compile(r"(?=\S*\d)\S*[^\s.!?。]")
"""A word with a digit: `faq-12` beside a score alone is an id, and no text."""
_SENTENCE = re.compile(r"\s|[.!?。]$")
_FAILURES = frozenset(("error", "errors", "exception", "message", "detail", "details", "status", "reason", "code"))
"""A mapping with one of these reports a failure."""
_SCALARS = (str, int, float)
_NO_IDS = _FAILURES | {"query", "question", "input", "answer", "response", "output", "result"}
"""A mapping with one of these is no `{id: text}`."""


def hits_in(value: Any, field: str | None = None) -> Items | None:
    """The hits in a result, in rank order; None when there is no list of hits. `field` has the text of a hit."""
    items = _items(value)
    if items is None:
        return [value] if text_of(value, field) is not None else _hits_by_key(value, field)
    first = items[0] if items else ""
    if isinstance(first, str) or text_of(first, field) is not None or parts_of(first, field)[2] is not None:
        return items
    return hits_of_groups(items) or items


def _items(value: Any) -> Items | None:
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
        if len({*map(len, lists)}) == 1:
            return table(lists, by_column=True)
        return next((part for part in lists if part and _kind(part[0]) in ("mapping", "object")), lists[0])
    return table(items) if items and listed(items[0]) and all([listed(item) for item in items]) else items


def nested_hits(value: Any, keys: Sequence[str] = names.DOCUMENT_LIST_KEYS, depth: int = 3) -> Items | None:
    """The list of hits that a larger result (an answer with its sources, a search response) carries."""
    own = spellings(fields_of(value))
    is_whole = type(value) is dict
    for name in [own.get(key, key) for key in keys if not is_whole or key in own]:
        found = value_of(value, name)
        if found is None or isinstance(found, _SCALARS) or callable(found):
            continue
        items = listed(found)
        if items is not None:
            return _with_columns(value, name, _joined(items))
        items = nested_hits(found, keys, depth - 1) if depth else None
        if items is not None:
            return items
    groups = [value_of(value, own.get(key, key)) for key in names.DOCUMENT_GROUP_KEYS if not is_whole or key in own]
    hits = next((hits for group in groups if (hits := hits_of_groups(listed(group) or ()))), None)
    return hits or listed(value_of(value, own.get("citations", "citations")))


def hits_of_groups(items: Items) -> list[Any]:
    """The hits of several results in one list: of several queries, or of several citations."""
    return [hit for item in items if not isinstance(item, str) for hit in nested_hits(item) or ()]


def _hits_by_key(value: Any, field: str | None) -> Items | None:
    """The hits in `{id: text}` or `{id: document}`, or the only list whose items have names."""
    fields = fields_of(value)
    if not _FAILURES.isdisjoint(fields):
        return None
    if isinstance(value, Mapping) and _NO_IDS.isdisjoint(value):
        is_text = [isinstance(item, str) or text_of(item, field) is not None for item in value.values()]
        if all(is_text):
            return [{"id": key, "document": item} for key, item in value.items()]
    lists = [items for item in fields.values() if (items := listed(item)) and fields_of(items[0])]
    return lists[0] if len(lists) == 1 else None


def _joined(items: Items) -> Items:
    """Lists of several queries as one list."""
    lists = [listed(item) for item in items]
    return list(chain.from_iterable(lists)) if lists and None not in lists else items  # type: ignore[arg-type]


def _with_columns(value: Any, key: str, items: Items) -> Items:
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


def _rows(value: Any) -> Items | None:
    """The rows of a data frame or a table of Arrow, by their names where one is known; None for anything else."""
    if isinstance(value, (str, Mapping)) or value_of(value, "columns") is None:
        return None
    by_row = value_of(value, "to_dicts") or value_of(value, "to_pylist")
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
    roles = _hits_of_columns([[row[name] for row in rows] for name in unknown], unknown) or [{}] * len(rows)
    return [{**role, **row} for role, row in zip(roles, rows, strict=True)]


# --- rows and columns without names ----------------------------------------------------------------------------------
def table(items: Items, *, by_column: bool = False) -> Items:
    """Rows or columns without names as hits; `by_column` where they may be either."""
    lines = [listed(item) or () for item in items]
    if all([listed(cell) is not None for line in lines for cell in line]):  # arrays with a row for each query
        lines = [_joined(line) for line in lines]
    cells = list(chain.from_iterable(lines))
    kinds = [[_kind(cell) for cell in line] for line in lines]
    all_kinds = set(chain.from_iterable(kinds)) - {None}
    if all_kinds <= {"mapping", "object"} or (all_kinds == {"sentence"} and not by_column and type(items[0]) is list):
        return cells
    turned = list(zip_longest(*lines))
    for exact in (True, False):
        fits = [all([_are_alike(line, exact) for line in way]) for way in (kinds, zip_longest(*kinds))]
        if True in fits:
            return _hits_of_columns(lines if fits[0] and (by_column or not fits[1]) else turned)
    return _hits_of_columns(turned)


def _kind(cell: Any) -> str | None:
    if cell is None:
        return None
    if isinstance(cell, str):
        return "sentence" if _SENTENCE.search(cell) else "word"
    if hasattr(type(cell), "__float__"):
        return "number"
    if isinstance(cell, Mapping):
        return "mapping"
    if isinstance(cell, UUID):
        return "key"
    return "object" if listed(cell) is None else "list"


def _are_alike(kinds: Iterable[str | None], exact: bool) -> bool:
    found = set(kinds) - {None}
    return len(found if exact else {"word" if kind == "sentence" else kind for kind in found}) < 2


def _hits_of_columns(columns: Sequence[Items], unknown: Sequence[str] = ()) -> list[dict[str, Any]]:
    """Gives each column, perhaps with an unknown name, one role for all hits; returns a mapping for each hit."""
    kinds = [{_kind(cell) for cell in column} - {None} for column in columns]
    texts = [index for index, kind in enumerate(kinds) if kind and kind <= {"sentence", "word"}]
    sources = [index for index in texts if all([cell is None or is_source(cell) for cell in columns[index]])]
    texts = [index for index in texts if index not in sources]
    objects = [index for index, kind in enumerate(kinds) if kind & {"mapping", "object"}]
    documents = [index for index in objects if any([text_of(cell) is not None for cell in columns[index]])]
    is_code = len(texts) == 1 and not sources and all([_CODE.fullmatch(cell or "") for cell in columns[texts[0]]])
    document = next(iter(documents), _passages(columns, texts, unknown) if texts and not is_code else -1)
    numbers = [index for index, kind in enumerate(kinds) if kind == {"number"}]
    ids = [index for index, kind in enumerate(kinds) if kind == {"key"}]
    ids += [index for index in numbers if (index < document or len(numbers) > 1) and _are_whole(columns[index])]
    ids += [index for index in texts if (index < document or not sources) and _are_names(columns[index])]
    identity = min([index for index in ids if index != document], default=-1)
    score = next((index for index in reversed(numbers) if index != identity), -1)
    roles = {
        "text" if document in texts else "document": document, "id": identity,
        "distance" if score >= 0 and _rise(columns[score]) else "score": score,
        "metadata": next((index for index in objects if index != document), -1), "source": next(iter(sources), -1),
    }  # fmt: skip
    used = {role: columns[index] for role, index in roles.items() if index >= 0}
    return [dict(zip(used, cells, strict=True)) for cells in zip(*used.values(), strict=True)]


def _passages(columns: Sequence[Items], indexes: Sequence[int], unknown: Sequence[str]) -> int:
    """The column that reads most like passages; without names the one with the most words."""
    texts = {index: "".join([cell or "" for cell in columns[index]]) for index in indexes}
    ranks = {index: passage_rank(str(unknown[index]) if unknown else "", text) for index, text in texts.items()}
    return max(indexes, key=ranks.__getitem__)


def _rise(column: Items) -> bool:
    return len(column) > 1 and None not in column and all([a < b for a, b in pairwise(column)])


def _are_whole(column: Items) -> bool:
    return all([isinstance(cell, int) or hasattr(type(cell), "__index__") for cell in column])


def _are_names(column: Items) -> bool:
    return len(set(column)) == len(column) and not any([cell is None or _SENTENCE.search(cell) for cell in column])
