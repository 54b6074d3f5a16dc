"""Results that do not show their answer under a common name, by the library and the name of their class.

Each entry of `OPENERS` turns a library's object into a mapping with the common names: `response`, `usage`, `model`,
`documents`, `raw` (a provider's own reply), and `STRUCTURED` for an output of the application's own type. No library is
imported.
"""

import json
from collections.abc import Callable
from functools import lru_cache
from operator import attrgetter
from typing import Any

from .values import fields_of, value_of

STRUCTURED = "ragpulse.structured"
"""An output that a library declares as the answer: the text in it, else its JSON."""
LANGGRAPH_MODES = frozenset({"values", "updates", "messages", "custom", "checkpoints", "tasks", "debug"})
"""The label of each item of a stream with several modes."""
_STATE_MODES = LANGGRAPH_MODES - {"messages", "custom"}
_REPLY_KEYS = frozenset({"replies", "answers", "messages", "answer", "response", "generation"})
_GENERATED = frozenset({"outputText", "generated_text"})
_REASONING = ("reasoning", "rationale")


def _dspy_prediction(result: Any) -> Any:
    fields = dict(result.toDict())
    outputs = {key: value for key, value in fields.items() if key not in (*_REASONING, "passages")}
    per_model = result.get_lm_usage() or {}
    return {
        STRUCTURED: next(iter(outputs.values())) if len(outputs) == 1 else outputs,
        "documents": fields.get("passages"),
        "usage": list(per_model.values()),
        "model": next(iter(per_model), None) if len(per_model) == 1 else None,
    }


def _pydantic_ai_run(result: Any) -> Any:
    response = value_of(result, "response")
    return {STRUCTURED: result.output, "usage": _pydantic_ai_usage(result), "model": value_of(response, "model_name")}


def _pydantic_ai_usage(result: Any) -> Any:
    usage = result.usage  # a method before 2.0; since then it can be called, too, with a warning
    return usage if hasattr(usage, "input_tokens") else usage()


def _pydantic_ai_stream(result: Any) -> Any:
    """What was read of a stream; None before."""
    if not result.is_complete:
        return None
    if hasattr(result, "result"):
        return _pydantic_ai_run(result.result)
    response, usage = result.response, _pydantic_ai_usage(result)
    return {"content": response.parts, "usage": usage, "model": response.model_name}


def _ag2_reply(result: Any) -> Any:
    """AG2 states the usage of each call in the history of its stream, which is read where it is in memory."""
    history, events = result.context.stream.history, []
    if type(history.storage).__name__ == "MemoryStorage":
        try:
            history.get_events().send(None)
        except StopIteration as done:
            events = done.value
    request = max([place for place, event in enumerate(events) if type(event).__name__ == "ModelRequest"], default=-1)
    usages = [event.usage for event in events[request + 1 :] if type(event).__name__ == "UsageEvent"]
    return {"content": result.body, "usage": usages, "model": result.response.model}


def _claude_message(message: Any) -> Any:
    """What a subagent says is none of the answer; each block of a reply comes as a message with the reply's id."""
    role = "assistant" if message.parent_tool_use_id is None else "tool"
    return {"role": role, **vars(message)}


def _claude_result(result: Any) -> Any:
    output = result.result if value_of(result, "structured_output") is None else result.structured_output
    usage = {**(result.usage or {}), "cost": result.total_cost_usd}
    return {"role": "assistant", STRUCTURED: output, "usage": usage, "stop_reason": value_of(result, "stop_reason")}


def _agent_framework_update(update: Any) -> Any:
    """A piece of a stream: one has the usage of the call among its contents, one repeats the text of all."""
    usages = [usage for part in update.contents if (usage := value_of(part, "usage_details"))]
    new = [part for part in update.contents if value_of(part, "merge_mode") != "replace"]
    return {"role": value_of(update.role, "value") or update.role, "content": new,
            "usage": usages or None, "id": update.response_id}  # fmt: skip


def _google_event(event: Any) -> Any:
    """What a tool returned has the user's role in its content; a part of a stream is followed by the whole."""
    of_tool = value_of(event.content, "role") == "user"
    role = "user" if event.author == "user" else "tool" if of_tool else "assistant"
    return {"role": role, "content": event.content, "id": event.id, "model": value_of(event, "model_version"),
            "usage": None if event.partial else event.usage_metadata}  # fmt: skip


def _xai_reply(reply: Any) -> Any:
    """A response or a chunk; the objects around its messages of Protocol Buffers have properties alone."""
    parts = ("content", "tool_calls", "usage", "finish_reason", "service_tier", "cost_usd", "id")
    fields = {name: value_of(reply, name) for name in parts}
    usage = {**fields_of(fields["usage"] or reply.proto.usage), "cost": fields["cost_usd"]}
    return {**fields, "role": "assistant", "usage": usage, "model": reply.proto.model}


def _haystack_message(result: Any) -> Any:
    """Its parts are behind properties."""
    return {
        "role": str(getattr(result.role, "value", result.role)),
        "content": result.texts,
        "tool_calls": result.tool_calls,
        "metadata": result.meta,
    }


def _body(media_type: str, body: str | bytes) -> Any:
    """What a web framework's response sends, where that is JSON or text."""
    if "json" in media_type:
        return json.loads(body)
    if not body or not media_type.startswith("text/"):
        return {}
    return body if isinstance(body, str) else body.decode()


def _parts(**places: str) -> Callable[[Any], Any]:
    """Opens an object by the attributes that hold the parts of its answer."""
    readers = {name: attrgetter(place) for name, place in places.items()}
    return lambda result: {name: read(result) for name, read in readers.items()}


def _output(place: str, **places: str) -> Callable[[Any], Any]:
    """As `_parts`, of an object that declares an output of the application's own type."""
    return _parts(**{STRUCTURED: place}, **places)


OPENERS: dict[str, Callable[[Any], Any]] = {
    "dspy.Prediction": _dspy_prediction,
    "dspy.StreamResponse": lambda it: {"text": "" if it.signature_field_name in _REASONING else it.chunk},
    "agents.RunResultBase": _output("final_output", usage="context_wrapper.usage"),
    "pydantic_ai.AgentRunResult": _pydantic_ai_run,
    "pydantic_ai.AgentRunResultEvent": lambda event: _pydantic_ai_run(event.result),
    "pydantic_graph.End": _output("data.output"),  # of a run of pydantic-ai
    "pydantic_ai.AgentRun": lambda run: None if run.result is None else _pydantic_ai_run(run.result),
    **dict.fromkeys(("pydantic_ai.StreamedRunResult", "pydantic_ai.StreamedRunResultSync"), _pydantic_ai_stream),
    "pydantic_ai.PartStartEvent": lambda event: {"content": [event.part]},
    "pydantic_ai.PartDeltaEvent": lambda event: {
        "text": event.delta.content_delta if event.delta.part_delta_kind == "text" else "",
    },
    **dict.fromkeys(
        (
            "openai.LegacyAPIResponse", "openai.BaseAPIResponse",  # `with_raw_response`
            "anthropic.LegacyAPIResponse", "anthropic.BaseAPIResponse",
        ),
        lambda result: result.http_response.json(),
    ),
    "haystack.ChatMessage": _haystack_message,
    "haystack.GeneratedAnswer": _parts(response="data", documents="documents", metadata="meta"),
    "workflows.StopEvent": _output("result"),  # LlamaIndex
    "smolagents.RunResult": _output("output", usage="token_usage"),
    "smolagents.FinalAnswerStep": _output("output"),
    "agno.RunContentEvent": _output("content"),
    "agno.RunCompletedEvent": _output("content", usage="metrics"),
    **dict.fromkeys(
        ("dspy.StatusMessage", "pydantic_ai.PartEndEvent", "smolagents.ActionStep", "agno.BaseAgentRunEvent",
         "agno.BaseTeamRunEvent", "agno.BaseWorkflowRunOutputEvent", "claude_agent_sdk.SystemMessage"),
        lambda event: {},  # it says nothing
    ),
    "google.Event": _google_event,
    "ag2.AgentReply": _ag2_reply,
    "claude_agent_sdk.AssistantMessage": _claude_message,
    "claude_agent_sdk.UserMessage": lambda message: {"role": "user", **vars(message)},
    "claude_agent_sdk.ResultMessage": _claude_result,
    "claude_agent_sdk.StreamEvent": lambda event: event.event if event.parent_tool_use_id is None else {},
    **dict.fromkeys(
        ("agent_framework.AgentResponseUpdate", "agent_framework.ChatResponseUpdate"), _agent_framework_update
    ),
    **dict.fromkeys(("xai_sdk.Response", "xai_sdk.Chunk"), _xai_reply),
    # The openai-agents SDK's events, and Mistral's.
    **dict.fromkeys(
        ("agents.RawResponsesStreamEvent", "mistralai.CompletionEvent", "mistralai.ConversationEvents"),
        attrgetter("data"),
    ),
    "semantic_kernel.AgentResponseItem": lambda item: opened(item.message),
    "semantic_kernel.ChatMessageContent": _parts(role="role.value", content="items", response_metadata="metadata"),
    **dict.fromkeys(("weaviate.QueryReturn", "weaviate.GroupByReturn"), _parts(documents="objects")),
    "weaviate.GenerativeReturn": _parts(response="generated", documents="objects"),
    "starlette.Response": lambda it: _body(it.media_type or "text/plain", it.body),
    "aiohttp.Response": lambda it: _body(it.content_type, it.text),
    "werkzeug.Response": lambda it: {} if it.is_streamed else _body(it.mimetype, it.get_data()),  # Flask
    "django.HttpResponse": lambda it: _body(it["Content-Type"], it.content),
    "sanic.HTTPResponse": lambda it: _body(it.content_type, it.body),
    "builtins.bytes": bytes.decode,
    "elastic_transport.ObjectApiResponse": attrgetter("body"),  # Elasticsearch
}  # fmt: skip
"""Library and name of a class (or of one that it inherits from) → what its result is read from; None: it has none."""
_RUNS = frozenset(
    {
        "dspy.Prediction", "agents.RunResultBase", "pydantic_ai.AgentRunResult", "pydantic_ai.AgentRunResultEvent",
        "autogen_agentchat.TaskResult", "autogen_core.CreateResult", "agno.RunCompletedEvent", "agno.RunOutput",
        "strands.AgentResult", "workflows.StopEvent", "llama_index.AgentOutput", "smolagents.FinalAnswerStep",
        "pydantic_ai.AgentRun", "pydantic_ai.StreamedRunResult", "pydantic_ai.StreamedRunResultSync",
        "claude_agent_sdk.ResultMessage", "ag2.AgentReply",
    }
)  # fmt: skip


@lru_cache(maxsize=1024)
def known_as(bases: tuple[type, ...]) -> tuple[str, ...]:
    """Under which names of the tables a class is known, by itself or what it inherits from."""
    names = [f"{base.__module__.partition('.')[0]}.{base.__name__}" for base in bases]
    return tuple([name for name in names if name in OPENERS or name in _RUNS])


def is_run(item: Any) -> bool:
    """Whether an item is the result of a run, which states what the whole run used."""
    return not _RUNS.isdisjoint(known_as(type(item).__mro__))


def whole_result(item: Any) -> Any:
    """The whole result or message that an item of a stream is or carries (a state, too); None otherwise."""
    mode, item = _labelled(item)
    if mode is not None and mode not in _STATE_MODES:
        return None
    if type(item) is dict:
        item = item.get("payload", item)  # LangGraph, mode debug
        for key in ("result", "values"):  # Strands; LangGraph, modes tasks and checkpoints
            if type(item) is dict and key in item:
                return whole_result(item[key])
        return item if type(item) is dict and ("messages" in item or messages_of_update(item)) else None
    names = known_as(type(item).__mro__)
    is_message = "google.Event" in names and not item.partial
    return item if is_message or is_run(item) or "claude_agent_sdk.AssistantMessage" in names else None


def messages_of_update(item: Any) -> list[list[Any]]:
    """The messages in an update of LangGraph: node → what the node changed; empty for anything else."""
    if type(item) is not dict or "messages" in item or not all([type(part) is dict for part in item.values()]):
        return []
    return [part["messages"] for part in item.values() if isinstance(part.get("messages"), list)]


def _labelled(item: Any) -> tuple[str | None, Any]:
    """The mode and the payload of an item of LangGraph: `(mode, payload)`, `(namespace, mode, payload)`, version 2."""
    if type(item) is dict and "ns" in item and "data" in item:
        return item.get("type"), item["data"]
    if type(item) is tuple and len(item) in (2, 3):
        if type(item[0]) is tuple and all([isinstance(name, str) for name in item[0]]):
            item = item[1:] if len(item) == 3 else item[1]
        if type(item) is tuple and len(item) == 2 and isinstance(item[0], str) and item[0] in LANGGRAPH_MODES:
            return item
    return None, item


def opened(result: Any) -> Any:
    """The mapping that a library's result is read from; the result itself where it is not in the table."""
    if type(result) is tuple or (type(result) is dict and "ns" in result):
        mode, result = _labelled(result)
        if mode is not None and mode != "messages":
            return {}
    if type(result) is dict:
        return _component(result)
    if isinstance(result, tuple):
        return result._asdict() if hasattr(result, "_asdict") else _answer_first(result)
    for name in known_as(type(result).__mro__):
        opener = OPENERS.get(name)
        if opener is not None:
            try:
                return opener(result)
            except Exception:  # noqa: BLE001 - another version of the library, or a property that raises
                return result
    raw = fields_of(result).get("_raw_response") if hasattr(type(result), "model_fields") else None
    return result if raw is None else {STRUCTURED: result, "raw": raw}  # instructor


def _component(result: dict[str, Any]) -> Any:
    """Haystack: of a pipeline's outputs the last component that replies; the parts of its first reply are merged in."""
    if "role" in result or STRUCTURED in result:
        return result
    if "run_id" in result and "event" in result:  # `astream_events` of LangChain
        return value_of(result["data"], "chunk") if "model_stream" in str(result["event"]) else {}
    if "results" in result:
        return _generated(result)
    for part in result.values():
        if type(part) is not dict:
            break
    else:
        result = _last_replying(result) or result
    replies = result.get("replies" if "replies" in result else "answers")
    if not isinstance(replies, list) or not replies or isinstance(replies[0], (str, dict)):
        return result
    reply = opened(replies[0])
    if type(reply) is not dict:
        return result
    return {**result, **{name: part for name, part in reply.items() if part is not None}}


def _generated(result: dict[str, Any]) -> dict[str, Any]:
    """A reply of Titan on Bedrock or of watsonx: the first of its results."""
    results = result["results"]
    first = results[0] if isinstance(results, list) and results else None
    if type(first) is not dict or _GENERATED.isdisjoint(first):
        return result
    read, written = first.get("input_token_count"), first.get("generated_token_count")
    return {
        **first,
        "model": result.get("model_id"),
        "stop_reason": first.get("completionReason") or first.get("stop_reason"),
        "usage": {"input_tokens": result.get("inputTextTokenCount", read),
                  "output_tokens": first.get("tokenCount", written)},
    }  # fmt: skip


def _last_replying(outputs: dict[str, Any]) -> dict[str, Any] | None:
    replying = [part for part in outputs.values() if not _REPLY_KEYS.isdisjoint(part)]
    lists = [part["documents"] for part in outputs.values() if isinstance(part.get("documents"), list)]
    documents = {"documents": lists[-1]} if lists else {}
    return {**documents, **replying[-1]} if replying else documents or None


def _answer_first(result: tuple[Any, ...]) -> Any:
    """`(answer, sources)`, `(score, answer)`, `(model, completion)` of instructor, `(chunk, metadata)` of LangGraph."""
    if len(result) < 2 or result[0] is None or all(isinstance(part, str) for part in result):
        return list(result)
    if "xai_sdk.Chunk" in known_as(type(result[1]).__mro__):  # the response so far, and what is new
        return opened(result[1])
    answer = result[0]
    if isinstance(answer, (int, float)):
        answer = next((part for part in result if isinstance(part, str)), answer)
    parts: dict[str, Any] = {"response": answer}
    for part in [part for part in result if part is not answer]:
        parts.setdefault("documents" if isinstance(part, (list, tuple)) else "raw", part)
    return parts
