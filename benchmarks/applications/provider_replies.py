"""Google, Mistral, Cohere and Bedrock: thinking and several text blocks, tool calls, usage, streams."""

from typing import Any

import boto3
from _replies import served
from cohere import ClientV2
from google import genai
from google.genai import types
from mistralai.client import Mistral

import ragpulse

GROUP = "providers"
REQUIREMENTS = ["boto3", "cohere", "google-genai", "mistralai"]
EXPECTED = {
    "google": {"response": "Paris is in France.", "input_tokens": 120, "output_tokens": 9, "model": "gemini-2.5-flash"},
    "google_stream": {"response": "Paris is in France.", "input_tokens": 120, "output_tokens": 9},
    "google_call": {"response": None, "attributes": {"gen_ai.output.messages": ...}},
    "mistral": {"response": "Paris is in France.", "input_tokens": 120, "output_tokens": 9, "model": "mistral-small"},
    "mistral_stream": {"response": "Paris is in France.", "input_tokens": 120, "output_tokens": 9},
    "cohere_chat": {"response": "Paris is in France.", "input_tokens": 120, "output_tokens": 9},
    "cohere_stream": {"response": "Paris is in France.", "input_tokens": 120, "output_tokens": 9},
    "bedrock": {"response": "Paris is in France.", "input_tokens": 120, "output_tokens": 9},
    "bedrock_call": {"response": None, "attributes": {"gen_ai.output.messages": ...}},
}

WORDS = ("Paris ", "is in ", "France.")
GOOGLE_USAGE = {"promptTokenCount": 120, "candidatesTokenCount": 5, "thoughtsTokenCount": 4, "totalTokenCount": 129}


def google_reply(*parts: dict[str, Any], **more: Any) -> dict[str, Any]:
    candidate = {"content": {"role": "model", "parts": list(parts)}, "index": 0, **more}
    return {"candidates": [candidate], "modelVersion": "gemini-2.5-flash", "usageMetadata": GOOGLE_USAGE}


def mistral_chunk(delta: dict[str, Any], **more: Any) -> dict[str, Any]:
    choice = {"index": 0, "delta": delta, "finish_reason": more.pop("finish_reason", None)}
    return {"id": "m", "object": "chat.completion.chunk", "created": 1, "model": "mistral-small", "choices": [choice],
            **more}  # fmt: skip


MISTRAL_USAGE = {"prompt_tokens": 120, "completion_tokens": 9, "total_tokens": 129}
THOUGHT = {"text": "They ask for a country.", "thought": True}
COHERE_USAGE = {
    "billed_units": {"input_tokens": 118, "output_tokens": 9},
    "tokens": {"input_tokens": 120, "output_tokens": 9},
}
BEDROCK = {"usage": {"inputTokens": 120, "outputTokens": 9, "totalTokens": 129}, "metrics": {"latencyMs": 1}}
CALL = {"toolUse": {"toolUseId": "t1", "name": "weather", "input": {"city": "Paris"}}}
REPLIES: dict[str, Any] = {
    "gemini-2.5-flash:stream": [google_reply(THOUGHT), *[google_reply({"text": word}) for word in WORDS]],
    "gemini-2.5-flash:generate": google_reply(THOUGHT, *[{"text": word} for word in WORDS], finishReason="STOP"),
    "gemini-calls:generate": google_reply({"functionCall": {"name": "weather", "args": {"city": "Paris"}}}),
    "/mistral/": {
        "id": "m", "object": "chat.completion", "created": 1, "model": "mistral-small", "usage": MISTRAL_USAGE,
        "choices": [
            {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": [
                {"type": "thinking", "thinking": [{"type": "text", "text": "They ask for a country."}]},
                {"type": "text", "text": "Paris is in France."}]}}]},
    "/streamed/": [*[mistral_chunk({"role": "assistant", "content": word}) for word in WORDS],
                   mistral_chunk({"content": ""}, finish_reason="stop", usage=MISTRAL_USAGE)],
    "/cohere/v2/chat": {"id": "c", "finish_reason": "COMPLETE", "usage": COHERE_USAGE, "message": {
        "role": "assistant", "content": [{"type": "thinking", "thinking": "They ask for a country."},
                                         {"type": "text", "text": "Paris is "},
                                         {"type": "text", "text": "in France."}]}},
    "/cohere-stream/v2/chat": [
        {"type": "message-start", "id": "c", "delta": {"message": {"role": "assistant", "content": []}}},
        *[{"type": "content-delta", "index": 0, "delta": {"message": {"content": {"text": word}}}} for word in WORDS],
        {"type": "message-end", "id": "c", "delta": {"finish_reason": "COMPLETE", "usage": COHERE_USAGE}}],
    "/model/claude/": {**BEDROCK, "stopReason": "end_turn", "output": {"message": {"role": "assistant", "content": [
        {"reasoningContent": {"reasoningText": {"text": "They ask for a country.", "signature": "s"}}},
        {"text": "Paris is "}, {"text": "in France."}]}}},
    "/model/calls/": {**BEDROCK, "stopReason": "tool_use",
                      "output": {"message": {"role": "assistant", "content": [CALL]}}},
}  # fmt: skip
MESSAGES: Any = [{"role": "user", "content": "Where is Paris?"}]
CONVERSATION: Any = [{"role": "user", "content": [{"text": "Where is Paris?"}]}]


class Models:
    """One call with each client."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.google_client = genai.Client(api_key="none", http_options=types.HttpOptions(base_url=url))
        aws = {"endpoint_url": url, "region_name": "eu-west-1", "aws_access_key_id": "k", "aws_secret_access_key": "k"}
        self.runtime = boto3.client("bedrock-runtime", **aws)

    @ragpulse.llm(name="google")
    def google(self, question: str) -> Any:
        return self.google_client.models.generate_content(model="gemini-2.5-flash", contents=question)

    @ragpulse.llm(name="google_stream")
    def google_stream(self, question: str) -> Any:
        return self.google_client.models.generate_content_stream(model="gemini-2.5-flash", contents=question)

    @ragpulse.llm(name="google_call")
    def google_call(self, question: str) -> Any:
        return self.google_client.models.generate_content(model="gemini-calls", contents=question)

    @ragpulse.llm(name="mistral")
    def mistral(self, question: str) -> Any:
        return Mistral("none", server_url=f"{self.url}/mistral").chat.complete(model="mistral-small", messages=MESSAGES)

    @ragpulse.llm(name="mistral_stream")
    def mistral_stream(self, question: str) -> Any:
        return Mistral("none", server_url=f"{self.url}/streamed").chat.stream(model="mistral-small", messages=MESSAGES)

    @ragpulse.llm(name="cohere_chat")
    def cohere_chat(self, question: str) -> Any:
        return ClientV2("none", base_url=f"{self.url}/cohere").chat(model="command-a", messages=MESSAGES)

    @ragpulse.llm(name="cohere_stream")
    def cohere_stream(self, question: str) -> Any:
        return ClientV2("none", base_url=f"{self.url}/cohere-stream").chat_stream(model="command-a", messages=MESSAGES)

    @ragpulse.llm(name="bedrock")
    def bedrock(self, question: str) -> Any:
        return self.runtime.converse(modelId="claude", messages=CONVERSATION)

    @ragpulse.llm(name="bedrock_call")
    def bedrock_call(self, question: str) -> Any:
        return self.runtime.converse(modelId="calls", messages=CONVERSATION)


if __name__ == "__main__":
    ragpulse.configure()
    with served(REPLIES) as url:
        models = Models(url)
        for call in (
            models.google,
            models.google_call,
            models.mistral,
            models.cohere_chat,
            models.bedrock,
            models.bedrock_call,
        ):
            call("Where is Paris?")
        for stream in (models.google_stream, models.mistral_stream, models.cohere_stream):
            list(stream("Where is Paris?"))
    ragpulse.flush()
