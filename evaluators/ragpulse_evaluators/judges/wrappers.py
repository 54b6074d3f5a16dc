"""What stands around a judge: limits (money, concurrency, requests per minute, pauses) and recorded calls.

Recorded calls are found by the question: a run repeats without network, to the byte.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol, Self, TypeVar
from weakref import WeakKeyDictionary

from pydantic import BaseModel

from ragpulse_evaluators.digest import sha256_hex
from ragpulse_evaluators.errors import BudgetExceeded, ConfigurationError, JudgeError, NoRecording
from ragpulse_evaluators.judges.protocol import (
    Judge,
    JudgeQuestion,
    JudgeWrapper,
    Message,
    all_calls,
    count_tokens,
    max_tokens_of,
    transcript,
)
from ragpulse_evaluators.result import JudgeCall


def has_room(cap: float, booked: float, usd: float) -> bool:
    """Whether an account with this cap, spent or set aside `booked`, has room for a call that may cost so much."""
    return booked + usd <= cap * (1 + 1e-12)  # sums of floats


class Budget:
    """Money shared by the judges of one run, in memory; never spends more than `max_usd`.

    The collector's `Ledger` does the same in the store, for the accounts of rules, days and replays. What is reserved
    before a call is settled after it; where the cost is not known the whole reservation is spent.
    """

    def __init__(self, max_usd: float) -> None:
        self.max_usd = max_usd
        self.spent_usd = 0.0
        self.reserved_usd = 0.0

    def reserve(self, usd: float) -> None:
        """Reserve money for a request; raises `BudgetExceeded` where the rest may not suffice."""
        if not has_room(self.max_usd, self.spent_usd + self.reserved_usd, usd):
            raise BudgetExceeded(
                f"the budget of {self.max_usd:g} USD has no room for the next call, which may cost {usd:.2g} USD"
                f" ({self.spent_usd:.2g} USD spent, {self.reserved_usd:.2g} USD set aside)"
            )
        self.reserved_usd += usd

    def settle(self, reserved: float, spent: float | None) -> None:
        """Release a reservation and record what the request cost; None records the whole reservation."""
        self.reserved_usd -= reserved
        self.spent_usd += reserved if spent is None else spent


class BudgetedJudge(JudgeWrapper):
    """Asks `judge` only while the budget allows it.

    `prices` are USD per input and per output token. A reply is reserved at the judge's `max_tokens`, which every
    request carries, so the limit is hard. A call whose provider reports no cost is settled at these prices, so an
    unknown cost is never zero.
    """

    def __init__(self, judge: Judge, budget: Budget, prices: tuple[float, float]) -> None:
        super().__init__(judge)
        self._budget = budget
        self._prices = prices

    async def replies_to(self, question: JudgeQuestion) -> list[JudgeCall]:
        """Reserve, ask, settle; raises `BudgetExceeded` without asking."""
        requests = question.n + (getattr(self._inner, "is_brief", False) * question.n)
        input_tokens = requests * count_tokens(transcript(question.messages))
        reserved = self._cost(input_tokens, question.n * max_tokens_of(self._inner))
        self._budget.reserve(reserved)
        spent: float | None = None  # a failed request may still be billed
        try:
            calls = await question.put_to(self._inner)
            spent = sum(self._price(call) for call in calls)
            return calls
        except JudgeError as failed:  # what was not sent costs nothing, what was rejected neither
            spent = None if failed.maybe_billed else sum(self._price(call) for call in failed.calls)
            raise
        except ConfigurationError:
            spent = 0.0
            raise
        finally:
            self._budget.settle(reserved, spent)

    def _cost(self, input_tokens: int, output_tokens: int) -> float:
        return input_tokens * self._prices[0] + output_tokens * self._prices[1]

    def _price(self, call: JudgeCall) -> float:
        if call.cost_usd is not None:
            return call.cost_usd
        input_tokens = count_tokens(call.prompt) if call.input_tokens is None else call.input_tokens
        output_tokens = count_tokens(call.completion) if call.output_tokens is None else call.output_tokens
        return self._cost(input_tokens, output_tokens)


LONGEST_PAUSE_S = 60.0
"""After this time the server is asked again even where its `Retry-After` is longer: the limit may have been lifted."""


class Gate:
    """`async with gate:` around a request; shared by all judges that ask the same provider.

    At most `concurrency` requests of one event loop run at the same time. `requests_per_minute` are spread evenly over
    the minute; None sets no rate.
    """

    def __init__(
        self,
        concurrency: int,
        *,
        requests_per_minute: int | None = None,
        longest_pause_s: float = LONGEST_PAUSE_S,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.concurrency = concurrency
        self.longest_wait_s = 0.0
        """The longest wait that the provider asked for; a pause is no longer than `longest_pause_s`."""
        self._longest_pause_s = longest_pause_s
        self._slots: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = WeakKeyDictionary()
        self._every_s = 0.0 if requests_per_minute is None else 60.0 / requests_per_minute
        self._now = now
        self._next = now()

    async def __aenter__(self) -> None:
        slots = self._slots_here()
        await slots.acquire()
        try:
            while wait := self.paused_s:
                await asyncio.sleep(wait)
        except BaseException:  # a cancelled wait gives its slot back
            slots.release()
            raise
        if self._every_s:
            self._next = max(self._next, self._now()) + self._every_s

    async def __aexit__(self, *_: object) -> None:
        self._slots_here().release()

    def _slots_here(self) -> asyncio.Semaphore:
        """A semaphore belongs to one event loop; a restarted worker has another loop."""
        return self._slots.setdefault(asyncio.get_running_loop(), asyncio.Semaphore(self.concurrency))

    def pause(self, seconds: float) -> None:
        """Let no request in for a while, and not longer than a pause may be: the provider refused one."""
        self.longest_wait_s = max(self.longest_wait_s, seconds)
        self._next = max(self._next, self._now() + min(seconds, self._longest_pause_s))

    @property
    def paused_s(self) -> float:
        """Seconds until the next request is let in."""
        return max(0.0, self._next - self._now())


class GatedJudge(JudgeWrapper):
    """Passes the gate with every request of `judge`: once per sample where the judge sends one request per sample.

    A server that answers with `Retry-After` closes the gate for that long, at most as long as a pause may be.
    """

    def __init__(self, judge: Judge, gate: Gate) -> None:
        super().__init__(judge)
        self.gate = gate

    async def replies_to(self, question: JudgeQuestion) -> list[JudgeCall]:
        """Wait for the gate, then ask."""
        if question.n == 1 or not getattr(self._judge, "asks_singly", False):
            return await self._once(question)
        return await all_calls(self._once(question.once()) for _ in range(question.n))

    async def _once(self, question: JudgeQuestion) -> list[JudgeCall]:
        async with self.gate:
            try:
                return await question.put_to(self._inner)
            except JudgeError as error:
                if error.retriable and error.retry_after_s:
                    self.gate.pause(error.retry_after_s)
                raise


Value = TypeVar("Value")


class JudgeCache(Protocol):
    """Stores calls by key: the collector in its store, `FileCache` in a file."""

    async def get(self, key: str) -> JudgeCall | None:
        """The recorded call, or None."""

    async def put(self, key: str, call: JudgeCall) -> None:
        """Record a call; a later one under the same key takes its place."""


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
        """Append one line; the last record of a key counts."""
        self._calls[key] = call
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
        self._is_anew = False

    @property
    def id(self) -> str:
        """The id under which calls are recorded: by default the judge's."""
        return self._recorded_id or self._inner.id

    def anew(self) -> Self:
        """The same judge, which asks as if nothing was recorded, where it can ask."""
        changed = super().anew()
        changed._is_anew = self._judge is not None
        return changed

    async def replies_to(self, question: JudgeQuestion) -> list[JudgeCall]:
        """The recorded samples; missing samples are asked for."""
        options: Any = {"schema": question.schema, "logprobs": question.logprobs}
        keys = [call_key(self.id, question.messages, **options, index=index) for index in range(question.n)]
        recorded = [None] * len(keys) if self._is_anew else await _gather(self._cache.get(key) for key in keys)
        fresh = iter(await self._fresh(question, [key for key, call in zip(keys, recorded, strict=True) if not call]))
        free = {"cached": True, "cost_usd": 0.0}
        return [call.model_copy(update=free) if call else next(fresh) for call in recorded]

    async def _fresh(self, question: JudgeQuestion, keys: Sequence[str]) -> list[JudgeCall]:
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
