"""One call of a decorated function: its recording, its context, and its result or stream."""

from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol

from opentelemetry.context import Context
from opentelemetry.trace import INVALID_SPAN_CONTEXT, SpanContext

from ragpulse import _names as names
from ragpulse._guard import GUARD
from ragpulse._reading.contexts import RecordedDocument, document
from ragpulse._reading.frames import CumulativeText, is_json_line, piece, without_frames
from ragpulse._reading.openers import whole_result
from ragpulse._reading.pieces import Pieces
from ragpulse._reading.usage import Calls, add_facts
from ragpulse._reading.values import CutText, JsonText, bounded, json_or_none

from .capture import TEXT_KINDS, Capture
from .frameworks.control_flow import control_flow
from .messages import fail_reply
from .otel import current, enter, leave, leave_after
from .recording import SpanPlan, runs_call

_MAX_STREAM_TEXT = 1024 * 1024


class Unrecorded:
    """Stands for the recording of a call whose span could not be started."""

    records = False
    calls = None

    def __init__(self, plan: SpanPlan) -> None:
        self.plan = plan

    def get_span_context(self) -> SpanContext:
        """No identity."""
        return INVALID_SPAN_CONTEXT

    def fail(self, error: BaseException) -> None:
        """Does nothing."""

    def end(self) -> None:
        """Does nothing."""


class Starter(Protocol):
    """Starts spans on our own provider, on the application's, or in a test."""

    def start(self, plan: SpanPlan, context: Context) -> tuple[Any, Context]:
        """A span below the context's current one, and the context in which it is current."""
        ...


class RecordedCall:
    """Connects the decorated function and its span. Nothing in here raises, unless strict."""

    __slots__ = (
        "_calls", "_capture", "_counted", "_cumulative", "_documents", "_facts", "_has_first_text", "_items",
        "_length", "_lines", "_lost_characters", "_other_items", "_pieces", "_text", "candidates", "context", "done",
        "owner", "recording", "write",
    )  # fmt: skip

    def __init__(self, recording: Any, capture: Capture, context: Context) -> None:
        self.recording = recording
        self.context = context
        self._capture = capture
        self.candidates: tuple[RecordedDocument, ...] = ()
        """The documents that a reranker received."""
        self._text: list[str] | None = None
        """The parts of a stream's text; a text buffer would be closed before the stream where both are garbage."""
        self.owner: Callable[[], Any] | None = None
        """Returns the result that has the stream, where they are two objects: the user's functions take the result."""
        self.done = False

    # --- a plain result --------------------------------------------------------------------------------------------
    def finished(self, result: Any) -> None:
        """Records the result and ends the span."""
        try:
            if self.recording.records:
                self._capture.result(self.recording, result, self.candidates)
        except Exception as error:  # noqa: BLE001 - the boundary to the application
            GUARD.contain("recording a result", error)
        finally:
            self._end()

    def failed(self, error: BaseException) -> None:
        """Records the exception that leaves the function, and ends the span; control flow is no failure."""
        if self.done:
            return
        try:
            flow = control_flow(error)
            if flow is not None and self.recording.records:
                self.recording.put(names.CONTROL_FLOW, flow)
            if flow == "cancelled":
                self.closed_early()
                return
            self._record_stream()
            if flow is None:
                self.recording.fail(error)
        except Exception as trouble:  # noqa: BLE001 - the boundary to the application
            GUARD.contain("recording an exception", trouble)
        finally:
            self._end()

    def _end(self) -> None:
        if self.done:
            return
        self.done = True
        try:
            if self.recording.calls is not None:
                self.recording.put_usage_of_calls()
            self.recording.end()
        except Exception as error:  # noqa: BLE001 - the boundary to the application
            GUARD.contain("ending a span", error)

    # --- a stream --------------------------------------------------------------------------------------------------
    def _begin_text(self) -> list[str]:
        self._text = []
        self.write = self._text.append
        self._counted = self._length = self._lost_characters = 0
        self._documents: list[RecordedDocument | tuple[Any, ...]] = []
        self._other_items: list[str] = []
        self._facts: dict[str, Any] = {}
        """What the only model call states, of a function that is one."""
        self._calls: Calls | None = None
        self._pieces = Pieces()
        options = self._capture.options
        wants_items = options.response or options.contexts or options.usage
        self._items: list[Any] | None = [] if wants_items and self.owner is None else None
        self._has_first_text = self._lines = False
        self._cumulative: CumulativeText | None = CumulativeText()
        if self.recording.records and names.REQUEST_STREAM not in self.recording.plan.constants:
            self.recording.put(names.REQUEST_STREAM, True)
        return self._text

    def item(self, item: Any) -> int:
        """Records one item of the stream; returns how many characters the driver may pass to `write` directly."""
        text = self._begin_text() if self._text is None else self._text
        capacity = _MAX_STREAM_TEXT - self._measured()
        try:
            if self._items is not None:
                self._items.append(item)
                text_of_item = piece(item).text or ""
                capacity = 0
            else:
                is_text = type(item) is str and not self._capture.takes_documents
                text_of_item = item if is_text else self._text_of(item)
            if capacity == _MAX_STREAM_TEXT:
                self._lines = is_json_line(text_of_item)
            if not self._has_first_text:
                self._time(text_of_item)
            if self._cumulative is not None and not self._cumulative.add(text_of_item):
                self._cumulative = None
            if capacity > 0:
                text.append(text_of_item)
                return capacity - len(text_of_item) if self._has_first_text and self._cumulative is None else 0
            self._lost_characters += len(text_of_item)
        except Exception as error:  # noqa: BLE001 - the boundary to the application
            GUARD.contain("recording a stream's item", error)
        return 0

    def _measured(self) -> int:
        """How many characters there are; the driver added parts by itself."""
        parts = self._text[self._counted :] if self._text else ()
        if parts:
            self._counted += len(parts)
            self._length += sum([len(part) for part in parts])
        return self._length

    def _time(self, text: str) -> None:
        """Records the time to the first text that the user sees (or to the first document)."""
        if without_frames(text, is_lines=self._lines) or self._documents:
            self._has_first_text = True
            if self.recording.records:
                seconds = max(self.recording.now_ns() - self.recording.start_ns, 0) / 1e9
                self.recording.put(names.TIME_TO_FIRST_CHUNK, seconds)

    def beside(self, result: Any) -> None:
        """Records the sources that a result has beside its stream."""
        with GUARD.containing("recording a result"):
            if self.recording.records:
                self._capture.sources(self.recording, result)

    def _text_of(self, item: Any) -> str:
        """The text of an item that is not a string; documents, usage and other values are kept apart."""
        if self._capture.takes_documents:
            self._documents.append(item if type(item) is tuple else document(item))
            self._pieces.unread = item
            return ""
        if isinstance(item, bytes):
            return item.decode("utf-8", "replace")
        whole = whole_result(item)
        if self._capture.kind == "llm":
            add_facts(self._facts, item if whole is None else whole)
        else:
            self._calls = self._calls or Calls()
            self._calls.add(item if whole is None else whole)
        if whole is not None:
            self._pieces.add_whole(whole)
            return ""
        text = self._pieces.add(item)
        if text is None and self._capture.kind not in TEXT_KINDS:
            item_json = json_or_none(item)
            self._other_items += () if item_json is None else (item_json,)
        return text or ""

    def _record_stream(self) -> None:
        """Records what was read of the stream as the response."""
        if self._text is None or not self.recording.records:
            return
        facts = self._facts or (self._calls and self._calls.total())
        if facts:
            self.recording.put_facts(facts)
        if self._items is not None:
            self._capture.result(self.recording, self._items, self.candidates)
        elif self._capture.options.capture_outputs:
            if self._capture.takes_documents:
                if not self.recording.put_contexts(self._documents):
                    self._capture.report_unread(self.recording, self._pieces.unread, "contexts")
            elif self.recording.response is None:
                self._put_response("".join(self._text))
                if self._pieces.error is not None:
                    fail_reply(self.recording, *self._pieces.error)
        if self.owner is not None and (owner := self.owner()) is not None:
            self._capture.declared(self.recording, owner)

    def _put_response(self, written: str) -> None:
        """What the whole reply says, else the last of cumulative items, else the pieces."""
        pieces = self._pieces
        cumulative = None if self._cumulative is None else self._cumulative.whole()
        said = pieces.reply(self._response(pieces.said.text or cumulative or written))
        if said.text or pieces.error is None:
            self._capture.reply(self.recording, said, said.text, pieces.reason, pieces.unread)

    def _response(self, text: str) -> str:
        if self._other_items and not text:
            return JsonText("[" + ",".join(self._other_items) + "]")
        response = bounded(without_frames(text, is_lines=self._lines) or text)
        if self._lost_characters and isinstance(response, CutText):
            response.bytes, response.sha256 = len(text) + self._lost_characters, "unknown"
        return response

    def ended(self) -> None:
        """The stream was read to its end."""
        if self.done:
            return
        try:
            self._record_stream()
        except Exception as error:  # noqa: BLE001 - the boundary to the application
            GUARD.contain("recording a stream", error)
        finally:
            self._end()

    def closed_early(self) -> None:
        """The stream was closed before its end: no error, but marked."""
        if not self.done and self.recording.records:
            self.recording.put(names.ENDED_EARLY, True)
        self.ended()

    @runs_call("self")
    def next(self, step: Callable[[], Any], ended: Callable[[], None] | None = None) -> Any:
        """Takes and records one item of a source."""
        try:
            with self.within():
                item = step()
        except StopIteration:
            (ended or self.ended)()
            raise
        self.item(item)
        return item

    @runs_call("self")
    async def anext(self, step: Callable[[], Awaitable[Any]], ended: Callable[[], None] | None = None) -> Any:
        """As `next`, of an asynchronous source."""
        try:
            with self.within():
                item = await step()
        except StopAsyncIteration:
            (ended or self.ended)()
            raise
        self.item(item)
        return item

    @contextmanager
    def within(self) -> Iterator[None]:
        """Makes the span current for one step of a stream's source; an error of the source is the call's."""
        token = enter(self.context)
        try:
            yield
        except (StopIteration, StopAsyncIteration):
            raise
        except BaseException as error:  # cancellation and GeneratorExit, too, end the span; all are raised again
            self.failed(error)
            raise
        finally:
            self.context = current()
            leave(token)

    @contextmanager
    def around(self) -> Iterator[None]:
        """Makes the span current for a block of the application, which may be closed elsewhere than it was entered."""
        token = enter(self.context)
        try:
            yield
        except BaseException as error:  # as in `within`
            leave_after(error, token, self.context)
            self.failed(error)
            raise
        leave(token)


def begin(
    starter: Starter,
    plan: SpanPlan,
    capture: Capture,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    context: Context,
) -> RecordedCall:
    """Starts the span of a call and records its arguments."""
    call = None
    try:
        recording, inner = starter.start(plan, context)
        call = RecordedCall(recording, capture, inner)
        if recording.records:
            capture.arguments(recording, args, kwargs)
            if capture.takes_candidates:
                call.candidates = capture.candidates(args, kwargs)
    except Exception as error:  # noqa: BLE001 - the boundary to the application
        GUARD.contain("starting a span", error)
    return call or RecordedCall(Unrecorded(plan), capture, context)


class State:
    """The process's current tracer. Only `configure`, `shutdown` and `testing.capture` set it."""

    __slots__ = ("starter",)

    def __init__(self) -> None:
        self.starter: Starter | None = None


STATE = State()
