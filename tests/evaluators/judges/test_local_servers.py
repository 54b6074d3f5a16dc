"""Judges without a key: Ollama, llama.cpp and vLLM, and models that answer in a format of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from local_servers import Kind, LocalServer

from ragpulse_collector.settings import JudgeModel
from ragpulse_evaluators import Case, FileCache, HTTPJudge, get_evaluator
from ragpulse_evaluators.errors import ConfigurationError
from ragpulse_evaluators.judges.providers import as_judge
from ragpulse_evaluators.meta.judge_check import check_judge

KINDS: tuple[Kind, ...] = ("ollama", "llama.cpp", "vllm")
YES = '{"reason": "stated", "verdict": "YES"}'
CASE = Case(query="How tall?", response="It is 330 m tall.", contexts=["The tower is 330 m tall."])


@pytest.fixture
def serve() -> Iterator[Callable[..., LocalServer]]:
    """Start a server."""
    started: list[LocalServer] = []

    def start(kind: Kind, answer: Callable[[str], str] = lambda _: YES) -> LocalServer:
        started.append(LocalServer(kind, answer))
        return started[-1]

    yield start
    for server in started:
        server.close()


@pytest.mark.parametrize("kind", KINDS)
async def test_a_local_server_judges_without_a_key(serve: Callable[..., LocalServer], kind: Kind) -> None:
    """By its address; no key of the environment is sent."""
    server = serve(kind)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OPENAI_API_KEY", "sk-secret-of-openai")
        result = await get_evaluator("faithfulness", judge=f"{server.url}#{server.model}")(CASE)
    assert (result.status, result.passing) == ("ok", True), result
    assert server.keys == [None] * len(server.keys)
    assert server.requests[-1]["response_format"]["type"] == "json_schema"


async def test_ollama_is_asked_by_name(serve: Callable[..., LocalServer], monkeypatch: pytest.MonkeyPatch) -> None:
    """`ollama/NAME`: where the environment says, or `api_base`, else on this computer; never over litellm."""
    server = serve("ollama")
    monkeypatch.setenv("OLLAMA_API_BASE", server.url.removesuffix("/v1"))
    result = await get_evaluator("faithfulness", judge=f"ollama/{server.model}")(CASE)
    assert (result.status, result.passing) == ("ok", True), result
    monkeypatch.delenv("OLLAMA_API_BASE")
    judge = as_judge("ollama/llama3:8b")
    assert isinstance(judge, HTTPJudge)
    assert judge.place == "llama3:8b at 127.0.0.1:11434/v1"
    assert JudgeModel(model="ollama/llama3:8b").is_local
    other = as_judge("ollama/llama3:8b", api_base="http://gpu:11434")
    assert isinstance(other, HTTPJudge)
    assert other.place == "llama3:8b at gpu:11434/v1"
    remote = JudgeModel(model="ollama/llama3:8b", api_base="http://gpu:11434")
    assert not remote.is_local
    assert "llama3:8b" in remote.names


@pytest.mark.parametrize("kind", ["ollama", "vllm"])
async def test_an_unknown_model_is_one_clear_line(serve: Callable[..., LocalServer], kind: Kind) -> None:
    """The server's own words, and no further attempt."""
    server = serve(kind)
    result = await get_evaluator("faithfulness", judge=f"{server.url}#other")(CASE)
    assert (result.status, result.retriable) == ("error", False)
    assert "other" in (result.explanation or "")
    assert ("not found" if kind == "ollama" else "does not exist") in (result.explanation or "")


@pytest.mark.parametrize(
    ("kind", "several", "logprobs"), [("ollama", False, False), ("llama.cpp", False, True), ("vllm", True, True)]
)
async def test_the_check_finds_out_what_a_server_supports(
    serve: Callable[..., LocalServer], tmp_path: Any, kind: Kind, several: bool, logprobs: bool
) -> None:
    """Structured output, samples in one request, logprobs, and the longest reply of a small window."""

    def answer(prompt: str) -> str:
        return '{"reason": "", "winner": "1"}' if '"winner"' in prompt else YES

    server = serve(kind, answer)
    judge = as_judge(f"{server.url}#{server.model}")
    assert judge is not None
    found = await check_judge(judge, FileCache(tmp_path / "calls"))
    facts = [found.server[name] for name in ("structured", "several_samples", "logprobs")]
    assert facts == ["json_schema", several, logprobs]
    assert (found.server["longest_reply"] < 4096) == (kind == "vllm")
    assert found.verdicts[0].startswith("no better than guessing (lenient")
    assert found.position is not None
    assert found.position.first_preferred == 60


PRESETS = [
    ("granite_guardian", "No", True),
    ("granite_guardian", "Yes", False),
    ("granite_guardian", "No\n<confidence> High </confidence>", True),
    ("granite_guardian", "<think>\n</think>\n<score> yes </score>", False),
    ("granite_guardian", "<score> no </score>", True),
    ("lynx", '{"REASONING": ["The DOCUMENT says so."], "SCORE": "PASS"}', True),
    ("lynx", '{"REASONING": ["- It says 330, not 300.", "- So it must FAIL."],\n "SCORE": "FAIL"}', False),
    ("lynx", '{"REASONING": "It could PASS, but no.", "SCORE": FAIL}', False),
]


@pytest.mark.parametrize(("preset", "reply", "passing"), PRESETS)
@pytest.mark.parametrize("kind", KINDS)
async def test_judges_with_a_format_of_their_own(
    serve: Callable[..., LocalServer], kind: Kind, preset: str, reply: str, passing: bool
) -> None:
    """A preset sends what the model was trained with, unfenced, and reads its yes or no the right way round."""
    server = serve(kind, lambda _: reply)
    judge = f"{server.url}#{server.model}"
    result = await get_evaluator("custom_yaml", spec=preset, judge=judge)(CASE)
    assert (result.status, result.passing, result.score) == ("ok", passing, float(passing)), result
    *system, user = server.requests[-1]["messages"]
    assert [message["content"] for message in system] == (["groundedness"] if preset == "granite_guardian" else [])
    assert "The tower is 330 m tall." in user["content"]
    assert "response_format" not in server.requests[-1]


async def test_a_preset_whose_reply_is_none_gives_no_verdict(serve: Callable[..., LocalServer]) -> None:
    """ "Maybe" is no yes."""
    server = serve("vllm", lambda _: "Maybe")
    result = await get_evaluator("custom_yaml", spec="granite_guardian", judge=f"{server.url}#{server.model}")(CASE)
    assert (result.status, result.score) == ("invalid", None)


def test_a_name_that_is_no_preset_is_a_file() -> None:
    """Which is not there."""
    with pytest.raises(ConfigurationError, match="granite_gardian"):
        get_evaluator("custom_yaml", spec="granite_gardian")


async def test_the_rate_limit_is_counted(serve: Callable[..., LocalServer], tmp_path: Any) -> None:
    """Each request that the server puts off is asked again, and none is lost."""
    server = serve("vllm", lambda prompt: '{"reason": "", "winner": "TIE"}' if '"winner"' in prompt else YES)
    judge = as_judge(f"{server.url}#{server.model}")
    assert judge is not None
    cache = FileCache(tmp_path / "calls")
    await check_judge(judge, cache)
    lines = (tmp_path / "calls").read_text().splitlines(keepends=True)
    (tmp_path / "calls").write_text("".join(lines[:-20]))  # twenty questions are left
    answer = server.answer

    def later(prompt: str) -> str:
        server.busy, server.answer = 3, answer
        return answer(prompt)

    server.answer = later
    found = await check_judge(judge, FileCache(tmp_path / "calls"))
    assert found.waits == 3
    assert found.detection.unread == 0
