"""Reads tokens, model, finish reason and the provider's own price from what a model returned.

One reader serves every provider, because all name the same few figures: OpenAI (chat and responses), Anthropic,
LiteLLM, Google, Bedrock, Cohere, Ollama and LangChain shapes, as objects or dicts, whole or in stream chunks.
What the counts mean is in `counts`.
"""

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from ragpulse import _names as names

from .counts import TIER_KEYS, USAGE_NAMES, Facts, Usage, put_number, put_tier, sum_of, usage_facts
from .figures import Meaning, meaning
from .openers import is_run, messages_of_update, opened, whole_result
from .turns import Fields, first_of, message_fields, turn_of
from .values import fields_of, value_of

__all__ = [
    "USAGE_NAMES",
    "Calls",
    "Facts",
    "Usage",
    "add_facts",
    "facts_in",
    "instrumented_facts",
    "reply_facts",
    "usage_facts",
]
_INSTRUMENTED = {
    "llm.token_count.prompt": names.INPUT_TOKENS, "llm.token_count.completion": names.OUTPUT_TOKENS,
    "llm.token_count.prompt_details.cache_read": names.CACHE_READ_TOKENS,
    "llm.token_count.prompt_details.cache_write": names.CACHE_WRITE_TOKENS,
    "llm.token_count.completion_details.reasoning": names.REASONING_TOKENS,
    "gen_ai.usage.prompt_tokens": names.INPUT_TOKENS, "gen_ai.usage.completion_tokens": names.OUTPUT_TOKENS,
    **{figure: figure for figure in USAGE_NAMES.values()},
}  # fmt: skip
"""Attributes of other instrumentations' spans → the figure of ours."""
_INSTRUMENTED_MODELS = (names.RESPONSE_MODEL, "llm.model_name", names.REQUEST_MODEL)
_COUNT = re.compile("[Tt]oken|eval_count")
_MAX_NAMES = 50
_MODEL_KEYS = ("model", "model_version", "modelVersion", "model_name", "modelId", "model_id")
_RUN_IDS = ("run-", "lc_run-")
_ID_KEYS = ("id", "message_id", "response_id", "responseId", "provider_response_id")
_USAGE_KEYS = ("usage", "usage_metadata", "usageMetadata", "models_usage", "metrics", "usage_details")
_FINISH_KEYS = ("finish_reason", "finishReason", "stop_reason", "stopReason", "done_reason")
_ENDINGS = frozenset({*_FINISH_KEYS, "choices", "candidates", "delta", "messageStop"})
_INNER_KEYS = dict.fromkeys(
    ("raw", "response", "message", "chunk", "delta", "interaction", "raw_representation")
).keys()
"""Where a result has the provider's own: OpenAI `response.completed`, Anthropic `message_start`, Cohere, LlamaIndex."""

Names = tuple[str, ...]


def reply_facts(result: Any) -> Facts:
    """Tokens, model, id, finish reasons and the provider's price, of a whole result or of one chunk of a stream."""
    return facts_in(opened(result), result)


def facts_in(reply: Any, result: Any) -> Facts:
    """As `reply_facts`, of a result that `opened` returned."""
    facts = _stated_facts(reply, result)
    if names.INPUT_TOKENS in facts:
        return facts
    messages = reply if isinstance(reply, list) else fields_of(reply).get("messages")
    if isinstance(messages, list):
        calls = Calls()
        wholes = [whole_result(item) if type(item) in (dict, tuple) else None for item in messages]
        if any([whole is not None for whole in wholes]):  # the items of a stream
            for item, whole in zip(messages, wholes, strict=True):
                calls.add(item if whole is None else whole)
        else:
            calls.add_turn(messages)
        facts.update(calls.total())
    return facts


def _stated_facts(reply: Any, result: Any) -> Facts:
    """What a result states itself, or the provider's reply in it; not what its messages state."""
    fields = fields_of(reply)
    facts = _own_facts(fields)
    if not _INNER_KEYS.isdisjoint(fields):
        facts = {**_inner_facts(fields), **facts}
    if names.INPUT_TOKENS not in facts or names.RESPONSE_MODEL not in facts:
        _read_margins(fields, facts)
    if type(result) is not dict:
        hidden = value_of(result, "_hidden_params")  # LiteLLM keeps its price there
        if isinstance(hidden, dict):
            # 0 where it has no price: unknown, not free.
            put_number(facts, names.COST_TOTAL, hidden.get("response_cost") or None)
    return facts


class Calls:
    """The model calls of a run, each counted once, by the id of its response, however often the run shows it.

    What a run states of itself wins over the sum of its calls.
    """

    __slots__ = ("_calls", "_last", "_run")

    def __init__(self) -> None:
        self._calls: dict[Any, Facts] = {}
        self._last: Any = None
        self._run: Facts = {}

    def add(self, item: Any) -> None:
        """Reads an item of a stream: the result of a run, a state or an update of one, a message, or a chunk."""
        updates = messages_of_update(item)
        for messages in updates:
            self.add_turn(messages, is_update=True)
        if updates:
            return
        reply = opened(item)
        facts = _stated_facts(reply, item)
        messages = value_of(reply, "messages")
        if is_run(item) or (isinstance(messages, list) and names.INPUT_TOKENS in facts):
            self._run = facts_in(reply, item)
        elif isinstance(messages, list):
            self.add_turn(messages)
        else:
            self._put(_identity(fields_of(reply), facts) or self._last, facts)

    def add_turn(self, messages: Sequence[Any], *, is_update: bool = False) -> None:
        """Reads the messages after the user's last one: a conversation repeats those of earlier turns."""
        fields = [message_fields(message) for message in messages]
        begins = len(messages) - len(turn_of(fields))
        for place, message in enumerate(messages[begins:], begins):
            facts = reply_facts(fields[place])
            if is_run(message):
                self._run = facts
            elif not _is_restored(message):
                self._put(_identity(fields[place], facts) or (object() if is_update else place), facts)

    def _put(self, key: Any, facts: Facts) -> None:
        """Adds to a call what a message or a chunk states."""
        if _SPENT.isdisjoint(facts):
            return
        self._last = key
        _merge(self._calls.setdefault(key, {}), facts)

    def total(self) -> Facts:
        """The run's own figures, else the sum of its calls, and the last call's model."""
        summed = sum_of([facts for facts in self._calls.values() if not _COUNTED.isdisjoint(facts)])
        if self._run and names.RESPONSE_MODEL in summed:
            return {names.RESPONSE_MODEL: summed[names.RESPONSE_MODEL], **self._run}
        return self._run or summed


_COUNTED = frozenset({names.INPUT_TOKENS, names.OUTPUT_TOKENS})
_SPENT = _COUNTED | {names.RESPONSE_MODEL}


def _identity(fields: Fields, facts: Facts) -> str | None:
    own = first_of(fields, _ID_KEYS)
    return own if isinstance(own, str) else facts.get(names.RESPONSE_ID)


def _is_restored(message: Any) -> bool:
    """Whether LangGraph restored a message of LangChain from a checkpoint: an earlier run made the call.

    It restores all fields, the constant type, too; nobody states that of a new message.
    """
    is_message = type(message).__module__.startswith("langchain_core.") and hasattr(message, "response_metadata")
    return is_message and "type" in message.model_fields_set


def _inner_facts(fields: Fields) -> Facts:
    """What the provider's own reply states, which a result holds."""
    facts: Facts = {}
    for key in _INNER_KEYS:
        if fields.get(key) is not None and type(fields[key]) is not str:
            inner = fields_of(opened(fields[key]))
            own = _own_facts(inner)
            _read_margins(inner, own)
            facts = {**own, **facts}
    return facts


def add_facts(facts: Facts, chunk: Any) -> None:
    """Adds the facts of a later chunk."""
    _merge(facts, reply_facts(chunk))


def _merge(facts: Facts, later: Facts) -> None:
    """Cumulative counts are replaced, but not by a count that was left at zero."""
    for key, value in later.items():
        if value or key not in facts:
            facts[key] = value


def _own_facts(fields: Fields) -> Facts:
    """What the fields themselves state, and no mapping below them."""
    facts: Facts = {}
    places = _places if len(fields) < _MAX_NAMES else _places.__wrapped__
    texts, usages, tiers, may_end = places(tuple(fields))
    for figure, keys in texts:
        for key in keys:
            if type(fields[key]) is str:
                facts[figure] = fields[key]
                break
    for key in usages:
        if fields[key] is not None:
            usage = fields[key]
            facts.update(sum_of(list(map(usage_facts, usage))) if isinstance(usage, list) else usage_facts(usage))
            break
    for key in tiers:
        put_tier(facts, fields[key])
    reasons = _finish_reasons(fields) if may_end else ()
    if reasons:
        facts[names.FINISH_REASONS] = reasons
    return facts


@lru_cache(maxsize=1024)
def _places(fields: Names) -> tuple[tuple[tuple[str, Names], ...], Names, Names, bool]:
    """Under which of these names the model and the id, usage and a tier may be; whether a finish reason may be."""
    models, ids, usages, tiers = (
        tuple([key for key in keys if key in fields]) for keys in (_MODEL_KEYS, _ID_KEYS, _USAGE_KEYS, TIER_KEYS)
    )
    texts = [(figure, keys) for figure, keys in ((names.RESPONSE_MODEL, models), (names.RESPONSE_ID, ids)) if keys]
    return tuple(texts), usages, tiers, not _ENDINGS.isdisjoint(fields)


def _read_margins(fields: Fields, facts: Facts) -> None:
    """Where LangChain (response_metadata), Bedrock (metadata), Haystack (meta) and Ollama (on top) have figures."""
    for key in ("response_metadata", "metadata", "meta"):
        if fields.get(key):
            margin = fields[key]
            margin_facts = _own_facts(fields_of(margin[0] if isinstance(margin, list) else margin))
            if key != "response_metadata":
                margin_facts.pop(names.RESPONSE_ID, None)
            elif names.RESPONSE_ID in margin_facts or str(facts.get(names.RESPONSE_ID)).startswith(_RUN_IDS):
                facts.pop(names.RESPONSE_ID, None)  # LangChain's id of its run: the same call has another in its client
            facts.update({key: value for key, value in margin_facts.items() if key not in facts})
    if names.OUTPUT_TOKENS not in facts and len(fields) < _MAX_NAMES and _states_tokens(tuple(fields)):
        facts.update(usage_facts(fields))


@lru_cache(maxsize=1024)
def _states_tokens(fields: tuple[str, ...]) -> bool:
    """Whether a reply has counts of tokens among its own fields, as Ollama's and Titan's."""
    return any([_COUNT.search(str(name)) and meaning(str(name)) != Meaning() for name in fields])


def _finish_reasons(fields: Fields) -> tuple[str, ...]:
    choices = fields.get("choices") or fields.get("candidates")
    if isinstance(choices, list):
        reasons = [_finish_reason(fields_of(choice)) for choice in choices]
    else:
        reasons = [_finish_reason(fields)]
        for key in ("delta", "messageStop"):
            if key in fields:
                reasons.append(_finish_reason(fields_of(fields[key])))
    return tuple([reason for reason in reasons if reason is not None])


def _finish_reason(source: Fields) -> str | None:
    for key in _FINISH_KEYS:
        reason = source.get(key)
        if reason is not None:
            return reason if type(reason) is str else str(getattr(reason, "name", reason))
    return None


def instrumented_facts(calls: Mapping[int, tuple[int, Fields]]) -> Facts:
    """The figures of the model calls that other instrumentations recorded below one span: the sum of the outermost.

    `calls` maps the id of a span to its parent's id and its attributes. A call in a call is paid once, as in the
    collector (`conventions/dedupe.py`).
    """
    stating = {number for number, (_, attributes) in calls.items() if not attributes.keys().isdisjoint(_INSTRUMENTED)}
    outermost = []
    for number in stating:
        above = calls[number][0]
        while above in calls and above not in stating:
            above = calls[above][0]
        if above not in stating:
            outermost.append(_call_facts(calls[number][1]))
    return sum_of(outermost)


def _call_facts(attributes: Fields) -> Facts:
    counts = {figure: attributes[name] for name, figure in _INSTRUMENTED.items() if type(attributes.get(name)) is int}
    model = next((attributes[name] for name in _INSTRUMENTED_MODELS if isinstance(attributes.get(name), str)), None)
    return counts if model is None else {**counts, names.RESPONSE_MODEL: model}
