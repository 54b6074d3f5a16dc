"""Decorated functions in instrumented nodes of LangGraph, steps of LCEL and tools of an agent: each call once."""

from typing import Any, TypedDict

from langchain.agents import create_agent
from langchain_core.runnables import RunnableLambda, RunnableParallel
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from langgraph.graph import END, START, StateGraph

import ragpulse

GROUP = "nested_langchain"
REQUIREMENTS = [
    "langchain", "langgraph", "langchain-openai", "openinference-instrumentation-langchain",
    "openinference-instrumentation-openai",
]  # fmt: skip
EXPECTED = {
    "trace": {"input_tokens": 720, "output_tokens": 30},
    "search": {"kind": "retriever", "contexts": ["Paris is the capital of France."], "parent": "retrieve"},
    "generate": {"kind": "llm", "response": "Paris is the capital of France.", "parent": "answer_node"},
    "say": {"kind": "llm", "parent": "first"},
    "weather_of": {"kind": "tool", "parent": "weather"},
}


class State(TypedDict):
    """The graph's state."""

    question: str
    documents: list[str]
    answer: str


@ragpulse.retriever
def search(query: str) -> list[str]:
    return ["Paris is the capital of France."]


@ragpulse.llm
def generate(question: str) -> Any:
    return ChatOpenAI(model="gpt-5-mini").invoke(question)


@ragpulse.llm
def say(question: str) -> str:
    return str(ChatOpenAI(model="gpt-5-mini").invoke(question).content)


@ragpulse.tool
def weather_of(city: str) -> str:
    return say(city)


@tool
def weather(city: str) -> str:
    """The weather in a city."""
    return weather_of(city)


def retrieve(state: State) -> dict[str, Any]:
    return {"documents": search(state["question"])}


def answer_node(state: State) -> dict[str, Any]:
    return {"answer": generate(state["question"]).content}


@ragpulse.rag
def answer(question: str) -> str:
    graph = StateGraph(State)
    graph.add_node("retrieve", retrieve)
    graph.add_node("answer_node", answer_node)
    graph.add_edge(START, "retrieve")
    graph.add_edge("retrieve", "answer_node")
    graph.add_edge("answer_node", END)
    found = graph.compile().invoke({"question": question, "documents": [], "answer": ""})
    steps = RunnableParallel(first=RunnableLambda(say, name="first"), second=RunnableLambda(say, name="second"))
    steps.invoke(question)
    create_agent(ChatOpenAI(model="gpt-5-mini"), [weather]).invoke({"messages": [("user", question)]})
    return str(found["answer"])


if __name__ == "__main__":
    ragpulse.configure()
    ragpulse.instrument("langchain", "openai")
    answer("Where is Paris?")
    ragpulse.flush()
