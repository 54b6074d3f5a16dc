"""What a server refuses is what its error says it refuses; what was sent is recorded."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from ragpulse_evaluators import Case, ConfigurationError, HTTPJudge, LLMJudge, get_evaluator
from ragpulse_evaluators.errors import JudgeRejected
from ragpulse_evaluators.judges.protocol import close_judge

pytestmark = pytest.mark.filterwarnings("default")  # litellm's own warnings
ASK = [{"role": "user", "content": "hello"}]
CASE = Case(query="q", response="r", contexts=["c"])
VERDICT = '{"reason": "r", "verdict": "YES"}'
ALLOWED = "Allowed are: model, messages, temperature, max_tokens, top_p, n, stop."


@pytest.fixture
async def judge_at() -> AsyncIterator[Callable[..., Any]]:
    """Makes the judge of an address; it is closed with the test."""
    made: list[Any] = []

    def make(base: str, kind: str = "http", **options: Any) -> Any:
        made.append(HTTPJudge(base, "m", **options) if kind == "http" else LLMJudge("m", api_base=base, **options))
        return made[-1]

    yield make
    for judge in made:
        await close_judge(judge)


def refusal(message: str, param: str | None = None, status: int = 400) -> tuple[int, str]:
    """An error's body as OpenAI has it."""
    return status, json.dumps({"error": {"message": message, "type": "invalid_request_error", "param": param}})


def strict(refused: str, answer: tuple[int, str]) -> Callable[[dict[str, Any], Any], Any]:
    """A server that refuses every request with this parameter."""
    return lambda body, reply: answer if refused in body else reply


LISTS: dict[str, tuple[str, tuple[int, str]]] = {
    "a list, named by param": ("response_format", refusal(f"Unknown parameter. {ALLOWED}", "response_format")),
    "a list, not named": ("response_format", refusal(f"Unknown parameter. {ALLOWED}")),
    "a list after the name": ("response_format", refusal(f"Unknown parameter: response_format. {ALLOWED}")),
    "the part of a parameter": ("response_format", refusal("Unsupported.", "response_format.type")),
    "FastAPI": ("response_format", (422, '{"detail": [{"loc": ["body", "response_format"], "msg": "Extra inputs"}]}')),
    "another one of a list": ("seed", refusal(f"Unknown parameter: seed. {ALLOWED}")),
    "another one, not named": ("seed", refusal(f"Bad request. {ALLOWED}")),
    "a name in the end": ("seed", refusal("These are allowed: temperature, max_tokens. You sent seed.")),
    "temperature by param": ("temperature", refusal("Only the default of 1 is supported.", "temperature")),
    "a text that says nothing": ("temperature", refusal("Bad request (id 4711-ab).")),
}


@pytest.mark.parametrize("kind", ["http", "litellm"])
@pytest.mark.parametrize("case", LISTS)
async def test_only_what_is_refused_is_left_out(
    chat_server: Any, complete: Any, judge_at: Any, case: str, kind: str
) -> None:
    """A server that lists what it allows lost `temperature` and `max_tokens` for all later requests."""
    refused, answer = LISTS[case]
    server = await chat_server(lambda body: strict(refused, answer)(body, complete(VERDICT)))
    judge = judge_at(server.base, kind, seed=7, max_tokens=300)
    faithfulness = get_evaluator("faithfulness", judge=judge)
    for _ in range(2):
        result = await faithfulness(CASE)
        assert result.score == 1.0
    expected = {"temperature": 0.0, "seed": 7, "max_tokens": 300}
    expected.pop(refused, None)
    assert result.calls[0].sampling == expected
    assert all(body["max_tokens"] == 300 for body in server.bodies)
    assert "response_format" in server.bodies[-1] or refused == "response_format"
    asked = len(server.bodies)
    await faithfulness(CASE)
    assert len(server.bodies) == asked + 1  # what is known is not tried again


async def test_two_refused_parameters_are_found_one_after_the_other(
    chat_server: Any, complete: Any, judge_at: Any
) -> None:
    """A changed message says that the last change mattered."""

    def answer(body: dict[str, Any]) -> Any:
        named = next((name for name in ("seed", "temperature") if name in body), None)
        return refusal(f"{named} is not supported") if named else complete(VERDICT)

    server = await chat_server(answer)
    result = await get_evaluator("faithfulness", judge=judge_at(server.base, seed=7))(CASE)
    assert (result.score, result.calls[0].sampling) == (1.0, {"max_tokens": 4096})
    assert "response_format" in server.bodies[-1]


LIMITS: dict[str, tuple[Callable[[dict[str, Any]], bool], tuple[int, str], tuple[str, int]]] = {
    "renamed": (
        lambda body: "max_tokens" in body,
        refusal("Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead.", "max_tokens"),
        ("max_completion_tokens", 4096),
    ),
    "renamed without a hint": (
        lambda body: "max_tokens" in body,
        refusal("Unknown parameter: max_tokens", "max_tokens"),
        ("max_completion_tokens", 4096),
    ),
    "lowered": (
        lambda body: body.get("max_tokens", 9999) > 2048,
        refusal("max_tokens is too large: 4096. This model supports at most 2048.", "max_tokens"),
        ("max_tokens", 2048),
    ),
    "lowered without a number": (
        lambda body: body.get("max_tokens", 9999) > 1024,
        refusal("max_tokens exceeds the maximum", "max_tokens"),
        ("max_tokens", 1024),
    ),
}


@pytest.mark.parametrize("case", LIMITS)
async def test_the_limit_is_renamed_or_lowered_and_never_left_out(
    chat_server: Any, complete: Any, judge_at: Any, case: str
) -> None:
    """A request without a limit may cost anything: a cap of $1 spent $2."""
    is_refused, answer, (name, limit) = LIMITS[case]
    server = await chat_server(lambda body: answer if is_refused(body) else complete("YES"))
    [call] = await judge_at(server.base).ask(ASK)
    assert call.sampling == {"temperature": 0.0, name: limit}
    assert all({"max_tokens", "max_completion_tokens"} & body.keys() for body in server.bodies)


@pytest.mark.parametrize("name", [None, "max_new_tokens"])
async def test_a_server_that_refuses_every_limit_gets_no_question_without_one(
    chat_server: Any, judge_at: Any, name: str | None
) -> None:
    """It is final, and the error is the server's; a limit under a name of the settings is no exception."""
    server = await chat_server(
        lambda body: refusal("max_tokens, max_completion_tokens and max_new_tokens are unknown here")
    )
    with pytest.raises(JudgeRejected, match="unknown here"):
        await judge_at(server.base, limit_parameter=name).ask(ASK)
    limits = {name} if name else {"max_tokens", "max_completion_tokens"}
    assert all(limits & body.keys() for body in server.bodies)


@pytest.mark.parametrize("param", ["messages", "messages[0].content", "model"])
async def test_a_refused_question_is_final_at_once(chat_server: Any, judge_at: Any, param: str) -> None:
    """The error names what is no parameter of sampling."""
    server = await chat_server(lambda body: refusal("It is malformed: temperature, max_tokens", param))
    with pytest.raises(JudgeRejected):
        await judge_at(server.base).ask(ASK)
    assert len(server.bodies) == 1


SETTINGS: dict[str, tuple[dict[str, Any], set[str], set[str]]] = {
    "no structure": ({"structured": "none"}, {"max_tokens", "temperature"}, {"response_format"}),
    "an object": ({"structured": "json_object"}, {"response_format"}, set()),
    "no temperature": ({"omit": ["temperature"]}, {"max_tokens", "response_format"}, {"temperature"}),
    "another limit": ({"limit_parameter": "max_new_tokens"}, {"max_new_tokens"}, {"max_tokens"}),
}


@pytest.mark.parametrize("setting", SETTINGS)
async def test_settings_say_outright_what_a_server_takes(
    chat_server: Any, complete: Any, judge_at: Any, setting: str
) -> None:
    """The first request has the form that was said, and the id names no parameter that is not sent."""
    options, sent, left_out = SETTINGS[setting]
    server = await chat_server(lambda body: complete(VERDICT))
    judge = judge_at(server.base, **options)
    await get_evaluator("faithfulness", judge=judge)(CASE)
    (body,) = server.bodies
    assert sent <= body.keys()
    assert not left_out & body.keys()
    assert ("temperature" in judge.id) is ("temperature" in body)
    assert options.get("structured") in (None, "none", body.get("response_format", {}).get("type"))


@pytest.mark.parametrize("options", [{"structured": "xml"}, {"omit": ["max_tokens"]}, {"omit": ["messages"]}])
def test_settings_that_cannot_be_are_refused_at_start(options: dict[str, Any]) -> None:
    """The limit of the reply is never left out; the message names the setting."""
    with pytest.raises(ConfigurationError, match=r"structured|limit_parameter"):
        HTTPJudge("http://127.0.0.1:8080/v1", "m", **options)


def choices(body: dict[str, Any], complete: Any, most: int) -> Any:
    """As many replies as were asked for, at most so many."""
    return complete(*["4"] * min(body.get("n", 1), most))


@pytest.mark.parametrize(("most", "requests"), [(20, [20, 20]), (1, [20, *[1] * 19, *[1] * 20])])
async def test_samples_are_asked_for_in_one_request_where_the_server_takes_it(
    chat_server: Any, complete: Any, judge_at: Any, most: int, requests: list[int]
) -> None:
    """80 requests of 4,096 tokens for one G-Eval; a server that gives one reply is known after the first."""
    server = await chat_server(lambda body: choices(body, complete, most))
    geval = get_evaluator("geval", judge=judge_at(server.base), dimension="relevance")
    for _ in range(2):
        assert (await geval(CASE)).parts["n_valid"] == {"Relevance": 20}
    assert [body.get("n", 1) for body in server.bodies] == requests
    assert server.bodies[0]["max_tokens"] == 4096
    brief = [body["max_tokens"] for body in server.bodies[len(server.bodies) // 2 :]]
    assert set(brief) == {16}  # as the first replies have shown, no reasoning counts into the limit


async def test_a_server_that_refuses_n_is_asked_singly(chat_server: Any, complete: Any, judge_at: Any) -> None:
    """Known from then on."""
    server = await chat_server(lambda body: refusal("n must be 1", "n") if "n" in body else complete("4"))
    geval = get_evaluator("geval", judge=judge_at(server.base), dimension="relevance", n=3)
    assert [(await geval(CASE)).score for _ in range(2)] == [4.0, 4.0]
    assert [body.get("n", 1) for body in server.bodies] == [3, 1, 1, 1, 1, 1, 1]


async def test_a_brief_reply_that_was_cut_is_asked_for_once_more(
    chat_server: Any, complete: Any, judge_at: Any
) -> None:
    """With the rest of the limit; both requests are counted, and later ones have the whole limit again."""
    replies = iter([complete("4"), *(complete("", finish_reason="length") for _ in range(1)), *[complete("3")] * 2])
    server = await chat_server(lambda body: next(replies))
    geval = get_evaluator("geval", judge=judge_at(server.base), dimension="relevance", n=1)
    results = [await geval(CASE) for _ in range(3)]
    assert [result.score for result in results] == [4.0, 3.0, 3.0]
    assert [body["max_tokens"] for body in server.bodies] == [4096, 16, 4080, 4096]
    assert (results[1].calls[0].input_tokens, results[1].calls[0].output_tokens) == (22, 6)


async def test_reasoning_that_counts_into_the_limit_keeps_the_limit(
    chat_server: Any, complete: Any, judge_at: Any
) -> None:
    """Where replies are long although the mark is short, no brief limit is sent."""
    server = await chat_server(lambda body: complete("4", tokens=(11, 300)))
    geval = get_evaluator("geval", judge=judge_at(server.base), dimension="relevance", n=1)
    for _ in range(2):
        await geval(CASE)
    assert [body["max_tokens"] for body in server.bodies] == [4096, 4096]


FORBIDDEN: dict[str, tuple[tuple[int, str], str]] = {
    "OpenAI": ((403, '{"error": {"message": "You are not allowed to request logprobs from this model."}}'), "logprobs"),
    "OpenRouter": (
        refusal("No endpoints found that support the requested parameters: logprobs", None, 404),
        "logprobs",
    ),
    "vLLM": (refusal("logprobs are not supported by this engine", None, 500), "logprobs"),
    "n": (refusal("You are not allowed to sample from this model: n must be 1", None, 403), "n"),
    "n by param": (refusal("Not allowed", "n", 403), "n"),
}


@pytest.mark.parametrize(
    ("server_says", "kind"),
    [*((one, "http") for one in FORBIDDEN), ("OpenAI", "litellm"), ("n", "litellm")],  # litellm hides `param`
)
async def test_what_is_forbidden_by_name_is_asked_without(
    chat_server: Any, complete: Any, judge_at: Any, server_says: str, kind: str
) -> None:
    """A status of 403 was final, although the message names one parameter."""
    answer, name = FORBIDDEN[server_says]
    server = await chat_server(lambda body: answer if name in body else complete(*["4"] * body.get("n", 1)))
    options: dict[str, Any] = {"use_logprobs": True} if name == "logprobs" else {"n": 3}
    geval = get_evaluator("geval", judge=judge_at(server.base, kind), dimension="relevance", **options)
    assert [(await geval(CASE)).score for _ in range(2)] == [4.0, 4.0]
    assert [name in body for body in server.bodies].count(True) == 1


@pytest.mark.parametrize("status", [401, 402, 403, 404])
async def test_a_refusal_that_names_no_parameter_is_final(chat_server: Any, judge_at: Any, status: int) -> None:
    """The model, the key or the account is refused."""
    server = await chat_server(
        lambda body: refusal("Your project has no access to model m (logprobs too)", None, status)
    )
    with pytest.raises(JudgeRejected):
        await judge_at(server.base).ask(ASK, n=2)
    assert len(server.bodies) == 1
