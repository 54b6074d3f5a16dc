"""Reads text, tokens, model, finish reason and the provider's own price from what a model returned.

One reader serves every provider, because all name the same few figures: OpenAI (chat and responses), Anthropic,
LiteLLM, Google, Bedrock, Cohere, Ollama and LangChain shapes, as objects or dicts, whole or in stream chunks.
Canonical counts follow OpenTelemetry: input includes cached tokens, output includes reasoning tokens. Providers that
count them apart (Anthropic, Bedrock; Google for reasoning) are added up here.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ragpulse import attributes as names

from .values import fields_of, read


@dataclass(frozen=True, kw_only=True, slots=True)
class Usage:
    """Tokens of one model call. `input_tokens` includes cached ones, `output_tokens` includes reasoning ones."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int | None = None
    cache_write_tokens: int | None = None
    reasoning_tokens: int | None = None
    estimated: bool = False
    """True when the counts are not the provider's own; they are marked so on the span."""


_FIGURES = {
    "prompt_tokens": names.INPUT_TOKENS, "input_tokens": names.INPUT_TOKENS, "inputTokens": names.INPUT_TOKENS,
    "prompt_token_count": names.INPUT_TOKENS, "promptTokenCount": names.INPUT_TOKENS,
    "prompt_eval_count": names.INPUT_TOKENS,
    "completion_tokens": names.OUTPUT_TOKENS, "output_tokens": names.OUTPUT_TOKENS,
    "outputTokens": names.OUTPUT_TOKENS, "candidates_token_count": names.OUTPUT_TOKENS,
    "candidatesTokenCount": names.OUTPUT_TOKENS, "eval_count": names.OUTPUT_TOKENS,
    "cached_content_token_count": names.CACHE_READ_TOKENS, "cachedContentTokenCount": names.CACHE_READ_TOKENS,
    "cached_tokens": names.CACHE_READ_TOKENS, "cache_write_tokens": names.CACHE_WRITE_TOKENS,
    "reasoning_tokens": names.REASONING_TOKENS,
}  # fmt: skip
_APART = {
    "cache_read_input_tokens": names.CACHE_READ_TOKENS, "cacheReadInputTokens": names.CACHE_READ_TOKENS,
    "cache_creation_input_tokens": names.CACHE_WRITE_TOKENS, "cacheWriteInputTokens": names.CACHE_WRITE_TOKENS,
    "thoughts_token_count": names.REASONING_TOKENS, "thoughtsTokenCount": names.REASONING_TOKENS,
}  # fmt: skip
"""Under these names a provider counts apart from the input (cached) or the output (reasoning)."""
_DETAILS = {
    "prompt_tokens_details": {"cached_tokens": names.CACHE_READ_TOKENS, "cache_write_tokens": names.CACHE_WRITE_TOKENS},
    "input_tokens_details": {"cached_tokens": names.CACHE_READ_TOKENS, "cache_write_tokens": names.CACHE_WRITE_TOKENS},
    "input_token_details": {"cache_read": names.CACHE_READ_TOKENS, "cache_creation": names.CACHE_WRITE_TOKENS},
    "completion_tokens_details": {"reasoning_tokens": names.REASONING_TOKENS},
    "output_tokens_details": {"reasoning_tokens": names.REASONING_TOKENS},
    "output_token_details": {"reasoning": names.REASONING_TOKENS},
}
_OWN = {
    "input_tokens": names.INPUT_TOKENS,
    "output_tokens": names.OUTPUT_TOKENS,
    "cached_tokens": names.CACHE_READ_TOKENS,
    "cache_write_tokens": names.CACHE_WRITE_TOKENS,
    "reasoning_tokens": names.REASONING_TOKENS,
}
_MODEL_KEYS = ("model", "model_version", "modelVersion", "model_name", "modelId")
_ID_KEYS = ("id", "response_id", "responseId")
_USAGE_KEYS = ("usage", "usage_metadata", "usageMetadata")
_FINISH_KEYS = ("finish_reason", "finishReason", "stop_reason", "stopReason", "done_reason")
_ENDINGS = frozenset({*_FINISH_KEYS, "choices", "candidates", "delta", "messageStop"})
_TEXT_KEYS = ("output_text", "content", "message", "answer", "response", "output", "result", "text", "completion")

Facts = dict[str, Any]
"""Span attributes that are read from a result."""


def reply_facts(result: Any) -> Facts:
    """Tokens, model, id, finish reasons and the provider's price, of a whole result or of one chunk of a stream."""
    fields = fields_of(result)
    facts: Facts = {}
    _read(fields, facts)
    for key in ("response", "message"):  # OpenAI `response.completed`, Anthropic `message_start`
        if key in fields and type(fields[key]) is not str:
            _read(fields_of(fields[key]), facts)
    if names.INPUT_TOKENS not in facts or names.RESPONSE_MODEL not in facts:
        _read_margins(fields, facts)
    if type(result) is not dict:
        hidden = read(result, "_hidden_params")  # LiteLLM keeps its price there
        if isinstance(hidden, dict):
            # 0 where it has no price: unknown, not free.
            _put_number(facts, names.COST_TOTAL, hidden.get("response_cost") or None)
    return facts


def add_facts(known: Facts, chunk: Any) -> None:
    """Adds the facts of a later chunk: cumulative counts are replaced, but not by a count that was left at zero."""
    for key, value in reply_facts(chunk).items():
        if value or key not in known:
            known[key] = value


def _read(fields: Mapping[str, Any], facts: Facts) -> None:
    for key in _MODEL_KEYS:
        if type(fields.get(key)) is str:
            facts.setdefault(names.RESPONSE_MODEL, fields[key])
            break
    for key in _ID_KEYS:
        if type(fields.get(key)) is str:
            facts.setdefault(names.RESPONSE_ID, fields[key])
            break
    for key in _USAGE_KEYS:
        if fields.get(key) is not None:
            facts.update(usage_facts(fields[key]))
            break
    reasons = _finish_reasons(fields)
    if reasons:
        facts[names.FINISH_REASONS] = reasons


def _read_margins(fields: Mapping[str, Any], facts: Facts) -> None:
    """Where LangChain (response_metadata), Bedrock streams (metadata) and Ollama (the top level) keep figures."""
    for key in ("response_metadata", "metadata"):
        if key in fields:
            margin = fields_of(fields[key])
            found: Facts = {}
            _read(margin, found)
            found.pop(names.RESPONSE_ID, None)
            facts.update({key: value for key, value in found.items() if key not in facts})
    if "eval_count" in fields and names.OUTPUT_TOKENS not in facts:
        facts.update(usage_facts(fields))


def reply_text(result: Any) -> str | None:
    """The text of a whole reply or of one chunk of a stream; None when there is none to be found."""
    return result if isinstance(result, str) else reply_text_of(fields_of(result))


def reply_text_of(fields: Mapping[str, Any]) -> str | None:
    """As `reply_text`, from a result's fields."""
    if isinstance(fields.get("choices"), list):
        return _choice_text(fields["choices"])
    if "type" in fields and ("delta" in fields or _is_event(fields["type"])):
        return _delta_text(fields)
    if "contentBlockDelta" in fields:
        return _delta_text({"delta": fields_of(fields["contentBlockDelta"]).get("delta")})
    candidates = fields.get("candidates")
    if isinstance(candidates, list):
        return _content(fields_of(candidates[0]).get("content")) if candidates else None
    for key in _TEXT_KEYS:
        found = fields.get(key)
        if found is not None and (text := _content(found)) is not None:
            return text
    return None


def _is_event(kind: Any) -> bool:
    return isinstance(kind, str) and kind.startswith(("response.", "message_", "content_block_"))


def _choice_text(choices: list[Any]) -> str | None:
    if not choices:
        return ""
    first = fields_of(choices[0])
    part = first.get("delta") or first.get("message")
    if part is not None:
        return _content(fields_of(part).get("content")) or ""
    text = first.get("text")
    return text if isinstance(text, str) else None


def _delta_text(fields: Mapping[str, Any]) -> str:
    """Stream events: OpenAI `response.output_text.delta`, content deltas of Anthropic and Bedrock."""
    delta = fields.get("delta")
    if isinstance(delta, str):
        return delta if "output_text" in str(fields.get("type")) else ""
    text = fields_of(delta).get("text")
    return text if isinstance(text, str) else ""


def _content(found: Any) -> str | None:
    """The text of a message's content: a string, a list of parts of which some are text, or a message that has one."""
    if isinstance(found, str):
        return found
    if isinstance(found, (list, tuple)):
        texts = [text for part in found if (text := _content(part)) is not None]
        return "".join(texts) if texts else None
    if isinstance(found, (int, float)):
        return None
    inside = fields_of(found)
    for key in ("text", "content", "parts", "message"):
        if inside.get(key) is not None and (text := _content(inside[key])) is not None:
            return text
    return None


def _finish_reasons(fields: Mapping[str, Any]) -> tuple[str, ...]:
    if _ENDINGS.isdisjoint(fields):
        return ()
    choices = fields.get("choices") or fields.get("candidates")
    if isinstance(choices, list):
        reasons = [_finish_reason(fields_of(choice)) for choice in choices]
    else:
        reasons = [_finish_reason(fields)]
        for key in ("delta", "messageStop"):
            if key in fields:
                reasons.append(_finish_reason(fields_of(fields[key])))
    return tuple([reason for reason in reasons if reason is not None])


def _finish_reason(source: Mapping[str, Any]) -> str | None:
    for key in _FINISH_KEYS:
        found = source.get(key)
        if found is not None:
            return found if type(found) is str else str(getattr(found, "name", found))
    return None


def usage_facts(found: Any) -> Facts:
    """A provider's usage figures under any of their names, or a `Usage`; empty when there are none."""
    if isinstance(found, Usage):
        facts = {key: count for name, key in _OWN.items() if (count := getattr(found, name)) is not None}
        return {**facts, names.USAGE_ESTIMATED: True} if found.estimated else facts
    fields = fields_of(found)
    if "tokens" in fields:  # Cohere
        fields = fields_of(fields["tokens"])
    facts = {}
    for name, value in fields.items():
        if name in _FIGURES:
            _put_count(facts, _FIGURES[name], value)
        elif name in _DETAILS and value is not None:
            inside = fields_of(value)
            for key, figure in _DETAILS[name].items():
                _put_count(facts, figure, inside.get(key))
    _add_apart(fields, facts)
    if "cost" in fields:
        _put_number(facts, names.COST_TOTAL, fields["cost"])
    if fields.get("estimated") is True:
        facts[names.USAGE_ESTIMATED] = True
    return facts


def _add_apart(fields: Mapping[str, Any], facts: Facts) -> None:
    """Counts that a provider keeps beside input and output are added to them, unless its shape includes them."""
    inclusive = "prompt_tokens" in fields or "input_token_details" in fields
    if _APART.keys().isdisjoint(fields):
        return
    for name in _APART.keys() & fields.keys():
        count, figure = fields[name], _APART[name]
        if type(count) is not int or count < 0:
            continue
        facts.setdefault(figure, count)
        whole = names.OUTPUT_TOKENS if figure == names.REASONING_TOKENS else names.INPUT_TOKENS
        if not inclusive and (whole in facts or whole == names.OUTPUT_TOKENS):
            facts[whole] = facts.get(whole, 0) + count


def _put_count(facts: Facts, key: str, value: Any) -> None:
    if key not in facts and (type(value) is int or (type(value) is float and value == value)) and value >= 0:
        facts[key] = int(value)


def _put_number(facts: Facts, key: str, value: Any) -> None:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        facts[key] = float(value)
