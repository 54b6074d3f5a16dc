"""What servers answer, played on loopback through both judges: over HTTP and through litellm."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from ragpulse_evaluators import Case, HTTPJudge, Judge, LLMJudge, get_evaluator
from ragpulse_evaluators.errors import ContextTooLong, JudgeError, JudgeRejected
from ragpulse_evaluators.judges.chat import strict_schema
from ragpulse_evaluators.judges.protocol import close_judge
from ragpulse_evaluators.judges.wrappers import Gate, GatedJudge

pytestmark = pytest.mark.filterwarnings("default")  # litellm's own warnings
ASK = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hello"}]
CASE = Case(query="q", response="r", contexts=["c"])
Made = Callable[..., Any]


@pytest.fixture(params=["http", "litellm"])
async def judge_of(request: pytest.FixtureRequest) -> AsyncIterator[Made]:
    """Makes the judge for a server's address; it is closed with the test."""
    made: list[Judge] = []

    def make(base: str, **options: Any) -> Judge:
        http = request.param == "http"
        made.append(HTTPJudge(base, "m", **options) if http else LLMJudge("m", api_base=base, **options))
        return made[-1]

    yield make
    for judge in made:
        await close_judge(judge)


def error(message: str, code: str = "invalid_request_error") -> str:
    """An error's body as OpenAI has it."""
    return json.dumps({"error": {"message": message, "type": code, "code": code}})


LONG = {
    "This model's maximum context length is 8192 tokens.": 8192,
    "prompt is too long: 210000 tokens > 200000 maximum": 200000,
    "The input token count (1189825) exceeds the maximum number of tokens allowed (1048576).": 1048576,
    "This model's maximum prompt length is 131072 but the request contains 200000 tokens.": 131072,
    "Prompt contains 40000 tokens and 0 draft tokens, too large for model with 32768 maximum context length": 32768,
    "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096. Given: 5000": 4096,
    "Your input exceeds the context window of this model. Please adjust your input and try again.": None,
}
"""What servers say of a question that is too long, and the window they name."""


@pytest.mark.parametrize("message", LONG)
async def test_a_question_too_long_is_known_in_every_wording(chat_server: Any, judge_of: Made, message: str) -> None:
    """OpenAI, Anthropic, Gemini, xAI, Mistral and TGI say it differently."""
    server = await chat_server(lambda body: (400, error(message)))
    with pytest.raises(ContextTooLong) as failed:
        await judge_of(server.base).ask(ASK)
    assert failed.value.window == LONG[message]


@pytest.mark.parametrize(
    ("message", "seconds"),
    [
        ("Rate limit reached. Please try again in 7.66s. Visit https://console.groq.com/settings/billing", 7.66),
        ("You exceeded your current quota, please check your plan and billing details. Please retry in 34.07s.", 34.07),
        ("Rate limit reached on tokens per day. Please try again in 1m20s.", 80.0),
        ("Rate limit reached. Please try again in 540ms.", 0.54),
        ("Please retry in 1.2.3s.", None),
        (f"Please try again in {'9' * 400}s.", None),
    ],
)
async def test_a_limit_that_names_a_wait_passes(
    chat_server: Any, judge_of: Made, message: str, seconds: float | None
) -> None:
    """Groq and Gemini speak of billing and quota in limits of a minute: they say how long to wait."""
    server = await chat_server(lambda body: (429, error(message, "rate_limit_exceeded")))
    with pytest.raises(JudgeError) as failed:
        await judge_of(server.base).ask(ASK)
    assert (failed.value.retriable, failed.value.retry_after_s) == (True, seconds)


@pytest.mark.parametrize(
    ("answer", "raised", "retriable"),
    [
        ((401, error("Incorrect API key provided", "invalid_api_key")), JudgeRejected, False),
        ((404, error("The model `m` does not exist", "model_not_found")), JudgeRejected, False),
        ((429, error("You exceeded your current quota", "insufficient_quota")), JudgeRejected, False),
        ((400, error("messages is malformed")), JudgeRejected, False),
        ((429, error("Rate limit reached", "rate_limit"), "Retry-After: 7"), JudgeError, True),
        ((503, error("overloaded"), "Retry-After: 7"), JudgeError, True),
        ((500, error("boom")), JudgeError, True),
    ],
)
async def test_errors_are_final_or_passing(
    chat_server: Any, judge_of: Made, answer: tuple[Any, ...], raised: type[JudgeError], retriable: bool
) -> None:
    """A key, a model, a quota and a length fail for good; throttling and outages pass after a time."""
    server = await chat_server(lambda body: answer)
    with pytest.raises(JudgeError) as failed:
        await judge_of(server.base).ask(ASK)
    assert (type(failed.value), failed.value.retriable) == (raised, retriable)
    assert failed.value.retry_after_s == (7.0 if len(answer) == 3 else None)


WAITS = {"inf": 60, "1e999": 60, "99999999999": 60, "-5": 0, "nan": 0, "soon": 0, "30": 30}


@pytest.mark.parametrize("header", WAITS)
async def test_no_server_pauses_a_judge_for_longer_than_a_minute(chat_server: Any, judge_of: Made, header: str) -> None:
    """It paused for ever. What was asked for is kept, for people to see."""
    server = await chat_server(lambda body: (429, "{}", f"Retry-After: {header}"))
    gate = Gate(1, now=lambda: 100.0)
    with pytest.raises(JudgeError) as failed:
        await GatedJudge(judge_of(server.base), gate).ask(ASK)
    assert failed.value.retriable
    assert gate.paused_s == pytest.approx(WAITS[header])
    assert gate.longest_wait_s == (86_400 if WAITS[header] == 60 else WAITS[header])


async def test_retry_after_closes_the_gate(chat_server: Any, complete: Any, judge_of: Made) -> None:
    """The request after a refusal waits as long as the server says; a date is read too."""
    replies: list[Any] = [(503, "{}", "Retry-After: Fri, 31 Dec 2100 23:59:59 GMT"), complete("YES")]
    server, now = await chat_server(lambda body: replies.pop(0)), 100.0
    gate = Gate(1, now=lambda: now)
    judge = GatedJudge(judge_of(server.base), gate)
    with pytest.raises(JudgeError):
        await judge.ask(ASK)
    waiting = asyncio.ensure_future(judge.ask(ASK))
    for _ in range(20):
        await asyncio.sleep(0)
    assert len(server.bodies) == 1
    waiting.cancel()
    now += 60.0  # the longest pause there is
    assert (await judge.ask(ASK))[0].completion == "YES"


@pytest.mark.parametrize(
    ("known", "sent"),
    [
        (("json_schema",), ["json_schema", "json_schema"]),
        (("json_object",), ["json_schema", "json_object", "json_object"]),
        ((), ["json_schema", "json_object", None, None]),
    ],
)
async def test_structured_output_falls_back_and_that_is_remembered(
    chat_server: Any, complete: Any, judge_of: Made, known: tuple[str, ...], sent: list[str | None]
) -> None:
    """By schema, as an object, in words: what the server refused is not asked for again."""

    def answer(body: dict[str, Any]) -> Any:
        kind = body.get("response_format", {}).get("type")
        return complete('{"verdict": "YES"}') if kind in (*known, None) else (400, error("unknown value"))

    server = await chat_server(answer)
    judge = judge_of(server.base)
    for one in (judge, judge.with_sampling(temperature=1.0)):
        assert (await get_evaluator("faithfulness", judge=one)(CASE)).score == 1.0
    assert [body.get("response_format", {}).get("type") for body in server.bodies] == sent


@pytest.mark.parametrize(
    "refusal",
    [(401, error("Incorrect API key provided")), (400, error("maximum context length is 10 tokens")), (503, "{}")],
)
async def test_one_failure_does_not_switch_structured_output_off(
    chat_server: Any, complete: Any, judge_of: Made, refusal: tuple[int, str]
) -> None:
    """A wrong key or a long question says nothing about schemas: the next question carries one again."""
    replies: list[Any] = [refusal, refusal, complete("YES")]
    server = await chat_server(lambda body: replies.pop(0))
    faithfulness = get_evaluator("faithfulness", judge=judge_of(server.base))
    found = [await faithfulness(CASE) for _ in range(3)]
    assert [result.status for result in found if result.status != "error"] == ["ok"]
    assert all("response_format" in body for body in server.bodies)


async def test_what_a_model_does_not_take_is_left_out_and_the_record_says_what_was_sent(
    chat_server: Any, complete: Any, judge_of: Made
) -> None:
    """A refused temperature, a limit of another name and a refused system role cost one request each, once."""

    def answer(body: dict[str, Any]) -> Any:
        if "max_tokens" in body:
            return (400, error("Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead."))
        if "temperature" in body:
            return (400, error("'temperature' does not support 0.5 with this model"))
        if body["messages"][0]["role"] == "system":
            return (400, error("System role not supported"))
        return complete("YES")

    server = await chat_server(answer)
    judge = judge_of(server.base, temperature=0.5, max_tokens=300)
    [call], [again] = await judge.ask(ASK), await judge.ask(ASK)
    assert len(server.bodies) == 5
    assert server.bodies[-1]["messages"] == [{"role": "user", "content": "Be brief.\n\nhello"}]
    assert call.sampling == again.sampling == {"max_completion_tokens": 300}


async def test_a_limit_that_the_window_cannot_hold_is_lowered(chat_server: Any, complete: Any, judge_of: Made) -> None:
    """vLLM counts the reply's limit against the window: a quarter of a small window is asked for, then and later."""
    refusal = (
        "'max_tokens' is too large: 4096. This model's maximum context length is 4096 tokens and your request has 9."
    )
    server = await chat_server(
        lambda body: complete("YES") if body["max_tokens"] <= 2000 else (400, error(refusal, "BadRequestError"))
    )
    judge = judge_of(server.base)
    [call], [again] = await judge.ask(ASK), await judge.ask(ASK)
    assert [body["max_tokens"] for body in server.bodies] == [4096, 1024, 1024]
    assert (call.sampling or {})["max_tokens"] == (again.sampling or {})["max_tokens"] == 1024


@pytest.mark.parametrize(
    ("model", "recorded"),
    [("openai/gpt-5-mini", "openai/gpt-5-mini"), ("o3", "o3"), ("gpt-5-chat", "gpt-5-chat temperature=0.0")],
)
def test_a_temperature_that_a_model_does_not_take_is_not_recorded(model: str, recorded: str) -> None:
    """OpenAI's reasoning models have one temperature: none is sent, and the judge's id names none."""
    assert LLMJudge(model).id == recorded


@pytest.mark.parametrize(
    ("choice", "reason"),
    [
        ({"finish_reason": "length"}, "cut off at the limit of 4096 tokens"),
        ({"finish_reason": "content_filter"}, "content filter"),
        ({"message": {"role": "assistant", "content": None, "refusal": "I cannot judge this."}}, "refused"),
        ({"message": {"role": "assistant", "content": "I'm sorry, but I can't help with that."}}, "refused"),
        (
            {
                "finish_reason": "length",
                "message": {"role": "assistant", "content": "", "reasoning_content": '{"verdict": "YES"}'},
            },
            "cut off",
        ),
        ({"message": {"role": "assistant", "content": '<think>\nDraft: {"verdict": "YES"}'}}, "reasoning"),
    ],
)
async def test_a_reply_without_a_verdict_says_why(
    chat_server: Any, complete: Any, judge_of: Made, choice: dict[str, Any], reason: str
) -> None:
    """Cut off, filtered and refused are different reasons of `invalid`; no draft is believed."""
    server = await chat_server(lambda body: complete('{"verdict": "YES"', **choice))
    result = await get_evaluator("faithfulness", judge=judge_of(server.base))(CASE)
    assert (result.status, result.score, len(server.bodies)) == ("invalid", None, 1)
    assert reason in (result.explanation or "")
    assert result.calls[0].finish_reason in ("length", "content_filter", "refusal", "stop")


async def test_a_filtered_question_is_invalid(chat_server: Any, judge_of: Made) -> None:
    """Azure refuses the whole question with a status of 400."""
    body = error("The response was filtered due to Azure's content management policy.", "content_filter")
    server = await chat_server(lambda _: (400, body))
    result = await get_evaluator("faithfulness", judge=judge_of(server.base))(CASE)
    assert (result.status, "content filter" in (result.explanation or "")) == ("invalid", True)


async def test_reasoning_is_counted_and_never_read(chat_server: Any, complete: Any, judge_of: Made) -> None:
    """The verdict after the reasoning counts, also where the opening mark is part of the model's template."""
    thought = '{"verdict": "YES"} seems likely, but no.</think>\n{"verdict": "NO"}'
    reply = complete(thought)
    reply["usage"]["completion_tokens_details"] = {"reasoning_tokens": 2}
    server = await chat_server(lambda _: reply)
    result = await get_evaluator("faithfulness", judge=judge_of(server.base))(CASE)
    assert (result.score, result.calls[0].reasoning_tokens) == (0.0, 2)


async def test_a_question_too_long_is_asked_again_with_packed_contexts(
    chat_server: Any, complete: Any, judge_of: Made
) -> None:
    """Contexts are cut to the window the server names, once; the result says so. What still does not fit is final."""

    def answer(body: dict[str, Any]) -> Any:
        size = sum(len(message["content"]) for message in body["messages"])
        too_long = (400, error("This model's maximum context length is 6000 tokens. Your messages have 99999."))
        return too_long if size > 4 * 6000 else complete('{"reason": "r", "verdict": "YES"}')

    server = await chat_server(answer)
    judge = judge_of(server.base, max_tokens=500)
    case = Case(query="q", response="r", contexts=["one " * 6000, "short", "two " * 6000])
    result = await get_evaluator("context_precision", judge=judge)(case)
    assert (result.status, result.score) == ("ok", 1.0)
    assert result.parts["packed_contexts"]["tokens"] < result.parts["packed_contexts"]["of"] == 12_002
    assert "contexts were cut" in (result.explanation or "")
    hopeless = await get_evaluator("context_precision", judge=judge)(case.model_copy(update={"query": "q " * 30_000}))
    assert (hopeless.status, hopeless.retriable) == ("error", False)


def test_schemas_are_strict() -> None:
    """Every property is required, nothing else allowed; no default, title or bound, which strict servers refuse."""
    from ragpulse_evaluators.judged.answer import Classes, MarkReply
    from ragpulse_evaluators.judged.criteria import JudgedReply
    from ragpulse_evaluators.judged.pairwise import Choice

    for schema in (Classes, MarkReply, JudgedReply, Choice):
        text = json.dumps(strict_schema(schema))
        assert not any(f'"{key}"' in text for key in ("default", "title", "minimum", "maximum", "minItems"))
    winner = strict_schema(Choice)
    assert winner["properties"]["winner"] == {"type": "string", "enum": ["1", "2", "TIE"]}
    assert (winner["required"], winner["additionalProperties"]) == (["reason", "winner"], False)
    assert {"type": "string", "enum": ["True", "False"]} in strict_schema(JudgedReply)["properties"]["score"]["anyOf"]


@pytest.mark.parametrize(("code", "raised"), [(401, JudgeRejected), (429, JudgeError), ("overloaded", JudgeError)])
async def test_an_error_in_a_reply_of_status_200_is_that_error(
    chat_server: Any, judge_of: Made, code: Any, raised: type[JudgeError]
) -> None:
    """OpenRouter answers 200 with the provider's error: its message is shown, and a wrong key is final."""
    server = await chat_server(lambda body: {"error": {"code": code, "message": "No auth credentials found"}})
    with pytest.raises(JudgeError, match="No auth credentials found") as failed:
        await judge_of(server.base).ask(ASK)
    assert type(failed.value) is raised
