"""Reads a call's arguments and result into a recording, by the kind of span and what the user declared."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from ragpulse import _names as names
from ragpulse import shapes
from ragpulse._guard import GUARD, logger
from ragpulse._reading.contexts import RecordedDocument, documents_in, with_candidate_texts
from ragpulse._reading.endings import error_in, unsaid_reason
from ragpulse._reading.hits import nested_hits
from ragpulse._reading.openers import opened
from ragpulse._reading.replies import Said, said_of
from ragpulse._reading.turns import is_nothing
from ragpulse._reading.usage import Facts, facts_in, usage_facts
from ragpulse._reading.values import TEXT_IS_ODD, bounded, json_or_none, plain, type_name

from .credentials import is_secret_name
from .frameworks.crews import CREWS, is_crews
from .messages import fail_reply, put_output_messages, put_question
from .recording import Recording

_QUERY_NAMES = (
    "query", "question", "q", "search_query", "user_query", "query_str", "user_input", "message", "messages", "prompt",
    "input", "inputs", "text", "texts",
)  # fmt: skip
_TOP_K_NAMES = ("k", "top_k", "limit", "n_results", "num_results", "similarity_top_k", "top_n")
_RECEIVERS = ("self", "cls")
_WHOLE_INPUT = frozenset({"tool", "agent"})
_DOCUMENT_KINDS = frozenset({"retriever", "reranker"})
_CANDIDATE_NAMES = ("documents", "docs", "candidates", "contexts", "passages", "chunks", "nodes", "results", "texts")
_MODEL_KINDS = frozenset({"llm", "embedding"})
TEXT_KINDS = frozenset({"llm", "rag", "agent"})
_QUESTION_KINDS = frozenset({"llm", "rag"})
FACT_KINDS = _MODEL_KINDS | TEXT_KINDS
"""Kinds whose results are searched for token counts."""

Arguments = tuple[Any, ...]
Named = Mapping[str, Any]
Getter = Callable[[Arguments, Named], Any]


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


def _unknown_parameter(function: str, name: str, signature: inspect.Signature) -> str:
    suggestions = get_close_matches(name, signature.parameters, 1)
    names = ", ".join(signature.parameters)
    fix = f"it has {names}" if names else "it has none: give query= a function"
    fix = f"did you mean query={suggestions[0]!r}?" if suggestions else fix
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
        self._declares = callable(options.contexts) or (options.usage or options.response) is not None
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
        parameters = [name for name in signature.parameters if name not in _RECEIVERS and not is_secret_name(name)]
        if self.kind in _WHOLE_INPUT or self.kind not in names.OPERATIONS:
            return lambda args, kwargs: self._arguments(args, kwargs)
        parameter = next((name for name in _QUERY_NAMES if name in parameters), parameters[0] if parameters else None)
        return _getter(signature, parameter) if parameter else None

    def _getter_of(self, parameters: tuple[str, ...]) -> Getter | None:
        """A reader of the first of these parameters that the function has."""
        signature = self._signature
        name = next((name for name in parameters if name in signature.parameters), None) if signature else None
        return _getter(signature, name) if signature and name else None

    def candidates(self, args: Arguments, kwargs: Named) -> tuple[RecordedDocument, ...]:
        """The documents that a reranker receives, read before it sorts them: its result may name them by index only."""
        return () if self._candidates is None else documents_in(self._candidates(args, kwargs), self._field) or ()

    def _bound(self, args: Arguments, kwargs: Named) -> Mapping[str, Any]:
        if self._signature is None:
            return kwargs
        bound = self._signature.bind(*args, **kwargs)
        bound.apply_defaults()
        return bound.arguments

    def _arguments(self, args: Arguments, kwargs: Named) -> Any:
        """All arguments by name, as a plain mapping; a single text stays a text."""
        try:
            bound = dict(self._bound(args, kwargs))
        except TypeError:  # the call itself is wrong and raises
            return None
        bound.pop("self", None)
        bound.pop("cls", None)
        name, value = next(iter(bound.items()), ("", None))
        return value if len(bound) == 1 and isinstance(value, str) and not is_secret_name(name) else bound or None

    def arguments(self, recording: Recording, args: Arguments, kwargs: Named) -> None:
        """Records the query and `top_k` before the function may change its arguments."""
        if self._query is not None:
            value = self._query(args, kwargs)
            if type(value) is str:
                recording.query = bounded(value)
            elif self.kind in _QUESTION_KINDS or isinstance(value, list):
                put_question(recording, value)
            elif not (self.kind == "agent" and is_nothing(plain(value), query=True)):
                recording.query = json_or_none(value)
        if self._top_k is not None:
            top_k = self._top_k(args, kwargs)
            if type(top_k) is int:
                recording.put(names.RETRIEVAL_TOP_K, top_k)

    def result(self, recording: Recording, result: Any, candidates: Sequence[RecordedDocument] = ()) -> None:
        """Records what the function returned, by the user's declarations and the kind of span."""
        options = self.options
        reply = result
        if self._reads_facts and type(result) is not str:
            reply = opened(result)
            self._facts(recording, reply, result)
        if self._declares:
            self.declared(recording, result)
        if not options.capture_outputs:
            recording.put(names.RESPONSE_MISSING_REASON, shapes.WITHHELD)
        elif options.response is not None:
            return
        elif self.takes_documents:
            if recording.documents is None and result is not None and not callable(options.contexts):
                self._contexts(recording, with_candidate_texts(result, candidates) if candidates else result)
        elif recording.response is None:
            self._response(recording, reply, result)

    def declared(self, recording: Recording, result: Any) -> None:
        """Records what the user's functions find in the result."""
        options = self.options
        if options.usage is not None:
            recording.put_facts(declared_usage(options.usage(result)))
        if callable(options.contexts):
            self._contexts(recording, options.contexts(result))
        if options.response is not None and options.capture_outputs:
            self._declared_response(recording, options.response(result))

    def _facts(self, recording: Recording, reply: Any, result: Any) -> None:
        """Records figures of a model's reply, or of an application's result that has token counts."""
        if is_crews(result):
            self._crews_usage(recording, result)
            return
        facts = facts_in(reply, result)
        if facts and (self.kind in _MODEL_KINDS or names.INPUT_TOKENS in facts or names.OUTPUT_TOKENS in facts):
            recording.put_facts(facts)

    def _crews_usage(self, recording: Recording, result: Any) -> None:
        facts = CREWS.usage(recording)
        if facts is not None:
            recording.put_facts(facts)
        elif self.options.usage is None:
            self.report_unread(recording, result, "usage")

    def _contexts(self, recording: Recording, contexts: Any) -> None:
        if not recording.put_contexts(contexts, self._field):
            self.report_unread(recording, contexts, "contexts")

    def report_unread(self, recording: Recording, result: Any, option: str) -> None:
        """Reports on the span, and once in the log, that nothing was read from the result."""
        reason = recording.put_unread_reason(result, option)
        if option == "response":
            recording.put(names.RESPONSE_MISSING_REASON, shapes.UNREAD)
        if not self._warned:
            self._warned = True
            logger.warning("ragpulse: %s", reason)

    def _declared_response(self, recording: Recording, value: Any) -> None:
        recording.response = bounded(value) if type(value) is str else json_or_none(value)
        if recording.response is None and value is not None:
            self.report_unread(recording, value, "response")

    def _response(self, recording: Recording, reply: Any, result: Any) -> None:
        if self.kind == "embedding" or (result is None and self.kind not in TEXT_KINDS):
            return
        if type(result) is str and result[:1] not in TEXT_IS_ODD:
            recording.response = bounded(result)
        elif self.kind in TEXT_KINDS:
            self._reply(recording, reply, result)
        else:
            self._declared_response(recording, result)

    def _reply(self, recording: Recording, reply: Any, result: Any) -> None:
        """The answer of a model or of an application: its text and tool calls, or why it has no text."""
        said = said_of(reply)
        text = said.text
        error = None if text else error_in(reply)
        if error is None:
            self.reply(recording, said, text, None if text else unsaid_reason(reply, said.calls), result)
        else:
            fail_reply(recording, *error)
        if self.kind == "rag":
            self.sources(recording, reply)

    def sources(self, recording: Recording, reply: Any) -> None:
        """Records the documents that the answer of an application has beside it."""
        if self.kind == "rag" and recording.documents is None and not callable(self.options.contexts):
            documents = nested_hits(reply)
            if documents is not None:
                recording.put_contexts(documents, self._field)

    def reply(self, recording: Recording, said: Said, text: str | None, reason: str | None, result: Any) -> None:
        """Records what was said; without a text the reason. An empty text is one, unless it was filtered."""
        if text or (text is not None and reason in (None, shapes.CUT)):
            recording.response = bounded(text)
        elif reason is not None:
            recording.put(names.RESPONSE_MISSING_REASON, reason)
        else:
            self.report_unread(recording, result, "response")
        if said.refused and text:
            recording.put(names.RESPONSE_REFUSAL, True)
        if said.calls or (self.kind == "llm" and names.INPUT_MESSAGES in (recording.texts or ())):
            put_output_messages(recording, text, said.calls)


def declared_usage(value: Any) -> Facts:
    """The figures in what a user gives as usage: a `Usage`, or a provider's object or mapping."""
    facts = usage_facts(value)
    if not facts:
        raise ValueError(f"usage= was given {type_name(value)}, which has no token counts")
    return facts
