"""Reads the parts of one hit by their names: id, score, text and metadata, for every library.

A name counts however it is spelled: `pageContent` and `PageContent` are `page_content`. The text of a hit is, in this
order:

1. that of the passages that were found in it (`inner_hits`);
2. that under a usual name: its own, that of the document in it, that in its metadata; an identifier is none where
   another usual name has a text;
3. the field that reads like a passage, in its highlights, the document in it, its metadata: one whose name speaks of a
   text, else the one with the most words; in the hit itself only the former, since a row of anything has some words. An
   identifier, an address, a hash, a resource name and a title are none.
"""

import re
from collections.abc import Iterable, Mapping, Sequence, Set, ValuesView
from functools import lru_cache
from itertools import takewhile
from operator import itemgetter
from typing import Any

from ragpulse import _names as names

from .values import computes_any, fields_of, has_own, plain, to_json, type_name, value_of

Parts = tuple[str | None, float | None, str | None, dict[Any, Any]]
"""Id, score, text and metadata of a hit."""
_KEYS = {
    "text": names.DOCUMENT_TEXT_KEYS,
    "metadata": names.DOCUMENT_METADATA_KEYS,
    "fields": names.DOCUMENT_FIELD_KEYS,
    "id": names.DOCUMENT_ID_KEYS,
    "source": names.DOCUMENT_SOURCE_KEYS,
    "score": names.DOCUMENT_SCORE_KEYS,
    "distance": names.DOCUMENT_DISTANCE_KEYS,
    "found": ("inner_hits",),
    "highlight": names.DOCUMENT_HIGHLIGHT_KEYS,
}
"""What names mean; of each role in the order in which they are asked for."""
_ALWAYS_ASKED = frozenset({"text", "metadata", "fields"})
"""Roles whose values a class may compute although its objects have a text and an id among their fields."""
_MAX_NAMES = 50
_GENERATED = re.compile(r"\d+|[0-9a-fA-F]{8}-?(?:[0-9a-fA-F]{4}-?){3}[0-9a-fA-F]{12}|[0-9a-fA-F]{64}")
"""An id that a library or a store makes where the application gives none: a number, a UUID, a SHA-256."""
_INNER_MARK = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Za-z0-9])[-. ](?=[A-Za-z0-9])")
_FILE = r"\.(?:pdf|mdx?|txt|html?|docx?|pptx?|xlsx?|csv|json|xml|rst)"
_SOURCE = re.compile(rf"\w+://\S+|\S+{_FILE}", re.IGNORECASE)
_IDENTIFIER = re.compile(
    rf"[a-z][\w+.-]*:[!-~]+|[!-~]*/[!-~]*|(?=[!-~]*\d)[!-~]*[^\s.!?]|[^\n]{{0,200}}{_FILE}", re.IGNORECASE | re.ASCII
)
"""An address, a resource's name, a path, a code or a hash, which have no spaces, or the name of a file."""
_PROSE = re.compile("\\s|[.!?\u3002]$|[\u0e00-\u0e7f\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")
"""Several words, a sentence, or a script without spaces."""
_SPEAKING = 2
_OF_TEXTS = frozenset(
    (
        "text", "content", "chunk", "passage", "body", "snippet", "excerpt", "paragraph", "memory", "fact", "summary",
        "description", "abstract", "answer", "answers", "segments", "snippets", "transcript", "caption", "quote",
        "value",
    )
)  # fmt: skip
_OF_LABELS = frozenset(
    (
        "id", "key", "path", "file", "source", "title", "name", "names", "heading", "header", "headline", "subject",
        "section", "breadcrumb", "breadcrumbs", "topic", "author", "authors", "user", "owner", "type", "language",
        "date", "time", "at", "version", "status", "tag", "tags", "keywords", "label", "labels", "category", "query",
        "question", "prompt", "input", "error",
    )
)  # fmt: skip
"""Last words of names whose texts of several words are no passage: `document_title`, `createdAt`."""


def parts_of(hit: Any, field: str | None = None, *, named_only: bool = False) -> Parts:
    """Id, score, text and metadata of a hit: its own, those of the document in it, those in the metadata.

    The metadata also get the name of the document and the distance where the hit has them beside it. With `named_only`
    no text is found under a name that is not usual. Of texts alone an address or a file is the source of a document.
    """
    if isinstance(hit, str):
        return (None, None, None, {"source": hit}) if is_source(hit) else (None, None, hit, {})
    own = _Named(hit)
    found = own.part("fields")
    inner = None if found is None else _Named(found)
    metadata = own.part("metadata")
    if metadata is None and inner is not None:
        metadata = inner.part("metadata")
    sources = [own, *([] if inner is None else [inner]), *([] if metadata is None else [_Named(metadata)])]
    text = _inner_hits(own) or next((text for source in sources if (text := source.text(field)) is not None), None)
    if text is None and field is None and not named_only:
        inside = next(filter(None, [_passage(source.fields) for source in sources[1:]]), None)
        text = _highlighted(own) or inside or _passage(own.fields, _SPEAKING)
    identity, score = _own_id(sources), _number_in(sources, "score")
    distance = _number_in(sources, "distance") if score is None else None
    known: dict[Any, Any] = {name: value for name, value in own.of("source") if type(value) is str}
    known |= {} if distance is None else {"distance": distance}
    if isinstance(metadata, Mapping):
        return identity, score, text, {**known, **metadata}
    others = found if isinstance(found, Mapping) else {}
    others = {
        key: value
        for key, value in others.items()
        if value is not text and value is not score and not (isinstance(value, (str, int)) and str(value) == identity)
    }
    return identity, score, text, {**known, **others}


def text_of(source: Any, field: str | None = None) -> str | None:
    """The text of a document under a usual name, or in this field: a text, or the `text` of its part or parts."""
    return _Named(source).text(field)


class _Named:
    """The values of a mapping or an object by what their names mean."""

    __slots__ = ("_roles", "_source", "fields")

    def __init__(self, source: Any) -> None:
        self._source = source
        self.fields = fields_of(source)
        cls: Any = None if isinstance(source, Mapping) else type(source)
        roles = _roles if len(self.fields) < _MAX_NAMES else _roles.__wrapped__
        self._roles = roles(tuple(self.fields), cls)

    def of(self, role: str) -> Sequence[tuple[str, Any]]:
        """Names and values of a role, in the order of its table."""
        keys = self._roles.get(role)
        if keys is None:
            return ()
        values = [(name, self.fields[name] if name in self.fields else value_of(self._source, name)) for name in keys]
        return [entry for entry in values if entry[1] is not None]

    def part(self, role: str) -> Any:
        """The first value of a role that has parts of its own."""
        for _, value in self.of(role):
            is_scalar = type(value) is not dict and (isinstance(value, (str, int, float)) or callable(value))
            if not is_scalar and not listed(value):
                return value
        return None

    def text(self, field: str | None) -> str | None:
        """The text under a usual name, the first that is no identifier before others, or in this field."""
        if field is not None:
            return _text_in(value_of(self._source, field))
        texts = [text for _, value in self.of("text") if (text := _text_in(value)) is not None]
        if texts:
            is_one = len(texts) == 1
            return texts[0] if is_one else next((text for text in texts if text and not is_identifier(text)), texts[0])
        get_content = None if isinstance(self._source, Mapping) else value_of(self._source, "get_content")
        try:
            content = get_content() if callable(get_content) else None
        except Exception:  # noqa: BLE001 - a foreign method; the context is then kept without text
            return None
        return content if isinstance(content, str) else None


@lru_cache(maxsize=2048)
def _roles(fields: tuple[Any, ...], cls: Any) -> dict[str, tuple[str, ...]]:
    """Role → the names that it has among these fields, and among what objects of a class compute."""
    own = spellings(fields)
    has_text, has_id, has_document = [not own.keys().isdisjoint(_KEYS[role]) for role in ("text", "id", "fields")]
    is_enough = cls is None or has_document or (has_text and has_id)
    is_open = cls is not None and computes_any(cls)
    found: dict[str, tuple[str, ...]] = {}
    for role, keys in _KEYS.items():
        asks = cls is not None and (role in _ALWAYS_ASKED or not is_enough)
        present = [own.get(key, key) for key in keys if key in own or (asks and (is_open or has_own(cls, key)))]
        if present:
            found[role] = tuple(dict.fromkeys(present))
    return found


def spellings(fields: Iterable[Any]) -> dict[str, str]:
    """The usual spelling of each name → the name as it is."""
    own = [name for name in fields if isinstance(name, str)]
    return {_spelled(name): name for name in own} | {name: name for name in own}


@lru_cache(maxsize=4096)
def _spelled(name: str) -> str:
    return _INNER_MARK.sub("_", name).lower()


# --- texts -----------------------------------------------------------------------------------------------------------
def is_source(text: str) -> bool:
    """Whether a text is an address or a file."""
    return _SOURCE.fullmatch(text) is not None


def is_identifier(text: str) -> bool:
    """Whether a text is an address, a path, a file, a hash or a code rather than something to read."""
    return _IDENTIFIER.fullmatch(text) is not None


def passage_rank(name: str, text: str) -> tuple[int, int, int]:
    """How much the text of a field reads like a passage, by the field's name, its words and its length; 0: not at all.

    Without a name the words and the length count.
    """
    speaks = _speaks_of(name)
    if not text or speaks == 0 or is_identifier(text) or (speaks == 1 and not _PROSE.search(text)):
        return 0, 0, 0
    return speaks, text.count(" "), len(text)


@lru_cache(maxsize=4096)
def _speaks_of(name: str) -> int:
    """Whether a field of this name holds a text (`_SPEAKING`), a label (0), or either (1)."""
    words = re.findall("[a-z0-9]+", _spelled(name))
    return 0 if words and words[-1] in _OF_LABELS else 1 if _OF_TEXTS.isdisjoint(words) else _SPEAKING


def _passage(fields: Mapping[str, Any], least: int = 1) -> str | None:
    """The text of the field that reads most like a passage; None where no field does. Lists are items of some kind."""
    texts = [
        (name, text)
        for name, value in fields.items()
        if isinstance(name, str)
        and (_speaks_of(name) == _SPEAKING or not isinstance(value, list))
        and (text := _text_in(value))
    ]
    rank, text = max([(passage_rank(name, text), text) for name, text in texts], key=itemgetter(0), default=((0,), ""))
    return text if rank[0] >= least else None


def _highlighted(hit: _Named) -> str | None:
    """The passage in the highlights of a search engine: `{field: [text, ...]}`, or `[{"snippet": text}, ...]`."""
    for _, marked in hit.of("highlight"):
        parts = listed(marked)
        fields = {} if parts else {name: _text_in(value) for name, value in fields_of(marked).items()}
        found = "\n".join([text for part in parts or () if (text := _text_in(part))]) or _passage(fields)
        if found:
            return found
    return None


def _inner_hits(hit: _Named) -> str | None:
    """The texts of the passages in a document that were found: `{name: {"hits": {"hits": [hit, ...]}}}`."""
    for _, groups in hit.of("found"):
        for group in fields_of(groups).values():
            hits = listed(value_of(value_of(group, "hits"), "hits")) or ()
            texts = [text for inner in hits if (text := parts_of(inner)[2])]
            if texts:
                return "\n".join(texts)
    return None


def _text_in(value: Any) -> str | None:
    """A text itself, the `text` of a part or of parts, or the `value` of a highlighted one."""
    if isinstance(value, list):
        texts = list(takewhile(lambda text: text is not None, map(_inner_text, value)))
        return "\n".join(texts) if texts and len(texts) == len(value) else None  # type: ignore[arg-type]
    return None if isinstance(value, (int, float)) or callable(value) else _inner_text(value)


def _inner_text(part: Any) -> str | None:
    if isinstance(part, str):
        return part
    fields = fields_of(part)
    own = spellings(fields) if fields else {}
    text = next((fields[own[key]] for key in ("text", "value", "snippet", "content") if key in own), None)
    return text if isinstance(text, str) else None


# --- ids and scores --------------------------------------------------------------------------------------------------
def is_given(identity: str | None) -> bool:
    """Whether an application gave the id; a number, a UUID or a SHA-256 is generated where it gives none."""
    return identity is not None and not _GENERATED.fullmatch(identity)


def _own_id(sources: Sequence[_Named]) -> str | None:
    """The id of the passage that the application gave, else one that was generated, else the id of its document."""
    ids = [
        (_spelled(name) in names.DOCUMENT_PARENT_KEYS, identity)
        for source in sources
        for name, value in source.of("id")
        if (identity := _identity(value))
    ]
    given = next((identity for is_parent, identity in ids if not is_parent and is_given(identity)), None)
    return given or (min(ids, key=itemgetter(0))[1] if ids else None)


def _identity(value: Any) -> str | None:
    """An id as text: a UUID or number as it is written, an ObjectId of MongoDB by its text, else as JSON."""
    if type(value) is str:
        return value
    identity = plain(value)
    if identity == type_name(value):
        return str(value) if type(value).__name__ == "ObjectId" else None
    return identity if isinstance(identity, str) else str(identity) if isinstance(identity, int) else to_json(identity)


def _number_in(sources: Sequence[_Named], role: str) -> float | None:
    values = (number(value) for source in sources for _, value in source.of(role))
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


def listed(value: Any) -> Sequence[Any] | None:
    """The items of a list, an array or a column of a table; None for anything else."""
    if type(value) is list:
        return value
    cls: Any = type(value)
    if not _may_list(cls):
        return None
    if isinstance(value, (list, tuple)):
        return value
    if isinstance(value, (Sequence, Set, ValuesView)):
        return list(value)
    method = value_of(value, "to_pylist")
    if value_of(value, "dtype") is not None:
        method = value_of(value, "tolist") or value_of(value, "to_list")
    items = method() if callable(method) and value_of(value, "columns") is None else None
    return items if isinstance(items, list) else None


@lru_cache(maxsize=1024)
def _may_list(cls: Any) -> bool:
    """Whether objects of a class may have items: not named ones, and not those of a text."""
    if issubclass(cls, (str, int, float, bytes, bytearray, memoryview, Mapping)):
        return False
    if issubclass(cls, (list, tuple, Sequence, Set, ValuesView)):
        return not hasattr(cls, "_asdict")
    return computes_any(cls) or hasattr(cls, "to_pylist") or hasattr(cls, "dtype")
