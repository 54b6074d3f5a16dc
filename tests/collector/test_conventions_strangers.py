"""What strangers' applications send, as the semantic conventions do not name it: one table of samples for each kind."""

from __future__ import annotations

import json
from typing import Any

import pytest
from spans import Span, remapped, spans_of
from wire_support import decode_json

QUESTION = "How long does a refund take?"
ANSWER = "Refunds take five working days."
CALL = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "gpt-4.1"}
USED = CALL | {"gen_ai.usage.input_tokens": 1000, "gen_ai.usage.output_tokens": 100}


def mapped(attributes: dict[str, Any]) -> Span:
    """The span with these attributes; it is the same when its columns are derived again."""
    (span,) = spans_of(decode_json({"attributes": attributes}))
    assert remapped(span) == span
    return span


def holds(span: Span, expected: dict[str, Any]) -> None:
    """Compare the columns that are named."""
    assert {name: getattr(span, name) for name in expected} == expected


LANGCHAIN = {
    "input_tokens": 1000, "output_tokens": 100, "total_tokens": 1100,
    "input_token_details": {"cache_read": 800, "cache_creation": 50}, "output_token_details": {"reasoning": 60},
}  # fmt: skip
GEMINI = {
    "promptTokenCount": 1000, "candidatesTokenCount": 40, "thoughtsTokenCount": 60, "totalTokenCount": 1100,
    "cachedContentTokenCount": 800, "cacheTokensDetails": [{"modality": "AUDIO", "tokenCount": 20}],
    "promptTokensDetails": [{"modality": "TEXT", "tokenCount": 1000}],
}  # fmt: skip
OBJECT = {"langfuse.observation.type": "generation"}
OBJECT_OF = "langfuse.observation.usage_details"
CACHED, THOUGHT, WRITTEN = {"cached_tokens": 800}, {"reasoning_tokens": 60}, {"cache_write_tokens": 50}
COUNTS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    **{
        name: (USED | {name: 800}, CACHED | {"input_tokens": 1000})
        for name in (
            "gen_ai.usage.input_cached_tokens", "gen_ai.usage.cached_tokens", "gen_ai.usage.cached_input_tokens",
            "gen_ai.usage.input_tokens.cached", "gen_ai.usage.prompt_tokens_details.cache_read",
            "gen_ai.usage.prompt_tokens_details.cached_tokens", "gen_ai.usage.cache_read_input_tokens",
            "gen_ai.usage.cache_read_tokens", "gen_ai.usage.details.cached_content_tokens", "llm.usage.cached_tokens",
            "llm.usage.cache_read_input_tokens", "llm.token_count.prompt_details.cache_input",
            "ai.usage.cachedInputTokens", "ai.usage.inputTokenDetails.cacheReadTokens",
            "gen_ai.usage.prompt_cache_hit_tokens", "gen_ai.usage.input_token_details.priority_cache_read",
        )
    },
    **{
        name: (USED | {name: 60}, THOUGHT | {"output_tokens": 100})
        for name in (
            "gen_ai.usage.reasoning_tokens", "gen_ai.usage.output_tokens.reasoning", "gen_ai.usage.thoughts_tokens",
            "gen_ai.usage.completion_tokens_details.reasoning", "gen_ai.usage.output_reasoning_tokens",
            "gen_ai.usage.completion_tokens_details.reasoning_tokens", "ai.usage.outputTokenDetails.reasoningTokens",
        )
    },
    **{
        name: (USED | {name: 50}, WRITTEN)
        for name in (
            "gen_ai.usage.input_tokens.cache_write", "gen_ai.usage.cache_creation_input_tokens",
            "gen_ai.usage.cache_creation.input_tokens", "gen_ai.usage.prompt_tokens_details.cache_write",
            "ai.usage.inputTokenDetails.cacheWriteTokens", "gen_ai.usage.cache_creation.ephemeral_5m_input_tokens",
        )
    },
    **{
        name: (USED | {name: 50}, WRITTEN | {"cache_write_1h_tokens": 50, "input_tokens": 1000})
        for name in (
            "gen_ai.usage.cache_write.1h.input_tokens", "gen_ai.usage.details.cache_creation.ephemeral_1h_input_tokens",
            "llm.usage.input_cache_creation_1h", "gen_ai.usage.cache_creation_token_details.ephemeral_1h_input_tokens",
        )
    },
    "a name of the conventions wins": (
        USED | {"gen_ai.usage.cached_tokens": 1, "gen_ai.usage.cache_read.input_tokens": 800}, CACHED,
    ),
    "details as JSON": (USED | {"gen_ai.usage.prompt_tokens_details": '{"cached_tokens": 800}'}, CACHED),
    "details as an object": (USED | {"gen_ai.usage.prompt_tokens_details": {"cached_tokens": 800}}, CACHED),
    "LangSmith's metadata": (
        {"langsmith.span.kind": "llm", "langsmith.metadata.usage_metadata": json.dumps(LANGCHAIN)},
        CACHED | THOUGHT | WRITTEN | {"input_tokens": 1000, "output_tokens": 100},
    ),
    "Gemini's own object": (
        OBJECT | {OBJECT_OF: json.dumps(GEMINI)},
        CACHED | THOUGHT | {"input_tokens": 1000, "output_tokens": 100, "usage_problem": None},
    ),
    "LangChain's cache writes by their time": (
        {"langsmith.span.kind": "llm", "langsmith.metadata.usage_metadata": json.dumps({
            "input_tokens": 1000, "output_tokens": 100, "input_token_details": {
                "cache_creation": 0, "ephemeral_5m_input_tokens": 20, "ephemeral_1h_input_tokens": 30}})},
        WRITTEN | {"cache_write_1h_tokens": 30, "input_tokens": 1000},
    ),
    "an object, not JSON": (OBJECT | {OBJECT_OF: LANGCHAIN}, CACHED | THOUGHT | {"input_tokens": 1000}),
    "counts as texts": (OBJECT | {OBJECT_OF: '{"input": "1000", "input_cached_tokens": "800"}'}, CACHED),
    "what is no count": (
        USED | {"gen_ai.usage.cache_miss_tokens": 1, "gen_ai.usage.max_cached_tokens": 2, "gen_ai.usage.cost": 3.0,
                "gen_ai.usage.cached_audio_tokens": 4, "gen_ai.usage.reasoning_budget_tokens": 5},
        {"input_tokens": 1000, "output_tokens": 100, "reasoning_tokens": None},
    ),
    "hostile counts": (
        USED | {"gen_ai.usage.cached_tokens": "<script>", "gen_ai.usage.reasoning_tokens": -1,
                f"gen_ai.usage.{'cached_' * 200}tokens": 1, "gen_ai.usage.prompt_tokens_details": "[" * 300},
        {"cached_tokens": None, "reasoning_tokens": None},
    ),
    "Sentry's and LiveKit's modalities without a total": (
        CALL | {"gen_ai.usage.input_text_tokens": 10, "gen_ai.usage.input_image_tokens": 5}, {"input_tokens": 15},
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", COUNTS)
def test_a_count_is_known_by_the_words_of_its_name(case: str) -> None:
    """Cached tokens, reasoning and cache writes; a name with a word that says something else is none of them."""
    attributes, expected = COUNTS[case]
    kind = {"ai.operationId": "ai.generateText.doGenerate"} if case.startswith("ai.") else {}
    holds(mapped(attributes | kind), {name: value for name, value in expected.items() if name != "usage_problem"})


AUDIO = {
    "gen_ai.usage.input_audio_tokens": 900, "gen_ai.usage.output_audio_tokens": 90,
    "gen_ai.usage.completion_tokens_details.audio": 7, "gen_ai.usage.prompt_tokens_details.audio_tokens": 7,
    "gen_ai.usage.details.audio_prompt_tokens": 7, "llm.usage.audio_tokens": 7,
    "gen_ai.usage.prompt_tokens_details": '[{"modality": "AUDIO", "token_count": 7}]',
    "gen_ai.usage.input_token_details": '{"text_tokens": 10, "audio_tokens": 104}',
}  # fmt: skip


@pytest.mark.parametrize("name", AUDIO)
def test_audio_tokens_are_never_priced_as_text(name: str) -> None:
    """Under any sender's name: the cost is unknown, with the reason."""
    assert "audio tokens" in str(
        decode_json({"attributes": USED | {name: AUDIO[name]}}).spans[0].value("usage_problem", 0)
    )


@pytest.mark.parametrize(
    ("attributes", "tier"),
    [
        ({"gen_ai.response.service_tier": "flex", "gen_ai.request.service_tier": "auto"}, "flex"),
        ({"openai.response.service_tier": "priority"}, "priority"),
        ({"gen_ai.openai.request.service_tier": "flex"}, "flex"),
        ({"anthropic.response.service_tier": "batch"}, "batch"),
        ({"llm.openai.service_tier": "flex"}, "flex"),
        ({"gen_ai.usage.service_tier": "batch"}, "batch"),
        ({"ai.response.serviceTier": "flex"}, "flex"),
        ({"gen_ai.response.service_tier": 7}, None),
        ({"llm.invocation_parameters": '{"temperature": 0, "service_tier": "flex"}'}, "flex"),
        ({"output.value": '{"service_tier":"priority"}', "llm.invocation_parameters": '{"service_tier":"auto"}'},
         "priority"),
        (
            {"llm.invocation_parameters": '{"service_tier":"flex"}', "openai.response.service_tier": "default"},
            "default",
        ),
        ({"mlflow.spanOutputs": '{"usage": {"input_tokens": 1, "service_tier": "batch"}}'}, "batch"),
        ({"ai.response.providerMetadata": '{"openai":{"serviceTier":"flex"}}'}, "flex"),
        ({"langfuse.observation.model.parameters": {"service_tier": "flex"}}, "flex"),
        ({"output.value": 'The field is "service_tier": "flex".'}, None),
        ({"output.value": '{"answer": "\\"service_tier\\": \\"flex\\""}'}, None),
        ({"output.value": '{"service_tier": "<script>"}'}, None),
    ],
)  # fmt: skip
def test_a_service_tier_is_read_under_any_prefix(attributes: dict[str, Any], tier: str | None) -> None:
    """That of the response before that of the request."""
    assert decode_json({"attributes": CALL | attributes}).spans[0].value("service_tier", 0) == tier


def chain(dialect: str, question: Any, answer: Any) -> dict[str, Any]:
    """A chain's span in a dialect that writes arguments and result as JSON."""
    kind, query, response = {
        "traceloop": ({"traceloop.span.kind": "workflow"}, "traceloop.entity.input", "traceloop.entity.output"),
        "langfuse": (
            {"langfuse.observation.type": "span"}, "langfuse.observation.input", "langfuse.observation.output",
        ),
        "mlflow": ({"mlflow.spanType": '"CHAIN"'}, "mlflow.spanInputs", "mlflow.spanOutputs"),
        "langsmith": ({"langsmith.span.kind": "chain"}, "gen_ai.prompt", "gen_ai.completion"),
        "laminar": ({"lmnr.span.type": "DEFAULT"}, "lmnr.span.input", "lmnr.span.output"),
        "haystack": ({}, "haystack.pipeline.input_data", "haystack.pipeline.output_data"),
        "openinference": (
            {"openinference.span.kind": "CHAIN", "input.mime_type": "application/json",
             "output.mime_type": "application/json"}, "input.value", "output.value",
        ),
        "openinference, no type": ({"openinference.span.kind": "CHAIN"}, "input.value", "output.value"),
        "ragpulse": (
            {"ragpulse.span.kind": "rag", "input.mime_type": "application/json",
             "output.mime_type": "application/json"}, "input.value", "output.value",
        ),
    }[dialect]  # fmt: skip
    return kind | {query: question, response: answer}


DIALECTS = (
    "traceloop", "langfuse", "mlflow", "langsmith", "laminar", "haystack", "openinference", "openinference, no type",
    "ragpulse",
)  # fmt: skip
NOTHING = (
    "null", '{"output": null}', '{"outputs": {}}', '{"result": {"answer": null}}', "[null]", "{}", "[]", '"undefined"',
    '"[object Object]"', '{"output": "[object Object]"}', '{"text": "null"}', '{"choices": []}', '{"messages": []}',
    '"[object Object],[object Object]"', '"nil"', "NULL", '{"output": "<nil>"}', "(null)", "NaN", '"nan"',
    "Optional.empty", "[undefined]", "<null>", '"()"',
)  # fmt: skip
NO_QUESTION = (
    "{}", "[]", "null", '{"args": [], "kwargs": {}}', '{"args": [null], "kwargs": {"self": null}}', '{"input": {}}',
    "[{}]", '{"inputs": [], "config": {}}', '{"query": ""}', '"[object Object]"', '"undefined"', '"{}"', '"()"', "()",
    "{'args': (), 'kwargs': {}}",
)  # fmt: skip


@pytest.mark.parametrize("dialect", DIALECTS)
def test_what_holds_nothing_is_no_answer_and_no_question(dialect: str) -> None:
    """Null with a reason; the span's own text is not its JSON. The calls below are asked then."""
    for answer in NOTHING:
        span = mapped(chain(dialect, '{"question": "Why?"}', answer))
        assert (span.query, span.response) == ("Why?", None), answer
        assert span.response_missing_reason in ("nothing", "no_choice", "unread"), answer
    for question in NO_QUESTION:
        span = mapped(chain(dialect, question, '"Yes."'))
        assert (span.query, span.response) == (None, "Yes."), question


@pytest.mark.parametrize(
    ("kind", "answer", "expected"),
    [
        ("LLM", "[]", "[]"),  # a model that found no entities
        ("LLM", "{}", "{}"),
        ("TOOL", "[]", "[]"),
        ("CHAIN", "None", "None"),
        ("CHAIN", "null and void", "null and void"),
        ("CHAIN", "[object Object] is what the page shows", "[object Object] is what the page shows"),
    ],
)
def test_what_looks_like_nothing_may_be_an_answer(kind: str, answer: str, expected: str) -> None:
    """An empty list of a model or a tool; a text about it."""
    assert mapped({"openinference.span.kind": kind, "output.value": answer}).response == expected


def test_none_stays_in_the_raw_attributes() -> None:
    """A reference to the response would become the answer of the call below, which replaces it."""
    span = mapped({"openinference.span.kind": "CHAIN", "input.value": "None", "output.value": "None"})
    assert json.loads(span.attributes)["output.value"] == json.loads(span.attributes)["input.value"] == "None"


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (["Refunds ", "take ", "five ", "working ", "days."], ANSWER),
        (["Refunds", " take", " five", " working", " days", "."], ANSWER),
        (["Ref", "unds take", " five working days", "."], ANSWER),
        (["退款需要", "五个工作日", "。"], "退款需要五个工作日。"),
        (["Refunds take five days.", "Shipping is free."], "Refunds take five days.\nShipping is free."),
        (["one", "two"], "one\ntwo"),
        ([None, "Refunds take ", "five working days.", None], ANSWER),
        ([{"input": "Why?"}, {"answer": "Refunds take "}, {"answer": "five working days."}], ANSWER),
        (["Line one.\n", "Line two."], "Line one.\nLine two."),
        ([{"object": "chat.completion.chunk", "choices": [{"index": 0, "delta": {"content": text}}]}
          for text in ("Refunds ", "take five ", "working days.")], ANSWER),
        ([{"type": "AIMessageChunk", "content": text} for text in ("Refunds take ", "five working days.")], ANSWER),
        ([{"type": "response.output_text.delta", "delta": text} for text in ("Refunds take ", "five working days.")],
         ANSWER),
    ],
)  # fmt: skip
@pytest.mark.parametrize("dialect", ["mlflow", "langfuse", "traceloop", "openinference"])
def test_chunks_are_joined_as_they_were_written(dialect: str, answer: list[Any], expected: str) -> None:
    """Directly where the pieces carry their own spaces; items of a list are lines."""
    assert mapped(chain(dialect, '{"question": "Why?"}', json.dumps(answer))).response == expected


RESULT = {
    "gen_ai.evaluation.name": "relevance", "gen_ai.evaluation.score.value": 0.5,
    "gen_ai.evaluation.score.label": "half", "gen_ai.evaluation.explanation": "In part.",
}  # fmt: skip
TRACE, SCORED = "ab" * 16, "cd" * 8


@pytest.mark.parametrize(
    ("span", "result", "about"),
    [
        ({"attributes": CALL}, {}, "itself"),
        ({"attributes": CALL}, {"gen_ai.response.id": "r-1"}, "itself"),
        ({"attributes": {"openinference.span.kind": "EVALUATOR"}}, {"gen_ai.response.id": "r-1"}, "r-1"),
        ({"attributes": {}}, {"gen_ai.response.id": "r-1"}, "r-1"),
        ({"links": [{"traceId": TRACE, "spanId": SCORED}]}, {"gen_ai.response.id": "r-1"}, (TRACE, SCORED)),
        ({"attributes": {"openinference.span.kind": "EVALUATOR"}}, {}, "itself"),
        ({"attributes": CALL}, {"gen_ai.evaluation.score.value": "0.5"}, "itself"),
    ],
)
def test_a_result_on_a_span_event_is_a_score(span: dict[str, Any], result: dict[str, Any], about: Any) -> None:
    """As on a log event: about its span, the only link of a carrier, or the response that a carrier names."""
    events = [{"name": "gen_ai.evaluation.result", "attributes": RESULT | result}]
    batch = decode_json(span | {"events": events})
    (score,) = batch.scores
    own = next(batch.spans[0].ids())
    place = (score.trace_id, score.span_id) if score.response_id is None else score.response_id
    assert place == (own if about == "itself" else about)
    assert (score.name, score.score, score.label, score.explanation, score.source, score.written_on) == (
        "relevance", 0.5, "half", "In part.", "code", own,
    )  # fmt: skip


def test_a_person_and_bad_results_on_span_events() -> None:
    """A person is named by ragpulse's own attribute; a result without a name or a number is none or has none."""
    results: list[dict[str, Any]] = [
        RESULT | {"ragpulse.score.source": "human"}, {"gen_ai.evaluation.score.value": 1},
        RESULT | {"gen_ai.evaluation.score.value": "<b>", "gen_ai.evaluation.score.label": ["x"]},
    ]  # fmt: skip
    events = [{"name": "gen_ai.evaluation.result", "attributes": result} for result in results]
    scores = decode_json({"attributes": CALL, "events": events}).scores
    assert [(score.source, score.score, score.label) for score in scores] == [
        ("human", 0.5, "half"), ("code", None, None),
    ]  # fmt: skip


PASSAGE = {"id": "a", "text": ANSWER}
HELD = [(ANSWER,)]
BESIDE: dict[str, tuple[Any, list[tuple[str]] | None]] = {
    **{
        key: ({"answer": "Yes.", key: [PASSAGE]}, HELD)
        for key in ("sources", "references", "documents", "source_documents", "contexts", "citations", "chunks")
    },
    "passages without ids": ({"answer": "Yes.", "contexts": [ANSWER, "Shipping is free."]},
                             [(ANSWER,), ("Shipping is free.",)]),
    "names of files": ({"answer": "Yes.", "sources": ["faq.md", "terms.md"]}, None),
    "addresses": ({"answer": "Yes.", "sources": [{"url": "https://docs.example.com/a", "title": "Refunds"}]}, None),
    "messages": ({"answer": "Yes.", "documents": [{"role": "user", "content": "Hi"}]}, None),
    "an empty list": ({"answer": "Yes.", "sources": []}, None),
}  # fmt: skip


@pytest.mark.parametrize("dialect", [one for one in DIALECTS if one != "haystack"])
@pytest.mark.parametrize("case", BESIDE)
def test_the_sources_beside_the_answer_of_a_root_are_its_contexts(case: str, dialect: str) -> None:
    """Of a root alone: the documents of a span below it are those of the retriever."""
    output, expected = BESIDE[case]
    attributes = chain(dialect, '{"question": "Why?"}', json.dumps(output))
    found = mapped(attributes).contexts
    assert (None if found is None else [(context.text,) for context in found]) == expected
    (below,) = spans_of(decode_json({"attributes": attributes, "parentSpanId": "ab" * 8}))
    if dialect not in ("traceloop", "laminar"):  # what is inside a retriever's task
        assert below.contexts is None
