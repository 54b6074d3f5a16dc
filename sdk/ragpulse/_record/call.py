"""One call of a decorated function: its recording, its context, and its result or stream."""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import Token
from io import StringIO
from typing import Any, Protocol

from opentelemetry.context import Context
from opentelemetry.trace import INVALID_SPAN_CONTEXT, SpanContext

from ragpulse import attributes as names
from ragpulse._guard import GUARD

from .capture import Capture
from .contexts import Document, document
from .recording import Plan, Recording
from .scope import current, enter, leave
from .usage import add_facts, reply_text
from .values import CutText, JsonText, keep, to_json

_MAX_KEPT = 1024 * 1024


class Unrecorded(Recording):
    """Stands for the recording of a call whose span could not be started."""

    __slots__ = ()
    records = False
    start_ns = 0

    def get_span_context(self) -> SpanContext:
        """No identity."""
        return INVALID_SPAN_CONTEXT

    def fail(self, error: BaseException) -> None:
        """Does nothing."""

    def end(self) -> None:
        """Does nothing."""


_NO_PLAN = Plan(name="", kind="", span_kind=1, constants={})


class Starter(Protocol):
    """Starts spans on our own provider, on the application's, or in a test."""

    def start(self, plan: Plan, context: Context) -> tuple[Any, Context]:
        """A span below the context's current one, and the context in which it is current."""
        ...


class Call:
    """Between the decorated function and its span. Nothing in here raises, unless strict."""

    __slots__ = (
        "_capture", "_documents", "_done", "_facts", "_items", "_lost", "_others", "_text", "context", "recording",
        "write",
    )  # fmt: skip

    def __init__(self, recording: Any, capture: Capture, context: Context) -> None:
        self.recording = recording
        self.context = context
        self._capture = capture
        self._text: StringIO | None = None
        self._done = False

    # --- a plain result --------------------------------------------------------------------------------------------
    def finished(self, result: Any) -> None:
        """Records the result and ends the span."""
        try:
            if self.recording.records:
                self._capture.result(self.recording, result)
        except Exception as error:  # noqa: BLE001 - the boundary to the application
            self._end()
            GUARD.contain("recording a result", error)
        self._end()

    def failed(self, error: BaseException) -> None:
        """Records the exception that leaves the function, and ends the span."""
        if isinstance(error, GeneratorExit):
            self.closed_early()
            return
        if self._done:
            return
        try:
            self._keep_stream()
            self.recording.fail(error)
        except Exception as trouble:  # noqa: BLE001 - the boundary to the application
            self._end()
            GUARD.contain("recording an exception", trouble)
        self._end()

    def _end(self) -> None:
        if self._done:
            return
        self._done = True
        try:
            self.recording.end()
        except Exception as error:  # noqa: BLE001 - the boundary to the application
            GUARD.contain("ending a span", error)

    # --- a stream --------------------------------------------------------------------------------------------------
    def item(self, item: Any) -> int:
        """Records one item of the stream; returns how many characters of text the driver may `write` by itself next."""
        text = self._text or self._first()
        room = _MAX_KEPT - text.tell()
        try:
            if self._items is not None:
                self._items.append(item)
                return 0
            text_of_item = item if type(item) is str else self._text_of(item)
            if room > 0:
                return room - text.write(text_of_item)
            self._lost += len(text_of_item)
        except Exception as error:  # noqa: BLE001 - the boundary to the application
            GUARD.contain("recording a stream's item", error)
        return 0

    def _first(self) -> StringIO:
        self._text = StringIO()
        self.write = self._text.write
        self._lost = 0
        self._documents: list[Document] = []
        self._others: list[str] = []
        self._facts: dict[str, Any] = {}
        declared = self._capture.declared
        wants_items = declared.response or declared.contexts or declared.usage
        self._items: list[Any] | None = [] if wants_items else None
        recording = self.recording
        if recording.records:
            recording.put(names.TIME_TO_FIRST_CHUNK, max(time.time_ns() - recording.start_ns, 0) / 1e9)
            recording.put(names.REQUEST_STREAM, True)
        return self._text

    def _text_of(self, item: Any) -> str:
        """The text of an item that is not a string; documents, usage and other values are kept apart."""
        if self._capture.takes_documents:
            self._documents.append(document(item))
            return ""
        if isinstance(item, bytes):
            return item.decode("utf-8", "replace")
        if self._capture.kind == "llm":
            add_facts(self._facts, item)
        text = reply_text(item)
        if text is None and self._capture.kind != "llm":
            self._others.append(to_json(item))
        return text or ""

    def _keep_stream(self) -> None:
        """Records what was read of the stream as the response."""
        if self._text is None or not self.recording.records:
            return
        if self._facts:
            self.recording.put_facts(self._facts)
        if self._items is not None:
            self._capture.result(self.recording, self._items)
        elif self._capture.declared.capture_outputs:
            if self._documents:
                self.recording.documents = tuple(self._documents)
            elif self.recording.response is None:
                self.recording.response = self._response(self._text.getvalue())

    def _response(self, text: str) -> str:
        if self._others and not text:
            return JsonText("[" + ",".join(self._others) + "]")
        kept = keep(text)
        if self._lost and isinstance(kept, CutText):
            kept.bytes, kept.sha256 = len(text) + self._lost, "unknown"
        return kept

    def ended(self) -> None:
        """The stream was read to its end."""
        if self._done:
            return
        try:
            self._keep_stream()
        except Exception as error:  # noqa: BLE001 - the boundary to the application
            self._end()
            GUARD.contain("recording a stream", error)
        self._end()

    def closed_early(self) -> None:
        """The stream was closed before its end: no error, but marked."""
        if not self._done and self.recording.records:
            self.recording.put(names.ENDED_EARLY, True)
        self.ended()

    @contextmanager
    def step(self, end: type[BaseException]) -> Iterator[None]:
        """Makes the span current for one step of a stream's source; `end` means that the stream is read."""
        token = enter(self.context)
        try:
            yield
        except end:
            self.ended()
            raise
        except BaseException as error:
            self.failed(error)
            raise
        finally:
            self.context = current()
            leave(token)

    def release(self, token: Token[Context], error: BaseException) -> None:
        """Leaves the span's context; an abandoned coroutine may be closed where it was never entered."""
        if not isinstance(error, GeneratorExit) or current() is self.context:
            leave(token)


def begin(
    starter: Starter, plan: Plan, capture: Capture, args: tuple[Any, ...], kwargs: Mapping[str, Any], context: Context
) -> Call:
    """Starts the span of a call and records its arguments."""
    call = None
    try:
        recording, inner = starter.start(plan, context)
        call = Call(recording, capture, inner)
        if recording.records:
            capture.arguments(recording, args, kwargs)
    except Exception as error:  # noqa: BLE001 - the boundary to the application
        GUARD.contain("starting a span", error)
    return call or Call(Unrecorded(_NO_PLAN), capture, context)


class State:
    """The process's current tracer. Only `configure`, `shutdown` and `testing.capture` set it."""

    __slots__ = ("starter",)

    def __init__(self) -> None:
        self.starter: Starter | None = None


STATE = State()
