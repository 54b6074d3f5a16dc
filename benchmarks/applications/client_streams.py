"""Functions that return the streams of genuine instrumented clients: the span lasts until they are read."""

import json
import os
import struct
import threading
import zlib
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import boto3
import cohere
from anthropic import Anthropic
from google import genai
from mistralai.client import Mistral
from openai import OpenAI

import ragpulse

GROUP = "client_streams"
REQUIREMENTS = [
    "openai", "anthropic", "mistralai", "cohere", "google-genai", "boto3", "openinference-instrumentation-openai",
    "openinference-instrumentation-anthropic", "openinference-instrumentation-mistralai",
    "openinference-instrumentation-google-genai", "openinference-instrumentation-bedrock",
]  # fmt: skip
EXPECTED = {
    "openai_chat": {"kind": "llm", "response": "Paris is the capital of France.", "input_tokens": 120},
    "openai_helper": {"kind": "llm", "response": "Paris is the capital of France.", "input_tokens": 120},
    "anthropic_messages": {"kind": "llm", "response": "Paris is the capital of France.", "input_tokens": 120},
    "anthropic_helper": {"kind": "llm", "response": "Paris is the capital of France.", "input_tokens": 120},
    "mistral": {"kind": "llm", "response": "Paris is the capital of France.", "input_tokens": 120},
    "cohere_v2": {"kind": "llm", "response": "Paris is the capital of France.", "input_tokens": 120},
    "google": {"kind": "llm", "response": "Paris is the capital of France.", "input_tokens": 120},
    "bedrock": {"kind": "llm", "response": "Paris is the capital of France.", "input_tokens": 120},
    "ChatCompletion": {"parent": "openai_chat"},
    "messages.create": {"parent": "anthropic_messages"},
    "GenerateContentStream": {"parent": "google"},
    "converse_stream": {"parent": "bedrock"},
}
WORDS = ["Paris ", "is the ", "capital ", "of France."]
CLIENTS: list[Any] = []
"""A client of Google closes its connection when it is garbage."""
MESSAGES: Any = [{"role": "user", "content": "Where is Paris?"}]


def _mistral() -> Iterator[dict[str, Any]]:
    base = {"id": "m1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    for word in WORDS:
        yield {
            **base,
            "choices": [{"index": 0, "delta": {"role": "assistant", "content": word}, "finish_reason": None}],
        }
    usage = {"prompt_tokens": 120, "completion_tokens": 5, "total_tokens": 125}
    yield {**base, "choices": [{"index": 0, "delta": {"content": ""}, "finish_reason": "stop"}], "usage": usage}


def _cohere() -> Iterator[dict[str, Any]]:
    yield {"type": "message-start", "id": "c1", "delta": {"message": {"role": "assistant"}}}
    for word in WORDS:
        yield {"type": "content-delta", "index": 0, "delta": {"message": {"content": {"text": word}}}}
    tokens = {"input_tokens": 120, "output_tokens": 5}
    usage = {"billed_units": tokens, "tokens": tokens}
    yield {"type": "message-end", "delta": {"finish_reason": "COMPLETE", "usage": usage}}


def _google() -> Iterator[dict[str, Any]]:
    usage = {"promptTokenCount": 120, "candidatesTokenCount": 5, "totalTokenCount": 125}
    for word in WORDS:
        content = {"role": "model", "parts": [{"text": word}]}
        yield {"candidates": [{"content": content, "index": 0}], "modelVersion": "m", "usageMetadata": usage}


def _bedrock() -> bytes:
    frames = [_frame("messageStart", {"role": "assistant"})]
    frames += [_frame("contentBlockDelta", {"delta": {"text": word}, "contentBlockIndex": 0}) for word in WORDS]
    usage = {"inputTokens": 120, "outputTokens": 5, "totalTokens": 125}
    frames.append(_frame("messageStop", {"stopReason": "end_turn"}))
    return b"".join([*frames, _frame("metadata", {"usage": usage, "metrics": {"latencyMs": 1}})])


def _frame(kind: str, payload: dict[str, Any]) -> bytes:
    """One message of Amazon's binary event stream."""
    facts = {":event-type": kind, ":content-type": "application/json", ":message-type": "event"}
    head = b"".join(
        bytes([len(name)]) + name.encode() + b"\x07" + struct.pack(">H", len(value)) + value.encode()
        for name, value in facts.items()
    )
    body = json.dumps(payload).encode()
    prelude = struct.pack(">II", 16 + len(head) + len(body), len(head))
    message = prelude + struct.pack(">I", zlib.crc32(prelude)) + head + body
    return message + struct.pack(">I", zlib.crc32(message))


class Provider(BaseHTTPRequestHandler):
    """Streams of four providers, by the path."""

    def do_POST(self) -> None:
        """Answer with the whole stream."""
        self.rfile.read(int(self.headers["content-length"]))
        events = _google() if "streamGenerate" in self.path else _cohere() if "/v2/" in self.path else _mistral()
        body = "".join(f"data: {json.dumps(event)}\n\n" for event in events).encode()
        if "converse" in self.path:
            body = _bedrock()
        self.send_response(200)
        self.send_header(
            "content-type", "application/vnd.amazon.eventstream" if "converse" in self.path else "text/event-stream"
        )
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@ragpulse.llm
def openai_chat(question: str) -> Any:
    return OpenAI().chat.completions.create(
        model="gpt-5-mini", messages=MESSAGES, stream=True, stream_options={"include_usage": True}
    )


@ragpulse.llm
def openai_helper(question: str) -> Any:
    return OpenAI().chat.completions.stream(
        model="gpt-5-mini", messages=MESSAGES, stream_options={"include_usage": True}
    )


@ragpulse.llm
def anthropic_messages(question: str) -> Any:
    return Anthropic().messages.create(model="claude-sonnet-4-5", max_tokens=50, messages=MESSAGES, stream=True)


@ragpulse.llm
def anthropic_helper(question: str) -> Any:
    return Anthropic().messages.stream(model="claude-sonnet-4-5", max_tokens=50, messages=MESSAGES)


@ragpulse.llm
def mistral(question: str) -> Any:
    return Mistral(api_key="none", server_url=os.environ["PROVIDER"]).chat.stream(model="m", messages=MESSAGES)


@ragpulse.llm
def cohere_v2(question: str) -> Any:
    return cohere.ClientV2(api_key="none", base_url=os.environ["PROVIDER"]).chat_stream(model="m", messages=MESSAGES)


@ragpulse.llm
def google(question: str) -> Any:
    CLIENTS.append(genai.Client(api_key="none", http_options={"base_url": os.environ["PROVIDER"]}))
    return CLIENTS[0].models.generate_content_stream(model="m", contents=question)


@ragpulse.llm
def bedrock(question: str) -> Any:
    client = boto3.client(
        "bedrock-runtime", region_name="us-east-1", endpoint_url=os.environ["PROVIDER"],
        aws_access_key_id="none", aws_secret_access_key="none",
    )  # fmt: skip
    return client.converse_stream(modelId="m", messages=[{"role": "user", "content": [{"text": question}]}])


def read(returned: Any) -> None:
    """Read the stream as an application reads it; that of a helper within its block."""
    if isinstance(returned, dict):
        returned = returned["stream"]
    if "Manager" in type(returned).__name__:
        with returned as stream:
            assert len(list(stream)) > 2
    else:
        assert len(list(returned)) > 2


if __name__ == "__main__":
    server = ThreadingHTTPServer(("127.0.0.1", 0), Provider)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    os.environ["PROVIDER"] = f"http://127.0.0.1:{server.server_address[1]}"
    ragpulse.configure()
    ragpulse.instrument("openai", "anthropic", "mistralai", "google_genai", "bedrock")
    for ask in (openai_chat, openai_helper, anthropic_messages, anthropic_helper, mistral, cohere_v2, google, bedrock):
        read(ask("Where is Paris?"))
    ragpulse.flush()
