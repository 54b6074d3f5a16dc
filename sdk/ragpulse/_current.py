"""`current_span()`: what the application may add to the innermost recorded call from within."""

from collections.abc import Mapping
from typing import Any

from . import attributes as names
from ._context import current
from ._guard import GUARD
from ._recording import snapshot_text
from ._tracer import RECORDING_KEY
from ._usage import Usage, usage_facts


class CurrentSpan:
    """A handle on one recorded call. Outside a span, and after its end, it does nothing."""

    __slots__ = ("_recording",)

    def __init__(self, recording: Any) -> None:
        self._recording = recording

    @property
    def trace_id(self) -> str:
        """32 hex digits, for `feedback`; empty outside a span."""
        return "" if self._recording is None else format(self._recording.get_span_context().trace_id, "032x")

    @property
    def span_id(self) -> str:
        """16 hex digits; empty outside a span."""
        return "" if self._recording is None else format(self._recording.get_span_context().span_id, "016x")

    def set(
        self,
        *,
        query: Any = None,
        response: Any = None,
        contexts: Any = None,
        model: str | None = None,
        usage: Usage | None = None,
        cost_usd: float | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> None:
        """Record what is given. It wins over what the decorator finds by itself."""
        recording = self._recording
        if recording is None or not recording.records:
            return
        try:
            if query is not None:
                recording.query = snapshot_text(query)
            if response is not None:
                recording.response = snapshot_text(response)
            if contexts is not None:
                recording.put_contexts(contexts)
            if model is not None:
                recording.put(names.REQUEST_MODEL, str(model))
            if usage is not None:
                recording.put_facts(usage_facts(usage))
            if cost_usd is not None:
                recording.put(names.COST_TOTAL, float(cost_usd))
            if metadata:
                recording.put_metadata(metadata)
        except Exception as error:  # noqa: BLE001 - the boundary to the application
            GUARD.contain("current_span().set", error)


def current_span() -> CurrentSpan:
    """The innermost recorded call that encloses this line; a handle that does nothing when there is none."""
    return CurrentSpan(current().get(RECORDING_KEY))
