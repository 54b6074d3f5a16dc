"""Chat completions as every OpenAI-compatible server speaks them: makes requests, reads replies and rejections.

`HTTPJudge` and `LLMJudge` differ only in how a request travels. What a server does not accept (structured output, a
sampling parameter, a system message) is left out, one thing at a time, and remembered once a request without it has
succeeded. The limit of the reply is renamed or lowered, never left out.
"""

from __future__ import annotations

import copy
import re
import time
from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Self
from weakref import WeakValueDictionary

from pydantic import BaseModel

from ragpulse_evaluators.errors import ConfigurationError, ContextTooLong, JudgeError, JudgeRejected
from ragpulse_evaluators.judges.addresses import sendable
from ragpulse_evaluators.judges.protocol import (
    MAX_TOKENS,
    BaseJudge,
    JudgeQuestion,
    Message,
    all_calls,
    count_tokens,
    transcript,
)
from ragpulse_evaluators.judges.rejections import Rejection
from ragpulse_evaluators.judges.replies import (
    BLOCKED,
    Fields,
    JsonObject,
    Unanswered,
    end_of,
    read_choices,
    read_usage,
    unread,
)
from ragpulse_evaluators.result import JudgeCall

_OWN_TEMPERATURE = re.compile(r"(?:^|/)(?:o[134](?:-|$)|gpt-5(?!-chat))")
"""OpenAI's reasoning models."""
_REPLY_COUNTS = re.compile(r"max_(?:completion_)?tokens|completion|output tokens", re.IGNORECASE)
_STRUCTURED = re.compile(r"response_format|json_schema|json_object|structured|grammar|schema", re.IGNORECASE)
_NO_SYSTEM = re.compile(
    r"system (?:role|message)s?\b.*not|role.{0,10}system.*not|only user and assistant", re.IGNORECASE
)
_ADJUSTABLE = frozenset({400, 415, 422, 501})
_ELSE = frozenset({401, 402, 408, 409, 425, 429})
"""A key, money, or too much at once: nothing that a changed request mends."""
_FIXED = frozenset({"model", "messages", "response_format", "n", "logprobs", "top_logprobs"})
"""Keys of a request that are no sampling parameters."""
_LIMITS = ("max_tokens", "max_completion_tokens")
_INSTEAD = re.compile(r"use .{0,10}max_(?:completion_)?tokens|max_(?:completion_)?tokens\W{1,3}instead", re.IGNORECASE)
_LEAST_LIMIT = 16
_TOO_HIGH = re.compile(
    r"too (?:large|high|many|big)|at most|exceeds?|maximum|less than|<=|greater|range|between", re.IGNORECASE
)
_FORMATS = {
    None: ("json_schema", "json_object", ""),
    "json_schema": ("json_schema",),
    "json_object": ("json_object",),
    "none": ("",),
}
"""The setting `structured` → ways to ask for JSON, best first; "" sends none."""


@dataclass(frozen=True)
class _Accepted:
    """The ways of asking that a server accepts, as far as they are known."""

    formats: tuple[str, ...] = _FORMATS[None]
    """The ways that are left; the first is used."""
    without: frozenset[str] = frozenset()
    """Parameters it does not know."""
    system: bool = True
    """Whether it takes a system message."""
    limits: tuple[str, ...] = _LIMITS
    """Names for the limit of the reply; the first is used."""
    longest: int | None = None
    """The highest such limit; a server may count it against its window."""

    def after(self, rejection: Rejection, body: Fields) -> list[_Accepted]:
        """The ways to try after a rejection, each without one thing; empty where every way would be rejected.

        The error's own `param` decides. Without one, the format of the reply is left out first, then a parameter that
        the text names, then the others. The limit of the reply is never left out.
        """
        text, limit = rejection.text, self.limits[0]
        if rejection.too_long and self.longest is None and rejection.window and _REPLY_COUNTS.search(text):
            return [replace(self, longest=max(256, rejection.window // 4))]
        if rejection.too_long or rejection.filtered:
            return []
        if self.system and _NO_SYSTEM.search(text):
            return [replace(self, system=False)]
        order = {"response_format": 0, limit: -1 if _INSTEAD.search(text) else 3}
        names = sorted(body, key=lambda name: (order.get(name, 2 - (name in text)), text.find(name)))
        if rejection.param in body:
            names = [str(rejection.param)]
        elif not any(name in text for name in (limit, *_LIMITS)):
            names.remove(limit)
        if rejection.status not in _ADJUSTABLE:  # what is refused is named, or it is something else
            is_format = rejection.param not in body and _STRUCTURED.search(text) and "response_format" in body
            named = (n for n in names if n not in self.limits and re.search(rf"(?<![\w-]){n}(?![\w-])", text))
            names = [] if rejection.status in _ELSE else ["response_format"] if is_format else [*named]
        return [way for name in names for way in self._without(name, text, body)]

    def _without(self, name: str, text: str, body: Fields) -> list[_Accepted]:
        if name == "response_format":
            return [replace(self, formats=self.formats[left:]) for left in range(1, len(self.formats))]
        if name in self.limits:
            renamed = [replace(self, limits=self.limits[1:])] if self.limits[1:] else []
            lowered = [replace(self, longest=limit) for limit in _lower(body[name], text)]
            return [*lowered, *renamed] if _TOO_HIGH.search(text) else [*renamed, *lowered]
        more = {"logprobs", "top_logprobs"} if "logprobs" in name else {name}
        return [] if name in ("model", "messages") else [replace(self, without=self.without | more)]


def _lower(limit: int, text: str) -> list[int]:
    """The limit that a message names, then halves of the one that was refused."""
    named = [number for number in map(int, re.findall(r"\b\d{2,}\b", text)) if _LEAST_LIMIT <= number < limit]
    return [*sorted(named)[-1:], *(limit >> i for i in range(1, limit.bit_length()) if limit >> i >= _LEAST_LIMIT)]


class _KnownServer:
    """A model at an address; shared by all judges that ask it."""

    def __init__(self, accepted: _Accepted) -> None:
        self.accepted = accepted
        self.takes_brief: bool | None = None
        """Whether its replies to brief questions fit, reasoning included; None: not known yet."""


_SERVERS: WeakValueDictionary[tuple[str, _Accepted], _KnownServer] = WeakValueDictionary()
"""By model and address, and what the judge's settings say, as long as a judge for it exists."""


class ChatJudge(BaseJudge):
    """A model asked by chat completions; subclasses write `_send`.

    Model and sampling parameters together are its id: `openai/gpt-5-mini temperature=0.0`. Where the model is not at
    its provider's own address, host, port and path (`where`) are part of the id, too. A `name` stands for model and
    address, and so keeps the id over a move. Every request carries `max_tokens`. The default limit is not part of the
    id; one that was set is. `structured` (json_schema, json_object, none), `limit_parameter` and `omit` say what the
    server takes, which else is found out by its rejections. A question that `window` tokens cannot hold is not sent:
    it is `ContextTooLong`. `headers` and `query` may hold secrets: they are part of no id, record or error.
    """

    negotiates = True
    """Whether a rejection leads to another way of asking."""

    def __init__(
        self,
        model: str,
        *,
        where: str | None = None,
        name: str | None = None,
        structured: str | None = None,
        limit_parameter: str | None = None,
        omit: Iterable[str] = (),
        window: int | None = None,
        headers: Mapping[str, str] | None = None,
        query: Mapping[str, str] | None = None,
        extra_headers: Mapping[str, str] | None = None,
        extra_query: Mapping[str, str] | None = None,
        **sampling: Any,
    ) -> None:
        if structured not in _FORMATS:
            raise ConfigurationError(f'structured is "json_schema", "json_object" or "none", not {structured!r}')
        if limits := {*omit} & {*_LIMITS, "model", "messages"}:
            raise ConfigurationError(f"omit: every request has {limits.pop()!r}; limit_parameter renames the limit")
        self.model, at = model, f" at {where}" if where else ""
        self.place = model + at
        self._named, self._at = name or model, "" if name else at
        self._set({key: value for key, value in sampling.items() if key not in omit})
        self._brief: int | None = None
        self._window = window
        self._headers = dict(headers or extra_headers or {})  # also as clients of OpenAI name them
        self._query = dict(query or extra_query or {})
        for name, value in self._headers.items():
            sendable(self.place, f"header {name}", value)
        accepted = _Accepted(
            formats=_FORMATS[structured],
            without=frozenset(omit),
            limits=(limit_parameter,) if limit_parameter else _LIMITS,
            longest=window and window // 4,
        )
        self._server = _SERVERS.setdefault((self.place, accepted), _KnownServer(accepted))

    def _set(self, sampling: Fields) -> None:
        self.sampling: JsonObject = {key: value for key, value in sampling.items() if value is not None}
        if sampling.get("temperature") == 0.0 and _OWN_TEMPERATURE.search(self.model):
            del self.sampling["temperature"]  # these models take only their default: none is sent, none recorded
        self.temperature: float | None = self.sampling.get("temperature")
        self.max_tokens = int(self.sampling.get("max_tokens", MAX_TOKENS))
        figures = (f"{key}={value}" for key, value in sorted(self.sampling.items()) if key != "service_tier")
        self.id = " ".join((self._named, *figures)) + self._at

    def with_sampling(self, **changes: Any) -> Self:
        """The same model with other sampling parameters, over the same connections."""
        changed = copy.copy(self)
        changed._set({**self.sampling, **changes})
        return changed

    @property
    def accepted(self) -> JsonObject:
        """What the server takes, as far as its answers showed."""
        known = self._server.accepted
        return {
            "structured": known.formats[0] or "none",
            "several_samples": "n" not in known.without,
            "system_message": known.system,
            "limit_parameter": known.limits[0],
            "longest_reply": known.longest or self.max_tokens,
            "omits": sorted(known.without),
        }

    @property
    def asks_singly(self) -> bool:
        """Whether each sample is a request of its own, because the server gives one reply to a request."""
        return "n" in self._server.accepted.without

    @property
    def is_brief(self) -> bool:
        """Whether a reply may take a second request."""
        return self._brief is not None

    def brief(self, tokens: int) -> Self:
        """The same judge for replies of so few tokens, where the server's reasoning leaves room for them."""
        changed = copy.copy(self)
        changed._brief = tokens if tokens < self.max_tokens else None
        return changed

    @abstractmethod
    async def _send(self, body: JsonObject) -> Fields:
        """Send one request, return the completion; raises `Rejection` and `JudgeError`."""

    async def replies_to(self, question: JudgeQuestion) -> list[JudgeCall]:
        """Ask for all samples in one request; a server that leaves some out is asked singly from then on."""
        if question.n > 1 and self.asks_singly:
            return await all_calls(self._asked(question.once()) for _ in range(question.n))
        calls = await self._asked(question)
        while len(calls) < question.n:  # in turn: a question has one place among the concurrent ones
            self._server.accepted = replace(self._server.accepted, without=self._server.accepted.without | {"n"})
            calls = await all_calls((_ready(calls), self._asked(question.once())))
        return calls[: question.n]

    async def _asked(self, question: JudgeQuestion) -> list[JudgeCall]:
        """The calls of one request; what a brief limit cut is asked for once more, with the rest of the limit."""
        limit = self._brief if self._brief and self._server.takes_brief else self.max_tokens
        calls = await self._complete(question, limit)
        if limit == self.max_tokens:
            self._learn(calls)
            return calls
        cut = [number for number, call in enumerate(calls) if end_of(call.finish_reason) == "length"]
        if cut:
            self._server.takes_brief = False
            rest = self._complete(replace(question, n=len(cut)), self.max_tokens - limit)
            again = (await all_calls((_ready(calls), rest)))[len(calls) :]
            for number, call in zip(cut, again, strict=False):
                calls[number] = call.model_copy(update=_sums(calls[number], call))
        return calls

    def _learn(self, calls: Sequence[JudgeCall]) -> None:
        """Note whether replies to brief questions are brief, reasoning included, as the server counts them."""
        if self._brief and not any(call.estimated for call in calls):
            written = sum(call.output_tokens or 0 for call in calls)
            self._server.takes_brief = self._server.takes_brief is not False and 0 < written <= self._brief * len(calls)

    async def _complete(self, question: JudgeQuestion, limit: int) -> list[JudgeCall]:
        """One request; a call per choice. Raises `JudgeError`."""
        accepted, tokens = self._server.accepted, count_tokens(transcript(question.messages))
        if self._window and tokens + min(limit, self._window // 4) > self._window:
            raise ContextTooLong(f"{self.place}: {tokens} tokens exceed its window", window=self._window)
        started, reason, ways, seen = time.perf_counter(), None, list[_Accepted](), {accepted}
        while True:
            body = self._body(question, accepted, limit)
            try:
                answer = await self._send(body)
            except Rejection as rejection:
                if not rejection.filtered:
                    if rejection.reason != reason:  # the last change mattered: go on from it
                        reason, ways = rejection.reason, accepted.after(rejection, body) if self.negotiates else []
                    ways = [way for way in ways if way not in seen]
                    if not ways:
                        raise rejection.error(self.place) from None
                    accepted = ways[0]
                    seen.add(accepted)
                    continue
                blocked = {"message": {}, "finish_reason": BLOCKED, "problem": str(rejection)}
                answer = {"choices": [blocked]}  # as a reply that the filter ended
            else:
                self._server.accepted = accepted
            return self._calls(question, body, answer, time.perf_counter() - started)

    def _body(self, question: JudgeQuestion, accepted: _Accepted, limit: int) -> JsonObject:
        messages = question.messages if accepted.system else _without_system(question.messages)
        body: JsonObject = {"model": self.model, "messages": [dict(message) for message in messages]}
        body |= {key: value for key, value in self.sampling.items() if key != "max_tokens"}
        body[accepted.limits[0]] = min(limit, accepted.longest or limit)
        if question.n > 1:
            body["n"] = question.n
        if question.logprobs:
            body |= {"logprobs": True, "top_logprobs": 20}
        if question.schema is not None and accepted.formats[0]:
            body["response_format"] = _response_format(accepted.formats[0], question.schema)
        return {key: value for key, value in body.items() if key not in accepted.without}

    def _calls(self, question: JudgeQuestion, body: Fields, answer: Fields, elapsed_s: float) -> list[JudgeCall]:
        """One call per choice; tokens and cost of the request are stored with the first, so that sums are right."""
        prompt = transcript(question.messages)
        common = {
            "prompt": prompt,
            "model": answer.get("model") or self.model,
            "elapsed_s": elapsed_s,
            "sampling": {key: value for key, value in body.items() if key not in _FIXED},
        }
        failure: JudgeError | None = None
        try:
            part = unread(answer, prompt)
            choices = [{**choice, "problem": choice.get("problem") or part} for choice in read_choices(answer)]
        except (Unanswered, AttributeError, KeyError, TypeError, ValueError, RecursionError) as unanswered:
            failure, choices = (
                JudgeRejected(f"{self.place}: {unanswered}"),
                [{"completion": "", "finish_reason": "error"}],
            )
        ends = {end_of(choice["finish_reason"]) for choice in choices}
        usage = read_usage(answer, prompt, (choice["completion"] for choice in choices))
        if usage["output_tokens"] is None and ends == {BLOCKED}:
            usage |= {"input_tokens": usage["input_tokens"] or 0, "output_tokens": 0}  # what was blocked is not counted
        none = {"input_tokens": 0, "output_tokens": 0, "cost_usd": None if usage["cost_usd"] is None else 0.0}
        calls = [JudgeCall(**common, **choice, **(none if number else usage)) for number, choice in enumerate(choices)]
        if "error" in ends:  # with what the server counted for it, else with the note that it may have
            failure = failure or JudgeError(f"{self.place}: the provider failed while it answered")
            failure.maybe_billed = usage["output_tokens"] is None
            failure.calls = () if failure.maybe_billed else tuple(calls)
            raise failure
        return calls


async def _ready(calls: list[JudgeCall]) -> list[JudgeCall]:
    return calls


def _sums(first: JudgeCall, second: JudgeCall) -> JsonObject:
    """Tokens and cost of two requests for one reply; None where one is not known."""
    pairs = {
        name: (getattr(first, name), getattr(second, name))
        for name in ("input_tokens", "output_tokens", "cached_tokens", "cache_write_tokens", "cost_usd")
    }
    return {name: None if None in pair else sum(pair) for name, pair in pairs.items()}


def _without_system(messages: Sequence[Message]) -> list[Message]:
    """The system message in front of the first user message, for models whose template knows no system role."""
    head = [message["content"] for message in messages if message["role"] == "system"]
    first, *rest = (message for message in messages if message["role"] != "system")
    return [{**first, "content": "\n\n".join([*head, first["content"]])}, *rest]


def _response_format(kind: str, schema: type[BaseModel]) -> JsonObject:
    if kind == "json_object":
        return {"type": "json_object"}
    return {"type": kind, kind: {"name": schema.__name__, "strict": True, "schema": strict_schema(schema)}}


_STRICT_KEYS = ("type", "enum", "anyOf", "items", "properties", "$ref", "$defs")


@lru_cache(maxsize=256)
def strict_schema(schema: type[BaseModel]) -> JsonObject:
    """A model's JSON schema as strict structured output takes it: every property required, nothing else allowed.

    Defaults, titles and bounds are left out, because strict servers refuse them; replies are checked on reading.
    """
    strict: JsonObject = _strict(schema.model_json_schema())
    return strict


def _strict(node: Any, *, is_names: bool = False) -> Any:
    """The node without what strict servers refuse; where its keys are names of properties, with all of them."""
    if isinstance(node, list):
        return [_strict(item) for item in node]
    if not isinstance(node, dict):
        return node
    strict = {
        key: _strict(value, is_names=not is_names and key in ("properties", "$defs"))
        for key, value in node.items()
        if is_names or key in _STRICT_KEYS
    }
    if not is_names and "properties" in strict:
        strict |= {"required": list(strict["properties"]), "additionalProperties": False}
    return strict
