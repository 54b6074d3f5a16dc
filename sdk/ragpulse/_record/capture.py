"""Reads a call's arguments and result into a recording, by the kind of span and what the user declared."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from ragpulse import attributes as names
from ragpulse._guard import GUARD, logger
from ragpulse._reading.contexts import Document, documents_in, with_candidate_texts
from ragpulse._reading.hits import nested_hits
from ragpulse._reading.replies import calls_of_message, is_call, opened, text_in, tool_calls
from ragpulse._reading.usage import facts_in, usage_facts
from ragpulse._reading.values import JsonText, bounded, fields_of, plain, read, to_json, type_name

from .credentials import is_secret_name
from .recording import Recording, snapshot_text

_QUERY_NAMES = (
    "query", "question", "q", "search_query", "user_query", "query_str", "user_input", "message", "messages", "prompt",
    "input", "inputs", "text", "texts",
)  # fmt: skip
_TOP_K_NAMES = ("k", "top_k", "limit", "n_results", "num_results", "similarity_top_k", "top_n")
_WHOLE_INPUT = frozenset({"tool", "agent"})
_DOCUMENT_KINDS = frozenset({"retriever", "reranker"})
_CANDIDATE_NAMES = ("documents", "docs", "candidates", "contexts", "passages", "chunks", "nodes", "results", "texts")
_MODEL_KINDS = frozenset({"llm", "embedding"})
_TEXT_KINDS = frozenset({"llm", "rag", "agent"})
FACT_KINDS = _MODEL_KINDS | _TEXT_KINDS
"""Kinds whose results are searched for token counts."""

Getter = Callable[[tuple[Any, ...], Mapping[str, Any]], Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptureOptions:
    """The options of a decorator about capture; None is the default."""

    query: str | Callable[[Mapping[str, Any]], Any] | None = None
    contexts: str | Callable[[Any], Any] | None = None
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
    parameters = list(signature.parameters)
    return parameters[1:] if parameters and parameters[0] in ("self", "cls") else parameters


def _unknown_parameter(function: str, name: str, signature: inspect.Signature) -> str:
    suggestions = get_close_matches(name, signature.parameters, 1, 0.0)
    fix = f"did you mean query={suggestions[0]!r}?" if suggestions else "it has none: give query= a function"
    return f"query={name!r}: {function} has no parameter of this name: {fix}"


class Capture:
    """Reads the calls of one decorated function. Made once, when it is decorated."""

    def __init__(self, function: Callable[..., Any], kind: str, options: CaptureOptions) -> None:
        self.kind = kind
        self.options = options
        self._name = getattr(function, "__qualname__", type(function).__qualname__)
        self._signature = _signature(function)
        self._field = options.contexts if isinstance(options.contexts, str) else None
        self._query = self._query_getter() if options.capture_inputs else None
        self._top_k = self._getter_of(_TOP_K_NAMES) if kind in _DOCUMENT_KINDS else None
        self._candidates = self._getter_of(_CANDIDATE_NAMES) if kind == "reranker" else None
        self.takes_candidates = self._candidates is not None
        self._reads_facts = kind in FACT_KINDS
        self._warned = False
        self.takes_documents = kind in _DOCUMENT_KINDS

    def _query_getter(self) -> Getter | None:
        options, signature = self.options.query, self._signature
        if callable(options):
            return lambda args, kwargs: options(self._bound(args, kwargs))
        if signature is None:
            return lambda args, kwargs: args[0] if args else None
        if options is not None:
            getter = _getter(signature, options)
            if getter is None:
                GUARD.contain("query=", ValueError(_unknown_parameter(self._name, options, signature)))
            return getter
        parameters = [name for name in _own_parameters(signature) if not is_secret_name(name)]
        if self.kind in _WHOLE_INPUT or self.kind not in names.OPERATIONS:
            return lambda args, kwargs: self._arguments(args, kwargs)
        parameter = next((name for name in _QUERY_NAMES if name in parameters), parameters[0] if parameters else None)
        return _getter(signature, parameter) if parameter else None

    def _getter_of(self, parameters: tuple[str, ...]) -> Getter | None:
        """A reader of the first of these parameters that the function has."""
        signature = self._signature
        name = next((name for name in parameters if name in signature.parameters), None) if signature else None
        return _getter(signature, name) if signature and name else None

    def candidates(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[Document, ...]:
        """The documents that a reranker receives, read before it sorts them: its result may name them by index only."""
        return () if self._candidates is None else documents_in(self._candidates(args, kwargs), self._field) or ()

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
        name, value = next(iter(bound.items()), ("", None))
        return value if len(bound) == 1 and isinstance(value, str) and not is_secret_name(name) else bound or None

    def arguments(self, recording: Recording, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Records the query and `top_k` before the function may change its arguments."""
        if self._query is not None:
            value = self._query(args, kwargs)
            if type(value) is str:
                recording.query = bounded(value)
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
        questions = [message for message in messages if message["role"] == "user"]
        recording.query = _message_text(questions[-1]) if questions else None

    def result(self, recording: Recording, result: Any, candidates: Sequence[Document] = ()) -> None:
        """Records what the function returned, by the user's declarations and the kind of span."""
        options = self.options
        reply = result
        if self._reads_facts and type(result) is not str:
            reply = opened(result)
            self._facts(recording, reply, result)
        if options.usage is not None:
            recording.put_facts(declared_usage(options.usage(result)))
        if callable(options.contexts):
            self._contexts(recording, options.contexts(result))
        if not options.capture_outputs:
            return
        if options.response is not None:
            recording.response = snapshot_text(options.response(result))
        elif self.takes_documents:
            if recording.documents is None and result is not None and not callable(options.contexts):
                self._contexts(recording, with_candidate_texts(result, candidates) if candidates else result)
        elif recording.response is None:
            self._response(recording, reply, result)

    def _facts(self, recording: Recording, reply: Any, result: Any) -> None:
        """Records figures of a model's reply, or of an application's result that has token counts."""
        facts = facts_in(reply, result)
        if facts and (self.kind in _MODEL_KINDS or names.INPUT_TOKENS in facts or names.OUTPUT_TOKENS in facts):
            recording.put_facts(facts)

    def _contexts(self, recording: Recording, contexts: Any) -> None:
        if not recording.put_contexts(contexts, self._field):
            self.report_unread(recording, contexts, "contexts")

    def report_unread(self, recording: Recording, result: Any, option: str) -> None:
        """Reports on the span, and once in the log, that nothing was read from the result."""
        reason = recording.put_unread_reason(result, option)
        if not self._warned:
            self._warned = True
            logger.warning("ragpulse: %s", reason)

    def _response(self, recording: Recording, reply: Any, result: Any) -> None:
        if type(result) is str:
            recording.response = bounded(result)
            return
        if result is None or self.kind == "embedding":
            return
        if self.kind in _TEXT_KINDS:
            self._reply(recording, reply)
        else:
            recording.response = json_or_none(result)
        if recording.response is None:
            self.report_unread(recording, result, "response")

    def _reply(self, recording: Recording, reply: Any) -> None:
        """The answer of a model or of an application: its text, else its tool calls, else JSON."""
        if reply is None:
            return
        text, messages = text_in(reply), (recording.texts or {}).get(names.INPUT_MESSAGES)
        calls = [] if text and not messages else tool_calls(reply)
        if text:
            recording.response = bounded(text)
        elif calls:
            recording.response = calls_json(calls)
        else:
            recording.response = text if text is not None else json_or_none(read(reply, "response") or reply)
        if self.kind == "llm" and (calls or messages):
            put_output_messages(recording, text, calls)
        if self.kind == "rag" and recording.documents is None and not callable(self.options.contexts):
            documents = nested_hits(reply)
            if documents is not None:
                recording.put_contexts(documents, self._field)


def json_or_none(value: Any) -> JsonText | None:
    """JSON of a value; None for an object of which nothing is known but its type."""
    plain_value = plain(value)
    return None if plain_value == type_name(value) else to_json(value)


def calls_json(calls: list[dict[str, Any]]) -> JsonText:
    """Tool calls as the response of a model: their names and arguments."""
    return to_json({"tool_calls": [{"name": call["name"], "arguments": call["arguments"]} for call in calls]})


def put_output_messages(recording: Recording, text: str | None, calls: list[dict[str, Any]]) -> None:
    """Records the model's message in the shape of the conventions."""
    parts: list[dict[str, Any]] = [{"type": "text", "content": text}] if text else []
    parts += [{"type": "tool_call", **call} for call in calls]
    if not parts:
        return
    message: dict[str, Any] = {"role": "assistant", "parts": parts}
    reasons = (recording.facts or {}).get(names.FINISH_REASONS)
    if reasons:
        message["finish_reason"] = reasons[0]
    recording.put_text(names.OUTPUT_MESSAGES, to_json([message]))


def declared_usage(value: Any) -> dict[str, Any]:
    """The figures in what a user gives as usage: a `Usage`, or a provider's object or mapping."""
    facts = usage_facts(value)
    if not facts:
        raise ValueError(f"usage= was given {type_name(value)}, which has no token counts")
    return facts


def to_messages(value: list[Any]) -> list[dict[str, Any]] | None:
    """Chat messages in any library's shape -> OpenTelemetry's `{"role", "parts"}`; None when these are no messages."""
    messages = []
    for item in value:
        message = fields_of(opened(item))
        role = message.get("role") or message.get("type")
        content = message.get("content")
        if not isinstance(role, str) or (content is None and message.get("tool_calls") is None):
            return None
        role = {"human": "user", "ai": "assistant"}.get(role, role)
        calls = [{"type": "tool_call", **call} for call in calls_of_message(message)]
        messages.append({"role": role, "parts": [*_parts(content), *calls]})
    return messages or None


def _parts(content: Any) -> list[dict[str, Any]]:
    if isinstance(content, str):
        return [{"type": "text", "content": content}]
    if not isinstance(content, list):
        return []
    parts = []
    for part in content:
        if is_call(part):
            continue
        text = part if isinstance(part, str) else read(part, "text")
        parts.append(
            {"type": "text", "content": text} if isinstance(text, str) else {"type": "other", "content": plain(part)}
        )
    return parts


def _message_text(message: dict[str, Any]) -> str | JsonText:
    return "".join(part["content"] for part in message["parts"] if part["type"] == "text")
