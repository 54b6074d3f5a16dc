"""One rule of usage on all sides: the same counts through a judge's reply, the SDK and the collector's mapping."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import pytest
from spans import Span, spans_of
from wire_support import decode_json

from ragpulse import attributes as names
from ragpulse._reading.usage import usage_facts
from ragpulse_collector.store.ingest.prices import Prices
from ragpulse_evaluators.judges.replies import read_usage


class Row(NamedTuple):
    """Counts as a sender states them, and what they mean."""

    input: int | None
    output: int | None
    expected: tuple[int, int] | None
    """Input and output as they are priced; None where they contradict each other."""
    total: int | None = None
    cached: int | None = None
    reasoning: int | None = None


ROWS = {
    "plain": Row(100, 20, (100, 20)),
    "with its total": Row(100, 20, (100, 20), total=120),
    "a total of zero is none": Row(100, 20, (100, 20), total=0),
    "cached within input": Row(100, 20, (100, 20), total=120, cached=80),
    "reasoning within output": Row(100, 320, (100, 320), total=420, reasoning=300),
    "Grok: reasoning beside output, in the total": Row(100, 20, (100, 320), total=420, reasoning=300),
    "Grok: less reasoning than output": Row(100, 20, (100, 30), total=130, reasoning=10),
    "Gemini: reasoning in the total only": Row(100, 20, (100, 320), total=420),
    "reasoning exceeds output, no total": Row(100, 20, (100, 320), reasoning=300),
    "Langfuse: cached beside input": Row(100, 20, (7_400, 20), total=7_420, cached=7_300),
    "a small cache beside input": Row(100, 20, (150, 20), total=170, cached=50),
    "both beside": Row(100, 20, (7_400, 320), total=7_720, cached=7_300, reasoning=300),
    "more cached than input": Row(100, 20, None, cached=7_300),
    "more cached than input, and the total says no": Row(100, 20, None, total=120, cached=7_300),
    "a total below its parts": Row(100, 20, None, total=60),
}


def usage(row: Row) -> dict[str, Any]:
    """The counts as OpenAI's interface names them."""
    stated = {"prompt_tokens": row.input, "completion_tokens": row.output, "total_tokens": row.total}
    details: dict[str, Any] = {}
    if row.cached is not None:
        details["prompt_tokens_details"] = {"cached_tokens": row.cached}
    if row.reasoning is not None:
        details["completion_tokens_details"] = {"reasoning_tokens": row.reasoning}
    return {key: value for key, value in stated.items() if value is not None} | details


def mapped(attributes: dict[str, Any]) -> Span:
    """A model call with these attributes, priced."""
    call = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "gpt-4o-mini", names.OUTPUT_VALUE: "An answer."}
    batch = decode_json({"attributes": call | attributes})
    for spans in batch.spans:
        Prices().settle(spans)
    (span,) = spans_of(batch)
    return span


def dollars(counts: tuple[int, int]) -> float:
    """gpt-4o-mini without its price of cached input."""
    return counts[0] * 0.15e-6 + counts[1] * 0.6e-6


@pytest.mark.parametrize("title", ROWS)
def test_a_judge_counts_by_the_rule(title: str) -> None:
    """What a judge's provider counted; unknown where it contradicts itself. A total below its parts is ignored."""
    row = ROWS[title]
    found = read_usage({"usage": usage(row), "cost_usd": None}, "prompt", ["YES"])
    expected = row.expected or ((None, None) if row.cached else (row.input, row.output))
    assert (found["input_tokens"], found["output_tokens"]) == expected


@pytest.mark.parametrize("title", ROWS)
def test_the_sdk_counts_by_the_rule(title: str) -> None:
    """What it sends is priced by the collector; a contradiction arrives there as one."""
    row, facts = ROWS[title], usage_facts(usage(ROWS[title]))
    span = mapped(facts)
    if row.expected is None:
        assert span.cost_usd is None
        assert "tokens" in (span.cost_unknown_reason or "")
    else:
        assert (facts[names.INPUT_TOKENS], facts[names.OUTPUT_TOKENS]) == row.expected
        assert (span.input_tokens, span.output_tokens) == row.expected


SPELLINGS: dict[str, dict[str, str]] = {
    "genai": {
        "input": "gen_ai.usage.input_tokens", "output": "gen_ai.usage.output_tokens",
        "total": "gen_ai.usage.total_tokens", "cached": "gen_ai.usage.cache_read.input_tokens",
        "reasoning": "gen_ai.usage.reasoning.output_tokens",
    },
    "openinference": {
        "input": "llm.token_count.prompt", "output": "llm.token_count.completion", "total": "llm.token_count.total",
        "cached": "llm.token_count.prompt_details.cache_read",
        "reasoning": "llm.token_count.completion_details.reasoning",
    },
    "traceloop": {
        "input": "gen_ai.usage.prompt_tokens", "output": "gen_ai.usage.completion_tokens",
        "total": "llm.usage.total_tokens", "cached": "gen_ai.usage.cache_read_input_tokens",
        "reasoning": "gen_ai.usage.reasoning_tokens",
    },
}  # fmt: skip
LANGFUSE = {"input": "input", "output": "output", "total": "total", "cached": "input_cached_tokens",
            "reasoning": "output_reasoning_tokens"}  # fmt: skip


@pytest.mark.parametrize("dialect", [*SPELLINGS, "langfuse"])
@pytest.mark.parametrize("title", ROWS)
def test_the_mapping_counts_by_the_rule(title: str, dialect: str) -> None:
    """Under every dialect's names; the cost of a contradiction is unknown with its reason, never a figure."""
    row = ROWS[title]
    stated = {name: getattr(row, name) for name in LANGFUSE if getattr(row, name) is not None}
    if dialect == "langfuse":
        details = json.dumps({LANGFUSE[name]: value for name, value in stated.items()})
        span = mapped({"langfuse.observation.type": "generation", "langfuse.observation.usage_details": details})
    else:
        span = mapped({SPELLINGS[dialect][name]: value for name, value in stated.items()})
    if row.expected is None:
        assert (span.cost_usd, "tokens" in (span.cost_unknown_reason or "")) == (None, True)
    else:
        assert (span.input_tokens, span.output_tokens) == row.expected
        if not row.cached:
            assert span.cost_usd == pytest.approx(dollars(row.expected))


def test_anthropics_own_usage_counts_its_cache_apart() -> None:
    """In Langfuse's details and in a reply; both name no total."""
    usage = {"input_tokens": 10, "output_tokens": 20, "cache_read_input_tokens": 500, "cache_creation_input_tokens": 80}
    details = {"langfuse.observation.type": "generation", "langfuse.observation.usage_details": json.dumps(usage)}
    span, facts = mapped(details), usage_facts(usage)
    assert (span.input_tokens, span.cached_tokens, span.cache_write_tokens) == (590, 500, 80)
    assert (facts[names.INPUT_TOKENS], facts[names.CACHE_READ_TOKENS]) == (590, 500)


BEDROCK = {"inputTokens": 10, "outputTokens": 20, "cacheReadInputTokens": 500}
GEMINI = {"prompt_token_count": 100, "candidates_token_count": 20, "thoughts_token_count": 10}


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        (BEDROCK, (510, 20)),
        (BEDROCK | {"totalTokens": 530}, (510, 20)),
        (BEDROCK | {"totalTokens": 30}, (510, 20)),
        (GEMINI, (100, 30)),
        (GEMINI | {"total_token_count": 130}, (100, 30)),
        (GEMINI | {"total_token_count": 137, "tool_use_prompt_token_count": 7}, (100, 30)),
    ],
)
def test_providers_with_names_of_their_own(usage: dict[str, Any], expected: tuple[int, int]) -> None:
    """Their names say what is apart, with or without a total."""
    facts = usage_facts(usage)
    assert (facts[names.INPUT_TOKENS], facts[names.OUTPUT_TOKENS]) == expected
    assert names.TOTAL_TOKENS not in facts


AUDIO: list[dict[str, Any]] = [
    {"llm.token_count.prompt_details.audio": 7},
    {"llm.token_count.completion_details.audio": 7},
    {"gen_ai.usage.details.input_audio_tokens": 7},
    {"gen_ai.usage.audio.output_tokens": 7},
    {"langfuse.observation.usage_details": '{"input": 100, "output": 20, "input_audio_tokens": 7}'},
]


@pytest.mark.parametrize("attributes", AUDIO)
def test_audio_tokens_have_no_price_here(attributes: dict[str, Any]) -> None:
    """They cost far more than texts; as texts their price was too low."""
    span = mapped({"gen_ai.usage.input_tokens": 100, "gen_ai.usage.output_tokens": 20} | attributes)
    assert (span.cost_usd, span.cost_unknown_reason) == (None, "7 audio tokens have no price of their own")


@pytest.mark.parametrize(
    ("usage", "reason"),
    [
        (GEMINI | {"tool_use_prompt_token_count": 7}, "7 tool-use tokens have no price of their own"),
        (
            {"prompt_tokens": 9, "completion_tokens": 9, "prompt_tokens_details": {"audio_tokens": 7}},
            "7 audio tokens have no price of their own",
        ),
        ({"prompt_tokens": 9, "completion_tokens": 9, "prompt_tokens_details": {"audio_tokens": 0}}, None),
    ],
)
def test_the_sdk_says_which_tokens_have_no_price(usage: dict[str, Any], reason: str | None) -> None:
    """Zero of them is none."""
    assert mapped(usage_facts(usage)).cost_unknown_reason == reason


@pytest.mark.parametrize(
    ("stated", "counts"),
    [({"input": 100, "output": 0}, (100, 3)), ({"input": 100}, (100, 3)), ({"input": 0, "output": 20}, (2, 20))],
)
def test_no_tokens_beside_a_text_are_estimated_and_marked(stated: dict[str, int], counts: tuple[int, int]) -> None:
    """Zero or missing usage made a reply free; the source of the cost and a flag of the span say that it is a guess."""
    span = mapped({SPELLINGS["genai"][name]: value for name, value in stated.items()} | {names.INPUT_VALUE: "Why so?"})
    assert (span.input_tokens, span.output_tokens) == counts
    assert "usage_estimated" in json.loads(span.mapped_from)["flags"]
    assert (span.cost_source or "").endswith("tokens estimated")
    assert mapped({}).cost_unknown_reason == "no input tokens"


def test_no_input_tokens_and_no_question_leave_the_cost_unknown() -> None:
    """There is no text to estimate from."""
    span = mapped({"gen_ai.usage.input_tokens": 0, "gen_ai.usage.output_tokens": 20})
    assert (span.cost_usd, span.cost_unknown_reason) == (None, "no input tokens")
