"""What a model returned -> text, tokens, model, finish reason and the provider's own price.

One reader serves every provider, since each names the same few figures: OpenAI (chat and responses), Anthropic,
LiteLLM, Google, Bedrock, Cohere, Ollama and LangChain shapes, as objects or dicts, whole or in stream chunks.
Canonical counts follow OpenTelemetry: input includes cached tokens, output includes reasoning tokens. Providers that
count them apart (Anthropic, Bedrock; Google for reasoning) are added up here.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ._plain import read


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


@dataclass(slots=True)
class Reply:
    """What could be read from a model's result, or gathered from the chunks of a stream."""

    text: str | None = None
    model: str | None = None
    id: str | None = None
    finish_reasons: tuple[str, ...] = ()
    usage: Usage | None = None
    cost_usd: float | None = None

    def update(self, chunk: Any) -> None:
        """Take what a later chunk of the same reply tells; its text is kept by the stream."""
        told = read_reply(chunk)
        self.model = self.model or told.model
        self.id = self.id or told.id
        self.finish_reasons = told.finish_reasons or self.finish_reasons
        self.usage = _merged(self.usage, told.usage)
        self.cost_usd = told.cost_usd if told.cost_usd is not None else self.cost_usd


def read_reply(result: Any) -> Reply:
    """Read a model's whole result, or one chunk of it; what it does not tell stays None."""
    inner = next((found for key in ("response", "message") if _is_reply(found := read(result, key))), result)
    usage, cost = _usage_of(result)
    if usage is None and inner is not result:
        usage, cost = _usage_of(inner)
    return Reply(
        text=reply_text(result),
        model=_text(inner, "model", "model_version", "modelVersion", "model_name", "modelId")
        or _text(read(inner, "response_metadata"), "model_name", "model"),
        id=_text(inner, "id", "response_id", "responseId"),
        finish_reasons=_finish_reasons(inner if inner is not result else result),
        usage=usage,
        cost_usd=cost,
    )


def _is_reply(found: Any) -> bool:
    return found is not None and not isinstance(found, (str, bytes)) and read(found, "usage") is not None


def reply_text(result: Any) -> str | None:
    """The text of a whole reply or of one chunk of a stream; None when there is none to be found."""
    if isinstance(result, str):
        return result
    for path in (_choice_text, _event_text, _candidate_text, _own_text):
        text = path(result)
        if text is not None:
            return text
    return None


def _choice_text(result: Any) -> str | None:
    choices = read(result, "choices")
    if not isinstance(choices, list):
        return None
    if not choices:
        return ""
    for key in ("delta", "message"):
        part = read(choices[0], key)
        if part is not None:
            return _joined(read(part, "content")) or ""
    return _text(choices[0], "text")


def _event_text(result: Any) -> str | None:
    """Stream events: Anthropic and Bedrock content deltas, OpenAI `response.output_text.delta`."""
    kind = read(result, "type")
    delta = read(result, "delta")
    if isinstance(kind, str) and (delta is not None or kind.startswith(("response.", "message_", "content_block_"))):
        if isinstance(delta, str):
            return delta if "output_text" in kind else ""
        return _text(delta, "text") or ""
    block = read(result, "contentBlockDelta")
    return None if block is None else _text(read(block, "delta"), "text") or ""


def _candidate_text(result: Any) -> str | None:
    candidates = read(result, "candidates")
    if not isinstance(candidates, list) or not candidates:
        return None
    return _joined(read(read(candidates[0], "content"), "parts"))


def _own_text(result: Any) -> str | None:
    for key in ("output_text", "content", "message", "answer", "response", "output", "result", "text", "completion"):
        found = read(result, key)
        if isinstance(found, str):
            return found
        if isinstance(found, list) and (text := _joined(found)) is not None:
            return text
        if found is not None and not callable(found) and not isinstance(found, (list, int, float)):
            nested = _joined(read(found, "content")) or _text(found, "content", "text") or _nested_message(found)
            if nested is not None:
                return nested
    return None


def _nested_message(found: Any) -> str | None:
    return _joined(read(read(found, "message"), "content"))


def _joined(parts: Any) -> str | None:
    """The text of a message's content: a string, or a list of parts of which some are text."""
    if isinstance(parts, str):
        return parts
    if not isinstance(parts, (list, tuple)):
        return None
    texts = [text for part in parts if (text := _part_text(part)) is not None]
    return "".join(texts) if texts else None


def _part_text(part: Any) -> str | None:
    if isinstance(part, str):
        return part
    return _text(part, "text") or _joined(read(part, "content"))


def _text(source: Any, *keys: str) -> str | None:
    for key in keys:
        found = read(source, key)
        if isinstance(found, str):
            return found
    return None


def _finish_reasons(result: Any) -> tuple[str, ...]:
    choices = read(result, "choices") or read(result, "candidates")
    sources = choices if isinstance(choices, list) else [result, read(result, "delta"), read(result, "messageStop")]
    sources = [*sources, read(result, "response_metadata")]
    found = []
    for source in sources:
        for key in ("finish_reason", "finishReason", "stop_reason", "stopReason", "done_reason"):
            reason = read(source, key) if source is not None else None
            if reason is not None and not callable(reason):
                found.append(str(getattr(reason, "name", reason)))
                break
    return tuple(found)


def _usage_of(result: Any) -> tuple[Usage | None, float | None]:
    hidden = read(result, "_hidden_params")
    cost = _float(read(hidden, "response_cost")) if isinstance(hidden, Mapping) else None
    for key in ("usage", "usage_metadata", "usageMetadata"):
        found = read(result, key)
        if found is not None and not callable(found):
            return usage_from(found), cost if cost is not None else _float(read(found, "cost"))
    metadata = read(result, "metadata")
    if isinstance(metadata, Mapping) and isinstance(metadata.get("usage"), Mapping):
        return usage_from(metadata["usage"]), cost
    if read(result, "eval_count") is not None:
        return usage_from(result), cost
    return None, cost


def usage_from(found: Any) -> Usage | None:
    """A provider's usage figures under any of their names -> `Usage`; None when there are none."""
    if isinstance(found, Usage):
        return found
    tokens = read(found, "tokens")
    source = tokens if tokens is not None and not callable(tokens) else found
    given_in = _int(
        source,
        "prompt_tokens",
        "input_tokens",
        "inputTokens",
        "prompt_token_count",
        "promptTokenCount",
        "prompt_eval_count",
    )
    given_out = _int(
        source,
        "completion_tokens",
        "output_tokens",
        "outputTokens",
        "candidates_token_count",
        "candidatesTokenCount",
        "eval_count",
    )
    if given_in is None and given_out is None:
        return None
    read_apart = _int(source, "cache_read_input_tokens", "cacheReadInputTokens")
    written_apart = _int(source, "cache_creation_input_tokens", "cacheWriteInputTokens")
    inclusive = read(source, "prompt_tokens") is not None or read(source, "input_token_details") is not None
    apart = 0 if inclusive else (read_apart or 0) + (written_apart or 0)
    thoughts = _int(source, "thoughts_token_count", "thoughtsTokenCount")
    cached = _detail(
        source, ("prompt_tokens_details", "input_tokens_details", "input_token_details"), "cached_tokens", "cache_read"
    )
    written = _detail(
        source,
        ("prompt_tokens_details", "input_tokens_details", "input_token_details"),
        "cache_write_tokens",
        "cache_creation",
    )
    reasoning = _detail(
        source,
        ("completion_tokens_details", "output_tokens_details", "output_token_details"),
        "reasoning_tokens",
        "reasoning",
    )
    return Usage(
        input_tokens=None if given_in is None else given_in + apart,
        output_tokens=given_out if thoughts is None else (given_out or 0) + thoughts,
        cached_tokens=_either(
            cached, read_apart, _int(source, "cached_content_token_count", "cachedContentTokenCount", "cached_tokens")
        ),
        cache_write_tokens=_either(written, written_apart, _int(source, "cache_write_tokens")),
        reasoning_tokens=_either(reasoning, thoughts, _int(source, "reasoning_tokens")),
        estimated=read(found, "estimated") is True,
    )


def _merged(before: Usage | None, later: Usage | None) -> Usage | None:
    """Chunks repeat cumulative counts and may leave out what an earlier one said: the latest figure told wins."""
    if before is None or later is None:
        return later or before
    figures = {
        name: _either(getattr(later, name) or None, getattr(before, name), getattr(later, name))
        for name in ("input_tokens", "output_tokens", "cached_tokens", "cache_write_tokens", "reasoning_tokens")
    }
    return Usage(**figures, estimated=before.estimated or later.estimated)


def _either(*candidates: int | None) -> int | None:
    return next((found for found in candidates if found is not None), None)


def _detail(source: Any, groups: tuple[str, ...], *keys: str) -> int | None:
    for group in groups:
        found = read(source, group)
        if found is not None:
            return _int(found, *keys)
    return None


def _int(source: Any, *keys: str) -> int | None:
    for key in keys:
        found = read(source, key)
        if isinstance(found, (int, float)) and not isinstance(found, bool) and found >= 0:
            return int(found)
    return None


def _float(found: Any) -> float | None:
    return float(found) if isinstance(found, (int, float)) and not isinstance(found, bool) else None
