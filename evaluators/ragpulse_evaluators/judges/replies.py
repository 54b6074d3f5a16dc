"""Reads chat completions in every shape that servers send: the text, why it ended, and what was counted.

A text that is not an answer is never read as one: `JudgeCall.problem` then names the field that was filled.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from ragpulse_evaluators.judges.protocol import count_tokens
from ragpulse_evaluators.usage import counted, whole_number

__all__ = ("BLOCKED", "Unanswered", "end_of", "joined", "read_choices", "read_usage")

BLOCKED = "content_filter"
_ENDS = {
    "length": "length|max_tokens|max_output_tokens|max_new_tokens|max_completion_tokens|model_length|token_limit"
    "|model_context_window_exceeded|context_length_exceeded|incomplete",
    BLOCKED: "content_?filter\\w*|safety|\\w+_safety|recitation|\\w*_recitation|blocklist|prohibited_content|spii"
    "|blocked|guardrail_intervened|guardrails?|sensitive|data_inspection_failed|moderation|model_armor|flagged|language",
    "refusal": "refusal|refused",
    "error": "error|\\w+_error|failed|insufficient_system_resource|malformed_\\w+|abort(?:ed)?",
}
"""Why a reply ended → the spellings of providers, in lower case; any other reason is a stop."""
_ENDING = re.compile("|".join(f"(?P<{name}>{spellings})" for name, spellings in _ENDS.items()))
_FINAL = re.compile(
    r".*(?:[<\[]/(?:think|thinking|thought|reasoning)[>\]]|^\W*final (?:answer|verdict|score|reply)\W*[:=])",
    re.DOTALL | re.IGNORECASE | re.MULTILINE,
)
_REASONING = ("reasoning_content", "reasoning", "thinking")


class Unanswered(Exception):
    """A reply of status 200 that is no chat completion; `usage` is what it says was counted."""

    def __init__(self, problem: str, usage: Mapping[str, Any] | None = None) -> None:
        super().__init__(problem)
        self.usage = usage


def end_of(reason: Any) -> str:
    """`length`, `content_filter`, `refusal` or `error` for every provider's spelling of it, else `stop`."""
    word = re.sub(r"\W+", "_", str(reason or "").partition(":")[0].strip()).rpartition("FinishReason_")[2]
    match = _ENDING.fullmatch(word.casefold())
    return str(match.lastgroup) if match else "stop"


def joined(body: bytes, content_type: str) -> Mapping[str, Any]:
    """The JSON object of a body; the chunks of an event stream as one completion. Raises `Unanswered`."""
    text = body.decode("utf-8-sig", errors="replace").strip()
    lines = [line.removeprefix("data:").strip() for line in text.splitlines() if line.startswith(("data:", "{"))]
    for candidates in ([text], [line for line in lines if line != "[DONE]"]):
        try:
            objects = [json.loads(candidate) for candidate in candidates]
        except (ValueError, RecursionError):
            continue
        if objects and all(isinstance(one, dict) for one in objects):
            return objects[0] if len(objects) == 1 and candidates == [text] else _one_completion(objects)
    raise Unanswered(f"the reply is no chat completion but {content_type or 'of no content type'}: {text[:80]!r}")


def _one_completion(chunks: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """A streamed completion: texts of its chunks are put together, of everything else the last counts."""
    whole: dict[str, Any] = {}
    choices: dict[Any, dict[str, Any]] = {}
    for chunk in chunks:
        whole |= {key: value for key, value in chunk.items() if value is not None and key != "choices"}
        for choice in chunk.get("choices") or ():
            one = choices.setdefault(choice.get("index", 0), {"message": {}})
            one |= {
                key: value for key, value in choice.items() if value is not None and key not in ("delta", "message")
            }
            for key, value in (choice.get("delta") or choice.get("message") or {}).items():
                before = one["message"].get(key)
                one["message"][key] = before + value if isinstance(before, type(value)) and key != "role" else value
    return whole | ({"choices": list(choices.values())} if choices else {})


def read_choices(answer: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Fields of a `JudgeCall` for each choice; raises `Unanswered` where there is none."""
    usage = answer.get("usage") if isinstance(answer.get("usage"), Mapping) else None
    choices = answer.get("choices")
    if not isinstance(choices, list) or not choices:
        if _is_blocked(answer):
            return [{"completion": "", "finish_reason": BLOCKED}]
        state = (
            "without choices" if "choices" in answer else f"without choices: it has {', '.join(answer) or 'nothing'}"
        )
        raise Unanswered(f"a chat completion {state}", usage)
    if not all(isinstance(choice, Mapping) and isinstance(choice.get("message"), Mapping) for choice in choices):
        raise Unanswered("a choice without a message", usage)
    return [_read_choice(choice) for choice in choices]


def _is_blocked(answer: Mapping[str, Any]) -> bool:
    """Whether a reply without choices says that the question was blocked, as Gemini's `promptFeedback` does."""
    feedback = answer.get("promptFeedback") or answer.get("prompt_feedback") or {}
    return bool(isinstance(feedback, Mapping) and (feedback.get("blockReason") or feedback.get("block_reason")))


def _read_choice(choice: Mapping[str, Any]) -> dict[str, Any]:
    message = choice["message"]
    extra = message.get("provider_specific_fields") or {}  # where litellm puts what only some providers have
    refusal = message.get("refusal") or extra.get("refusal")
    reason = "error" if choice.get("error") else choice.get("finish_reason")
    content = text_of(message.get("content"))
    fields = {"finish_reason": reason, "logprobs": _first_token_logprobs(choice)}
    if content.strip() or refusal:
        return fields | ({"completion": content} if content else {"completion": refusal, "finish_reason": "refusal"})
    answer = _elsewhere(message) if end_of(reason) == "stop" else ""
    return fields | {"completion": answer, "problem": None if answer else _problem(message)}


def _elsewhere(message: Mapping[str, Any]) -> str:
    """The answer of a message without content: arguments of a call, else the final answer within the reasoning."""
    calls = [call for call in message.get("tool_calls") or () if isinstance(call, Mapping)]
    for function in (*(call.get("function") for call in calls), message.get("function_call")):
        arguments = function.get("arguments") if isinstance(function, Mapping) else None
        if arguments:
            return arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    return next((text for field in _REASONING if (text := _final_answer(text_of(message.get(field))))), "")


def _final_answer(reasoning: str) -> str:
    """What follows the end of reasoning or "Final answer:"; all of it where it is one JSON object."""
    text = reasoning.strip()
    if text.startswith("{") and text.endswith("}"):
        return text
    end = _FINAL.match(text)
    return text[end.end() :].strip(" *\n") if end else ""


def _problem(message: Mapping[str, Any]) -> str:
    filled = [key for key, value in message.items() if value and key not in ("role", "provider_specific_fields")]
    return f"the reply has no content; filled is {', '.join(filled)}" if filled else "the reply is empty"


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


def _first_token_logprobs(choice: Mapping[str, Any]) -> dict[str, float] | None:
    """Candidates of the first completion token with their log-probabilities."""
    content = (choice.get("logprobs") or {}).get("content") or []
    if not content:
        return None
    candidates = content[0].get("top_logprobs") or [content[0]]
    return {candidate["token"]: candidate["logprob"] for candidate in candidates}


def read_usage(answer: Mapping[str, Any], prompt: str, texts: Iterable[str]) -> dict[str, Any]:
    """Tokens of a request; those that cannot be true beside a text are estimated from the texts, and marked."""
    stated = answer.get("usage")
    usage: Mapping[str, Any] = stated if isinstance(stated, Mapping) else {}
    reasoning, cached = (
        whole_number(details.get(name)) if isinstance(details := usage.get(part), Mapping) else None
        for part, name in (
            ("completion_tokens_details", "reasoning_tokens"),
            ("prompt_tokens_details", "cached_tokens"),
        )
    )
    names = (("prompt_tokens", "input_tokens"), ("completion_tokens", "output_tokens"), ("total_tokens",))
    read, written, total = (next((whole_number(usage[name]) for name in row if name in usage), None) for row in names)
    if total is not None and total < (read or 0) + (written or 0):
        total = None  # the parts are what is billed
    text, counts = "".join(texts), counted(read, written, total=total, cached=cached, reasoning=reasoning)
    if counts.problem:
        return {"input_tokens": None, "output_tokens": None, "cost_usd": None}  # unknown, never a figure
    estimated = bool(text) and not (counts.input and counts.output)
    if not (text or usage) and "choices" in answer:
        counts = counts._replace(input=0, output=0)  # a question without an answer that was not counted
    return {
        "input_tokens": counts.input or (count_tokens(prompt) if text else counts.input),
        "output_tokens": counts.output or (count_tokens(text) if text else counts.output),
        "reasoning_tokens": reasoning,
        "estimated": estimated,
        "cost_usd": None if estimated or counts[:2] != (read, written) else answer.get("cost_usd"),
    }
