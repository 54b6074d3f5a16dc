"""A model on loopback for tests: the interfaces of OpenAI and Anthropic, with replies by a function of the prompt."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from typing import Any

Answer = Callable[[str], str | int | bytes | None]
"""The reply to a prompt: a text, an error status, a raw body, or None to close the connection."""
Reply = dict[str, Any]
Call = tuple[str, Reply]
"""The name of a tool and its arguments."""
_IDS = count(1)
_OPENAI_USAGE = {"prompt_tokens": 120, "completion_tokens": 5, "total_tokens": 125}
_USAGE = {"input_tokens": 120, "output_tokens": 5}


class LoopbackModel:
    """Answers by a function of the prompt, or calls a tool of the request; records the prompts.

    Chat completions and responses of OpenAI, messages of Anthropic, each whole or streamed word by word. A whole chat
    completion `writes` so many tokens, at most the request's `max_tokens`.
    """

    def __init__(
        self, answer: Answer, *, writes: int = 5, call_tool: Callable[[Reply], Call | None] | None = None
    ) -> None:
        """`call_tool` chooses the call for a request; by default a whole answer first calls the first tool."""
        self.asked: list[str] = []
        self.billed: list[tuple[int, int]] = []
        """Tokens of prompt and reply of each request that a provider would bill: all but refused ones."""
        self.answer, self.writes, self.call_tool = answer, writes, call_tool or _first_tool
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        """The base URL for clients of OpenAI; clients of Anthropic add `/v1` themselves."""
        return self.url_at("127.0.0.1")

    def url_at(self, host: str) -> str:
        """The base URL under another name of this computer: `127.1` does not look like loopback."""
        return f"http://{host}:{self._server.server_address[1]}/v1"

    def close(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(timeout=5)


def _handler(model: LoopbackModel) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["content-length"])))
            prompt = "\n".join(str(message.get("content")) for message in _messages(request))
            model.asked.append(prompt)
            whole, stream = _INTERFACES[self.path.partition("?")[0].partition("/v1")[2]]
            call = model.call_tool(request)
            answer = "" if call else model.answer(prompt)
            written = min(model.writes, request.get("max_tokens", model.writes))
            if not isinstance(answer, int):
                model.billed.append((120, written))
            if not isinstance(answer, str):
                self._fail(answer)
            elif request.get("stream"):
                self._send("text/event-stream", "".join(_frames(stream(request, answer, call))).encode())
            else:
                reply = whole(request, answer, call)
                counted = {"completion_tokens": written, "total_tokens": 120 + written}
                reply["usage"] |= counted if "choices" in reply else {}
                self._send("application/json", json.dumps(reply).encode())

        def _fail(self, answer: int | bytes | None) -> None:
            """Send an error status or a raw body, or close the connection."""
            if answer is None:
                self.close_connection = True
            else:
                body, status = (answer, 200) if isinstance(answer, bytes) else (b"{}", answer)
                self._send("application/json", body, status)

        def _send(self, kind: str, body: bytes, status: int = 200) -> None:
            self.send_response(status)
            self.send_header("content-type", kind)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            """Stay quiet."""

    return Handler


def _frames(events: Iterator[Reply]) -> Iterator[str]:
    for event in events:
        name = f"event: {event['type']}\n" if "type" in event else ""
        yield f"{name}data: {json.dumps(event)}\n\n"
    yield "data: [DONE]\n\n"


def _messages(request: Reply) -> list[Any]:
    messages = request.get("messages") or request.get("input") or []
    return [{"content": messages}] if isinstance(messages, str) else messages


def _first_tool(request: Reply) -> Call | None:
    """The first tool of the request, with "Paris" and 1 as its arguments; none in a stream or after a tool's result."""
    tools = request.get("tools")
    if not tools or request.get("stream") or any(_is_tool_result(message) for message in _messages(request)):
        return None
    tool = tools[0].get("function", tools[0])
    schema = tool.get("parameters") or tool.get("input_schema") or {}
    types = {name: part.get("type") for name, part in schema.get("properties", {}).items()}
    return tool["name"], {name: "Paris" if kind == "string" else 1 for name, kind in types.items()}


def _is_tool_result(message: Reply) -> bool:
    if message.get("role") == "tool" or message.get("type") == "function_call_output":
        return True
    parts = message.get("content")
    return isinstance(parts, list) and any(part.get("type") == "tool_result" for part in parts)


def _chat_message(text: str, call: Call | None) -> Reply:
    if not call:
        return {"role": "assistant", "content": text}
    function = {"name": call[0], "arguments": json.dumps(call[1])}
    tool_call = {"id": "c1", "type": "function", "function": function}
    return {"role": "assistant", "content": None, "tool_calls": [tool_call]}


def _completion(request: Reply, text: str, call: Call | None) -> Reply:
    message = _chat_message(text, call)
    choice = {"index": 0, "finish_reason": "tool_calls" if call else "stop", "message": message}
    return {
        "id": f"chatcmpl-{next(_IDS)}",
        "object": "chat.completion",
        "created": 1_700_000_000,
        "model": request["model"],
        "choices": [dict(choice, index=index) for index in range(request.get("n") or 1)],
        "usage": dict(_OPENAI_USAGE),
    }


def _completion_chunks(request: Reply, text: str, call: Call | None) -> Iterator[Reply]:
    base = {
        "id": f"chatcmpl-{next(_IDS)}",
        "object": "chat.completion.chunk",
        "created": 1_700_000_000,
        "model": request["model"],
    }
    first = _chat_message("", call)
    for tool_call in first.get("tool_calls", ()):
        tool_call["index"] = 0
    for delta in (first, *({"content": word} for word in _words(text) if not call)):
        yield {**base, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
    yield {**base, "choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls" if call else "stop"}]}
    if (request.get("stream_options") or {}).get("include_usage"):
        yield {**base, "choices": [], "usage": _OPENAI_USAGE}


def _words(text: str) -> list[str]:
    return [part for word in text.split(" ") for part in (" ", word)][1:]


def _response(request: Reply, text: str, call: Call | None) -> Reply:
    part = {"type": "output_text", "text": text, "annotations": []}
    item: Reply = {"id": "msg1", "type": "message", "role": "assistant", "status": "completed", "content": [part]}
    if call:
        item = {
            "id": "fc1",
            "type": "function_call",
            "call_id": "c1",
            "name": call[0],
            "arguments": json.dumps(call[1]),
        }
    details = {"input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0}}
    return {
        "id": f"resp_{next(_IDS)}", "object": "response", "created_at": 1_700_000_000, "model": request["model"],
        "status": "completed", "output": [item], "parallel_tool_calls": True, "tool_choice": "auto", "tools": [],
        "usage": {**_USAGE, **details, "total_tokens": 125},
    }  # fmt: skip


def _response_events(request: Reply, text: str, call: Call | None) -> Iterator[Reply]:
    done = _response(request, text, call)
    begun = {**done, "status": "in_progress", "output": [], "usage": None}
    position = {"item_id": "msg1", "output_index": 0, "content_index": 0, "logprobs": []}
    (item,) = done["output"]
    parts: list[Reply] = [] if call else [
        {"type": "response.content_part.added", **position, "part": {**item["content"][0], "text": ""}},
        *({"type": "response.output_text.delta", **position, "delta": word} for word in _words(text)),
        {"type": "response.output_text.done", **position, "text": text},
    ]  # fmt: skip
    events: list[Reply] = [
        {"type": "response.created", "response": begun},
        {"type": "response.output_item.added", "output_index": 0, "item": {**item, "content": []}},
        *parts,
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {"type": "response.completed", "response": done},
    ]
    yield from ({**event, "sequence_number": number} for number, event in enumerate(events))


def _message(request: Reply, text: str, call: Call | None) -> Reply:
    part = (
        {"type": "tool_use", "id": "c1", "name": call[0], "input": call[1]} if call else {"type": "text", "text": text}
    )
    return {
        "id": f"msg_{next(_IDS)}", "type": "message", "role": "assistant", "model": request["model"], "content": [part],
        "stop_reason": "tool_use" if call else "end_turn", "stop_sequence": None, "usage": _USAGE,
    }  # fmt: skip


def _message_events(request: Reply, text: str, call: Call | None) -> Iterator[Reply]:
    assert call is None, "a streamed call of a tool is not implemented here"
    begun = {**_message(request, "", None), "content": [], "stop_reason": None}
    yield {"type": "message_start", "message": {**begun, "usage": {"input_tokens": 120, "output_tokens": 1}}}
    yield {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}
    for word in _words(text):
        yield {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": word}}
    yield {"type": "content_block_stop", "index": 0}
    ending = {"stop_reason": "end_turn", "stop_sequence": None}
    yield {"type": "message_delta", "delta": ending, "usage": {"output_tokens": 5}}
    yield {"type": "message_stop"}


_INTERFACES: dict[str, tuple[Callable[..., Reply], Callable[..., Iterator[Reply]]]] = {
    "/chat/completions": (_completion, _completion_chunks),
    "/responses": (_response, _response_events),
    "/messages": (_message, _message_events),
}
"""Path → the whole answer, and the events of a streamed one."""
