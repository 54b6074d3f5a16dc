"""Reads chat completions in every shape that servers send: the text, why it ended, and what was counted.

A text that is not an answer is never read as one: `JudgeCall.problem` then names the field that was filled.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from functools import reduce
from math import inf
from typing import Any

from ragpulse_evaluators.judges.protocol import count_tokens, fewest_tokens
from ragpulse_evaluators.judges.rejections import Rejection
from ragpulse_evaluators.usage import counted, whole_number

Fields = Mapping[str, Any]
JsonObject = dict[str, Any]
BLOCKED = "content_filter"
_ENDS = {
    BLOCKED: r"\w*content_?filter\w*|safety|\w+_safety|\w*recitation|blocklist|prohibited_content|spii|blocked|\w*toxic"
    r"|guardrail_intervened|guardrails?|\w*sensitive|data_inspection_failed|moderation|model_armor|flagged|language",
    "refusal": "refusal|refused",
    "error": r"error|\w+_error|failed|insufficient_system_resource|malformed_\w+|abort(?:ed)?",
    "length": r"\w*(?:max_?(?:\w+_)?(?:len|tokens?|context|output)|token_limit|context_(?:length|window))\w*|length"
    "|model_length|error_limit|limit|incomplete",
    "cut": r"cut|not_finished|\w*time_?(?:limit|out)|\w*cancel\w*|interrupt\w*|\w*truncat\w*|pause_turn",
}
"""Why a reply ended → the spellings of providers, in lower case; any other reason is a stop."""
_ENDING = re.compile("|".join(f"(?P<{name}>{spellings})" for name, spellings in _ENDS.items()))
_BRACKET = re.compile(r'\\.|["\[\]{}]', re.DOTALL)
_DEEPEST, _MOST_CHECKED, _MOST_TOKENS, _SMALLEST_WINDOW = 64, 2_000_000, 2**31, 500
MOST_SIGNS = 500_000
"""A longer reply is not read: no limit of a reply allows it."""
NESTED = f"the reply is nested deeper than {_DEEPEST} levels"
LONG = f"the reply is longer than {MOST_SIGNS:,} characters"
_FINAL = re.compile(
    r".*(?:[<\[]/(?:think|thinking|thought|reasoning)[>\]]|^\W*final (?:answer|verdict|score|reply)\W*[:=])",
    re.DOTALL | re.IGNORECASE | re.MULTILINE,
)
_NO_TEXT = ("role", "provider_specific_fields")
_REASONING = ("reasoning_content", "reasoning", "thinking")
_PIECES = ("content", "refusal", "arguments", *_REASONING)
"""What a stream sends piece by piece."""


class Unanswered(Exception):
    """A reply of status 200 that is no chat completion."""


def end_of(reason: Any) -> str:
    """`length`, `cut`, `content_filter`, `refusal` or `error` for every provider's spelling of it, else `stop`."""
    word = re.sub(r"\W+", "_", str(reason or "").partition(":")[0].strip()).rpartition("FinishReason_")[2]
    match = _ENDING.fullmatch(word.casefold())
    return str(match.lastgroup) if match else "stop"


def is_nested(text: str) -> bool:
    """Whether brackets outside strings stand deeper than any verdict needs: known before anything is parsed."""
    depth, quoted = 0, False
    for bracket in _BRACKET.finditer(text, 0, _MOST_CHECKED):
        quoted ^= bracket[0] == '"'
        depth += 0 if quoted else (bracket[0] in "[{") - (bracket[0] in "]}")
        if depth > _DEEPEST:
            return True
    return False


def joined(body: str, content_type: str) -> JsonObject:
    """The JSON object of a body; the chunks of an event stream as one completion. Raises `Unanswered`.

    A stream that has no end, or ends with an error, is a reply that was cut.
    """
    text = body.strip("\ufeff \n\r\t")
    if is_nested(text):
        return {"choices": [{"message": {}, "problem": NESTED}]}
    lines = [line.removeprefix("data:").strip() for line in text.split("\n") if line.startswith(("data:", "{"))]
    for candidates in ([text], [line for line in lines if line != "[DONE]"]):
        try:
            objects = [json.loads(candidate) for candidate in candidates]
        except (ValueError, RecursionError):
            continue
        if objects and all(isinstance(one, dict) for one in objects):
            is_whole = candidates == [text]
            whole = objects[0] if is_whole else reduce(_with_chunk, objects, JsonObject())
            if error := whole.get("error") or not (is_whole or "[DONE]" in lines):
                _cut(whole.get("choices"), "the stream has no end" if error is True else str(error))
            return whole
    raise Unanswered(f"the reply is no chat completion but {content_type or 'of no content type'}: {text[:80]!r}")


def _cut(choices: Any, why: str) -> None:
    for choice in choices if isinstance(choices, list) else ():
        if isinstance(choice, dict) and not choice.get("finish_reason"):
            choice["finish_reason"] = f"cut: {why}"


def _with_chunk(whole: JsonObject, chunk: Fields) -> JsonObject:
    """A streamed completion with one more chunk: texts are put together, of everything else the last counts."""
    for key, value in chunk.items():
        name = "message" if key == "delta" else key
        before = whole.get(name)
        if isinstance(value, dict):
            whole[name] = _with_chunk(before if isinstance(before, dict) else {}, value)
        elif name in ("choices", "tool_calls"):
            parts = {part.get("index", 0): part for part in (before if isinstance(before, list) else ())}
            for part in value if isinstance(value, list) else ():
                if isinstance(part, dict):
                    parts[part.get("index", 0)] = _with_chunk(parts.get(part.get("index", 0), {}), part)
            whole[name] = list(parts.values())
        elif value is not None:
            whole[name] = before + value if name in _PIECES and isinstance(before, type(value)) else value
    return whole


def read_choices(answer: Fields) -> list[JsonObject]:
    """Fields of a `JudgeCall` for each choice; raises `Unanswered` where there is none."""
    choices = answer.get("choices")
    if not (choices and isinstance(choices, list)):
        said = Rejection(200, json.dumps(answer, ensure_ascii=False, default=str))
        if said.filtered:
            return [{"completion": "", "finish_reason": BLOCKED, "problem": str(said)}]
        raise Unanswered(f"a chat completion without choices; its fields: {', '.join(answer)}")
    if not all(isinstance(choice, Mapping) and isinstance(choice.get("message"), Mapping) for choice in choices):
        raise Unanswered("a choice without a message")
    return [_read_choice(choice) for choice in choices]


def _read_choice(choice: Fields) -> JsonObject:
    message = choice["message"]
    stated = "error" if choice.get("error") else choice.get("finish_reason")
    reason = str(stated.get("type") if isinstance(stated, Mapping) else stated or "") or None
    text = text_of(message.get("content"))
    extra = message.get("provider_specific_fields") or {}  # where litellm puts what only some providers have
    refusal = message.get("refusal") or extra.get("refusal")
    if refusal:
        text, reason = text or refusal, reason if text else "refusal"
    elif not text.strip():
        text = _elsewhere(message) if end_of(reason) == "stop" else ""
    filled = ", ".join(key for key, value in message.items() if value and key not in _NO_TEXT)
    empty = f"the reply has no content; filled is {filled}" if filled else "the reply is empty"
    logprobs = _first_token_logprobs(choice)
    problem = choice.get("problem") or (empty if not text and end_of(reason) == "stop" else None)
    return {"completion": text, "finish_reason": reason, "logprobs": logprobs, "problem": problem}


def _elsewhere(message: Fields) -> str:
    """The answer of a message without content: arguments of a call, else the final answer within the reasoning."""
    calls = [*(message.get("tool_calls") or ()), {"function": message.get("function_call")}]
    functions = [call["function"] for call in calls if isinstance(call, Mapping) and call.get("function")]
    found = [function.get("arguments") for function in functions if isinstance(function, Mapping)]
    texts = [one if isinstance(one, str) else json.dumps(one, ensure_ascii=False) for one in found if one]
    return next(filter(None, (*texts, *(_final_answer(text_of(message.get(field))) for field in _REASONING))), "")


def _final_answer(reasoning: str) -> str:
    """What follows the end of reasoning or "Final answer:"; all of it where it is one JSON object."""
    text = reasoning.strip()
    end = _FINAL.match(text)
    return text if text[:1] + text[-1:] == "{}" else text[end.end() :].strip(" *\n") if end else ""


def text_of(content: Any) -> str:
    """The text of a content in any of its forms: a string, parts, an object; reasoning parts are left out."""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "".join(map(text_of, content))
    if not isinstance(content, Mapping) or content.get("type") in ("thinking", "reasoning", "redacted_thinking"):
        return ""
    inner = next((content[key] for key in ("text", "value", "content", "parts") if content.get(key)), None)
    if inner is None and not content.keys() & {"type", "text"}:
        return json.dumps(dict(content), ensure_ascii=False) if content else ""  # the verdict itself, as an object
    return text_of(inner)


def _first_token_logprobs(choice: Fields) -> dict[str, float] | None:
    """Candidates of the first completion token with their log-probabilities."""
    content = (choice.get("logprobs") or {}).get("content")
    if not content:
        return None
    candidates = content[0].get("top_logprobs") or [content[0]]
    return {candidate["token"]: candidate["logprob"] for candidate in candidates}


def read_usage(answer: Fields, prompt: str, texts: Iterable[str]) -> JsonObject:
    """Tokens of a request; those that cannot be true beside a text are estimated from the texts, and marked."""
    usage = answer["usage"] if isinstance(answer.get("usage"), Mapping) else {}
    stated = _count(usage, "prompt_tokens", "input_tokens"), _count(usage, "completion_tokens", "output_tokens")
    reasoning = _count(usage.get("completion_tokens_details"), "reasoning_tokens")
    details = _count(usage.get("prompt_tokens_details"), "cached_tokens")
    cached = details or _count(usage, "cache_read_input_tokens", "prompt_cache_hit_tokens") or details
    written = _count(usage, "cache_creation_input_tokens")
    apart = "prompt_tokens" not in usage and "cache_read_input_tokens" in usage
    total = max(_count(usage, "total_tokens") or 0, sum(filter(None, stated)))  # the parts are what is billed
    *counts, problem = counted(*stated, cached, written, reasoning, total, apart)
    tier = answer.get("service_tier") or usage.get("service_tier")
    text, found = "".join(texts), counts
    if problem:
        found = [None, None]  # unknown, never a figure
    elif text:
        found = [counts[0] or count_tokens(prompt), counts[1] or count_tokens(text)]
    return {
        "input_tokens": found[0],
        "output_tokens": found[1],
        "cached_tokens": cached,
        "cache_write_tokens": written,
        "reasoning_tokens": reasoning,
        "service_tier": tier[:40] if isinstance(tier, str) else None,
        "estimated": bool(text) and not problem and found != counts,
        "cost_usd": answer.get("cost_usd") if found == [*stated] and 0 <= (answer.get("cost_usd") or 0) < inf else None,
    }


def unread(answer: Fields, prompt: str) -> str | None:
    """Why a reply is about a part of the prompt: the server counted far fewer tokens than the prompt can have."""
    usage = answer["usage"] if isinstance(answer.get("usage"), Mapping) else {}
    counts = {**usage, **(usage.get("prompt_tokens_details") or {})}
    read = sum(_count(counts, name) or 0 for name in counts if re.search("prompt|input|cache", name))
    if not _SMALLEST_WINDOW <= read < fewest_tokens(prompt):
        return None
    return (
        f"the judge read {read:,} of about {count_tokens(prompt):,} tokens: raise its window (Ollama:"
        " OLLAMA_CONTEXT_LENGTH=16384 ollama serve), or state it as window in [judge], and contexts are cut to it"
    )


def _count(fields: Any, *names: str) -> int | None:
    """The first of these counts that is stated."""
    stated = (fields[name] for name in names if name in fields) if isinstance(fields, Mapping) else ()
    count = whole_number(next(iter(stated), None))
    return count if (count or 0) < _MOST_TOKENS else None
