"""The readers that all dialects share: from a raw attribute value to a canonical value, or None.

Senders write lists as JSON text, booleans as words, numbers as text, texts quoted twice. A value that cannot be read is
None, so that the next rule is tried; nothing is ever evaluated as code. The text in a repr of a Python object
(`ChatMessage(...)`, `<generator ...>`) is read too: the parser gets only a quoted text, without nesting or names.
"""

from __future__ import annotations

import math
import re
from ast import literal_eval
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from operator import itemgetter
from typing import Any, get_args

import orjson

from ragpulse.shapes import OBJECT_REPR
from ragpulse_collector.conventions.rules import Kinds, Read, SpanView, of_column
from ragpulse_collector.instants import unix_ns
from ragpulse_collector.records import Kind

MAX_COUNT, MAX_AMOUNT = 10**12, 1e12
"""Larger token counts, durations and sums of money are nonsense, and what they add up to would fit no column."""
KINDS: dict[str, str] = {kind: kind for kind in get_args(Kind)}
"""The kinds by their own names, which most dialects use among others."""

SEARCHES = ("retriever", "reranker")
QUOTED = r"""'(?:[^'\\\n]|\\[\\'"nrt]|\\[xuU][0-9a-f]+)*+'|"(?:[^"\\\n]|\\[\\'"nrt]|\\[xuU][0-9a-f]+)*+\""""
"""A quoted text. Possessive, like the patterns below: a hostile text would be matched in exponential time otherwise."""
_OBJECT = re.compile(rf"{OBJECT_REPR}|<[A-Z]\w*+\(.*\)>", flags=re.DOTALL)
"""`<generator object answer at 0x7f>`, `<NodeWithScore(node=...)>`."""
_CONSTRUCTOR = re.compile(r"\[?[A-Z]\w*\([a-z_]\w*=.*\)\]?|[A-Z]\w*Event\(\)", flags=re.DOTALL)
"""`ChatMessage(_role=...)`, a list of such; dataclasses and pydantic's repr; an event of a workflow."""
_FIELDS = re.compile(
    rf"(?:[a-z_]\w*=(?:{QUOTED}|[^\s'\"]++)(?:\s|$))+|[a-z_]\w*=(?:{QUOTED}) [a-z_]\w*=.*", flags=re.DOTALL
)
"""`answer='Yes.' sources=['a']`: pydantic's str."""
REPR_BEGINS = r"<[A-Za-z]|\[?[A-Z]\w*+\([a-z_)]|[a-z_]\w*+=['\"]"
may_be_repr = re.compile(REPR_BEGINS).match
"""Whether a text begins like a repr: a quick check that excludes almost all texts."""
_QUOTED_REPR = re.compile(rf'"(?:{REPR_BEGINS})')


def may_hold_repr(value: Any) -> bool:
    """Return whether JSON may have a repr in it: a quick check of its text."""
    return type(value) is not str or _QUOTED_REPR.search(value) is not None


_TEXT = re.compile(rf"\bText(?:Content|Block|Part)?\((?:\w+=(?:{QUOTED}), )*?(?:text|content)=({QUOTED})")
_THOUGHT = re.compile(rf"\b(?:Think|Reasoning|Thought)\w*+\((?:[^()'\"]|{QUOTED})*+\)")
_ANSWER_FIELDS = (
    "answer",
    "response",
    "output",
    "final_output",
    "raw",
    "text",
    "content",
    "_content",
    "completion",
    "result",
)
_NAMED = re.compile(rf"(?<![\w.])(\w+)=({QUOTED})")
_ROLE = re.compile(r"\b_?role=(?:<\w+\.\w+: '(\w+)'>|'(\w+)'|\w+\.(\w+))")
_MAX_LENGTH = 65_536


def text(value: Any, _: SpanView) -> str | None:
    """Return a non-empty text as it is."""
    return value if type(value) is str and value else None


def unquoted(value: Any, _: SpanView) -> str | None:
    """Return a text without its JSON quotes, if any; numbers become text."""
    if type(value) is str and value[:1] == '"':
        value = parsed(value) or value
    if type(value) in (int, float):
        return str(value)
    return value if type(value) is str and value else None


def count(value: Any, _: SpanView) -> int | None:
    """Return a whole number from 0 to MAX_COUNT, from a number or its text."""
    if type(value) is int and 0 <= value <= MAX_COUNT:
        return value
    number_ = number(value, _)
    if number_ is None or not 0 <= number_ <= MAX_COUNT or number_ != int(number_):
        return None
    return int(number_)


def positive(value: Any, span: SpanView) -> int | None:
    """Return a whole number above 0."""
    return count(value, span) or None


def number(value: Any, _: SpanView) -> float | None:
    """Return a finite number, from a number or its text."""
    if type(value) is str:
        try:
            value = float(value)
        except ValueError:
            return None
    if (type(value) is float or type(value) is int) and math.isfinite(value):
        return float(value)
    return None


def small_count(value: Any, span: SpanView) -> int | None:
    """Return a whole number that fits an INTEGER column."""
    result = count(value, span)
    return result if result is not None and result < 2**31 else None


_ENUM_MEMBER = re.compile(r"<?\w+\.(\w+)(?:: .*>)?")


def first_reason(value: Any, span: SpanView) -> str | None:
    """Return why the first choice ended, from a list, its JSON text or a text; a member of an enum is its name."""
    reason = next(iter(strings(value, span) or ()), None)
    match = _ENUM_MEMBER.fullmatch(reason or "")
    return match[1] if match else reason


def amount(value: Any, span: SpanView) -> float | None:
    """Return a number from 0 to MAX_AMOUNT (money, a duration)."""
    result = number(value, span)
    return result if result is not None and 0 <= result <= MAX_AMOUNT else None


def seconds(value: Any, span: SpanView) -> float | None:
    """Return a duration given in seconds as milliseconds."""
    duration = amount(value, span)
    return None if duration is None else duration * 1000.0


def since_start(instant_ns: int, span: SpanView) -> float | None:
    """Return the milliseconds from the span's start to an instant, None where it lies before."""
    if not span.start_ns or instant_ns < span.start_ns:
        return None
    return (instant_ns - span.start_ns) / 1e6


def first_event(events: Any, span: SpanView) -> float | None:
    """Return the milliseconds from the span's start to the first of some events."""
    return since_start(min(event.time_ns for event in events), span)


def instant_ns(value: Any) -> int | None:
    """Return an ISO 8601 instant (UTC where it says nothing) in Unix nanoseconds."""
    try:
        return unix_ns(datetime.fromisoformat(value))
    except (TypeError, ValueError):
        return None


def strings(value: Any, _: SpanView) -> list[str] | None:
    """Return a list of texts, from a list, its JSON text or a single text."""
    if type(value) is str:
        value = parsed(value, otherwise=[value]) if value[:1] == "[" else [value]
    if type(value) is not list:
        return None
    return [item for item in value if type(item) is str and item] or None


def true(value: Any) -> bool:
    """Whether a flag is set, as a boolean or as the word `true`."""
    return value is True or (type(value) is str and value.lower() == "true")


def json_object(value: Any, _: SpanView) -> str | None:
    """Return the JSON text of a non-empty object."""
    mapping = parsed(value)
    return dumped(mapping) if type(mapping) is dict and mapping else None


def gathered(members: Any, _: SpanView) -> str | None:
    """Return a family of attributes ({suffix: value}) as one JSON object."""
    values = {suffix: value for suffix, value in members.items() if value is not None and value != ""}
    return dumped(values) if values else None


def parsed(value: Any, *, otherwise: Any = None) -> Any:
    """Return the value of a JSON text; structured values pass unchanged, anything else is `otherwise`."""
    if type(value) is str:
        try:
            return orjson.loads(value)
        except orjson.JSONDecodeError:
            return otherwise
    return value if isinstance(value, (dict, list)) else otherwise


def dumped(value: Any) -> str | None:
    """Return JSON text, or None for a value that JSON cannot express (nesting beyond 250 levels)."""
    try:
        return orjson.dumps(value, default=str).decode()
    except TypeError:
        return None


def one_of(kinds: Mapping[str, str]) -> Read:
    """Make a reader of a closed vocabulary, blind to case and to extra quotes; unknown words are None."""

    def read_word(value: Any, span: SpanView) -> str | None:
        kind = kinds.get(value) if type(value) is str else None
        if kind is not None:
            return kind
        word = unquoted(value, span)
        return kinds.get(word.lower()) if word else None

    @of_column(read_word)
    def read_column(column: Sequence[Any], _: Kinds) -> Sequence[Any] | None:
        found = list(map(kinds.get, column)) if set(map(type, column)) == {str} else [None]
        return None if None in found else found

    return read_word


def always(kind: str) -> Read:
    """Make a reader of a kind that the attribute's name alone shows."""

    def read_kind(_: Any, __: SpanView) -> str:
        return kind

    return read_kind


def of_kinds(kinds: Collection[str | None], read: Read) -> Read:
    """Make a reader for spans of some kinds only."""

    def read_of_kinds(value: Any, span: SpanView) -> Any:
        return read(value, span) if span.kind in kinds else None

    return read_of_kinds


def of_event(number: int, name: str, read: Read) -> Read:
    """Make a reader of an attribute of one of some events."""

    def read_of_event(events: Any, span: SpanView) -> Any:
        return read(events[number].attributes.get(name), span)

    return read_of_event


def member(name: str, read: Read) -> Read:
    """Make a reader of one member of a JSON object; dots go deeper."""

    def read_member(value: Any, span: SpanView) -> Any:
        part = reach(parsed(value), name.split("."))
        return None if part is None else read(part, span)

    return read_member


def reach(value: Any, path: Iterable[str]) -> Any:
    """Return the value at a path of keys, or None."""
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return value


@of_column(text)
def texts(column: Sequence[Any], _: Kinds) -> Sequence[Any] | None:
    """Return a column of non-empty texts as it is, None if a value is anything else."""
    return column if set(map(type, column)) == {str} and all(column) else None


@of_column(unquoted)
def _unquoted_texts(column: Sequence[Any], kinds: Kinds) -> Sequence[Any] | None:
    plain_texts = texts(column, kinds)
    return plain_texts if plain_texts and '"' not in map(_first, plain_texts) else None


@of_column(count)
def _counts(column: Sequence[Any], _: Kinds) -> Sequence[Any] | None:
    are_counts = set(map(type, column)) == {int} and min(column) >= 0 and max(column) <= MAX_COUNT
    return column if are_counts else None


@of_column(seconds)
def _durations(column: Sequence[Any], _: Kinds) -> Sequence[Any] | None:
    are_seconds = set(map(type, column)) == {float} and all(map(math.isfinite, column))
    if not are_seconds or min(column) < 0 or max(column) > MAX_AMOUNT:
        return None
    return [value * 1000.0 for value in column]


_first = itemgetter(0)


def is_repr(text: str) -> bool:
    """Return whether a text is the repr of a Python object."""
    if may_be_repr(text) is None:
        return False
    if text[0] == "<":
        return _OBJECT.fullmatch(text) is not None
    return _CONSTRUCTOR.fullmatch(text) is not None or _is_fields(text)


def text_in(text: str) -> str | None:
    """Return the text for people in a repr: that of a message, or a field such as `answer`."""
    if len(text) > _MAX_LENGTH:
        return None
    texts = [unquote(quoted) for quoted in _TEXT.findall(text)]
    if texts:
        return "".join(filter(None, texts)) or None
    by_name: dict[str, str] = {}
    for name, quoted in _NAMED.findall(_THOUGHT.sub("", text)):
        by_name.setdefault(name, quoted)
    return next((unquote(by_name[name]) for name in _ANSWER_FIELDS if name in by_name), None)


def role_of_repr(text: str) -> str | None:
    """Return the role of a chat message given as its repr."""
    match = _ROLE.search(text[:200]) if is_repr(text) else None
    return None if match is None else next(filter(None, match.groups())).lower()


def unquote(quoted: str) -> str | None:
    """Return the text of a quoted Python string, None if it is empty or invalid."""
    try:
        text = str(literal_eval(quoted))
        text.encode()  # half a surrogate pair is no text
    except (ValueError, SyntaxError):
        return None
    return text or None


def _is_fields(text: str) -> bool:
    names = {name for name, _ in _NAMED.findall(text[:_MAX_LENGTH])}
    return not names.isdisjoint(_ANSWER_FIELDS) and _FIELDS.fullmatch(text[:_MAX_LENGTH]) is not None
