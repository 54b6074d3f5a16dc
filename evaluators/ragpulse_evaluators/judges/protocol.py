"""The LLM behind an evaluator: the protocol of judges and their common base; embedders, also one that works offline."""

from __future__ import annotations

import asyncio
import copy
import inspect
import json
import math
import re
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Protocol, Self, TypeVar, cast, runtime_checkable
from urllib.parse import urlsplit

from pydantic import BaseModel

from ragpulse_evaluators.errors import ConfigurationError, JudgeError, NoRecording, Unreadable
from ragpulse_evaluators.result import JudgeCall

Value = TypeVar("Value")
Message = Mapping[str, str]
"""One chat message: `role` and `content`."""

Vectors = list[list[float]]
MAX_TOKENS = 4096
"""The longest reply by default, reasoning included; a verdict takes a few hundred tokens, reasoning up to thousands."""


@runtime_checkable
class Judge(Protocol):
    """Anything that answers chat messages."""

    @property
    def id(self) -> str:
        """Model and sampling parameters: stored beside the version; a series breaks when it changes."""

    async def ask(
        self,
        messages: Sequence[Message],
        *,
        n: int = 1,
        schema: type[BaseModel] | None = None,
        logprobs: bool = False,
    ) -> list[JudgeCall]:
        """Answer `n` times; `schema` asks for JSON of this shape; raises `JudgeError` when it cannot."""


async def together(work: Iterable[Awaitable[Value]]) -> list[Value]:
    """Await all, then raise the first failure if there is one: every call is recorded before the result is made."""
    done = await asyncio.gather(*work, return_exceptions=True)
    for failure in done:
        if isinstance(failure, BaseException):
            raise failure
    return cast(list[Value], done)


async def all_calls(work: Iterable[Awaitable[Sequence[JudgeCall]]]) -> list[JudgeCall]:
    """The calls of all questions, in order; a failure carries the calls of the others, which are paid."""
    done = await asyncio.gather(*work, return_exceptions=True)
    failures = [failure for failure in done if isinstance(failure, BaseException)]
    calls = [call for made in done if not isinstance(made, BaseException) for call in made]
    if not failures:
        return calls
    if isinstance(failures[0], JudgeError):
        failures[0].calls = (*calls, *(call for failure in failures for call in getattr(failure, "calls", ())))
    raise failures[0]


@dataclass(frozen=True, kw_only=True)
class JudgeQuestion:
    """The arguments of `Judge.ask` as one value."""

    messages: Sequence[Message]
    n: int = 1
    schema: type[BaseModel] | None = None
    logprobs: bool = False

    async def put_to(self, judge: Judge, *, n: int | None = None) -> list[JudgeCall]:
        """Ask a judge this question, `n` times where given."""
        return await judge.ask(self.messages, n=self.n if n is None else n, schema=self.schema, logprobs=self.logprobs)

    def once(self) -> JudgeQuestion:
        """The same question, asked for one sample."""
        return replace(self, n=1)


def transcript(messages: Sequence[Message]) -> str:
    """The messages joined for reading, as stored in `JudgeCall.prompt`."""
    if len(messages) == 1:
        return messages[0]["content"]
    return "\n\n".join(f"[{message['role']}]\n{message['content']}" for message in messages)


def is_loopback(address: str | None) -> bool:
    """Whether a URL or a host is this machine, where neither key nor budget is needed."""
    try:
        host = urlsplit(address).hostname if address and "//" in address else address
        return host == "localhost" or ip_address((host or "").strip("[]")).is_loopback
    except ValueError:  # a host name
        return False


def with_sampling(judge: Judge, **changes: Any) -> Judge:
    """The judge with other sampling parameters; a judge that has none is returned as it is."""
    if not hasattr(judge, "with_sampling"):
        return judge
    changed: Judge = judge.with_sampling(**changes)
    return changed


def for_sampling(judge: Judge, temperature: float) -> Judge:
    """The judge at a temperature where samples differ; a judge configured with its own temperature keeps it."""
    return with_sampling(judge, temperature=temperature) if getattr(judge, "temperature", None) == 0.0 else judge


def brief(judge: Judge, tokens: int) -> Judge:
    """The judge for replies of so few tokens; its id stays. A judge that has no such limit is returned as it is."""
    return judge.brief(tokens) if hasattr(judge, "brief") else judge


def anew(judge: Judge) -> Judge:
    """The judge without the records of its replies; new ones take their place."""
    return judge.anew() if hasattr(judge, "anew") else judge


def max_tokens_of(judge: Judge | None) -> int:
    """The most tokens one reply of this judge can take: what a budget reserves per call."""
    return int(getattr(judge, "max_tokens", MAX_TOKENS))


async def close_judge(judge: Judge | None) -> None:
    """Close what a judge holds open, such as idle connections; it may be asked again."""
    if judge is not None and hasattr(judge, "aclose"):
        await judge.aclose()


def model_of(judge: Judge) -> str:
    """The model's name, which its price is looked up by; the id of a judge without a model."""
    return str(getattr(judge, "model", judge.id))


class BaseJudge(ABC):
    """Turns the keywords of `ask` into one `JudgeQuestion`; subclasses write `replies_to`."""

    async def ask(
        self,
        messages: Sequence[Message],
        *,
        n: int = 1,
        schema: type[BaseModel] | None = None,
        logprobs: bool = False,
    ) -> list[JudgeCall]:
        """Answer `n` times; raises `JudgeError` when it cannot."""
        return await self.replies_to(JudgeQuestion(messages=messages, n=n, schema=schema, logprobs=logprobs))

    @abstractmethod
    async def replies_to(self, question: JudgeQuestion) -> list[JudgeCall]:
        """Answer as often as the question asks."""


class JudgeWrapper(BaseJudge):
    """A judge around another judge, which shows the inner id, model and sampling; subclasses write `replies_to`."""

    def __init__(self, judge: Judge | None) -> None:
        self._judge = judge

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # an attribute of its own that `copy` has not set yet
            raise AttributeError(name)
        return getattr(self._judge, name)

    @property
    def id(self) -> str:
        """The id of the inner judge."""
        return self._inner.id

    @property
    def _inner(self) -> Judge:
        assert self._judge is not None, "only a judge that replays has no inner judge, and it does not ask"
        return self._judge

    def with_sampling(self, **changes: Any) -> Self:
        """The same wrapper around the inner judge with other sampling parameters."""
        return self._around(lambda judge: with_sampling(judge, **changes))

    def brief(self, tokens: int) -> Self:
        """The same wrapper around the inner judge for short replies."""
        return self._around(lambda judge: brief(judge, tokens))

    def anew(self) -> Self:
        """The same wrapper around the inner judge without records."""
        return self._around(anew)

    def _around(self, change: Callable[[Judge], Judge]) -> Self:
        changed = copy.copy(self)
        changed._judge = self._judge and change(self._judge)
        return changed

    async def aclose(self) -> None:
        """Close what the inner judge holds open."""
        await close_judge(self._judge)


class ScriptedJudge(BaseJudge):
    """A judge for tests: gives the replies in call order; running out is an error.

    A reply is a text, an exception to raise, a mapping of `JudgeCall` fields (`{"completion": ..., "logprobs": ...}`),
    or any other mapping, which is the JSON object of a structured reply.
    """

    def __init__(self, replies: Iterable[str | Mapping[str, Any] | BaseException], *, id: str = "scripted") -> None:
        self.id = id
        self.asked: list[str] = []
        """Every prompt received, in order."""
        self._replies = deque(replies)

    async def replies_to(self, question: JudgeQuestion) -> list[JudgeCall]:
        """Take the next replies."""
        prompt = transcript(question.messages)
        return [self._next(prompt) for _ in range(question.n)]

    def _next(self, prompt: str) -> JudgeCall:
        self.asked.append(prompt)
        if not self._replies:
            raise NoRecording(f"the script of {self.id!r} has no reply number {len(self.asked)}")
        reply = self._replies.popleft()
        if isinstance(reply, BaseException):
            raise reply
        return JudgeCall(**{"prompt": prompt, "model": self.id, "cost_usd": 0.0, **_fields(reply)})


def _fields(reply: str | Mapping[str, Any]) -> Mapping[str, Any]:
    if isinstance(reply, Mapping) and "completion" in reply:
        return reply
    return {"completion": reply if isinstance(reply, str) else json.dumps(dict(reply), ensure_ascii=False)}


_DENSE = re.compile(
    r"[\u0e00-\u0e7f\u1100-\u11ff\u2e80-\ua4cf\uac00-\ud7af\uf900-\ufaff\uff00-\uffef\U0001f000-\U0003ffff]"
)

_WORD = re.compile(r"\w+")
_REPEATED = re.compile(r"(\W)\1+")


def count_tokens(text: str) -> int:
    """Roughly the tokens of a text: one a character in dense scripts, one in four characters elsewhere, rounded up."""
    dense = 0 if text.isascii() else len(_DENSE.findall(text))
    return dense + -(-(len(text) - dense) // 4)


def fewest_tokens(text: str) -> float:
    """Fewer tokens than any tokenizer makes of a text: it joins no two words, and not many signs."""
    signs = 0 if text.isascii() else len(_DENSE.findall(text))
    return max(0.8 * (len(_WORD.findall(text)) + signs / 3), 0.3 * count_tokens(_REPEATED.sub(r"\1", text)))


def split_text(text: str, limit: int) -> list[str]:
    """Cut a text into pieces of at most `limit` estimated tokens, at white space where there is some."""
    pieces = []
    while count_tokens(text) > limit:
        cut = _cut(text, limit)
        pieces.append(text[:cut].rstrip())
        text = text[cut:].lstrip()
    return [*pieces, text] if text or not pieces else pieces


def _cut(text: str, limit: int) -> int:
    low, high = 1, min(len(text), 4 * limit)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if count_tokens(text[:middle]) <= limit else (low, middle - 1)
    space = max(text.rfind(" ", low // 2, low), text.rfind("\n", low // 2, low))
    return space + 1 if space > 0 else low


@runtime_checkable
class Embedder(Protocol):
    """Anything that turns texts into vectors of equal length."""

    async def embed(self, texts: Sequence[str]) -> Vectors:
        """One vector per text, in order; raises `JudgeError` when it cannot embed them."""


class OfflineEmbedder:
    """Word vectors shipped inside the wordllama wheel (`ragpulse[semantic]`): no network, no key.

    Word order does not count: two sentences of the same words have equal vectors.
    """

    id = "wordllama"

    def __init__(self) -> None:
        self._model: Any = None

    async def embed(self, texts: Sequence[str]) -> Vectors:
        """Mean word vectors; the weights (19 MB) are read at the first call."""
        return await asyncio.to_thread(self._embed, list(texts))

    def _embed(self, texts: list[str]) -> Vectors:
        if self._model is None:
            self._model = word_vectors()
        return [[float(value) for value in vector] for vector in self._model.embed(texts)]


class SyncEmbedder:
    """An embedder whose `embed` is a plain function, as sentence-transformers users write it: runs in a thread."""

    def __init__(self, embedder: Any) -> None:
        self.id = str(getattr(embedder, "id", type(embedder).__qualname__))
        self._embedder = embedder

    async def embed(self, texts: Sequence[str]) -> Vectors:
        """One vector per text; rows of an array are read as numbers."""
        vectors = await asyncio.to_thread(self._embedder.embed, list(texts))
        rows = await vectors if inspect.isawaitable(vectors) else vectors
        return [[float(value) for value in row] for row in rows]


def word_vectors() -> Any:
    """Return the static word vectors of the wheel: given as its own cache, the package finds the tokenizer it ships."""
    try:
        import wordllama
    except ImportError as missing:
        raise ConfigurationError("the offline embedder needs wordllama: pip install 'ragpulse[semantic]'") from missing
    return wordllama.WordLlama.load(cache_dir=Path(wordllama.__file__).parent, disable_download=True)


def cosine(left: Sequence[float], right: Sequence[float]) -> float:
    """Cosine of two vectors in -1..1; a vector of zeros has no direction and raises `Unreadable`."""
    norm = math.sqrt(math.fsum(x * x for x in left)) * math.sqrt(math.fsum(y * y for y in right))
    if not norm:
        raise Unreadable("an embedding is a vector of zeros")
    return max(-1.0, min(1.0, math.fsum(x * y for x, y in zip(left, right, strict=True)) / norm))
