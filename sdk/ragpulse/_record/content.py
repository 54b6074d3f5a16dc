"""Turns recorded content into attributes as they are sent: redacted, truncated by bytes, or withheld.

Runs on the exporting thread wherever it can. Strings are immutable, so what a span recorded cannot change in between.
"""

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Protocol

from opentelemetry.trace import Link

from ragpulse import _names as names
from ragpulse import shapes
from ragpulse._export.encoder import (
    SPAN_ATTRIBUTES,
    AttributeMap,
    Origin,
    event,
    key_value_parts,
    link,
    log_record,
    utf8,
)
from ragpulse._export.encoder import status as encode_status
from ragpulse._reading.contexts import RecordedDocument, quoting, to_documents_json
from ragpulse._reading.usage import Facts
from ragpulse._reading.values import MAX_TEXT, CutText, JsonText, to_json, without_files

from .credentials import is_secret_name
from .recording import Recording, SpanPlan, error_status, exception_attributes, passed_withholding
from .redaction import Redaction, special_characters
from .scope import RequestScope

IDENTITIES = frozenset(
    {
        names.REQUEST_MODEL, names.RESPONSE_MODEL, names.RESPONSE_ID, names.PROVIDER_NAME, names.ERROR_TYPE,
        names.SESSION_ID, names.USER_ID, names.CONVERSATION_ID, names.PROMPT_NAME, names.PROMPT_VERSION, names.VARIANT,
    }
)  # fmt: skip

_CONTENT = (
    names.INPUT_VALUE, names.OUTPUT_VALUE, names.INPUT_MESSAGES, names.OUTPUT_MESSAGES, names.RETRIEVAL_QUERY,
    names.RETRIEVAL_DOCUMENTS, names.RERANKER_QUERY, names.METADATA, "gen_ai.system_instructions", "gen_ai.tool.call.",
    "gen_ai.tool.definitions", "gen_ai.prompt.variable.", "gen_ai.prompt.0", "gen_ai.prompt.1", "gen_ai.completion",
    "llm.input_messages", "llm.output_messages", "llm.prompts", "llm.prompt_template", "llm.function_call",
    "retrieval.documents", "reranker.input_documents", "reranker.output_documents", "embedding.embeddings",
    names.EXCEPTION_MESSAGE, "gen_ai.event.content", "content", "message", "db.query.text", "db.query.parameter",
    "db.statement", "url.full", "url.query", "http.url", "http.target", "traceloop.entity.input",
    "traceloop.entity.output", "langfuse.observation.input", "langfuse.observation.output",
)  # fmt: skip
"""Prefixes of the names of attributes that hold texts, in the vocabularies of all instrumentations."""
_JSON_BEGINS = ("{", "[", '"')
"""A text that begins like JSON is marked as text: a reader would look for the response inside it."""
_ANSWERING = frozenset({"rag", "llm", "agent"})
"""Their JSON is the answer itself, not to be read again."""
_FRAME = re.compile(r'^ +File ".+", line \d+, in .+$', re.MULTILINE)
"""A stack frame: file, line and function, without the source line."""


def is_content(key: str) -> bool:
    """Whether an attribute of this name holds text that may be withheld."""
    return key.startswith(_CONTENT)


def without_content(attributes: AttributeMap) -> Facts:
    """The attributes that hold figures and identities only."""
    kept = {key: value for key, value in attributes.items() if not is_content(key)}
    if names.EXCEPTION_STACKTRACE in kept:
        kept[names.EXCEPTION_STACKTRACE] = "\n".join(_FRAME.findall(str(kept[names.EXCEPTION_STACKTRACE])))
    return kept


def failure(plan: SpanPlan, error: BaseException) -> tuple[dict[str, str], str | None]:
    """An exception as attributes of an event, and as the description of a status.

    Its text often repeats arguments and results, so it is left out where it passed a function or block that withholds.
    """
    attributes = exception_attributes(error)
    if plan.withholds or _passed_withholding(error):
        return without_content(attributes), None
    return attributes, error_status(error)


def _passed_withholding(error: BaseException | None) -> bool:
    """Whether an exception, or one that led to it, was raised below a function or block that withholds its texts."""
    seen: set[int] = set()
    while SpanPlan.any_withholds and error is not None and id(error) not in seen:
        seen.add(id(error))
        if passed_withholding(error):
            return True
        error = error.__cause__ or error.__context__
    return False


def cleaned(attributes: AttributeMap, policy: "ContentPolicy") -> Facts:
    """Applies the policy to attributes of a span or event that did not come from a recording."""
    kept = attributes if policy.capture else without_content(attributes)
    return {key: policy.redact.value(key, value, []) for key, value in kept.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class ContentPolicy:
    """What may leave the process, and how much of it."""

    capture: bool = True
    """False: no query, response, document text, message or metadata is sent; ids, scores and figures are."""
    redact: Redaction = field(default_factory=Redaction)
    max_text_bytes: int = 65_536
    """A longer text is cut, with a visible mark, its length and a hash."""

    def description(self, text: str | None) -> str | None:
        """A status description under this policy: it often repeats the message of an exception."""
        return self.redact(text, []) if text and self.capture else None


def encode_tail(
    events: Iterable[tuple[int, str, AttributeMap]],
    links: Iterable[Link],
    status: tuple[int, str | None] | None,
    policy: ContentPolicy,
) -> list[bytes]:
    """Events, links and status (code and description) of a span as parts of an OTLP protobuf message."""
    parts = [event(time_ns, name, cleaned(values, policy)) for time_ns, name, values in events]
    targets = [(item.context, item.attributes or {}) for item in links]
    parts += [link(target.trace_id, target.span_id, target.is_remote, values) for target, values in targets]
    return parts if status is None else [*parts, encode_status(status[0], policy.description(status[1]))]


class _Rendering:
    """One span's content under one policy, with what was redacted and cut."""

    __slots__ = (
        "_contains_files",
        "_is_clean",
        "_limit",
        "_policy",
        "_redacts",
        "_special_characters",
        "redacted",
        "truncated",
    )

    def __init__(self, policy: ContentPolicy, recording: Recording) -> None:
        data = " ".join(_texts(recording)).encode("utf-8", "surrogatepass")
        self._special_characters = special = special_characters(data)
        self._contains_files = b";base64," in data
        self._policy = policy
        self._limit = policy.max_text_bytes
        self._redacts = policy.redact.suspects(data, special)
        # A lone surrogate, which no JSON parser accepts, begins with this byte; so do the letters of Korean.
        is_ordinary = not (self._redacts or self._contains_files or b"\xed" in data)
        self._is_clean = is_ordinary and len(data) * 2 <= self._limit and len(data) < MAX_TEXT
        """Nothing to redact and nothing to cut, as with nearly every span."""
        self.redacted: list[str] = []
        self.truncated: dict[str, Facts] = {}

    def text(self, key: str, text: str) -> str:
        kind = type(text)
        if self._is_clean:
            return text if kind is str else str(text)
        if self._contains_files:
            text = _without_files(text)
        clean = text
        if self._redacts:
            # What is cut off below is not searched; a secret at the edge is still seen whole.
            kept = text[: self._limit + 4096] if kind is CutText else text
            redact = self._policy.redact.json if kind is JsonText else self._policy.redact
            clean = redact(kept, self.redacted)
        limit = self._limit
        if kind is CutText:
            return self._cut(key, clean, text.bytes, text.sha256)  # type: ignore[attr-defined]
        if len(clean) * 4 <= limit or (clean.isascii() and len(clean) <= limit):
            return clean if kind is str else str(clean)
        data = utf8(clean)
        if len(data) <= limit:
            return clean
        return self._cut(key, clean, len(data), hashlib.sha256(data).hexdigest()[:16])

    def fact(self, key: str, value: Any) -> Any:
        """An attribute that the application or another instrumentation set, or a figure."""
        if isinstance(value, str) and not is_secret_name(key):
            return self.text(key, value)
        return self._policy.redact.value(key, value, self.redacted) if isinstance(value, (str, tuple)) else value

    def _cut(self, key: str, text: str, size: int, digest: str) -> str:
        self.truncated.setdefault(key, {"bytes": size, "sha256": digest})
        return utf8(text)[: self._limit].decode("utf-8", "ignore") + f"… [truncated: {size} bytes, sha256 {digest}]"

    def documents(self, documents: tuple[RecordedDocument, ...]) -> str:
        key = names.RETRIEVAL_DOCUMENTS
        if not self._policy.capture:
            return to_documents_json([item._replace(text=None, metadata=None) for item in documents])
        if self._is_clean:
            return to_documents_json(documents, quoting(self._special_characters))
        return to_documents_json(
            [
                RecordedDocument(
                    item.id,
                    item.score,
                    None if item.text is None else self.text(key, item.text),
                    None if item.metadata is None else self._metadata(item.metadata),
                )
                for item in documents
            ]
        )

    def _metadata(self, metadata: str) -> str | None:
        text = self._policy.redact.json(metadata, self.redacted) if self._redacts else metadata
        if len(text) * 4 <= self._limit:
            return text
        return None if len(utf8(text)) > self._limit else text


def _without_files(text: str) -> str:
    """The text, of the same type, with a placeholder for each file."""
    clean = without_files(text)
    return type(text)(clean) if type(text) is JsonText else text if type(text) is CutText else clean


def _texts(recording: Recording) -> list[str]:
    """Every text of a recording, so that one examination decides whether any of them needs redaction."""
    texts = [recording.query or "", recording.response or ""]
    for _, _, text, metadata in recording.documents or ():
        texts += (text or "", metadata or "")
    if recording.texts:
        texts += recording.texts.values()
    if recording.facts:
        texts += [value for value in recording.facts.values() if isinstance(value, str)]
    return texts


def render(recording: Recording, policy: ContentPolicy) -> Facts:
    """What the recording adds to its plan's constants and its scope, as attributes ready to be sent."""
    rendering = _Rendering(policy, recording)
    out: Facts = {}
    if recording.documents is not None:
        out[names.RETRIEVAL_DOCUMENTS] = rendering.documents(recording.documents)
    if policy.capture:
        out.update(_text_attributes(recording, rendering))
    elif recording.plan.kind:
        out[names.CONTENT_CAPTURED] = False
        if recording.response is not None:
            out[names.RESPONSE_MISSING_REASON] = shapes.WITHHELD
    facts = recording.facts or {}
    for key, value in (facts if policy.capture else without_content(facts)).items():
        if key not in out:  # what the function was asked and returned wins over what others set on its span
            out[key] = value if key in IDENTITIES else rendering.fact(key, value)
    if rendering.redacted:
        out[names.REDACTED] = rendering.redacted
    if rendering.truncated:
        out[names.TRUNCATED] = to_json(rendering.truncated)
    return out


def all_attributes(recording: Recording, scope: RequestScope, policy: ContentPolicy) -> Facts:
    """Everything that is sent of a recording: its constants, its scope and its content."""
    return {**recording.plan.constants, **scope.shown(policy.redact).attributes, **render(recording, policy)}


def encode_attributes(
    recording: Recording, scope: RequestScope, policy: ContentPolicy, others: AttributeMap
) -> list[bytes]:
    """Encodes `all_attributes` and `others` (set on the span by others) as parts of an OTLP protobuf message.

    Constants were encoded before; their bytes are used unless a value overrides them.
    """
    plan, dynamic, scope = recording.plan, render(recording, policy), scope.shown(policy.redact)
    if not others and dynamic.keys().isdisjoint(plan.constants) and dynamic.keys().isdisjoint(scope.attributes):
        return [plan.encoded, scope.encoded, *key_value_parts(SPAN_ATTRIBUTES, dynamic.items())]
    return key_value_parts(SPAN_ATTRIBUTES, {**others, **plan.constants, **scope.attributes, **dynamic}.items())


def _text_attributes(recording: Recording, rendering: _Rendering) -> Facts:
    """Query, response and further texts, with the types of those that are JSON."""
    query, response, out = recording.query, recording.response, Facts()
    if query is not None:
        clean = rendering.text(names.INPUT_VALUE, query)
        for key in recording.plan.query_keys:
            out[key] = clean
        if isinstance(query, JsonText):
            out[names.INPUT_MIME_TYPE] = names.JSON
    if response is not None:
        out[names.OUTPUT_VALUE] = rendering.text(names.OUTPUT_VALUE, response)
        if isinstance(response, JsonText) and recording.plan.kind not in _ANSWERING:
            out[names.OUTPUT_MIME_TYPE] = names.JSON
        elif response[:1] in _JSON_BEGINS:
            out[names.OUTPUT_MIME_TYPE] = names.PLAIN_TEXT
    for key, text in (recording.texts or {}).items():
        out[key] = rendering.text(key, text)
    return out


class Sender(Protocol):
    """What records are sent by: the tracer."""

    policy: ContentPolicy

    def origin(self, path: str, library: Any = None) -> Origin:
        """What records are sent with."""


@dataclass(frozen=True, slots=True)
class FeedbackRecord:
    """A person's score, ready for the exporter."""

    sender: Sender
    trace_number: int
    time_ns: int
    name: str
    score: float
    comment: str | None

    def size(self) -> int:
        """Bytes it holds in memory, about."""
        return 300 + len(self.comment or "")

    def ends_here(self) -> bool:
        """A score belongs to no span of this process."""
        return True

    def origin(self) -> Origin:
        """What it is sent with."""
        return self.sender.origin("logs")

    def encode(self) -> bytes:
        """The score as an OTLP log record, its comment redacted like any text."""
        policy = self.sender.policy
        attributes: Facts = {
            names.EVALUATION_NAME: self.name,
            names.EVALUATION_SCORE: self.score,
            names.SCORE_SOURCE: names.SCORE_SOURCE_HUMAN,
        }
        if self.comment and policy.capture:
            attributes[names.EVALUATION_EXPLANATION] = policy.redact(self.comment, [])
        return log_record(self.time_ns, names.EVALUATION_EVENT, self.trace_number, 0, attributes)
