"""Reads a call's arguments and result into a recording, by the kind of span and what the user declared."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ragpulse import attributes as names
from ragpulse._guard import GUARD

from .contexts import nested_documents
from .recording import Recording, snapshot_text
from .usage import reply_facts, reply_text, usage_facts
from .values import JsonText, keep, plain, read, to_json

_QUERY_NAMES = (
    "query", "question", "q", "search_query", "user_query", "query_str", "user_input", "message", "messages", "prompt",
    "input", "inputs", "text", "texts",
)  # fmt: skip
_TOP_K_NAMES = ("k", "top_k", "limit", "n_results", "num_results", "similarity_top_k", "top_n")
_WHOLE_INPUT = frozenset({"tool", "agent"})
_DOCUMENT_KINDS = frozenset({"retriever", "reranker"})
_MODEL_KINDS = frozenset({"llm", "embedding"})
_TEXT_KINDS = frozenset({"llm", "rag", "agent"})

Getter = Callable[[tuple[Any, ...], Mapping[str, Any]], Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Declared:
    """The decorator's options about capture; None where an option was not given."""

    query: str | Callable[[Mapping[str, Any]], Any] | None = None
    contexts: Callable[[Any], Any] | None = None
    response: Callable[[Any], Any] | None = None
    usage: Callable[[Any], Any] | None = None
    capture_inputs: bool = True
    capture_outputs: bool = True


def _signature(function: Callable[..., Any]) -> inspect.Signature | None:
    try:
        return inspect.signature(function)
    except (TypeError, ValueError):
        return None


def _getter(signature: inspect.Signature, name: str) -> Getter | None:
    """A reader of one parameter that does not bind the whole call."""
    parameters = list(signature.parameters.values())
    for position, parameter in enumerate(parameters):
        if parameter.name != name:
            continue
        default = None if parameter.default is parameter.empty else parameter.default
        if parameter.kind is parameter.KEYWORD_ONLY:
            return lambda args, kwargs: kwargs.get(name, default)
        if parameter.kind is parameter.VAR_POSITIONAL:
            return lambda args, kwargs: args[position] if len(args) > position else None
        if parameter.kind is parameter.VAR_KEYWORD:
            return lambda args, kwargs: dict(kwargs)
        return lambda args, kwargs: args[position] if len(args) > position else kwargs.get(name, default)
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return lambda args, kwargs: kwargs.get(name)
    return None


def _own_parameters(signature: inspect.Signature) -> list[str]:
    found = list(signature.parameters)
    return found[1:] if found and found[0] in ("self", "cls") else found


class Capture:
    """Reads the calls of one decorated function. Made once, when it is decorated."""

    def __init__(self, function: Callable[..., Any], kind: str, declared: Declared) -> None:
        self.kind = kind
        self.declared = declared
        self._signature = _signature(function)
        self._query = self._query_getter() if declared.capture_inputs else None
        self._top_k = self._top_k_getter() if kind in _DOCUMENT_KINDS else None
        self._reads_facts = kind in _MODEL_KINDS
        self.takes_documents = kind in _DOCUMENT_KINDS

    def _query_getter(self) -> Getter | None:
        declared, signature = self.declared.query, self._signature
        if callable(declared):
            return lambda args, kwargs: declared(self._bound(args, kwargs))
        if signature is None:
            return lambda args, kwargs: args[0] if args else None
        if declared is not None:
            getter = _getter(signature, declared)
            if getter is None:
                GUARD.contain("query=", ValueError(f"the function has no parameter {declared!r}"))
            return getter
        own = _own_parameters(signature)
        if self.kind in _WHOLE_INPUT or self.kind not in names.OPERATIONS:
            return lambda args, kwargs: self._arguments(args, kwargs)
        chosen = next((name for name in _QUERY_NAMES if name in own), own[0] if own else None)
        return _getter(signature, chosen) if chosen else None

    def _top_k_getter(self) -> Getter | None:
        if self._signature is None:
            return None
        chosen = next((name for name in _TOP_K_NAMES if name in self._signature.parameters), None)
        return _getter(self._signature, chosen) if chosen else None

    def _bound(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Mapping[str, Any]:
        if self._signature is None:
            return kwargs
        bound = self._signature.bind(*args, **kwargs)
        bound.apply_defaults()
        return bound.arguments

    def _arguments(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """All arguments by name, as a plain mapping; a single text stays a text."""
        try:
            bound = dict(self._bound(args, kwargs))
        except TypeError:  # the call itself is wrong and raises
            return None
        bound.pop("self", None)
        bound.pop("cls", None)
        values = list(bound.values())
        return values[0] if len(values) == 1 and isinstance(values[0], str) else bound or None

    def arguments(self, recording: Recording, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Records the query and `top_k` before the function may change its arguments."""
        if self._query is not None:
            value = self._query(args, kwargs)
            if type(value) is str:
                recording.query = keep(value)
            elif value is not None:
                self._structured_query(recording, value)
        if self._top_k is not None:
            top_k = self._top_k(args, kwargs)
            if type(top_k) is int:
                recording.put(names.RETRIEVAL_TOP_K, top_k)

    def _structured_query(self, recording: Recording, value: Any) -> None:
        messages = to_messages(value) if isinstance(value, list) else None
        if messages is None:
            recording.query = snapshot_text(value)
            return
        recording.put_text(names.INPUT_MESSAGES, to_json(messages))
        asked = [message for message in messages if message["role"] == "user"]
        recording.query = _message_text(asked[-1]) if asked else None

    def result(self, recording: Recording, result: Any) -> None:
        """Records what the function returned, by the user's declarations and the kind of span."""
        declared = self.declared
        if self._reads_facts and type(result) is not str:
            facts = reply_facts(result)
            if facts:
                recording.put_facts(facts)
        if declared.usage is not None:
            recording.put_facts(_declared_usage(declared.usage(result)))
        if declared.contexts is not None:
            recording.put_contexts(declared.contexts(result))
        if not declared.capture_outputs:
            return
        if declared.response is not None:
            recording.response = snapshot_text(declared.response(result))
        elif declared.contexts is None and self.takes_documents:
            if recording.documents is None:
                recording.put_contexts(result)
        elif recording.response is None:
            self._response(recording, result)

    def _response(self, recording: Recording, result: Any) -> None:
        if type(result) is str:
            recording.response = keep(result)
            return
        if result is None or self.kind == "embedding":
            return
        text = reply_text(result) if self.kind in _TEXT_KINDS else None
        recording.response = keep(text) if text is not None else to_json(result)
        if self.kind == "llm" and (recording.texts or {}).get(names.INPUT_MESSAGES):
            self._output_messages(recording, text)
        if self.kind == "rag" and recording.documents is None and self.declared.contexts is None:
            documents = nested_documents(result)
            if documents is not None:
                recording.put_contexts(documents)

    def _output_messages(self, recording: Recording, text: str | None) -> None:
        if text is None:
            return
        message: dict[str, Any] = {"role": "assistant", "parts": [{"type": "text", "content": text}]}
        reasons = (recording.facts or {}).get(names.FINISH_REASONS)
        if reasons:
            message["finish_reason"] = reasons[0]
        recording.put_text(names.OUTPUT_MESSAGES, to_json([message]))


def _declared_usage(value: Any) -> dict[str, Any]:
    found = usage_facts(value)
    if not found:
        raise ValueError(f"usage= returned {type(value).__name__}, which has no token counts")
    return found


def to_messages(value: list[Any]) -> list[dict[str, Any]] | None:
    """Chat messages in any library's shape -> OpenTelemetry's `{"role", "parts"}`; None when these are no messages."""
    found = []
    for item in value:
        role = read(item, "role") or read(item, "type")
        content = read(item, "content")
        if not isinstance(role, str) or (content is None and read(item, "tool_calls") is None):
            return None
        role = {"human": "user", "ai": "assistant"}.get(role, role)
        found.append({"role": role, "parts": [*_parts(content), *_tool_calls(read(item, "tool_calls"))]})
    return found or None


def _parts(content: Any) -> list[dict[str, Any]]:
    if isinstance(content, str):
        return [{"type": "text", "content": content}]
    if not isinstance(content, list):
        return []
    parts = []
    for part in content:
        text = part if isinstance(part, str) else read(part, "text")
        parts.append(
            {"type": "text", "content": text} if isinstance(text, str) else {"type": "other", "content": plain(part)}
        )
    return parts


def _tool_calls(calls: Any) -> list[dict[str, Any]]:
    if not isinstance(calls, list):
        return []
    return [
        {
            "type": "tool_call",
            "id": plain(read(call, "id")),
            "name": plain(read(read(call, "function"), "name") or read(call, "name")),
            "arguments": plain(read(read(call, "function"), "arguments") or read(call, "args")),
        }
        for call in calls
    ]


def _message_text(message: dict[str, Any]) -> str | JsonText:
    return "".join(part["content"] for part in message["parts"] if part["type"] == "text")
