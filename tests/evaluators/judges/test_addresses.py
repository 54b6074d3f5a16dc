"""Addresses of judges as people paste them, the ids made of them, and the keys that go there."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from ragpulse_evaluators import CachedJudge, ConfigurationError, FileCache, HTTPJudge, JudgeCall, JudgeError, LLMJudge
from ragpulse_evaluators.judges.addresses import Address
from ragpulse_evaluators.judges.protocol import close_judge
from ragpulse_evaluators.judges.providers import as_judge
from ragpulse_evaluators.judges.wrappers import call_key

pytestmark = pytest.mark.filterwarnings("default")  # litellm's own warnings
ASK = [{"role": "user", "content": "hello"}]
SECRET = "sk-secret-0123456789"


@pytest.fixture(autouse=True)
def _no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """Begin without keys and addresses of providers."""
    for name in list(os.environ):
        if name.endswith(("_API_KEY", "_BASE_URL", "_API_BASE")):
            monkeypatch.delenv(name)


@pytest.fixture
async def closed() -> AsyncIterator[Callable[[Any], Any]]:
    """Closes the judges that it was given with the test."""
    judges: list[Any] = []

    def keep(judge: Any) -> Any:
        judges.append(judge)
        return judge

    yield keep
    for judge in judges:
        await close_judge(judge)


PASTED = {
    "http://host:8080/v1": ("http://host:8080/v1/chat/completions", "host:8080/v1"),
    "http://host:8080": ("http://host:8080/v1/chat/completions", "host:8080/v1"),
    "http://host:8080/": ("http://host:8080/v1/chat/completions", "host:8080/v1"),
    "http://host:8080/v1/": ("http://host:8080/v1/chat/completions", "host:8080/v1"),
    "http://host:8080/v1/chat/completions": ("http://host:8080/v1/chat/completions", "host:8080/v1"),
    "http://host:8080/v1/models": ("http://host:8080/v1/chat/completions", "host:8080/v1"),
    "HTTP://Host:8080/v1": ("http://host:8080/v1/chat/completions", "host:8080/v1"),
    "  https://host/v1  ": ("https://host/v1/chat/completions", "host:443/v1"),
    "http://host/v1": ("http://host/v1/chat/completions", "host:80/v1"),
    "https://host/chat/completions": ("https://host/chat/completions", "host:443"),
    "https://host/openai/v1": ("https://host/openai/v1/chat/completions", "host:443/openai/v1"),
    "http://[::1]:8080/v1": ("http://[::1]:8080/v1/chat/completions", "[::1]:8080/v1"),
    "https://r.openai.azure.com/openai/deployments/d/chat/completions?api-version=2024-10-21": (
        "https://r.openai.azure.com/openai/deployments/d/chat/completions?api-version=2024-10-21",
        "r.openai.azure.com:443/openai/deployments/d",
    ),
}


@pytest.mark.parametrize("pasted", PASTED)
def test_a_pasted_address_is_understood(pasted: str) -> None:
    """The full URL of the endpoint, a missing `/v1`, other cases, spaces and a version in the query all work."""
    address = Address.parsed(pasted)
    assert (address.endpoint, address.where) == PASTED[pasted]


@pytest.mark.parametrize(
    "judge",
    [
        "127.0.0.1:8080/v1#llama",
        "127.0.0.1:8080",
        "localhost:11434/v1",
        "host/v1#llama",
        "htp://host/v1#llama",
        "http:/host/v1#llama",
        "http://ho st/v1#llama",
        "http://host:port/v1#llama",
        "http:///v1#llama",
        "http://localhost:11434/api/chat#llama",
        f"https://user:{SECRET}@host/v1#llama",
        f"https://host/v1?key={SECRET}#llama",
    ],
)
def test_what_is_no_address_is_refused_at_start_with_the_right_form(judge: str) -> None:
    """The message says what is wrong and how an address is written; it never repeats a key."""
    with pytest.raises(ConfigurationError, match=r"write https://host:port/v1#model") as refused:
        as_judge(judge)
    assert SECRET not in str(refused.value)


@pytest.mark.parametrize(
    "model", ["hosted_vllm/llama3:8b", "bedrock/anthropic.claude-v2:1", "anthropic.claude-v2:1", "m"]
)
def test_a_models_name_is_no_address(model: str) -> None:
    """Colons and digits belong to names, too."""
    judge = as_judge(model)
    assert isinstance(judge, LLMJudge)
    assert judge.model == model


HOME = "http://127.0.0.1:8080/v1"
IDS: list[tuple[Callable[[], Any], str]] = [
    (lambda: LLMJudge("openai/gpt-5-mini"), "openai/gpt-5-mini"),
    (lambda: LLMJudge("openai/a", api_key="k"), "openai/a temperature=0.0"),
    (lambda: LLMJudge("openai/a", api_base="https://api.openai.com/v1"), "openai/a temperature=0.0"),
    (lambda: LLMJudge("groq/a", api_base="https://api.groq.com/openai/v1"), "groq/a temperature=0.0"),
    (lambda: LLMJudge("a", api_base=HOME), "openai/a temperature=0.0 at 127.0.0.1:8080/v1"),
    (lambda: LLMJudge("a", api_base="http://127.0.0.1:8080"), "openai/a temperature=0.0 at 127.0.0.1:8080/v1"),
    (lambda: LLMJudge("a", api_base=HOME, name="a"), "a temperature=0.0"),
    (lambda: HTTPJudge(HOME, "a"), "a temperature=0.0 at 127.0.0.1:8080/v1"),
    (lambda: HTTPJudge("http://127.0.0.1:8081/v1", "a"), "a temperature=0.0 at 127.0.0.1:8081/v1"),
    (lambda: HTTPJudge("http://127.0.0.1:8080/b/v1", "a"), "a temperature=0.0 at 127.0.0.1:8080/b/v1"),
    (lambda: HTTPJudge(HOME, "a", max_tokens=9), "a max_tokens=9 temperature=0.0 at 127.0.0.1:8080/v1"),
    (lambda: HTTPJudge(HOME, "a", omit=["temperature"]), "a at 127.0.0.1:8080/v1"),
    (lambda: HTTPJudge(HOME, "a", name="house"), "house temperature=0.0"),
    (lambda: as_judge(HOME), "default temperature=0.0 at 127.0.0.1:8080/v1"),
    (lambda: HTTPJudge(HOME, "a").with_sampling(temperature=1.0), "a temperature=1.0 at 127.0.0.1:8080/v1"),
]


@pytest.mark.parametrize(("make", "expected"), IDS)
def test_the_address_is_part_of_the_id_where_it_is_not_the_providers_own(
    make: Callable[[], Any], expected: str
) -> None:
    """Ids of providers' own addresses are what they were; a name stands for model and address."""
    assert make().id == expected


@pytest.mark.parametrize("variable", ["OPENAI_BASE_URL", "OPENAI_API_BASE"])
def test_an_address_of_the_environment_is_part_of_the_id(variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """litellm sends the questions there."""
    monkeypatch.setenv(variable, "http://127.0.0.1:8080/v1")
    assert LLMJudge("openai/a").id == "openai/a temperature=0.0 at 127.0.0.1:8080/v1"


async def test_two_servers_with_one_models_name_share_no_answer(
    chat_server: Any, complete: Any, tmp_path: Path, closed: Any
) -> None:
    """Server B was never asked, and got A's answer."""
    servers = [await chat_server(lambda body, text=text: complete(text)) for text in ("YES", "NO")]
    cache = FileCache(tmp_path / "calls.jsonl")
    replies = [(await CachedJudge(closed(HTTPJudge(one.base, "m")), cache).ask(ASK))[0].completion for one in servers]
    assert (replies, [len(one.bodies) for one in servers]) == (["YES", "NO"], [1, 1])


async def test_recordings_made_before_stay_valid(chat_server: Any, complete: Any, tmp_path: Path, closed: Any) -> None:
    """Under the provider's own address as they are; at another address under the name that they were made with."""
    old = {"gpt-5-chat temperature=0.0": lambda: LLMJudge("gpt-5-chat"), "m temperature=0.0": None}
    server = await chat_server(lambda body: complete("NEW"))
    cache = FileCache(tmp_path / "calls.jsonl")
    for judge_id, make in old.items():
        key = call_key(judge_id, ASK, schema=None, logprobs=False, index=0)
        await cache.put(key, JudgeCall(completion="OLD", model="m"))
        judge = make() if make else HTTPJudge(server.base, "m", name="m")
        assert [call.completion for call in await CachedJudge(judge, cache).ask(ASK)] == ["OLD"]
    assert [call.completion for call in await CachedJudge(closed(HTTPJudge(server.base, "m")), cache).ask(ASK)] == [
        "NEW"
    ]


KEYS: list[tuple[str, dict[str, str], str | None]] = [
    ("https://api.openai.com/v1", {"OPENAI_API_KEY": "k"}, "k"),
    ("https://api.groq.com/openai/v1", {"GROQ_API_KEY": "k"}, "k"),
    ("https://r.openai.azure.com/openai/v1", {"AZURE_API_KEY": "k"}, "k"),
    ("https://api.openai.com/v1", {"GROQ_API_KEY": "k"}, None),
    ("http://api.openai.com/v1", {"OPENAI_API_KEY": "k"}, None),
    ("https://api.openai.com.example.org/v1", {"OPENAI_API_KEY": "k"}, None),
    ("https://example.org/v1", {"OPENAI_API_KEY": "k"}, None),
    (HOME, {"OPENAI_API_KEY": "k"}, None),
    (HOME, {"OPENAI_API_KEY": "k", "OPENAI_BASE_URL": HOME}, "k"),
    (HOME, {"OPENAI_API_KEY": "k", "OPENAI_API_BASE": "http://127.0.0.1:8080/"}, "k"),
    (HOME, {"OPENAI_API_KEY": "k", "OPENAI_BASE_URL": "http://127.0.0.1:8081/v1"}, None),
    (HOME, {"OPENAI_API_KEY": "k", "HOUSE_BASE_URL": HOME, "HOUSE_API_KEY": "h"}, "h"),
]


@pytest.mark.parametrize(("base", "environment", "expected"), KEYS)
def test_a_key_of_the_environment_goes_to_its_own_host_only(
    base: str, environment: dict[str, str], expected: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over https, or to the address that the provider's variable names."""
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert Address.parsed(base).environment_key() == expected


@pytest.mark.parametrize("kind", ["http", "litellm"])
@pytest.mark.parametrize("own", [True, False])
async def test_the_key_on_the_wire(
    kind: str, own: bool, chat_server: Any, complete: Any, closed: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A loopback address got `Bearer none` over `OPENAI_API_KEY`, another address got the key itself."""
    server = await chat_server(lambda body: complete("YES"))
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    if own:
        monkeypatch.setenv("OPENAI_BASE_URL", server.base)
    judge = HTTPJudge(server.base, "m") if kind == "http" else LLMJudge("m", api_base=server.base)
    await closed(judge).ask(ASK)
    assert (f"Bearer {SECRET}" in server.headers[0]) is own
    assert (SECRET in server.headers[0]) is own


@pytest.mark.parametrize("kind", ["http", "litellm"])
@pytest.mark.parametrize("status", [200, 400, 401, 500])
async def test_a_key_is_in_no_error_and_no_id(kind: str, status: int, chat_server: Any, closed: Any) -> None:
    """Servers repeat the header that they refuse."""
    server = await chat_server(lambda body: (status, f'{{"error": {{"message": "bad header: Bearer {SECRET}"}}}}'))
    make: Any = (
        HTTPJudge if kind == "http" else (lambda base, model, **options: LLMJudge(model, api_base=base, **options))
    )
    judge = closed(make(server.base, "m", api_key=SECRET))
    with pytest.raises(JudgeError) as failed:
        await judge.ask(ASK)
    assert SECRET in server.headers[0]
    assert SECRET not in f"{failed.value}{failed.value.__cause__}{judge.id}"


def test_a_judge_whose_library_is_missing_is_refused_with_the_line_that_installs_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It failed at the first question, with a traceback for each trace."""
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ConfigurationError, match=r"pip install 'ragpulse\[judge\]'"):
        as_judge("openai/gpt-5-mini")
