"""Local model servers on loopback, each with the limits and the error bodies of Ollama, llama.cpp or vLLM."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal

Kind = Literal["ollama", "llama.cpp", "vllm"]
Body = dict[str, Any]
WINDOW = 4096
"""vLLM counts prompt and limit of the reply against it."""


class LocalServer:
    """Answers chat completions by a function of the prompt; knows one model."""

    def __init__(self, kind: Kind, answer: Callable[[str], str], *, model: str = "judge:8b") -> None:
        self.kind, self.answer, self.model = kind, answer, model
        self.requests: list[Body] = []
        self.busy = 0
        """So many requests are answered with 429 and `Retry-After` first."""
        self.keys: list[str | None] = []
        """The `Authorization` of each request."""
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
        self._server.local = self  # type: ignore[attr-defined]
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()

    @property
    def url(self) -> str:
        """The base for clients of OpenAI."""
        return f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    def close(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._server.server_close()

    def reply(self, request: Body) -> tuple[int, Body]:
        """Return status and body, as the server would."""
        self.requests.append(request)
        refused = _REFUSALS[self.kind](self, request)
        if refused:
            return refused
        prompt = "\n".join(message["content"] for message in request["messages"])
        choice: Body = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant"}}
        choice["message"]["content"] = self.answer(prompt)
        if request.get("logprobs") and self.kind != "ollama":
            top = [{"token": "Yes", "logprob": -0.1}, {"token": "No", "logprob": -2.4}]
            choice["logprobs"] = {"content": [{"token": "Yes", "logprob": -0.1, "top_logprobs": top}]}
        count = request.get("n", 1) if self.kind == "vllm" else 1
        usage = {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110}
        choices = [choice | {"index": index} for index in range(count)]
        return 200, {"id": "c", "object": "chat.completion", "model": self.model, "choices": choices, "usage": usage}


def _of_ollama(server: LocalServer, request: Body) -> tuple[int, Body] | None:
    if request["model"] == server.model:
        return None
    message = f"model '{request['model']}' not found, try pulling it first"
    return 404, {"error": {"message": message, "type": "not_found_error", "param": None, "code": None}}


def _of_llama_cpp(server: LocalServer, request: Body) -> tuple[int, Body] | None:
    del server  # it has one model, whatever the name
    if request.get("n", 1) == 1:
        return None
    message = "Only one completion choice is allowed"
    return 400, {"error": {"code": 400, "message": message, "type": "invalid_request_error"}}


def _of_vllm(server: LocalServer, request: Body) -> tuple[int, Body] | None:
    if request["model"] != server.model:
        message = f"The model `{request['model']}` does not exist."
        return 404, {"error": {"message": message, "type": "NotFoundError", "param": "model", "code": 404}}
    asked, prompt = request.get("max_tokens", 16), 100
    if prompt + asked <= WINDOW:
        return None
    message = (
        f"This model's maximum context length is {WINDOW} tokens. However, you requested {prompt + asked} tokens"
        f" ({prompt} in the messages, {asked} in the completion)."
        " Please reduce the length of the messages or completion."
    )
    return 400, {"object": "error", "message": message, "type": "BadRequestError", "param": None, "code": 400}


_REFUSALS: dict[Kind, Callable[[LocalServer, Body], tuple[int, Body] | None]] = {
    "ollama": _of_ollama,
    "llama.cpp": _of_llama_cpp,
    "vllm": _of_vllm,
}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        local: LocalServer = self.server.local  # type: ignore[attr-defined]
        request = json.loads(self.rfile.read(int(self.headers["content-length"])))
        local.keys.append(self.headers.get("authorization"))
        if local.busy > 0:
            local.busy -= 1
            self._send(429, {"error": {"message": "slow down"}}, {"retry-after": "0.01"})
            return
        status, reply = (
            local.reply(request) if self.path == "/v1/chat/completions" else (404, {"error": "404 page not found"})
        )
        self._send(status, reply, {})

    def _send(self, status: int, reply: Body, headers: dict[str, str]) -> None:
        body = json.dumps(reply).encode()
        self.send_response(status)
        for name, value in {"content-type": "application/json", **headers}.items():
            self.send_header(name, value)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Stay quiet."""
