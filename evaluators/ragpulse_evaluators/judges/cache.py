"""Recorded judge calls, found by the question: a run repeats without network, to the byte."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Iterable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol, TypeVar

from pydantic import BaseModel

from ragpulse_evaluators.digest import sha256_hex
from ragpulse_evaluators.errors import ConfigurationError, NoRecording
from ragpulse_evaluators.judges.protocol import Judge, JudgeWrapper, Message, Question
from ragpulse_evaluators.result import JudgeCall

__all__ = ("CachedJudge", "FileCache", "JudgeCache", "call_key")

Value = TypeVar("Value")


class JudgeCache(Protocol):
    """Stores calls by key: the collector in its store, `FileCache` in a file."""

    async def get(self, key: str) -> JudgeCall | None:
        """The recorded call, or None."""

    async def put(self, key: str, call: JudgeCall) -> None:
        """Record a call; a second one under the same key may be ignored."""


def call_key(
    judge_id: str, messages: Sequence[Message], *, schema: type[BaseModel] | None, logprobs: bool, index: int
) -> str:
    """sha256 of the whole question and the number of the sample: 20 samples of one question stay 20 calls."""
    question = [judge_id, [dict(message) for message in messages], _json_schema(schema), logprobs, index]
    return sha256_hex(json.dumps(question, sort_keys=True, ensure_ascii=False, separators=(",", ":")))


@lru_cache(maxsize=256)
def _json_schema(schema: type[BaseModel] | None) -> dict[str, Any] | None:
    return schema.model_json_schema() if schema else None


class FileCache:
    """Calls in a file of JSON lines, read once and appended to."""

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path)
        self._calls: dict[str, JudgeCall] = {}
        if self._path.exists():
            self._load()

    def _load(self) -> None:
        *lines, last = self._path.read_text(encoding="utf-8").split("\n")
        for number, line in enumerate(lines, start=1):
            try:
                record = json.loads(line)
                self._calls[record["key"]] = JudgeCall.model_validate(record["call"])
            except (ValueError, KeyError, TypeError) as error:
                raise ConfigurationError(f"{self._path}:{number} is not a recorded judge call: {error}") from None
        if last:  # a crash cut this line off: its question is asked again
            self._path.write_text("".join(line + "\n" for line in lines), encoding="utf-8")

    def __len__(self) -> int:
        return len(self._calls)

    async def get(self, key: str) -> JudgeCall | None:
        """The recorded call, or None."""
        return self._calls.get(key)

    async def put(self, key: str, call: JudgeCall) -> None:
        """Append one line; the first record of a key stays."""
        if self._calls.setdefault(key, call) is not call:
            return
        record = {"key": key, "call": call.model_dump(mode="json")}
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(record, ensure_ascii=False, sort_keys=True) + "\n")


class CachedJudge(JudgeWrapper):
    """Answers from the cache; a question that is not there goes to `judge` and is recorded. `judge=None` only replays.

    A replayed call is marked `cached` and costs nothing. Raises `NoRecording` where a replay-only judge has no answer.
    """

    def __init__(self, judge: Judge | None, cache: JudgeCache, *, id: str | None = None) -> None:
        if judge is None and id is None:
            raise ConfigurationError(
                "a judge that only replays needs the id of the recorded one: CachedJudge(None, cache, id=...)"
            )
        super().__init__(judge)
        self._recorded_id = id
        self._cache = cache

    @property
    def id(self) -> str:
        """The id under which calls are recorded: by default the judge's."""
        return self._recorded_id or self._inner.id

    async def answer(self, question: Question) -> list[JudgeCall]:
        """The recorded samples; missing samples are asked for."""
        options: Any = {"schema": question.schema, "logprobs": question.logprobs}
        keys = [call_key(self.id, question.messages, **options, index=index) for index in range(question.n)]
        recorded = await _gather(self._cache.get(key) for key in keys)
        fresh = iter(await self._fresh(question, [key for key, call in zip(keys, recorded, strict=True) if not call]))
        free = {"cached": True, "cost_usd": 0.0}
        return [call.model_copy(update=free) if call else next(fresh) for call in recorded]

    async def _fresh(self, question: Question, keys: Sequence[str]) -> list[JudgeCall]:
        if not keys:
            return []
        if self._judge is None:
            raise NoRecording(f"{self.id}: no recorded answer for {question.messages[-1]['content'][:60]!r}")
        calls = await question.put_to(self._inner, n=len(keys))
        await _gather(self._cache.put(key, call) for key, call in zip(keys, calls, strict=True))
        return calls


async def _gather(work: Iterable[Awaitable[Value]]) -> list[Value]:
    """Await all at the same time; a single item costs no task."""
    first, *rest = work
    return [await first] if not rest else list(await asyncio.gather(first, *rest))
