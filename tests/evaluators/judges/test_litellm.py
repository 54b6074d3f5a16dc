"""The litellm judge: imported late, over a loopback OpenAI-compatible server."""

import os
import subprocess
import sys
from typing import Any

import pytest

from ragpulse_evaluators import Case, LLMJudge, get_evaluator
from ragpulse_evaluators.errors import ConfigurationError, JudgeError, JudgeRejected
from ragpulse_evaluators.judges.providers import prices

pytestmark = pytest.mark.filterwarnings("default")  # litellm's own warnings are not ours to fix


ASK = [{"role": "user", "content": "hello"}]


def test_importing_and_configuring_loads_no_heavy_library() -> None:
    """litellm (seconds of import), numpy and nltk stay out until the first question."""
    code = (
        "import sys, ragpulse_evaluators as r; r.list_evaluators(); r.get_evaluator('faithfulness', judge='openai/x');"
        "print([m for m in ('litellm', 'numpy', 'nltk', 'sacrebleu', 'scipy', 'jsonschema') if m in sys.modules])"
    )
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert printed.strip() == "[]"


async def test_a_case_is_judged_through_litellm(chat_server: Any, complete: Any) -> None:
    """A model behind a loopback api_base needs no key; the call is recorded with model and tokens."""
    server = await chat_server(lambda body: complete("NO\nThe passage says nine."))
    faithfulness = get_evaluator("faithfulness", judge="openai/tiny", api_base=server.base)
    result = await faithfulness(Case(response="It opens at eight.", contexts=["It opens at nine."]))
    assert (result.score, result.explanation, result.judge) == (
        0.0,
        "The passage says nine.",
        f"openai/tiny temperature=0.0 at {server.base.removeprefix('http://')}",
    )
    assert result.calls[0].input_tokens == 11
    assert "It opens at nine." in server.bodies[0]["messages"][1]["content"]


async def test_a_provider_that_ignores_n_is_asked_again(chat_server: Any, complete: Any) -> None:
    """Three samples from a server that gives one at a time are three requests."""
    server = await chat_server(lambda body: complete("2"))
    calls = await LLMJudge("tiny", api_base=server.base, temperature=1.0).ask(ASK, n=3)
    assert [call.completion for call in calls] == ["2", "2", "2"]
    assert [body.get("n") for body in server.bodies] == [3, None, None]


async def test_tokens_of_several_choices_are_counted_once(chat_server: Any, complete: Any) -> None:
    """The usage of one request with two choices is kept on the first call."""
    server = await chat_server(lambda body: complete("1", "2"))
    calls = await LLMJudge("tiny", api_base=server.base).ask(ASK, n=2)
    assert sum(call.input_tokens or 0 for call in calls) == 11


async def test_a_failing_provider_is_a_judge_error(chat_server: Any) -> None:
    """Whatever litellm raises becomes JudgeError with the model's name."""
    server = await chat_server(lambda body: (500, '{"error": {"message": "boom"}}'))
    with pytest.raises(JudgeError, match="openai/tiny"):
        await LLMJudge("tiny", api_base=server.base).ask(ASK)


def test_sampling_is_part_of_the_id_and_the_key_is_not() -> None:
    """The id of a judge changes with temperature and address, not with the key."""
    plain = LLMJudge("openai/a")
    assert plain.id == LLMJudge("openai/a", api_key="k").id
    assert plain.id != LLMJudge("openai/a", temperature=1.0).id


def test_prices_come_from_the_local_table() -> None:
    """A known model has a price per token, an unknown one has none rather than zero."""
    known = prices("gpt-4o-mini")
    assert known is not None
    assert 0 < known[0] < known[1]
    assert prices("openai/no-such-model") is None


async def test_log_probabilities_come_through_litellm(chat_server: Any, complete: Any) -> None:
    """The candidates of the first token are asked for and read, so G-Eval can weigh them."""
    top = [{"token": "4", "logprob": -0.2, "bytes": None}, {"token": "2", "logprob": -1.8, "bytes": None}]
    first = {"token": "4", "logprob": -0.2, "bytes": None, "top_logprobs": top}
    server = await chat_server(lambda body: complete("4", logprobs={"content": [first]}))
    judge = LLMJudge("tiny", api_base=server.base)
    geval = get_evaluator("geval", judge=judge, dimension="relevance", use_logprobs=True)
    result = await geval(Case(contexts=["A source."], response="A summary."))
    assert result.calls[0].logprobs == {"4": -0.2, "2": -1.8}
    assert server.bodies[0]["top_logprobs"] == 20
    assert 3.0 < (result.score or 0.0) < 4.0


@pytest.mark.parametrize(
    ("model", "limits"),
    [
        ("openai/gpt-4o-mini", [16, 16]),
        ("gpt-4.1-nano", [16, 16]),
        ("openai/gpt-5-mini", [4096, 16]),
        ("openai/unheard-of", [4096, 16]),
    ],
)
async def test_a_model_known_not_to_reason_gets_a_brief_limit_at_once(
    model: str, limits: list[int], chat_server: Any, complete: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """litellm knows which models reason; with those and with unknown ones, the first replies show what a mark takes."""
    import litellm

    server = await chat_server(lambda body: complete("4"))
    monkeypatch.setattr(litellm, "api_base", server.base)
    geval = get_evaluator("geval", judge=LLMJudge(model, api_key="k"), dimension="relevance", n=1)
    for _ in range(2):
        assert (await geval(Case(query="q", response="r"))).score == 4.0
    assert [body.get("max_tokens", body.get("max_completion_tokens")) for body in server.bodies] == limits


@pytest.mark.parametrize(("structured", "sent"), [(None, None), ("none", None), ("json_schema", "json_schema")])
async def test_a_setting_says_more_than_the_library(
    structured: str | None, sent: str | None, chat_server: Any, complete: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A model that litellm does not list was never asked by schema, whatever the settings said."""
    import litellm

    server = await chat_server(lambda body: complete('{"reason": "r", "verdict": "YES"}'))
    monkeypatch.setattr(litellm, "api_base", server.base)
    judge = LLMJudge("openai/unheard-of", api_key="k", structured=structured)
    assert (await get_evaluator("faithfulness", judge=judge)(Case(response="r", contexts=["c"]))).score == 1.0
    assert server.bodies[0].get("response_format", {}).get("type") == sent


async def test_a_brief_reply_of_a_known_model_that_was_cut_is_asked_for_once_more(
    chat_server: Any, complete: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What both requests may take is what a budget reserves: the judge's limit."""
    import litellm

    server = await chat_server(
        lambda body: complete("", finish_reason="length") if body["max_tokens"] == 16 else complete("4")
    )
    monkeypatch.setattr(litellm, "api_base", server.base)
    judge = LLMJudge("gpt-4o", api_key="k", max_tokens=100)
    geval = get_evaluator("geval", judge=judge, dimension="relevance", n=1)
    assert [(await geval(Case(query="q", response="r"))).score for _ in range(2)] == [4.0, 4.0]
    assert [body["max_tokens"] for body in server.bodies] == [16, 84, 100]


@pytest.mark.parametrize("model", ["openai/gpt-5-mini", "azure/gpt", "gemini/gemini-2.5-flash"])
async def test_a_missing_key_is_final(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """litellm reports it as status 500; no second attempt brings a key."""
    for name in [name for name in os.environ if name.endswith(("_API_KEY", "_AD_TOKEN"))]:
        monkeypatch.delenv(name)
    with pytest.raises(JudgeRejected, match=r"(?i)missing"):
        await LLMJudge(model).ask(ASK)


SECRET = "sk-planted-0123456789"


@pytest.mark.parametrize("named", ["headers", "extra_headers"])
@pytest.mark.parametrize("fails", [False, True])
async def test_headers_are_sent_and_stand_in_nothing(chat_server: Any, complete: Any, named: str, fails: bool) -> None:
    """The header stood in the judge's id, and so in every score."""
    server = await chat_server(
        lambda body: (401, f"wrong key {SECRET}") if fails else complete("NO"),
    )
    judge = LLMJudge("m", api_base=server.base, **{named: {"X-Key": SECRET}})
    result = await get_evaluator("faithfulness", judge=judge)(Case(response="r", contexts=["c"]))
    assert result.status == ("error" if fails else "ok")
    assert f"x-key: {SECRET}" in server.headers[0].lower()
    assert SECRET not in str(server.bodies)
    shown = f"{judge.id} {judge.place} {judge.accepted} {result.model_dump_json()}"
    assert SECRET not in shown
    assert judge.id == LLMJudge("m", api_base=server.base).id


def test_a_query_that_would_not_be_sent_is_refused() -> None:
    """litellm drops it without a word."""
    with pytest.raises(ConfigurationError, match="https://host/v1#model"):
        LLMJudge("openai/m", query={"key": SECRET})


def test_a_key_with_a_line_break_is_refused_when_the_judge_is_made() -> None:
    """Whether it is given or in the environment; the message does not show it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OPENAI_API_KEY", f"{SECRET}\n")
        for options in ({}, {"api_base": "http://127.0.0.1:9", "api_key": f"{SECRET}\n"}):
            with pytest.raises(ConfigurationError, match="line break") as refused:
                LLMJudge("openai/m", **options)
            assert SECRET not in str(refused.value)
