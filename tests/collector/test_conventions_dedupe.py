"""Tokens are paid once and contexts shown once, whatever the instrumentations repeat."""

from __future__ import annotations

import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from spans import spans_of
from wire_support import decode_json

from ragpulse_collector.conventions.dedupe import Node, context_spans, silent_spans, subtrees, token_spans, within


def _llm(span_id: str, parent: str | None, start: int, response_id: str | None = None, *, usage: bool = True) -> Node:
    return Node(span_id, parent, start, "llm", response_id, has_usage=usage)


def _retriever(span_id: str, parent: str | None, start: int, *, contexts: bool = True) -> Node:
    return Node(span_id, parent, start, "retriever", has_contexts=contexts)


def test_two_instrumentations_of_one_call_count_once() -> None:
    """Siblings and descendants with the same response id are the same call."""
    assert token_spans([_llm("a", None, 1, "r1"), _llm("b", "a", 2, "r1"), _llm("c", None, 3, "r1")]) == ["a"]


def test_a_wrapper_without_usage_leaves_the_count_to_the_inner_span() -> None:
    """LlamaIndex's predict > chat: only the inner span knows the tokens."""
    assert token_spans([_llm("outer", None, 1, usage=False), _llm("inner", "outer", 2)]) == ["inner"]


def test_a_wrapper_with_usage_counts_instead_of_what_it_wraps() -> None:
    """LiteLLM's litellm_request > raw_gen_ai_request state the same tokens, one without a response id."""
    assert token_spans([_llm("outer", None, 1, "r1"), _llm("raw", "outer", 2)]) == ["outer"]


def test_different_calls_all_count() -> None:
    """Siblings without ids and nested spans with ids of their own are calls of their own."""
    assert token_spans([_llm("a", "x", 1), _llm("b", "x", 2)]) == ["a", "b"]
    assert token_spans([_llm("a", None, 1, "r1"), _llm("b", "a", 2, "r2")]) == ["a", "b"]


def test_a_call_in_a_repeated_call_is_paid_already() -> None:
    """The second instrumentation of a call wraps another client, too; one with an id of its own is another call."""
    twice = [_llm("a", None, 1, "r1"), _llm("b", None, 2, "r1")]
    assert token_spans([*twice, _llm("inner", "b", 3)]) == ["a"]
    assert token_spans([*twice, _llm("other", "b", 3, "r2")]) == ["a", "other"]


def test_an_agents_sum_never_adds_to_its_calls() -> None:
    """Aggregated usage on an agent counts only where no call below states any."""
    agent = Node("agent", None, 0, "agent", has_usage=True)
    assert token_spans([agent, _llm("a", "agent", 1, "r1"), _llm("b", "agent", 2, "r2")]) == ["a", "b"]
    assert token_spans([agent, _llm("a", "agent", 1, usage=False)]) == ["agent"]


def test_the_outermost_retriever_of_each_branch_counts() -> None:
    """LlamaIndex's retrieve > _retrieve is one retrieval; two retrievals side by side are two, in time order."""
    spans = [_retriever("second", "root", 5), _retriever("first", "root", 1), _retriever("inner", "first", 2)]
    assert context_spans(spans) == ["first", "second"]
    assert context_spans([_retriever("o", None, 1, contexts=False), _retriever("i", "o", 2)]) == ["i"]


def test_a_reranker_replaces_what_was_retrieved_before_it() -> None:
    """Its output is what the model saw; a later retrieval still counts."""
    reranker = Node("rerank", "root", 3, "reranker", has_contexts=True)
    assert context_spans([_retriever("a", "root", 1), _retriever("b", "root", 2), reranker]) == ["rerank"]
    assert context_spans([_retriever("a", "root", 1), reranker, _retriever("c", "root", 4)]) == ["rerank", "c"]


def test_contexts_set_on_the_unit_itself_win() -> None:
    """The unit is the outermost span of all."""
    unit = Node("unit", None, 0, "rag", has_contexts=True)
    assert context_spans([unit, _retriever("a", "unit", 1)]) == ["unit"]


nodes = st.builds(
    Node,
    span_id=st.sampled_from("abcdef"),
    parent_span_id=st.none() | st.sampled_from("abcdefx"),
    start=st.integers(0, 5),
    kind=st.sampled_from(["llm", "retriever", "reranker", "agent", "other"]),
    response_id=st.none() | st.sampled_from(["r1", "r2"]),
    has_usage=st.booleans(),
    has_contexts=st.booleans(),
)


@given(st.lists(nodes, max_size=8))
def test_any_graph_ends_and_names_only_spans_that_have_the_thing(spans: list[Node]) -> None:
    """Cycles, orphans and repeated ids end, and no response id is counted twice."""
    usable = {n.span_id for n in spans if n.has_usage}
    assert set(token_spans(spans)) <= usable
    assert set(context_spans(spans)) <= {n.span_id for n in spans if n.has_contexts}


def _nested(size: int) -> list[Node]:
    """One chain of model calls; most have a response id of their own, so that no walk up ends early."""
    return [
        Node(
            str(at),
            str(at - 1),
            at,
            "llm",
            f"r{at}" if at % 3 else None,
            has_usage=at % 2 == 0,
            has_contexts=at == size - 1,
        )
        for at in range(size)
    ]


def _cpu_s(size: int) -> float:
    spans = _nested(size)
    begun = time.process_time()
    token_spans(spans)
    context_spans(spans)
    silent_spans(spans, {span.span_id for span in spans})
    return time.process_time() - begun


def test_nested_spans_cost_time_in_proportion_to_their_number() -> None:
    """Eight times the spans take about eight times as long; walking up from each would take sixty-four times."""
    small, large = min(_cpu_s(1000) for _ in range(5)), min(_cpu_s(8000) for _ in range(2))
    assert large < 24 * small


def test_a_cycle_counts_its_first_span() -> None:
    """Spans that contain each other are one call and one retrieval."""
    assert token_spans([_llm("a", "c", 1), _llm("b", "a", 2), _llm("c", "b", 3)]) == ["a"]
    assert context_spans([_retriever("a", "b", 1), _retriever("b", "a", 2)]) == ["a"]


def test_silent_spans_neither_contain_nor_lie_in_a_span_that_states_usage() -> None:
    """Wrappers and inner spans of a call that states its usage are not silent."""
    spans = [_llm("outer", None, 1, usage=False), _llm("call", "outer", 2), _llm("inner", "call", 3, usage=False)]
    silent = _llm("silent", "outer", 4, usage=False)
    assert silent_spans([*spans, silent], {"outer", "inner", "silent"}) == ["silent"]


@pytest.mark.parametrize(("nested", "counted"), [(True, ["outer"]), ("true", ["outer"]), (False, ["outer", "inner"])])
def test_a_nested_invocation_is_no_call_of_its_own(nested: Any, counted: list[str]) -> None:
    """`gen_ai.invocation.is_nested`: the call around it reports the same usage under another response id."""
    usage = {"gen_ai.operation.name": "chat", "gen_ai.usage.input_tokens": 5}
    outer = {"attributes": {**usage, "gen_ai.response.id": "r1"}}
    inner = {"attributes": {**usage, "gen_ai.response.id": "r2", "gen_ai.invocation.is_nested": nested}}
    first, second = spans_of(decode_json(outer, {**inner, "spanId": "00000000000000ff"}))
    nodes = [
        Node("outer", None, 1, first.kind, first.response_id, first.input_tokens is not None),
        Node("inner", "outer", 2, second.kind, second.response_id, second.input_tokens is not None),
    ]
    assert token_spans(nodes) == counted


def test_the_spans_below_several_are_found_in_one_walk() -> None:
    """Each id gets its own span and those below it, in time order; an unknown id gets none."""
    spans = [_llm("b", "a", 3), _llm("a", None, 1), _llm("c", "b", 2), _llm("d", None, 4)]
    below = {span_id: [node.span_id for node in nodes] for span_id, nodes in subtrees(["a", "b", "x"], spans).items()}
    assert below == {"a": ["a", "c", "b"], "b": ["c", "b"], "x": []}
    assert [node.span_id for node in within("b", spans)] == ["c", "b"]
