"""The model that the clients ask: OpenAI-compatible, on loopback, with embeddings, tools and failures."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from typing import Any

Answer = Callable[[str], str]
CallTool = Callable[[dict[str, Any]], "dict[str, Any] | None"]
_IDS = count(1)
_USAGE = {"prompt_tokens": 120, "completion_tokens": 5, "total_tokens": 125}


class LoopbackModel:
    """An OpenAI-compatible server: chat completions, responses and embeddings, plain or streamed.

    `answer` is a function of the prompt; an answer that begins with "error:" becomes HTTP 400. `call_tool` gets the
    request and returns `{"name", "arguments"}` where the model calls a tool instead. It keeps what it was asked.
    """

    def __init__(self, answer: Answer, call_tool: CallTool = lambda request: None) -> None:
        self.asked: list[str] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(answer, call_tool, self.asked))
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        """The base URL to hand to clients."""
        return f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    def close(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(timeout=5)


def _handler(answer: Answer, call_tool: CallTool, asked: list[str]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["content-length"])))
            if self.path.endswith("/embeddings"):
                self._send(_embeddings(request))
                return
            prompt = _prompt(request)
            asked.append(prompt)
            tool, text = call_tool(request), answer(prompt)
            make = _response if self.path.endswith("/responses") else _completion
            if text.startswith("error:"):
                self._send({"error": {"message": text, "type": "invalid_request_error", "code": "broken"}}, 400)
            elif request.get("stream"):
                chunks = _events(make(request, text, tool)) if make is _response else _chunks(make(request, text, tool))
                self._send_bytes("".join(chunks).encode(), 200, "text/event-stream")
            else:
                self._send(make(request, text, tool))

        def _send(self, body: dict[str, Any], status: int = 200) -> None:
            self._send_bytes(json.dumps(body).encode(), status, "application/json")

        def _send_bytes(self, body: bytes, status: int, kind: str) -> None:
            self.send_response(status)
            self.send_header("content-type", kind)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            """Stay quiet."""

    return Handler


def _prompt(request: dict[str, Any]) -> str:
    messages = request.get("messages", request.get("input", []))
    if isinstance(messages, str):
        return messages
    return "\n".join(str(message.get("content") or message.get("output")) for message in messages)


def _completion(request: dict[str, Any], text: str, tool: dict[str, Any] | None) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": text}
    if tool is not None:
        function = {"name": tool["name"], "arguments": json.dumps(tool["arguments"])}
        message = {"role": "assistant", "content": None}
        message["tool_calls"] = [{"id": "call_1", "type": "function", "function": function}]
    choice = {"index": 0, "finish_reason": "tool_calls" if tool else "stop", "message": message}
    return {
        "id": f"chatcmpl-{next(_IDS)}",
        "object": "chat.completion",
        "created": 1_700_000_000,
        "model": request["model"],
        "choices": [dict(choice, index=index) for index in range(request.get("n") or 1)],
        "usage": _USAGE,
    }


def _chunks(completion: dict[str, Any]) -> Iterator[str]:
    head = {**completion, "object": "chat.completion.chunk"}
    message = completion["choices"][0]["message"]
    calls = [{**call, "index": 0} for call in message.get("tool_calls", ())]
    deltas = [{"role": "assistant", "content": message["content"], **({"tool_calls": calls} if calls else {})}, {}]
    for delta, reason in zip(deltas, (None, completion["choices"][0]["finish_reason"]), strict=True):
        choice = {"index": 0, "delta": delta, "finish_reason": reason}
        yield f"data: {json.dumps({**head, 'choices': [choice], 'usage': None})}\n\n"
    yield f"data: {json.dumps({**head, 'choices': []})}\n\ndata: [DONE]\n\n"


def _response(request: dict[str, Any], text: str, tool: dict[str, Any] | None) -> dict[str, Any]:
    part = {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
    item = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": [part]}
    if tool is not None:
        item = {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": tool["name"], "status": "completed"}
        item["arguments"] = json.dumps(tool["arguments"])
    usage = {"input_tokens": 120, "output_tokens": 5, "total_tokens": 125}
    usage |= {"input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0}}
    return {
        "id": f"resp_{next(_IDS)}",
        "object": "response",
        "created_at": 1_700_000_000,
        "status": "completed",
        "model": request["model"],
        "output": [item],
        "parallel_tool_calls": False,
        "tool_choice": "auto",
        "tools": [],
        "usage": usage,
    }


def _events(response: dict[str, Any]) -> Iterator[str]:
    (item,) = response["output"]
    begun = {**response, "status": "in_progress", "output": [], "usage": None}
    events: list[dict[str, Any]] = [{"type": "response.created", "response": begun}]
    events.append({"type": "response.output_item.added", "output_index": 0, "item": {**item, "content": []}})
    if item["type"] == "message":
        at = {"item_id": "msg_1", "output_index": 0, "content_index": 0}
        text = item["content"][0]["text"]
        events.append({"type": "response.content_part.added", **at, "part": {**item["content"][0], "text": ""}})
        events.append({"type": "response.output_text.delta", **at, "delta": text, "logprobs": []})
        events.append({"type": "response.output_text.done", **at, "text": text, "logprobs": []})
        events.append({"type": "response.content_part.done", **at, "part": item["content"][0]})
    events.append({"type": "response.output_item.done", "output_index": 0, "item": item})
    events.append({"type": "response.completed", "response": response})
    for number, event in enumerate(events):
        yield f"event: {event['type']}\ndata: {json.dumps({**event, 'sequence_number': number})}\n\n"


def _embeddings(request: dict[str, Any]) -> dict[str, Any]:
    texts = request["input"] if isinstance(request["input"], list) else [request["input"]]
    rows = [{"object": "embedding", "index": at, "embedding": [1.0, 0.5, 0.25]} for at in range(len(texts))]
    usage = {"prompt_tokens": 7, "total_tokens": 7}
    return {"object": "list", "data": rows, "model": request["model"], "usage": usage}
