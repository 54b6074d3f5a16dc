"""Cases: what an evaluator sees of a stored unit, found without reading what was stored around it."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from stored_units import SPAN_ID, T0, Units, open_store, trace_id
from waiting import until

from ragpulse_collector.client import connect
from ragpulse_collector.store.embedded import EmbeddedStore
from ragpulse_collector.units.cases import Unit, case_of, cases_of
from ragpulse_collector.units.keys import ScoreKeys, score_key
from ragpulse_evaluators import Turn, get_evaluator

if TYPE_CHECKING:
    from ragpulse_collector.app import Collector


@pytest.fixture
def store(tmp_path: Path) -> Iterator[EmbeddedStore]:
    """An open store."""
    opened = open_store(tmp_path)
    yield opened
    opened.close()


@pytest.mark.parametrize("minutes", [0, 10, 600])
def test_contexts_are_found_however_late_they_were_retrieved(store: EmbeddedStore, minutes: int) -> None:
    """A span far from its unit is looked for where fewer are near than the trace had when it was decided."""
    units = Units(store)
    units.unit(1)
    units.contexts(1, ["the passage"], at=T0 + timedelta(minutes=minutes))
    units.save()
    store.write(lambda tx: tx.execute("UPDATE raw.trace_facts SET n_spans = 2")).result()
    case = case_of(store, trace_id(1), SPAN_ID, request_time=T0)
    assert case is not None
    assert case.texts == ("the passage",)
    assert case == case_of(store, trace_id(1), SPAN_ID)


def test_many_cases_are_those_of_their_units(store: EmbeddedStore) -> None:
    """Each unit gets its own texts; one that is gone is absent."""
    units = Units(store)
    for number in range(5):
        units.unit(number, at=T0 + timedelta(minutes=number), response=f"answer {number}")
    units.save()
    wanted = [Unit(trace_id(number), SPAN_ID, T0 + timedelta(minutes=number)) for number in (4, 7, 2)]
    found = cases_of(store, wanted)
    assert {unit.trace_id: case.response for unit, case in found.items()} == {
        trace_id(4): "answer 4",
        trace_id(2): "answer 2",
    }


def test_keys_of_a_batch_are_those_of_single_cases(store: EmbeddedStore) -> None:
    """A digest is shared only by evaluators that see the same of a case."""
    units = Units(store)
    units.unit(1)
    units.save()
    unit = Unit(trace_id(1), SPAN_ID, T0)
    case, keys = cases_of(store, [unit])[unit], ScoreKeys()
    evaluators = [get_evaluator(name) for name in ("latency", "refusal", "citation_check")]
    assert [keys(unit, case, one) for one in evaluators] == [score_key(unit, case, one) for one in evaluators]
    assert len({keys(unit, case, one) for one in evaluators}) == 3


Q1, A1, Q2 = "Who built it?", "Gustave Eiffel.", "When?"
CHAT = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": Q1},
    {"role": "assistant", "content": A1},
    {"role": "user", "content": Q2},
]
PARTS = [
    {"role": "user", "parts": [{"type": "text", "content": Q1}]},
    {"role": "assistant", "parts": [{"type": "tool_call", "name": "search"}]},
    {"role": "tool", "parts": [{"type": "tool_call_response", "response": "1889"}]},
    {"role": "assistant", "parts": [{"type": "text", "content": A1}]},
    {"role": "user", "parts": [{"type": "text", "content": Q2}]},
]
MESSAGES: dict[str, tuple[dict[str, Any], tuple[Turn, ...] | None]] = {
    "gen_ai": ({"gen_ai.input.messages": json.dumps(PARTS)}, (Turn(query=Q1, response=A1),)),
    "openinference": (
        {f"llm.input_messages.{n}.message.{key}": value for n, one in enumerate(CHAT) for key, value in one.items()},
        (Turn(query=Q1, response=A1),),
    ),
    "openllmetry": (
        {f"gen_ai.prompt.{n}.{key}": value for n, one in enumerate(CHAT) for key, value in one.items()},
        (Turn(query=Q1, response=A1),),
    ),
    "ai sdk": ({"ai.prompt.messages": json.dumps(CHAT)}, (Turn(query=Q1, response=A1),)),
    "a body": ({"input.value": json.dumps({"messages": CHAT, "model": "m"})}, (Turn(query=Q1, response=A1),)),
    "unanswered": ({"gen_ai.input.messages": json.dumps([CHAT[1], CHAT[3]])}, (Turn(query=Q1),)),
    "one question": ({"gen_ai.input.messages": json.dumps([CHAT[0], CHAT[3]])}, None),
    "a greeting": ({"gen_ai.input.messages": json.dumps(CHAT[2:])}, None),
}


@pytest.mark.parametrize("below", [False, True], ids=["own span", "model call below"])
def test_the_messages_of_a_span_are_the_turns_before(collector: Callable[..., Collector], below: bool) -> None:
    """What was said before the last question, in every dialect; the score of a check stays the same."""
    running, names = collector(settle_s=0.0), list(MESSAGES)
    now = time.time_ns()
    spans = []
    for number, name in enumerate(names):
        root: dict[str, Any] = {"traceId": trace_id(number), "spanId": SPAN_ID, "name": name}
        root |= {"startTimeUnixNano": str(now), "endTimeUnixNano": str(now + 10**9)}
        values = {"gen_ai.operation.name": "chat", **MESSAGES[name][0]}
        attributes = [{"key": key, "value": {"stringValue": value}} for key, value in values.items()]
        call = {**root, "attributes": attributes}
        spans += [root, {**call, "spanId": "b" * 16, "parentSpanId": SPAN_ID}] if below else [call]
    client = connect(running.url)
    client.request("POST", "/v1/traces", body={"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]})
    until(client, "select 1 from traces", len(names))
    units = [Unit(trace_id(number), SPAN_ID) for number in range(len(names))]
    found = cases_of(running.components.store, units)
    assert {name: found[unit].history for name, unit in zip(names, units, strict=True)} == {
        name: turns for name, (_, turns) in MESSAGES.items()
    }
    plain = cases_of(running.components.store, units, judged=())
    assert all(case.history is None for case in plain.values())
    keys, check = ScoreKeys(), get_evaluator("citation_check")
    assert keys(units[0], found[units[0]], check) == keys(units[0], plain[units[0]], check)


def test_the_steps_of_a_run_are_read_from_its_spans(store: EmbeddedStore) -> None:
    """In time order with names, arguments, results and errors; a call reported twice is one; a cycle ends."""
    units = Units(store)
    units.unit(1)
    rows = [
        # span, parent, kind, name, attributes, query, response, error
        (1, 0xAA, "agent", "helper", "{}", None, None, None),
        (2, 1, "tool", "execute_tool search", "{}", '{"q": "x"}', "found", None),
        (3, 2, "tool", "search", "{}", '{"q": "x"}', "found", None),  # the client of the same call
        (4, 1, "llm", "chat gpt", "{}", None, "so", None),
        (5, 4, "llm", "POST", "{}", None, "so", None),
        (6, 7, "tool", "tool call", '{"gen_ai.tool.name": "book"}', None, None, "no seats"),
        (7, 6, "chain", "loop", "{}", None, None, None),  # parents in a circle
        (8, 1, "tool", "tool call", '{"gen_ai.tool.name": "book"}', None, None, "no seats"),
    ]
    for number, (span, parent, kind, name, attributes, query, response, error) in enumerate(rows, 1):
        at = T0 + timedelta(milliseconds=number)
        units.add("spans", trace_id=trace_id(1), span_id=span, parent_span_id=parent, start_time=at, kind=kind,
                  name=name, attributes=attributes, status="error" if error else "ok",
                  status_message=error)  # fmt: skip
        if query or response:
            units.add("contents", trace_id=trace_id(1), span_id=span, start_time=at, query=query, response=response)
    units.save()
    unit = Unit(trace_id(1), SPAN_ID, T0)
    steps = cases_of(store, [unit])[unit].trace or ()
    assert [(step.kind, step.name, step.arguments, step.result, step.error) for step in steps] == [
        ("agent", "helper", None, None, None),
        ("tool", "search", {"q": "x"}, "found", None),
        ("llm", "chat gpt", None, "so", None),
        ("tool", "book", None, None, "no seats"),
    ]
    assert cases_of(store, [unit], stepped=False)[unit].trace is None
    called = cases_of(store, [unit])[unit]
    untouched = called.model_copy(update={"trace": None})
    assert score_key(unit, called, get_evaluator("refusal")) == score_key(unit, untouched, get_evaluator("refusal"))
    assert score_key(unit, called, get_evaluator("steps")) != score_key(unit, untouched, get_evaluator("steps"))
