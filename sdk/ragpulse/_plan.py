"""What is known of a decorated function before it is called: its span's constants, already encoded."""

from dataclasses import dataclass, field
from typing import Any

from . import attributes as names
from ._wire import SPAN_ATTRIBUTES, key_values, span_head

INTERNAL, CLIENT = 1, 3
_CLIENT_KINDS = frozenset({"retriever", "llm", "embedding", "reranker"})
_QUERY_KEYS = {
    "retriever": (names.RETRIEVAL_QUERY, names.INPUT_VALUE),
    "reranker": (names.RERANKER_QUERY, names.INPUT_VALUE),
}
_NAME_KEYS = {"rag": names.WORKFLOW_NAME, "agent": names.AGENT_NAME, "tool": names.TOOL_NAME}


@dataclass(slots=True, eq=False)
class Plan:
    """The constant part of every span of one decorated function (or of one foreign span)."""

    name: str
    kind: str
    """Our span kind; empty for a span that somebody else's instrumentation made on our provider."""
    span_kind: int
    """OTLP's number: 1 internal, 3 client."""
    constants: dict[str, Any]
    scope: dict[str, Any] = field(default_factory=dict)
    """Attributes that the function gives to its own span and to all below it."""
    query_keys: tuple[str, ...] = (names.INPUT_VALUE,)
    head: bytes = b""
    encoded: bytes = b""

    def __post_init__(self) -> None:
        self.head = span_head(self.name, self.span_kind)
        self.encoded = key_values(SPAN_ATTRIBUTES, self.constants.items())


def plan_for(
    kind: str, name: str, *, model: str | None, provider: str | None, data_source: str | None, scope: dict[str, Any]
) -> Plan:
    """The plan of a decorated function of `kind`."""
    constants: dict[str, Any] = {
        names.SPAN_KIND: kind,
        names.OPENINFERENCE_KIND: names.OPENINFERENCE_KINDS.get(kind, "CHAIN"),
    }
    if kind in names.OPERATIONS:
        constants[names.OPERATION_NAME] = names.OPERATIONS[kind]
    if kind in _NAME_KEYS:
        constants[_NAME_KEYS[kind]] = name
    if model:
        constants[names.REQUEST_MODEL] = model
    if provider:
        constants[names.PROVIDER_NAME] = provider
    if data_source:
        constants[names.DATA_SOURCE_ID] = data_source
    return Plan(
        name=name,
        kind=kind,
        span_kind=CLIENT if kind in _CLIENT_KINDS else INTERNAL,
        constants=constants,
        scope=scope,
        query_keys=_QUERY_KEYS.get(kind, (names.INPUT_VALUE,)),
    )
