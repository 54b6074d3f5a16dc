"""LlamaIndex: a chat engine's answer, and a model that streams the text so far."""

from collections.abc import Iterator
from typing import Any

from llama_index.core import Document, SummaryIndex
from llama_index.core.llms import ChatMessage
from llama_index.llms.openai_like import OpenAILike

import ragpulse

GROUP = "llama_index"
REQUIREMENTS = ["llama-index-core", "llama-index-llms-openai-like"]
EXPECTED = {
    "chat": {"kind": "rag", "response": "Paris is the capital of France.", "contexts": ["Paris is a city."]},
    "query": {"kind": "rag", "response": "Paris is the capital of France.", "contexts": ["Paris is a city."]},
    "say": {"response": "Paris is the capital of France.", "input_tokens": 120, "output_tokens": 5},
    "stream": {"response": "Paris is the capital of France."},
    "search": {"contexts": ["Paris is a city."]},
}

MODEL = OpenAILike(model="gpt-5-mini", is_chat_model=True)
INDEX = SummaryIndex.from_documents([Document(text="Paris is a city.")])


@ragpulse.retriever
def search(query: str) -> Any:
    return INDEX.as_retriever().retrieve(query)


@ragpulse.rag
def query(question: str) -> Any:
    return INDEX.as_query_engine(llm=MODEL).query(question)


@ragpulse.rag
def chat(question: str) -> Any:
    return INDEX.as_chat_engine(llm=MODEL, chat_mode="context").chat(question)


@ragpulse.llm
def say(question: str) -> Any:
    return MODEL.chat([ChatMessage(question)])


@ragpulse.llm
def stream(question: str) -> Iterator[Any]:
    yield from MODEL.stream_chat([ChatMessage(question)])


if __name__ == "__main__":
    ragpulse.configure()
    search("Where is Paris?")
    query("Where is Paris?")
    chat("Where is Paris?")
    say("Where is Paris?")
    list(stream("Where is Paris?"))
    ragpulse.flush()
