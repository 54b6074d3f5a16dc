"""Replies in every shape that servers send: what is read, what is an error, and what it costs."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from ragpulse_evaluators import Case, HTTPJudge, get_evaluator
from ragpulse_evaluators.errors import JudgeError, JudgeRejected
from ragpulse_evaluators.judges.replies import end_of
from ragpulse_evaluators.judges.wrappers import Budget, BudgetedJudge

ASK = [{"role": "user", "content": "hello"}]
CASE = Case(query="q", response="r", contexts=["c"])
USAGE = {"prompt_tokens": 11, "completion_tokens": 3, "total_tokens": 14}
VERDICT = '{"reason": "r", "verdict": "YES"}'


@pytest.fixture
async def judge_at() -> AsyncIterator[Callable[[str], HTTPJudge]]:
    """Makes the judge of an address; it is closed with the test."""
    made: list[HTTPJudge] = []

    def make(base: str) -> HTTPJudge:
        made.append(HTTPJudge(base, "m"))
        return made[-1]

    yield make
    for judge in made:
        await judge.aclose()


def reply(message: Any, reason: str | None = "stop", usage: Any = USAGE, **fields: Any) -> dict[str, Any]:
    """A chat completion with one choice."""
    return {
        "model": "m",
        "choices": [{"index": 0, "message": message, "finish_reason": reason}],
        "usage": usage,
    } | fields


ENDS = {
    "length": ["length", "max_tokens", "MAX_TOKENS", "model_length", "max_output_tokens", "FinishReason.MAX_TOKENS",
               "REASON_MAX_LEN", "REASON_MAX_CONTEXT", "max_new_tokens", "model_context_window_exceeded", "ERROR_LIMIT",
               "token_limit", "incomplete"],
    "cut": ["REASON_TIME_LIMIT", "time_limit", "TIMEOUT", "not_finished", "cancelled", "USER_CANCEL", "pause_turn",
            "repetition_truncation"],
    "content_filter": ["SAFETY", "RECITATION", "content_filter", "content_filter: hate", "content_filtered",
                       "BLOCKLIST", "PROHIBITED_CONTENT", "SPII", "guardrail_intervened", "sensitive", "IMAGE_SAFETY",
                       "ERROR_TOXIC", "IMAGE_RECITATION"],
    "refusal": ["refusal"],
    "error": ["error", "network_error", "insufficient_system_resource", "MALFORMED_FUNCTION_CALL"],
    "stop": ["stop", "end_turn", "eos", "STOP", "stop_sequence", "COMPLETE", "tool_calls", "", None,
             "REASON_STOP", "completed", "end_of_sequence", "eos_token"],
}  # fmt: skip


@pytest.mark.parametrize(("end", "spelling"), [(end, one) for end, spellings in ENDS.items() for one in spellings])
def test_reasons_of_the_end_in_every_spelling(end: str, spelling: str | None) -> None:
    """One table for all providers."""
    assert end_of(spelling) == end


@pytest.mark.parametrize("spelling", [one for end in ("length", "cut", "content_filter") for one in ENDS[end][:2]])
@pytest.mark.parametrize("evaluator", ["faithfulness", "geval"])
async def test_a_cut_or_blocked_reply_is_never_a_verdict(
    chat_server: Any, judge_at: Any, spelling: str, evaluator: str
) -> None:
    """A cut "1" scored 1.0. It is final: no second question, and the reply costs what was counted."""
    server = await chat_server(lambda body: reply({"content": "1" if evaluator == "geval" else VERDICT}, spelling))
    options = {"dimension": "fluency", "n": 1} if evaluator == "geval" else {}
    result = await get_evaluator(evaluator, judge=judge_at(server.base), **options)(CASE)
    assert (result.status, result.score, len(server.bodies)) == ("invalid", None, 1)
    assert sum(call.output_tokens or 0 for call in result.calls) == 3


def tool(arguments: Any) -> dict[str, Any]:
    """A message whose answer is the argument of a call."""
    return {"content": None, "tool_calls": [{"type": "function", "function": {"name": "f", "arguments": arguments}}]}


SHAPES: dict[str, dict[str, Any]] = {
    "text": {"content": VERDICT},
    "a part": {"content": [{"type": "text", "text": VERDICT}]},
    "parts of output": {"content": [{"type": "output_text", "text": VERDICT}]},
    "an untyped part": {"content": [{"text": VERDICT}]},
    "strings": {"content": [VERDICT[:9], VERDICT[9:]]},
    "null among parts": {"content": [None, {"type": "text", "text": VERDICT}]},
    "a text with a value": {"content": [{"type": "text", "text": {"value": VERDICT}}]},
    "an object with a text": {"content": {"type": "text", "text": VERDICT}},
    "the verdict as an object": {"content": json.loads(VERDICT)},
    "thinking beside it": {"content": [{"type": "thinking", "thinking": "NO"}, {"type": "text", "text": VERDICT}]},
    "reasoning that ends": {"content": None, "reasoning_content": f"NO? <think>...</think>{VERDICT}"},
    "reasoning with a final answer": {"content": "", "reasoning": f"It may be NO.\nFinal answer: {VERDICT}"},
    "all of it as reasoning": {"content": None, "reasoning_content": VERDICT},
    "arguments of a tool": tool(VERDICT),
    "arguments as an object": tool(json.loads(VERDICT)),
    "a function": {"content": None, "function_call": {"name": "f", "arguments": VERDICT}},
}


@pytest.mark.parametrize("shape", SHAPES)
async def test_the_answer_is_found_in_every_shape(chat_server: Any, judge_at: Any, shape: str) -> None:
    """Content as text, parts or object; else the final answer of the reasoning, or the arguments of a call."""
    server = await chat_server(lambda body: reply(SHAPES[shape]))
    result = await get_evaluator("faithfulness", judge=judge_at(server.base))(CASE)
    assert (result.status, result.score, len(server.bodies)) == ("ok", 1.0, 1)


@pytest.mark.parametrize(
    ("message", "named"),
    [
        ({"content": "", "reasoning_content": "It may be YES, let me see"}, "reasoning_content"),
        ({"content": None, "reasoning": 'a draft {"verdict": "YES"} of it'}, "reasoning"),
        ({"content": None, "audio": {"data": "x"}}, "audio"),
        ({"content": [{"type": "thinking", "thinking": "YES"}]}, "content"),
        ({"content": ""}, "empty"),
    ],
)
async def test_an_empty_reply_names_the_field_that_was_filled(
    chat_server: Any, judge_at: Any, message: Any, named: str
) -> None:
    """No draft is read as the answer, and asking again would bring the same."""
    server = await chat_server(lambda body: reply(message))
    result = await get_evaluator("faithfulness", judge=judge_at(server.base))(CASE)
    assert (result.status, len(server.bodies)) == ("invalid", 1)
    assert named in (result.explanation or "")


def frames(*chunks: Any, end: str = "data: [DONE]\n\n") -> str:
    """An event stream."""
    return "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in chunks) + end


def chunk(delta: Any, **choice: Any) -> dict[str, Any]:
    """A chunk of a streamed completion."""
    return {"model": "m", "choices": [{"index": 0, "delta": delta, **choice}]}


STREAM = (chunk({"role": "assistant", "content": VERDICT[:9]}), chunk({"content": VERDICT[9:]}),
          chunk({}, finish_reason="stop"), {"choices": [], "usage": USAGE})  # fmt: skip
TOOL_STREAM = (
    chunk({"role": "assistant", "tool_calls": [{"index": 0, "id": "1", "function": {"name": "f", "arguments": ""}}]}),
    *(chunk({"tool_calls": [{"index": 0, "function": {"arguments": part}}]}) for part in (VERDICT[:9], VERDICT[9:])),
    *STREAM[2:],
)


@pytest.mark.parametrize(
    "body",
    [
        frames(*STREAM),
        frames(*STREAM, end=""),
        ": ping\n\nevent: message\n" + frames(*STREAM),
        "\n".join(map(json.dumps, STREAM)),
        "\ufeff" + json.dumps(reply({"content": VERDICT})),
        frames(reply({"content": VERDICT})),
        frames(*TOOL_STREAM),
    ],
)
async def test_a_stream_is_joined_and_a_mark_in_front_is_no_harm(chat_server: Any, judge_at: Any, body: str) -> None:
    """Some gateways stream whether they were asked to or not."""
    server = await chat_server(lambda _: (200, body))
    [call] = await judge_at(server.base).ask(ASK)
    assert (call.completion, call.output_tokens, call.finish_reason) == (VERDICT, 3, "stop")


CUT_STREAMS = {
    "no end": frames(STREAM[0], STREAM[1], end=""),
    "half of it": frames(STREAM[0], end=""),
    "an error chunk": frames(STREAM[0], STREAM[1], {"error": {"message": "Provider disconnected", "code": 502}}),
    "an error beside the end": frames(*STREAM[:2], {"error": {"message": "Provider disconnected"}}, end=""),
    "a line of it": json.dumps(STREAM[0]) + "\n" + json.dumps(STREAM[1]),
    "another word for the limit": json.dumps(reply({"content": VERDICT}, "REASON_MAX_LEN")),
    "an object as the reason": json.dumps(reply({"content": VERDICT}, {"type": "length", "length": 5})),
}


@pytest.mark.parametrize("kind", CUT_STREAMS)
async def test_a_reply_that_was_cut_on_its_way_is_no_verdict(chat_server: Any, judge_at: Any, kind: str) -> None:
    """A whole verdict may stand in it: what was to come is not known. The reason is told, and nothing asked again."""
    server = await chat_server(lambda _: (200, CUT_STREAMS[kind]))
    result = await get_evaluator("faithfulness", judge=judge_at(server.base))(CASE)
    assert (result.status, result.score, len(server.bodies)) == ("invalid", None, 1)
    assert "cut off" in (result.explanation or "")
    assert ("Provider disconnected" in (result.explanation or "")) == ("error" in kind)


@pytest.mark.parametrize("mark", ["\u2028", "\u2029", "\x85"])
async def test_a_stream_is_split_at_line_feeds_only(chat_server: Any, judge_at: Any, mark: str) -> None:
    """JSON may hold other separators of lines as they are."""
    one = json.dumps(chunk({"content": f"YES{mark}because"}), ensure_ascii=False)
    server = await chat_server(lambda _: (200, f"data: {one}\r\n\r\ndata: [DONE]\r\n\r\n"))
    [call] = await judge_at(server.base).ask(ASK)
    assert call.completion == f"YES{mark}because"


NO_COMPLETION = {
    "a page": ("<html><title>Sign in</title></html>", "<html>"),
    "nothing": ("", "no chat completion"),
    "a list": ("[1]", "no chat completion"),
    "another protocol": ('{"message": {"content": "YES"}, "done": true}', "message, done"),
    "lines of it": ('{"message": {"content": "YES"}}\n{"done": true}', "message, done"),
    "a stream of texts": (frames({"choices": ["YES"]}, {"choices": "NO"}), "without choices"),
    "a stream that changes its mind": (
        frames({"choices": {"a": 1}}, {"choices": []}, {"choices": {}}),
        "without choices",
    ),
    "no choices": ('{"choices": [], "usage": {"prompt_tokens": 11, "completion_tokens": 0}}', "without choices"),
    "null": ('{"choices": null, "usage": {"prompt_tokens": 11, "completion_tokens": 0}}', "without choices"),
    "no message": ('{"choices": [{"index": 0}], "usage": {"prompt_tokens": 11}}', "without a message"),
}


@pytest.mark.parametrize("kind", NO_COMPLETION)
async def test_what_is_no_completion_is_one_clear_error(chat_server: Any, judge_at: Any, kind: str) -> None:
    """Five attempts at the full price brought five times the same."""
    body, named = NO_COMPLETION[kind]
    server = await chat_server(lambda _: (200, body))
    judge = judge_at(server.base)
    with pytest.raises(JudgeRejected, match="m at 127") as failed:
        await judge.ask(ASK)
    assert named in str(failed.value)
    assert "application/json" in str(failed.value) or "{" in body
    counted = sum(call.input_tokens or 0 for call in failed.value.calls)
    assert failed.value.maybe_billed or counted == (11 if "11" in body else 0)


BLOCKED = {
    "DashScope": (400, '{"error": {"code": "data_inspection_failed", "message": "Input data may contain..."}}'),
    "OpenAI": (400, '{"error": {"code": "invalid_prompt", "message": "Invalid prompt: your prompt was flagged"}}'),
    "Azure": (400, '{"error": {"code": "content_filter", "innererror": {"code": "ResponsibleAIPolicyViolation"}}}'),
    "OpenRouter": (200, '{"error": {"code": 403, "message": "Your chosen model requires moderation"}}'),
    "Gemini": (200, '{"choices": null, "promptFeedback": {"blockReason": "SAFETY"}}'),
    "DeepSeek": (400, '{"error": {"message": "Content Exists Risk", "type": "invalid_request_error"}}'),
    "Zhipu": (400, '{"error": {"code": "1301", "message": "系统检测到输入或生成内容可能包含不安全或敏感内容"}}'),
    "Zhipu's number alone": (400, '{"error": {"code": 1301, "message": "unsafe"}}'),
    "Volcengine": (
        400,
        '{"error": {"code": "InputTextSensitiveContentDetected", "message": "The request failed because'
        ' the input text may contain sensitive information.", "type": "BadRequest"}}',
    ),
    "Anthropic": (400, '{"type": "error", "error": {"message": "Output blocked by content filtering policy"}}'),
    "Groq": (400, '{"error": {"message": "The request was flagged by the safety system", "code": "content_filter"}}'),
    "xAI": (
        403,
        '{"code": "The caller does not have permission to execute the specified operation", "error": "Content'
        ' violates usage guidelines. Failed check: SAFETY_CHECK_TYPE_BIO"}',
    ),
    "Moonshot": (400, '{"error": {"message": "The request was rejected because it was considered high risk"}}'),
    "StepFun": (451, '{"error": {"message": "The content was blocked", "type": "censorship_blocked"}}'),
    "MiniMax": (500, '{"error": {"message": "input new_sensitive, messages[1] (1026)"}}'),
    "MiniMax, 200": (200, '{"choices": null, "base_resp": {"status_code": 1026, "status_msg": "input new_sensitive"}}'),
    "Groq's guard": (400, '{"error": {"message": "Content blocked by safety guard"}}'),
    "Baidu": (200, '{"error_code": 336104, "error_msg": "user content is not safe"}'),
    "Spark": (200, '{"code": 10013, "message": "输入内容审核不通过，涉嫌违规，请重新调整输入内容"}'),
    "Cloudflare": (400, '{"errors": [{"code": 2016, "message": "Prompt blocked due to security configurations"}]}'),
    "Yi": (400, '{"error": {"message": "The input contains illegal content"}}'),
    "watsonx": (403, '{"errors": [{"code": "policy_violation", "message": "Request violates HAP policy"}]}'),
    "One API": (500, '{"error": {"message": "user sensitive words detected", "code": "sensitive_words_detected"}}'),
    "a gateway": (200, json.dumps(reply({"content": ""}, "content_filter", usage=None))),
}


@pytest.mark.parametrize("provider", BLOCKED)
async def test_a_blocked_question_is_final_at_the_first_answer_and_free(
    chat_server: Any, judge_at: Any, provider: str
) -> None:
    """Two blocked questions were booked at $0.42."""
    server, budget = await chat_server(lambda _: BLOCKED[provider]), Budget(1.0)
    judge = BudgetedJudge(judge_at(server.base), budget, (1e-6, 1e-5))
    result = await get_evaluator("faithfulness", judge=judge)(CASE)
    assert (result.status, len(server.bodies), budget.spent_usd) == ("invalid", 1, 0.0)
    assert "content filter" in (result.explanation or "")
    assert f"status {BLOCKED[provider][0]}" in (result.explanation or "") or BLOCKED[provider][0] == 200


@pytest.mark.parametrize("body", [reply({"content": "x"}, "error"), {"choices": [
    {"message": {"content": ""}, "error": {"code": 502, "message": "upstream"}}], "usage": USAGE}])  # fmt: skip
async def test_an_error_of_the_provider_behind_is_tried_again_and_costs_what_was_counted(
    chat_server: Any, judge_at: Any, body: Any
) -> None:
    """OpenRouter ends a reply with `error` where the provider behind it fails."""
    server, budget = await chat_server(lambda _: body), Budget(1.0)
    with pytest.raises(JudgeError) as failed:
        await BudgetedJudge(judge_at(server.base), budget, (1e-6, 1e-5)).ask(ASK)
    assert (failed.value.retriable, budget.spent_usd) == (True, pytest.approx(11e-6 + 3e-5))


USAGES: list[tuple[Any, tuple[int, int], bool]] = [
    (USAGE, (11, 3), False),
    (None, (2, 9), True),
    ({}, (2, 9), True),
    ("n/a", (2, 9), True),
    ({"prompt_tokens": 0, "completion_tokens": 0}, (2, 9), True),
    ({"prompt_tokens": 11, "completion_tokens": 0}, (11, 9), True),
    ({"prompt_tokens": 11, "completion_tokens": None, "completion_tokens_details": None}, (11, 9), True),
    ({"prompt_tokens": 11, "completion_tokens": 3, "total_tokens": 314}, (11, 303), False),
    (
        {"prompt_tokens": 11, "completion_tokens": 3, "completion_tokens_details": {"reasoning_tokens": 300}},
        (11, 303),
        False,
    ),
    (
        {"prompt_tokens": 11, "completion_tokens": 303, "completion_tokens_details": {"reasoning_tokens": 300}},
        (11, 303),
        False,
    ),
    ({"input_tokens": 11, "output_tokens": 3}, (11, 3), False),
    ({"prompt_tokens": -5, "completion_tokens": -3, "total_tokens": -8}, (2, 9), True),
    ({"prompt_tokens": float("inf"), "completion_tokens": float("nan")}, (2, 9), True),
    ({"prompt_tokens": 10**30, "completion_tokens": 3}, (2, 3), True),
]


@pytest.mark.parametrize(("usage", "counts", "estimated"), USAGES)
async def test_usage_that_cannot_be_true_is_not_believed(
    chat_server: Any, judge_at: Any, usage: Any, counts: tuple[int, int], estimated: bool
) -> None:
    """Zero or no tokens beside a text are estimated and marked; reasoning that a total shows is counted."""
    server = await chat_server(lambda _: reply({"content": VERDICT}, usage=usage))
    [call] = await judge_at(server.base).ask(ASK)
    assert ((call.input_tokens, call.output_tokens), call.estimated) == (counts, estimated)


DEEP = {
    "objects": {"content": '{"a": ' * 1000 + "1" + "}" * 1000},
    "a hundred thousand": {"content": '{"a": ' * 100_000},
    "lists": {"content": '{"reason": ' + "[" * 1000 + "]" * 1000 + ', "verdict": "YES"}'},
    "not strict": {"content": "{'a': " * 1000 + "1" + "}" * 1000},
    "a verdict within": {"content": '{"result": ' * 400 + '{"verdict": "YES"}' + "}" * 400},
    "parts of the content": {"content": json.loads('{"parts": ' * 400 + VERDICT + "}" * 400)},
}


@pytest.mark.parametrize("shape", DEEP)
@pytest.mark.parametrize("streamed", [False, True])
async def test_what_is_nested_deeper_than_any_verdict_is_no_reply(
    chat_server: Any, judge_at: Any, shape: str, streamed: bool
) -> None:
    """Known before anything is parsed: it took 24 seconds of CPU time. Not asked again, and not free."""
    body = frames(chunk(DEEP[shape], finish_reason="stop")) if streamed else json.dumps(reply(DEEP[shape]))
    server, budget = await chat_server(lambda _: (200, body)), Budget(1.0)
    judge = BudgetedJudge(judge_at(server.base), budget, (1e-6, 1e-5))
    started = time.process_time()
    result = await get_evaluator("faithfulness", judge=judge)(CASE)
    assert time.process_time() - started < 10
    assert (result.status, len(server.bodies)) == ("invalid", 1)
    assert "nested" in (result.explanation or "")
    assert budget.spent_usd > 0


BRACKETS = {"reason": "The answer prints " + "[{(" * 100 + ', and "]" once.', "verdict": "NO"}


async def test_brackets_within_a_string_are_text(chat_server: Any, judge_at: Any) -> None:
    """A quoted text nests nothing."""
    server = await chat_server(lambda _: reply({"content": json.dumps(BRACKETS)}))
    assert (await get_evaluator("faithfulness", judge=judge_at(server.base))(CASE)).score == 0.0


LONG = Case(query="q", response="r", contexts=["The tower is 330 m tall. " * 1600])
READ: list[tuple[Case, dict[str, Any], bool]] = [
    (LONG, {"prompt_tokens": 2050}, True),
    (LONG, {"prompt_tokens": 4096, "prompt_tokens_details": {"cached_tokens": 1}}, True),
    (LONG, {"prompt_tokens": 9100}, False),
    (LONG, {"prompt_tokens": 8800}, False),  # another tokenizer
    (LONG, {"prompt_tokens": 50, "cache_read_input_tokens": 9000}, False),
    (LONG, {"prompt_tokens": 11}, False),  # no window is so small: a wrong count
    (Case(query="q", response="r", contexts=["塔高三百三十米。" * 1300]), {"prompt_tokens": 2050}, True),
    (Case(query="q", response="r", contexts=["塔高三百三十米。" * 1300]), {"prompt_tokens": 6200}, False),
    (Case(query="q", response="r", contexts=["-" * 40_000]), {"prompt_tokens": 900}, False),
]


@pytest.mark.parametrize(("case", "usage", "short"), READ)
async def test_a_judge_that_read_a_part_of_the_question_has_no_verdict(
    chat_server: Any, judge_at: Any, case: Case, usage: dict[str, Any], short: bool
) -> None:
    """Ollama cuts what exceeds its window without a word: only the usage shows it. Signs that repeat are few tokens."""
    server = await chat_server(lambda _: reply({"content": VERDICT}, usage={"completion_tokens": 9} | usage))
    result = await get_evaluator("faithfulness", judge=judge_at(server.base))(case)
    assert (result.status, len(server.bodies)) == ("invalid" if short else "ok", 1)
    assert ("OLLAMA_CONTEXT_LENGTH" in (result.explanation or "")) == short
