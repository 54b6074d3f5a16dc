"""Haystack: a pipeline's outputs, a generator's reply, an answer with its documents."""

from typing import Any

from haystack import Document, Pipeline
from haystack.components.builders import AnswerBuilder, ChatPromptBuilder
from haystack.components.generators.chat import OpenAIChatGenerator
from haystack.components.retrievers.in_memory import InMemoryBM25Retriever
from haystack.dataclasses import ChatMessage
from haystack.document_stores.in_memory import InMemoryDocumentStore

import ragpulse

GROUP = "haystack"
REQUIREMENTS = ["haystack-ai"]
EXPECTED = {
    "answer": {"kind": "rag", "response": "Paris is the capital of France.", "contexts": ["Paris is a city."]},
    "build": {"kind": "rag", "response": "Paris is the capital of France.", "contexts": ["Paris is a city."]},
    "say": {"response": "Paris is the capital of France.", "input_tokens": 120, "output_tokens": 5, "model": ...},
    "search": {"contexts": ["Paris is a city."]},
}

STORE = InMemoryDocumentStore()
STORE.write_documents([Document(content="Paris is a city.")])
TEMPLATE = [ChatMessage.from_user("{% for d in documents %}{{ d.content }}{% endfor %} {{ question }}")]


@ragpulse.retriever
def search(query: str) -> Any:
    return InMemoryBM25Retriever(STORE).run(query=query)


@ragpulse.llm
def say(question: str) -> Any:
    return OpenAIChatGenerator(model="gpt-5-mini").run([ChatMessage.from_user(question)])


@ragpulse.rag
def answer(question: str) -> Any:
    pipeline = Pipeline()
    pipeline.add_component("retriever", InMemoryBM25Retriever(STORE))
    pipeline.add_component("prompt", ChatPromptBuilder(TEMPLATE, required_variables="*"))
    pipeline.add_component("llm", OpenAIChatGenerator(model="gpt-5-mini"))
    pipeline.connect("retriever.documents", "prompt.documents")
    pipeline.connect("prompt.prompt", "llm.messages")
    inputs = {"retriever": {"query": question}, "prompt": {"question": question}}
    return pipeline.run(inputs, include_outputs_from={"retriever"})


@ragpulse.rag
def build(question: str) -> Any:
    replies = [ChatMessage.from_assistant("Paris is the capital of France.")]
    return AnswerBuilder().run(query=question, replies=replies, documents=[Document(content="Paris is a city.")])


if __name__ == "__main__":
    ragpulse.configure()
    search("Where is Paris?")
    say("Where is Paris?")
    answer("Where is Paris?")
    build("Where is Paris?")
    ragpulse.flush()
