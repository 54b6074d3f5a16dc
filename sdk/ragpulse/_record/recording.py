"""The content and figures of one decorated call, on our provider and on the application's.

A recording holds snapshots only: strings (immutable), numbers, and JSON made on the spot for what could change.
`Span` on our own provider and `AttachedSpan` on the application's add how it is started, ended and sent.
"""

import json
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, TracebackType
from typing import Any, ClassVar, TypeVar
from weakref import WeakKeyDictionary

from ragpulse import _names as names
from ragpulse._export.encoder import SPAN_ATTRIBUTES, AttributeMap, key_values, span_head
from ragpulse._reading.contexts import RecordedDocument, documents_in, has_texts
from ragpulse._reading.usage import Facts, instrumented_facts
from ragpulse._reading.values import bounded, to_json, type_name

INTERNAL, CLIENT = 1, 3
_OUTER, _INNER = 16, 48
"""Frames of a deep stack that are shown: where it began, and where it was raised."""
_PACKAGE = Path(__file__).parents[1]
_FRAMES: dict[CodeType, str] = {}
"""Code of our functions that run a call → their variable that holds it."""
_BLOCKS: WeakKeyDictionary[CodeType, set[int]] = WeakKeyDictionary()
"""Code of the application → lines within a block that withholds its texts."""
_WRAPPERS = ("_decorators.py", "_calls/wrappers.py", "_calls/streams.py", "_record/call.py")
_OUR_FILES = frozenset(str(_PACKAGE / name) for name in _WRAPPERS)
_CLIENT_KINDS = frozenset({"retriever", "llm", "embedding", "reranker"})
_QUERY_KEYS = {
    "retriever": (names.RETRIEVAL_QUERY, names.INPUT_VALUE),
    "reranker": (names.RERANKER_QUERY, names.INPUT_VALUE),
}
_REDUNDANT = (names.OPENINFERENCE_KIND, names.AGENT_NAME, names.TOOL_NAME)
"""Constants that repeat our kind or the span's name in the words of another convention."""
_NAME_KEYS = {"rag": names.AGENT_NAME, "agent": names.AGENT_NAME, "tool": names.TOOL_NAME}


F = TypeVar("F", bound=Callable[..., Any])


def runs_call(variable: str = "call") -> Callable[[F], F]:
    """Marks a function whose frames each run the call in this variable: an exception that passes them is the call's.

    A traceback shows of a frame only its code and its variables. TypeError where the function has no such variable.
    """

    def mark(function: F) -> F:
        code: CodeType = function.__code__
        if variable not in code.co_varnames:
            raise TypeError(f"{code.co_qualname} has no variable {variable}")
        _FRAMES[code] = variable
        return function

    return mark


def left_withholding_block(error: BaseException) -> None:
    """Marks the line at which an exception leaves a block that withholds its texts: no frame of ours stands for it."""
    frame, line = next(traceback.walk_tb(error.__traceback__))
    _BLOCKS.setdefault(frame.f_code, set()).add(line)


def passed_withholding(error: BaseException) -> bool:
    """Whether an exception passed a function or a block that withholds its texts, by the frames in its traceback."""
    for frame, line in traceback.walk_tb(error.__traceback__):
        code = frame.f_code
        call = frame.f_locals.get(_FRAMES[code]) if code in _FRAMES else None
        if line in _BLOCKS.get(code, ()) or (call is not None and call.recording.plan.withholds):
            return True
    return False


@dataclass(slots=True, eq=False)
class SpanPlan:
    """The constant part of every span of one decorated function (or of one span of another instrumentation)."""

    name: str
    kind: str
    """Our span kind; empty for a span of another instrumentation on our provider."""
    span_kind: int
    """OTLP's number: 1 internal, 3 client."""
    constants: Facts
    scope: Facts = field(default_factory=dict)
    """Attributes of the function's own span and of all spans below it."""
    query_keys: tuple[str, ...] = (names.INPUT_VALUE,)
    library: Any = None
    """The InstrumentationScope of the instrumentation that made the span; None for our own."""
    labels: Facts = field(default_factory=dict)
    """The constants on a span of the application's provider, where each costs its caller a microsecond."""
    recording: Any = None
    """Of a span of another instrumentation: the innermost recorded call above it."""
    withholds: bool = False
    """Whether the function leaves its arguments or its result out."""
    any_withholds: ClassVar[bool] = False
    head: bytes = b""
    encoded: bytes = b""

    def __post_init__(self) -> None:
        self.head = span_head(self.name, self.span_kind)
        self.encoded = key_values(SPAN_ATTRIBUTES, self.constants.items())
        if self.withholds:
            SpanPlan.any_withholds = True
        self.labels = {key: value for key, value in self.constants.items() if key not in _REDUNDANT}


def plan_for(
    kind: str,
    name: str,
    *,
    model: str | None,
    provider: str | None,
    data_source: str | None,
    index_version: str | None,
    scope: Facts,
    withholds: bool = False,
    streams: bool = False,
) -> SpanPlan:
    """The plan of a decorated function of `kind`."""
    stated = {
        names.SPAN_KIND: kind,
        names.OPENINFERENCE_KIND: names.OPENINFERENCE_KINDS.get(kind, "CHAIN"),
        names.OPERATION_NAME: names.OPERATIONS.get(kind),
        _NAME_KEYS.get(kind, ""): name,
        names.REQUEST_MODEL: model,
        names.PROVIDER_NAME: provider,
        names.DATA_SOURCE_ID: data_source,
        names.INDEX_VERSION: index_version,
        names.REQUEST_STREAM: streams,
    }
    return SpanPlan(
        name=name,
        kind=kind,
        span_kind=CLIENT if kind in _CLIENT_KINDS else INTERNAL,
        constants={key: value for key, value in stated.items() if key and value},
        scope=scope,
        query_keys=_QUERY_KEYS.get(kind, (names.INPUT_VALUE,)),
        withholds=withholds,
    )


def snapshot_text(value: Any) -> str:
    """Text as it is; anything else as JSON."""
    return bounded(value) if type(value) is str else to_json(value)


def error_name(error: BaseException) -> str:
    """The exception's type, with its module unless it is built in."""
    cls = type(error)
    return cls.__qualname__ if cls.__module__ == "builtins" else f"{cls.__module__}.{cls.__qualname__}"


def error_message(error: BaseException) -> str:
    """The exception's text, or a note when asking for it raises."""
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - an exception's own __str__ may fail
        return "<the exception's text is not available>"


def error_status(error: BaseException) -> str:
    """The description of a failed span's status."""
    return f"{error_name(error)}: {error_message(error)}"


def _stack(error: BaseException) -> str:
    """The exception and those that led to it, as Python shows them: without our own frames and at most 64 of a stack.

    Each span that an exception passes formats it again, so that a deep stack must not cost its depth squared.
    """
    if isinstance(error, BaseExceptionGroup):
        return "".join(traceback.format_exception(error))
    lines: list[str] = []
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        text = "".join([*_frames(current.__traceback__), *traceback.format_exception_only(current)])
        lines += ("Traceback (most recent call last):\n" + text,)
        if current.__cause__ is not None:
            lines += ("\nThe above exception was the direct cause of the following exception:\n\n",)
            current = current.__cause__
        elif current.__context__ is not None and not current.__suppress_context__:
            lines += ("\nDuring handling of the above exception, another exception occurred:\n\n",)
            current = current.__context__
        else:
            break
    return "".join(reversed(lines))


def _frames(trace: TracebackType | None) -> list[str]:
    frames = [
        (frame, number) for frame, number in traceback.walk_tb(trace) if frame.f_code.co_filename not in _OUR_FILES
    ]
    omitted = len(frames) - _OUTER - _INNER
    if omitted <= 0:
        return traceback.StackSummary.extract(iter(frames)).format()
    first = traceback.StackSummary.extract(iter(frames[:_OUTER])).format()
    last = traceback.StackSummary.extract(iter(frames[-_INNER:])).format()
    return [*first, f"  ... {omitted} frames left out ...\n", *last]


def exception_attributes(error: BaseException) -> dict[str, str]:
    """Type, message and stack of an exception, for a span event."""
    try:
        stack = _stack(error)
    except Exception:  # noqa: BLE001 - formatting asks the exception for its text, which may fail
        stack = "".join(traceback.format_tb(error.__traceback__))
    return {
        names.EXCEPTION_TYPE: error_name(error),
        names.EXCEPTION_MESSAGE: error_message(error),
        names.EXCEPTION_STACKTRACE: stack,
    }


class Recording:
    """The content and figures of one span."""

    __slots__ = ("calls", "documents", "facts", "plan", "query", "response", "texts")

    plan: SpanPlan
    query: str | None
    response: str | None
    documents: tuple[RecordedDocument, ...] | None
    facts: Facts | None
    texts: dict[str, str] | None
    calls: dict[int, tuple[int, AttributeMap]] | None
    """Spans of other instrumentations below this model call: id → parent's id, attributes. `crews` adds its own."""
    records: bool
    """Whether the span is sampled and open: only then are its contents sent."""

    def put(self, key: str, value: Any) -> None:
        """Records a figure or an identity."""
        if self.facts is None:
            self.facts = {}
        self.facts[key] = value

    def put_text(self, key: str, text: str) -> None:
        """Records a further text, which the content policy may withhold, redact or cut."""
        if self.texts is None:
            self.texts = {}
        self.texts[key] = text

    def put_facts(self, facts: Facts) -> None:
        """Records several figures at once; the dict becomes the recording's."""
        if self.facts is None:
            self.facts = facts
        else:
            self.facts.update(facts)

    def put_call(self, number: int, parent: int, attributes: AttributeMap) -> None:
        """Keeps what another instrumentation recorded below a model call: the call's own result may be a mere text."""
        if self.plan.kind == "llm" and self.records:
            self.calls = {} if self.calls is None else self.calls
            self.calls[number] = parent, attributes

    def put_usage_of_calls(self) -> None:
        """Records the usage and model that were found below, where the result did not have them."""
        if self.calls and self.records and names.INPUT_TOKENS not in (self.facts or {}):
            spans = {number: call for number, call in self.calls.items() if number > 0}
            for key, value in instrumented_facts(spans).items():
                self.put(key, value)

    def put_contexts(self, contexts: Any, field: str | None = None) -> bool:
        """Records retrieved contexts; returns whether there are some, and a text in one of them."""
        documents = documents_in(contexts, field)
        if documents is not None:
            self.documents = documents
        return documents is not None and (not documents or has_texts(documents))

    def put_unread_reason(self, result: Any, option: str) -> str:
        """Records why there are no contexts (or no response): the type of the result, and the line to write."""
        decorator = self.plan.kind if self.plan.kind in names.OPERATIONS else "span"
        found, fix = f"no {option}", "lambda result: ..."
        if option == "contexts" and self.documents is not None:
            found, fix = "contexts without text", '"the field that has the text"'
        reason = (
            f"{self.plan.name} returned {type_name(result)[1:-1]}, in which ragpulse finds {found}; "
            f"write @ragpulse.{decorator}({option}={fix})"
        )
        self.put(names.RESULT_UNREAD, reason)
        return reason

    def put_metadata(self, metadata: AttributeMap) -> None:
        """Records the application's metadata as a JSON object, added to what is already there."""
        earlier = (self.texts or {}).get(names.METADATA)
        self.put_text(names.METADATA, to_json({**(json.loads(earlier) if earlier else {}), **metadata}))

    def size(self) -> int:
        """A cheap estimate, from above, of the bytes this recording holds."""
        total = 600 + len(self.query or "") + len(self.response or "")
        for _, _, text, metadata in self.documents or ():
            total += 200 + len(text or "") + len(metadata or "")
        for value in self.facts.values() if self.facts else ():
            total += len(value) if isinstance(value, str) else 32
        for text in self.texts.values() if self.texts else ():
            total += len(text)
        return total
