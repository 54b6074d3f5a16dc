"""Usage of CrewAI's results, which state the sum of all runs so far of the models of a crew or an agent.

CrewAI reports each call of a model on its event bus, to listeners that run in a copy of the call's context. So the
usage of a function that returns such a result is the sum of the calls in its own context.
"""

import sys
import time
from importlib import import_module
from itertools import count
from typing import Any

from ragpulse import _names as names
from ragpulse._reading.usage import Facts, instrumented_facts, usage_facts
from ragpulse._record.otel import RECORDING_KEY, current

_RESULTS = ("CrewOutput", "LiteAgentOutput")
_WAIT_SECONDS = 1.0
"""For reports that are on their way; a crew waits for them itself."""
_NUMBERS = count(-1, -1)
"""Below zero, as no id of a span is."""


def is_crews(result: Any) -> bool:
    """Whether it is what `kickoff` of a crew or an agent returned, or `kickoff_for_each`."""
    first = result[0] if type(result) is list and result else result
    return type(first).__name__ in _RESULTS and type(first).__module__.startswith("crewai.")


class _Listener:
    """Listens to CrewAI since a moment of this process."""

    def __init__(self) -> None:
        self._bus: Any = None
        self._since_ns = 0

    def listen(self, since_ns: int = 0) -> None:
        """Begins to listen, where CrewAI is imported: when a function is decorated, else at the first result."""
        if self._bus is None and "crewai" in sys.modules:
            try:
                events: Any = import_module("crewai.events")
                events.crewai_event_bus.on(events.LLMCallCompletedEvent)(_add)
            except (ImportError, AttributeError):  # an old version, or one that is being imported
                return
            self._bus, self._since_ns = events.crewai_event_bus, since_ns

    def usage(self, recording: Any) -> Facts | None:
        """The sum of the calls in a recording's context; None unless all were heard and stated their usage."""
        self.listen(time.time_ns())
        if self._bus is None or recording.start_ns < self._since_ns or not self._bus.flush(_WAIT_SECONDS):
            return None
        calls = {number: call for number, call in (recording.calls or {}).items() if number < 0}
        heard = all(names.INPUT_TOKENS in facts for _, facts in calls.values())
        return instrumented_facts(calls) if heard else None


def _add(source: Any, event: Any) -> None:
    """Keeps a call's usage on the innermost recorded function."""
    recording: Any = current().get(RECORDING_KEY)
    if recording is not None and recording.records:
        facts = usage_facts(getattr(event, "usage", None))
        recording.calls = {} if recording.calls is None else recording.calls
        recording.calls[next(_NUMBERS)] = 0, {**facts, names.REQUEST_MODEL: event.model}


CREWS = _Listener()
