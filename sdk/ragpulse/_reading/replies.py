"""Finds the answer in what a function returned: its text and its tool calls.

`OPENERS` is the one table of results that do not show their answer under a common name. Each entry turns a library's
object into a mapping with the common names: `response`, `usage`, `model`, `documents`, `raw` (a provider's own reply).
No library is imported: a type is known by its name and by what it has.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .values import fields_of, parsed, read


def tool_calls(result: Any) -> list[dict[str, Any]]:
    """The tool calls in an opened result: id, name, arguments."""
    fields = fields_of(result)
    message: Mapping[str, Any] | None = fields
    if isinstance(fields.get("choices"), list) and fields["choices"]:
        message = fields_of(fields_of(fields["choices"][0]).get("message"))
    elif isinstance(fields.get("messages"), list):
        message = last_reply(fields["messages"])
    elif fields.get("message") is not None:
        message = fields_of(opened(fields["message"]))
    return [] if message is None else calls_of_message(message)


def calls_of_message(message: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The tool calls of one message, from `tool_calls` or the parts of its content."""
    calls = message.get("tool_calls")
    if not isinstance(calls, (list, tuple)) or not calls:
        parts = message.get("output") or message.get("content")
        calls = [part for part in parts if is_call(part)] if isinstance(parts, (list, tuple)) else []
    return [_call(fields_of(call)) for call in calls]


def is_call(part: Any) -> bool:
    """Whether a part of a message's content is a tool call."""
    return not isinstance(part, str) and read(part, "type") in ("tool_use", "function_call", "tool_call")


def _call(fields: Mapping[str, Any]) -> dict[str, Any]:
    """One tool call; arguments in JSON are parsed."""
    inner = fields_of(fields.get("function")) or fields
    name = inner.get("name") or inner.get("tool_name")
    arguments = next((inner[key] for key in ("arguments", "args", "input") if inner.get(key) is not None), None)
    return {"id": fields.get("call_id") or fields.get("id"), "name": name, "arguments": parsed(arguments)}


def add_tool_calls(calls: dict[Any, dict[str, Any]], chunk: Any) -> None:
    """Adds the parts of calls in one chunk of a stream: OpenAI's deltas, Anthropic's blocks, items of responses."""
    fields = fields_of(opened(chunk))
    choices = fields.get("choices")
    if isinstance(choices, list) and choices:
        for part in fields_of(fields_of(choices[0]).get("delta")).get("tool_calls") or ():
            call = fields_of(part)
            function = fields_of(call.get("function"))
            _grow(calls, call.get("index"), call.get("id"), function.get("name"), function.get("arguments"))
    elif fields.get("type") == "response.output_item.done" and is_call(fields.get("item")):
        call = _call(fields_of(fields["item"]))
        calls[fields.get("output_index")] = {**call, "arguments": json.dumps(call["arguments"])}
    elif fields.get("type") == "content_block_start" and is_call(fields.get("content_block")):
        block = fields_of(fields["content_block"])
        _grow(calls, fields.get("index"), block.get("id"), block.get("name"), None)
    elif fields.get("type") == "content_block_delta" and fields.get("index") in calls:
        _grow(calls, fields["index"], None, None, read(fields["delta"], "partial_json"))


def _grow(calls: dict[Any, dict[str, Any]], index: Any, identity: Any, name: Any, arguments: Any) -> None:
    call = calls.setdefault(index, {"id": None, "name": None, "arguments": ""})
    call["id"], call["name"] = identity or call["id"], name or call["name"]
    call["arguments"] += arguments or ""


_TEXT_KEYS = ("output_text", "answer", "response", "content", "message", "output", "result", "text", "completion")
"""`answer` comes before `message`, which is often the question or a status."""
_LIST_KEYS = ("replies", "answers", "messages")
"""Where a result has a list of replies (Haystack) or a conversation (LangGraph)."""
_UNSEEN_DELTAS = ("reasoning", "thinking", "tool", "argument", "audio", "input")
"""Parts of the types of events whose `delta` is hidden from the user."""
_MODEL_ROLES = frozenset({"assistant", "ai", "model", "AIMessageChunk"})
LANGGRAPH_MODES = frozenset({"values", "updates", "messages", "custom", "checkpoints", "tasks", "debug"})
"""The first part of each item of a stream with several modes; only `messages` has pieces of the answer."""
_SSE_KEYS = frozenset({"data", "event", "id", "retry", "comment", "sep"})


# --- results that hide their answer ----------------------------------------------------------------------------------
def _dspy_prediction(result: Any) -> Any:
    fields = dict(result.toDict())
    outputs = {key: value for key, value in fields.items() if key not in ("reasoning", "rationale", "passages")}
    response = reply_text_of(outputs) if len(outputs) != 1 else next(iter(outputs.values()))
    per_model = result.get_lm_usage() or {}
    model = next(iter(per_model), None) if len(per_model) == 1 else None
    return {
        "response": outputs if response is None else response,
        "documents": fields.get("passages"),
        "usage": _summed(list(per_model.values())),
        "model": model,
    }


def _summed(usages: list[Any]) -> Mapping[str, Any] | None:
    """The usage of several calls as one; each figure must be a plain count to be added."""
    if len(usages) < 2:
        return fields_of(usages[0]) if usages else None
    names = {name for usage in usages for name, count in fields_of(usage).items() if type(count) is int}
    return {name: sum(fields_of(usage).get(name) or 0 for usage in usages) for name in names}


def _pydantic_ai_run(result: Any) -> Any:
    usage = result.usage() if callable(result.usage) else result.usage  # a method before 2.0
    return {"response": result.output, "usage": usage, "model": read(read(result, "response"), "model_name")}


def _chat_message(result: Any) -> Any:
    """Haystack's and LlamaIndex's messages have their text behind a property."""
    text = read(result, "text")
    return {
        "role": str(getattr(result.role, "value", result.role)),
        "content": text if isinstance(text, str) else read(result, "content"),
        "tool_calls": read(result, "tool_calls"),
        "metadata": read(result, "meta"),
    }


OPENERS: dict[str, Callable[[Any], Any]] = {
    "Prediction": _dspy_prediction,
    "StreamResponse": lambda result: {"text": result.chunk},  # dspy
    "RunResultBase": lambda run: {"response": run.final_output, "usage": run.context_wrapper.usage},  # openai-agents
    "RawResponsesStreamEvent": lambda event: event.data,  # openai-agents
    "CompletionEvent": lambda event: event.data,  # Mistral
    "ChatMessageContent": lambda it: {"role": it.role.value, "content": it.content, "response_metadata": it.metadata},
    "AgentResponseItem": lambda item: opened(item.message),  # semantic-kernel, both
    "AgentRunResult": _pydantic_ai_run,
    "AgentRunResultEvent": lambda event: _pydantic_ai_run(event.result),
    "End": lambda node: {"response": node.data.output},  # of a run of pydantic-ai
    "StreamedRunResult": lambda result: None,  # pydantic-ai: not read yet
    "StreamedRunResultSync": lambda result: None,
    "PartStartEvent": lambda event: {"text": event.part.content if event.part.part_kind == "text" else ""},
    "PartDeltaEvent": lambda event: {"text": read(event.delta, "content_delta") or ""},  # pydantic-ai
    "LegacyAPIResponse": lambda result: result.http_response.json(),  # `with_raw_response` of openai and anthropic
    "BaseAPIResponse": lambda result: result.http_response.json(),
    "ChatMessage": _chat_message,
    "GeneratedAnswer": lambda it: {"response": it.data, "documents": it.documents, "metadata": it.meta},  # Haystack
    "QueryReturn": lambda result: {"documents": result.objects},  # Weaviate
    "GroupByReturn": lambda result: {"documents": result.objects},
    "GenerativeReturn": lambda it: {"response": it.generated, "documents": it.objects},  # Weaviate
    "JSONResponse": lambda result: json.loads(result.body),  # Starlette, FastAPI
    "PlainTextResponse": lambda result: result.body.decode(),
    "HTMLResponse": lambda result: result.body.decode(),
    "bytes": bytes.decode,
    "ObjectApiResponse": lambda result: result.body,  # Elasticsearch
}
"""Name of a class (or of one that it inherits from) → the mapping that its result is read from; None: it has none."""
_WHOLE_RESULTS = frozenset({"Prediction", "RunResultBase", "AgentRunResult", "AgentRunResultEvent"})


def is_whole_result(item: Any) -> bool:
    """Whether an item of a stream is its whole result: dspy, pydantic-ai, openai-agents."""
    return not _WHOLE_RESULTS.isdisjoint([cls.__name__ for cls in type(item).__mro__])


def opened(result: Any) -> Any:
    """The mapping that a library's result is read from; the result itself where it is not in the table."""
    if type(result) is dict:
        return _component(result)
    if isinstance(result, tuple):
        return result._asdict() if hasattr(result, "_asdict") else _answer_first(result)
    for cls in type(result).__mro__[:-1]:
        opener = OPENERS.get(cls.__name__)
        if opener is not None:
            try:
                return opener(result)
            except Exception:  # noqa: BLE001 - another library's class of that name, or one that raises
                return result
    raw = read(result, "_raw_response") if hasattr(type(result), "model_fields") else None
    return result if raw is None else {"response": result, "raw": raw}  # instructor


def _component(result: dict[str, Any]) -> dict[str, Any]:
    """Haystack: of a pipeline's outputs the last component that replies; the parts of its first reply are merged in."""
    for part in result.values():
        if type(part) is not dict:
            break
    else:
        result = _last_replying(result) or result
    key = "replies" if "replies" in result else "answers"
    replies = result.get(key)
    if not isinstance(replies, list) or not replies or isinstance(replies[0], (str, dict)):
        return result
    reply = opened(replies[0])
    if type(reply) is not dict:
        return result
    return {**result, **{name: part for name, part in reply.items() if part is not None}}


def _last_replying(outputs: dict[str, Any]) -> dict[str, Any] | None:
    replying = [part for part in outputs.values() if any(isinstance(part.get(key), list) for key in _LIST_KEYS)]
    lists = [part["documents"] for part in outputs.values() if isinstance(part.get("documents"), list)]
    documents = {"documents": lists[-1]} if lists else {}
    return {**documents, **replying[-1]} if replying else documents or None


def _answer_first(result: tuple[Any, ...]) -> Any:
    """`(answer, sources)`, `(score, answer)`, `(model, completion)` of instructor, `(chunk, metadata)` of LangGraph."""
    if len(result) == 2 and isinstance(result[0], str) and result[0] in LANGGRAPH_MODES:
        return opened(result[1]) if result[0] == "messages" else ""
    if len(result) < 2 or result[0] is None or all(isinstance(part, str) for part in result):
        return list(result)
    answer = result[0]
    if isinstance(answer, (int, float)):
        answer = next((part for part in result if isinstance(part, str)), answer)
    parts: dict[str, Any] = {"response": answer}
    for part in [part for part in result if part is not answer]:
        parts.setdefault("documents" if isinstance(part, (list, tuple)) else "raw", part)
    return parts


# --- text ------------------------------------------------------------------------------------------------------------
def reply_text(result: Any) -> str | None:
    """The text of a whole reply or of one chunk of a stream; None if it has none."""
    return result if isinstance(result, str) else text_in(opened(result))


def text_in(result: Any) -> str | None:
    """As `reply_text`, of a result that `opened` returned."""
    if type(result) is dict:
        return reply_text_of(result)
    if isinstance(result, str):
        return result
    return _listed_text(result) if isinstance(result, (list, tuple)) else reply_text_of(fields_of(result))


def _listed_text(items: Sequence[Any]) -> str | None:
    """Texts as lines; of a conversation the last message of the model."""
    if items and all([isinstance(item, str) for item in items]):
        return "\n".join(items)
    reply = last_reply(items)
    if reply is None:
        return _content(items) if any([read(item, "type") == "text" for item in items]) else None
    return reply_text_of(reply)


def last_reply(items: Sequence[Any]) -> Mapping[str, Any] | None:
    """The fields of the model's last message in a conversation."""
    for item in reversed(items):
        fields = fields_of(opened(item))
        role = fields.get("role") or fields.get("type")
        if str(getattr(role, "value", role)) in _MODEL_ROLES:
            return fields
    return None


def reply_text_of(fields: Mapping[str, Any]) -> str | None:
    """As `reply_text`, from a result's fields."""
    if isinstance(fields.get("choices"), list):
        return _choice_text(fields["choices"])
    delta = fields.get("delta")
    if "type" in fields and ("delta" in fields or _is_event(fields)):
        return _delta_text(fields)
    if isinstance(delta, str):  # LlamaIndex: the text so far is beside it
        return delta
    if "contentBlockDelta" in fields:
        return _delta_text({"delta": fields_of(fields["contentBlockDelta"]).get("delta")})
    candidates = fields.get("candidates")
    if isinstance(candidates, list):
        return _content(fields_of(candidates[0]).get("content")) if candidates else None
    if isinstance(fields.get("data"), str) and _SSE_KEYS.issuperset(fields):
        return data_text(fields["data"])
    if "run_id" in fields and "event" in fields and "data" in fields:  # `astream_events` of LangChain
        return reply_text(fields_of(fields["data"]).get("chunk")) if "model_stream" in fields["event"] else ""
    return _keyed_text(fields)


def _keyed_text(fields: Mapping[str, Any]) -> str | None:
    for key in _TEXT_KEYS:
        value = fields.get(key)
        if isinstance(value, list) and key != "content" and all([isinstance(line, str) for line in value]):
            return "\n".join(value)
        if value is not None and (text := _content(value)) is not None:
            return text
    for key in _LIST_KEYS:
        value = fields.get(key)
        if isinstance(value, list) and value:
            return _listed_text(value) if key == "messages" else reply_text(value[0])
    return None


def _is_event(fields: Mapping[str, Any]) -> bool:
    kind = fields["type"]
    return isinstance(kind, str) and (
        kind.startswith(("response.", "message_", "content_block_")) or kind.endswith(".done") or "snapshot" in fields
    )


def _choice_text(choices: list[Any]) -> str | None:
    if not choices:
        return ""
    choice = fields_of(choices[0])
    message = choice.get("delta") or choice.get("message")
    if message is not None:
        fields = fields_of(message)
        return _content(fields.get("content")) or _content(fields.get("refusal")) or ""
    text = choice.get("text")
    return text if isinstance(text, str) else None


def _delta_text(fields: Mapping[str, Any]) -> str:
    """Stream events: text deltas of OpenAI (chat and responses), Anthropic and Bedrock."""
    delta = fields.get("delta")
    if isinstance(delta, str):
        kind = str(fields.get("type"))
        if kind.startswith("response."):
            return delta if "output_text" in kind or "refusal" in kind else ""
        return "" if any(name in kind for name in _UNSEEN_DELTAS) else delta
    parts = fields_of(delta)
    text = parts.get("text")
    return text if isinstance(text, str) else _content(parts.get("message")) or ""  # the latter: Cohere


def _content(content: Any) -> str | None:
    """The text of a message's content: a string, a list of parts of which some are text, or a message that has one."""
    if isinstance(content, str):
        return content
    if isinstance(content, (list, tuple)):
        texts = [text for part in content if (text := _content(part)) is not None]
        return "".join(texts) if texts else None
    if isinstance(content, (int, float)):
        return None
    fields = fields_of(opened(content))
    for key in ("answer", "text", "refusal", "content", "parts", "message", "response"):
        if fields.get(key) is not None and (text := _content(fields[key])) is not None:
            return text
    return None


def data_text(data: str) -> str:
    """The text in the data of one event or line: the reply in it where it is JSON."""
    if data == "[DONE]":
        return ""
    if data[:1] not in ("{", '"'):
        return data
    try:
        value = json.loads(data)
    except ValueError:
        return data
    piece = piece_in(value) if isinstance(value, dict) else None
    return piece if piece is not None else reply_text(value) or ""


def piece_in(value: dict[str, Any]) -> str | None:
    """The text of a piece such as `{"token": "Pa"}`; None for anything else."""
    piece = value.get("token", value.get("chunk"))
    return piece if isinstance(piece, str) else None
