"""The part of a unit that an evaluator sees: the first shape in the flow case → evaluator → result."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from types import EllipsisType
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationInfo, model_validator

from ragpulse_evaluators.columns import ours
from ragpulse_evaluators.errors import nearest
from ragpulse_evaluators.shown import card


def clean(value: Any) -> Any:
    """A value whose texts have no lone surrogates, which no file, socket or database would take."""
    kind = type(value)
    if kind is dict:
        return {clean(key): clean(item) for key, item in value.items()}
    if kind is list or kind is tuple:
        return kind(map(clean, value))
    if not isinstance(value, str) or value.isascii():
        return value
    return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _clean_or_empty(value: Any) -> Any:
    return "" if value is None else clean(value)


TEXT_KEYS = ("text", "content", "page_content", "document", "chunk", "body", "passage", "snippet")
ID_KEYS = (
    "id", "id_", "chunk_id", "node_id", "_id", "uuid", "objectID", "object_id", "x-amz-bedrock-kb-chunk-id", "doc_id",
    "document_id",
)  # fmt: skip
SOURCE_KEYS = (
    "source", "url", "file_name", "filename", "file_path", "path", "uri", "link", "x-amz-bedrock-kb-source-uri",
)  # fmt: skip
"""Where retrieved objects have text, id and the name of their document, as in `ragpulse.attributes`; this package must
not import it."""

CONVERSATIONS = (
    "goal_completion", "frustration", "abandoned", "asked_again", "knowledge_retention", "conversation_relevancy",
)  # fmt: skip
"""Evaluators of a whole conversation, whose score stands at its last turn; what a person asks first is first."""
STORED = object()
"""The context of `Case.model_validate` for fields of a store: they have our names and types, and clean texts."""
Text = Annotated[str | None, BeforeValidator(clean)]


class Context(BaseModel):
    """One retrieved passage, in the order of the retriever."""

    model_config = ConfigDict(frozen=True)

    text: Annotated[str, BeforeValidator(_clean_or_empty)] = ""
    """The passage; empty where the client sent none."""
    id: str | None = None
    """The client's own id, if it sent one, else the id in the metadata."""
    score: float | None = None
    """The retriever's score, on its own scale."""
    metadata: dict[str, Any] = Field(default_factory=dict)
    """Anything else from the retriever."""

    def __init__(
        self,
        text: str | None = "",
        id: str | None = None,
        score: float | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> None:
        own = None if id is not None else next(map(str, _named(metadata or {}, ID_KEYS)), None)
        facts = clean(metadata) if "\\ud" in repr(metadata) else metadata or {}
        super().__init__(text=text, id=clean(id or own), score=score, metadata=facts)

    @property
    def names(self) -> tuple[str, ...]:
        """What an answer may cite it by: its id, ids in the metadata, and its document, also without the folder."""
        if not self.metadata:
            return (self.id,) if self.id else ()
        sources = [str(name) for name in _named(self.metadata, SOURCE_KEYS)]
        files = [name.rstrip("/").rpartition("/")[2] for name in sources]
        return tuple(
            dict.fromkeys([*filter(None, [self.id]), *map(str, _named(self.metadata, ID_KEYS)), *sources, *files])
        )

    def __str__(self) -> str:
        return self.text


def _named(metadata: Mapping[str, Any], keys: tuple[str, ...]) -> list[str | int]:
    return [value for key in keys if isinstance(value := metadata.get(key), str | int) and value != ""]


def _context(item: Any) -> Context:
    """A context of a text, an object with a text, a pair (document, score), or a retrieved object of a package."""
    if isinstance(item, Context):
        return item
    if isinstance(item, str):
        return Context(text=item)
    if isinstance(item, list | tuple) and len(item) == 2 and isinstance(item[1], int | float):
        return _context(item[0]).model_copy(update={"score": float(item[1])})
    if not isinstance(item, Mapping):
        if item is None or isinstance(item, bool | int | float | list | tuple | EllipsisType):
            raise ValueError(f"a context is a text or an object with a text, not {item!r}")
        return _node(item)
    keys = [key for key in TEXT_KEYS if isinstance(item.get(key), str)]
    rest = {key: value for key, value in item.items() if key not in ("id", "score", "metadata", "text", *keys[:1])}
    if rest and not keys:
        raise ValueError(f"a context has a text, content or page_content, not {', '.join(map(str, item))}")
    metadata, name = item.get("metadata"), item.get("id")
    return Context(
        text=item[keys[0]] if keys else item.get("text"),
        id=name if name is None else str(name),
        score=item.get("score"),
        metadata={**rest, **metadata} if isinstance(metadata, Mapping) else rest,
    )


def node_text(node: Any) -> str:
    """Text of a retrieved object: LlamaIndex `get_content()`, else the first text under `TEXT_KEYS`."""
    reader = getattr(node, "get_content", None)
    if callable(reader):
        return str(reader())
    for key in TEXT_KEYS:
        value = getattr(node, key, None)
        if isinstance(value, str):
            return value
    return str(node)


def _identity(item: Any) -> str | None:
    """The first id under `ID_KEYS`; None without one."""
    values = (getattr(item, key, None) for key in ID_KEYS)
    return next((str(value) for value in values if isinstance(value, str | int)), None)


def _contexts(value: Any) -> Any:
    if value is None:
        return None
    if isinstance(value, (str, Mapping, Context)):
        return (_context(value),)
    return tuple(map(_context, value)) if isinstance(value, Iterable) else value


class Turn(BaseModel):
    """One earlier exchange of a conversation: what the user said, and what the application answered."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    query: Text = None
    response: Text = None


def _history(value: Any) -> Any:
    """Turns from turns, mappings, pairs (query, response), or chat messages with `role` and `content`."""
    if value is None:
        return None
    turns: list[dict[str, Any]] = []
    for item in value if isinstance(value, list | tuple) else [value]:
        if isinstance(item, Turn):
            turns.append(item.model_dump())
        elif isinstance(item, list | tuple) and len(item) == 2:
            turns.append({"query": item[0], "response": item[1]})
        elif not isinstance(item, Mapping):
            raise ValueError(f"a turn has query and response, or role and content, and is not {item!r}")
        elif "content" not in item:
            turns.append(dict(item))
        elif (role := item.get("role", item.get("type"))) in ("user", "human"):
            turns.append({"query": item["content"]})
        elif role in ("assistant", "ai"):
            if not turns or "response" in turns[-1]:
                turns.append({})
            turns[-1]["response"] = item["content"]
    return tuple(turns)


_STEP_KEYS = {
    **dict.fromkeys(("input_parameters", "input", "args", "parameters"), "arguments"),
    **dict.fromkeys(("output", "content"), "result"),
    **dict.fromkeys(("tool", "tool_name"), "name"),
}
"""Keys of a step in other packages, and ours."""


def _arguments(value: Any) -> Any:
    """The JSON of a text; a text that is none stays."""
    if isinstance(value, str):
        with suppress(ValueError, RecursionError):
            return clean(json.loads(value))
    return clean(value)


def _result(value: Any) -> Any:
    return clean(value) if value is None or isinstance(value, str) else json.dumps(clean(value), default=str)


class Step(BaseModel):
    """One step of a run: the call of a tool, of a model, or work around them."""

    model_config = ConfigDict(frozen=True)

    kind: str = "tool"
    """The kind of its span: `tool`, `llm`, `agent`, `retriever`, ..."""
    name: Text = None
    """The name of the tool, the model or the span."""
    arguments: Annotated[Any, BeforeValidator(_arguments)] = None
    """What it was called with: JSON where it can be read, else the text."""
    result: Annotated[str | None, BeforeValidator(_result)] = None
    """What it returned, as text."""
    error: Text = None
    """What it failed with; None where it did not fail."""

    @model_validator(mode="before")
    @classmethod
    def _ours(cls, data: Any) -> Any:
        if not isinstance(data, Mapping):
            return data
        return {_STEP_KEYS.get(name, name): value for name, value in data.items() if value is not None}


def _trace(value: Any) -> Any:
    """Steps from steps, mappings (`name`, `arguments`, `result`, also as DeepEval names them), or chat messages.

    An answer of the model is a step; the calls that it makes are steps, with the results that follow.
    """
    if value is None:
        return None
    steps: list[dict[str, Any] | Step] = []
    calls: dict[Any, dict[str, Any]] = {}
    for item in value if isinstance(value, list | tuple) else [value]:
        if isinstance(item, Step):
            steps.append(item)
        elif not isinstance(item, Mapping):
            raise ValueError(f"a step has name, arguments and result, or role and content, and is not {item!r}")
        elif (role := item.get("role")) is None:
            steps.append(dict(item))
        elif role == "tool":
            call = calls.pop(item.get("tool_call_id"), None)
            if call is None:
                call = {"name": item.get("name")}
                steps.append(call)
            call["result"] = item.get("content")
        elif role == "assistant":
            steps.append({"kind": "llm", "result": item.get("content")})
            for call in item.get("tool_calls") or ():
                function = call.get("function", call)
                step = {"name": function.get("name"), "arguments": function.get("arguments")}
                steps.append(step)
                calls[call.get("id")] = step
    return tuple(steps)


def _ids(value: Any) -> Any:
    if isinstance(value, str):
        return (value,)
    return tuple(map(str, value)) if isinstance(value, Iterable) else value


def _grades(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): grade for key, grade in value.items()}
    ids = _ids(value)
    return dict.fromkeys(ids, 1) if isinstance(ids, tuple) else ids


def _reference(value: Any) -> Any:
    return tuple(value) if isinstance(value, Iterable) and not isinstance(value, str) else value


class Case(BaseModel):
    """One answered question as far as it is known; every field is optional."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    query: Text = None
    """The user's question."""
    response: Text = None
    """The application's answer."""
    second_response: Text = None
    """A rival answer, for pairwise comparison."""
    contexts: Annotated[tuple[Context, ...] | None, BeforeValidator(_contexts)] = None
    """Retrieved passages in rank order; plain strings are accepted."""
    history: Annotated[tuple[Turn, ...] | None, BeforeValidator(_history)] = None
    """The turns of the conversation before this one, oldest first; judged evaluators see them."""
    reference: Annotated[str | tuple[str, ...] | None, BeforeValidator(_reference)] = None
    """The expected answer, or several acceptable ones (or expected passages, for retrieval)."""
    retrieved_ids: Annotated[tuple[str, ...] | None, BeforeValidator(_ids)] = None
    """Ids in rank order, for ranking metrics."""
    relevant_ids: Annotated[dict[str, float] | None, BeforeValidator(_grades)] = None
    """Relevant ids with their grade; a plain list means grade 1 each."""
    latency_s: float | None = None
    """Seconds the answer took."""
    input_tokens: int | None = None
    """Tokens sent to the application's model."""
    output_tokens: int | None = None
    """Tokens the application's model produced."""
    cost_usd: float | None = None
    """What the answer cost, in USD."""
    trace: Annotated[tuple[Step, ...] | None, BeforeValidator(_trace)] = None
    """The steps of the run below this answer, in the order of their start."""
    trace_id: str | None = None
    """Lower-case hex id of the stored trace."""
    metadata: dict[str, Any] = Field(default_factory=dict)
    """Anything else: tags, recorded log-probabilities (`logprobs`), timestamps."""

    @model_validator(mode="before")
    @classmethod
    def _ours(cls, data: Any, info: ValidationInfo) -> Any:
        """Read the names of other packages; refuse an unknown one with the nearest of ours."""
        if not isinstance(data, Mapping) or info.context is STORED:
            return data
        fields = clean(ours(data)[0])
        for name in fields:
            if name not in cls.model_fields:
                hint = nearest(name, cls.model_fields) or f"; known are {', '.join(cls.model_fields)}"
                raise ValueError(f"a case has no field {name!r}{hint} (other facts go into metadata)")
        return fields

    def _repr_html_(self) -> str:
        return card(self, (name for name in type(self).model_fields if getattr(self, name)))

    @property
    def references(self) -> tuple[str, ...]:
        """The reference as a tuple, empty when there is none."""
        if self.reference is None:
            return ()
        return (self.reference,) if isinstance(self.reference, str) else self.reference

    @property
    def texts(self) -> tuple[str, ...]:
        """The context texts, empty when there are none."""
        return tuple(context.text for context in self.contexts or ())

    @property
    def turns(self) -> tuple[Turn, ...]:
        """The whole conversation: the turns before this one, then this one."""
        return (*(self.history or ()), Turn(query=self.query, response=self.response))

    @property
    def facts(self) -> dict[str, Any]:
        """Facts of the run as one mapping: what a user's function receives as `trace`, with its `steps`."""
        facts = self.model_dump(include={"trace_id", "latency_s", "input_tokens", "output_tokens", "cost_usd"})
        return {**self.metadata, **facts, "steps": self.trace or ()}

    def lacks(self, field: str) -> bool:
        """True when the field is absent, an empty collection, or an empty reference."""
        value = getattr(self, field)
        if field in ("reference", "contexts", "history", "retrieved_ids", "relevant_ids", "trace"):
            return not value
        return value is None

    @classmethod
    def from_response(
        cls, response: Any, *, query: str | None = None, reference: str | Iterable[str] | None = None
    ) -> Case:
        """Read a LlamaIndex-shaped answer (`.response`, `.source_nodes[*].get_content()`), a string or a mapping."""
        if isinstance(response, Mapping):
            fields = {field: response[field] for field in cls.model_fields if field in response}
            overrides = {"query": query, "reference": reference}
            return cls.model_validate(fields | {key: value for key, value in overrides.items() if value is not None})
        if isinstance(response, str):
            return cls(query=query, response=response, reference=_reference(reference))
        answer = getattr(response, "response", None)
        nodes = getattr(response, "source_nodes", None)
        return cls(
            query=query,
            response=str(response) if answer is None else str(answer),
            contexts=None if nodes is None else tuple(_node(item) for item in nodes),
            reference=_reference(reference),
        )


def _node(item: Any) -> Context:
    inner = getattr(item, "node", item)
    metadata = getattr(inner, "metadata", None)
    return Context(
        text=node_text(item),
        id=_identity(item) or _identity(inner),
        score=getattr(item, "score", None),
        metadata=dict(metadata) if isinstance(metadata, Mapping) else {},
    )
