"""Usage of CrewAI's results is that of their own run. `benchmarks/applications` runs the genuine package."""

import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

import ragpulse
from ragpulse._record.frameworks.crews import CREWS, _Listener
from ragpulse.testing import RecordedSpans, ragpulse_spans

__all__ = ["ragpulse_spans"]


class CrewOutput:
    """A result with the growing sum of its crew's model, as CrewAI's."""

    __module__ = "crewai.crews.crew_output"

    def __init__(self, total: int) -> None:
        self.raw = "Paris."
        self.token_usage = {"prompt_tokens": total, "completion_tokens": total}


class LiteAgentOutput(CrewOutput):
    """What an agent alone returns."""

    __module__ = "crewai.lite_agent_output"


class Bus:
    """CrewAI's event bus: listeners run on other threads, in a copy of the context."""

    def __init__(self) -> None:
        self.listeners: list[Callable[[Any, Any], None]] = []
        self.threads = ThreadPoolExecutor(2)
        self.running: list[Any] = []

    def on(self, event: type) -> Callable[[Callable[[Any, Any], None]], None]:
        """Registers a listener."""
        return self.listeners.append

    def emit(self, usage: dict[str, int] | None) -> None:
        """Reports a call of a model."""
        event = SimpleNamespace(usage=usage, model="gpt-5-mini")
        for listener in self.listeners:
            self.running.append(self.threads.submit(copy_context().run, listener, None, event))

    def flush(self, timeout: float) -> bool:
        """Waits for the listeners."""
        return all(future.result(timeout) is None for future in self.running)


class Crew:
    """A crew of some agents, all with one model."""

    def __init__(self, bus: Bus, agents: int = 1, usage: dict[str, int] | None = None) -> None:
        self.bus, self.agents, self.total = bus, agents, 1000
        self.usage = {"prompt_tokens": 120, "completion_tokens": 5} if usage is None else usage

    def kickoff(self, output: type[CrewOutput] = CrewOutput) -> Any:
        """Calls the model once for each agent."""
        for _ in range(self.agents):
            self.total += 120
            self.bus.emit(self.usage)
        return output(self.total)


@pytest.fixture
def bus(monkeypatch: pytest.MonkeyPatch) -> Iterator[Bus]:
    """The bus of a package in the shape of CrewAI's."""
    bus = Bus()
    events: Any = ModuleType("crewai.events")
    events.crewai_event_bus, events.LLMCallCompletedEvent = bus, SimpleNamespace
    monkeypatch.setitem(sys.modules, "crewai", ModuleType("crewai"))
    monkeypatch.setitem(sys.modules, "crewai.events", events)
    monkeypatch.setattr(CREWS, "__dict__", vars(_Listener()))
    yield bus
    bus.threads.shutdown()


def test_a_run_has_the_tokens_of_its_own_calls(bus: Bus, ragpulse_spans: RecordedSpans) -> None:
    """Of one crew again, of crews in turn, of a new crew, of one for each input, of an agent, and in threads."""

    @ragpulse.agent
    def run(work: Callable[[], Any]) -> Any:
        return work()

    one, two = Crew(bus), Crew(bus, agents=2)
    for work in (one.kickoff, one.kickoff, two.kickoff, one.kickoff, Crew(bus).kickoff):
        run(work)
    run(lambda: [one.kickoff(), one.kickoff()])
    run(lambda: one.kickoff(LiteAgentOutput))
    with ThreadPoolExecutor(3) as threads:
        list(threads.map(run, [one.kickoff, two.kickoff, one.kickoff]))

    counts = [span.usage.input_tokens or 0 for span in ragpulse_spans if span.usage]
    assert counts[:7] == [120, 120, 240, 120, 120, 240, 120]
    assert sorted(counts[7:]) == [120, 120, 240]
    assert {span.model for span in ragpulse_spans} == {"gpt-5-mini"}


@pytest.mark.parametrize("kind", [ragpulse.rag, ragpulse.agent, ragpulse.llm])
def test_calls_count_once_below_two_functions(bus: Bus, ragpulse_spans: RecordedSpans, kind: Any) -> None:
    """They belong to the inner one, although both return the crew's result."""
    inner = kind(name="inner")(Crew(bus).kickoff)
    kind(name="outer")(lambda: inner())()

    usage = ragpulse_spans.one("inner").usage
    assert usage is not None
    assert usage.input_tokens == 120
    assert ragpulse_spans.one("outer").usage is None
    assert "ragpulse.result.unread" not in ragpulse_spans.one("outer").attributes


def test_usage_that_is_not_whole_is_unknown(bus: Bus, ragpulse_spans: RecordedSpans) -> None:
    """Never the growing sum: with a call without usage, or where CrewAI was imported after the decoration."""
    silent = Crew(bus, usage={})
    package = sys.modules.pop("crewai")
    late = ragpulse.agent(name="late")(Crew(bus).kickoff)
    sys.modules["crewai"] = package
    late()
    ragpulse.agent(name="silent")(silent.kickoff)()
    ragpulse.agent(name="declared", usage=lambda result: {"input_tokens": 7})(silent.kickoff)()

    for name in ("late", "silent"):
        span = ragpulse_spans.one(name)
        assert span.usage is None
        assert "finds no usage; write @ragpulse.agent(usage=" in span.attributes["ragpulse.result.unread"]
    declared = ragpulse_spans.one("declared").usage
    assert declared is not None
    assert declared.input_tokens == 7


def test_calls_on_a_models_span_are_not_counted_beside_the_clients(bus: Bus, ragpulse_spans: RecordedSpans) -> None:
    """A function that returns a text has the usage of the instrumented client's call below it."""

    @ragpulse.llm
    def call() -> str:
        Crew(bus).kickoff()
        bus.flush(1)
        return "Paris."

    call()
    assert ragpulse_spans.one("call").usage is None
