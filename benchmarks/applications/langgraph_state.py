"""LangGraph and LCEL: a graph's state, a chain's message, decorated, while OpenInference instruments the same calls."""

import asyncio
from typing import Any

from langchain_core.messages import HumanMessage
from langchain_core.prompts import ChatPromptTemplate
from langchain_openai import ChatOpenAI
from langgraph.graph import END, START, MessagesState, StateGraph
from openinference.instrumentation.langchain import LangChainInstrumentor
from openinference.instrumentation.openai import OpenAIInstrumentor

import ragpulse

GROUP = "langchain"
REQUIREMENTS = [
    "langchain-openai",
    "langgraph",
    "openinference-instrumentation-langchain",
    "openinference-instrumentation-openai",
]
EXPECTED = {
    "answer": {"kind": "rag", "response": "Paris is the capital of France."},
    "graph": {"kind": "agent", "response": "Paris is the capital of France."},
    "chain": {"kind": "llm", "response": "Paris is the capital of France.", "input_tokens": 120},
    "text_chain": {"kind": "llm", "response": "Paris is the capital of France.", "input_tokens": 120, "model": ...},
    "async_chain": {"kind": "llm", "response": "Paris is the capital of France.", "input_tokens": 120},
    "LangGraph": {"response": "Paris is the capital of France."},
    "trace": {"input_tokens": 480, "output_tokens": 20, "model": ..., "cost_usd": ...},
}

MODEL = ChatOpenAI(model="gpt-5-mini")
PROMPT = ChatPromptTemplate.from_messages([("human", "{question}")])


def call(state: MessagesState) -> Any:
    return {"messages": [MODEL.invoke(state["messages"])]}


GRAPH = StateGraph(MessagesState).add_node("call", call).add_edge(START, "call").add_edge("call", END).compile()


@ragpulse.agent
def graph(question: str) -> Any:
    return GRAPH.invoke({"messages": [HumanMessage(question)]})


@ragpulse.llm
def chain(question: str) -> Any:
    return (PROMPT | MODEL).invoke({"question": question})


@ragpulse.llm
def text_chain(question: str) -> str:
    return str((PROMPT | MODEL).invoke({"question": question}).content)


@ragpulse.llm
async def async_chain(question: str) -> str:
    return str((await (PROMPT | MODEL).ainvoke({"question": question})).content)


@ragpulse.rag
def answer(question: str) -> Any:
    chain(question)
    asyncio.run(async_chain(question))
    text_chain(question)
    return graph(question)


if __name__ == "__main__":
    ragpulse.configure()
    LangChainInstrumentor().instrument(tracer_provider=ragpulse.tracer_provider())
    OpenAIInstrumentor().instrument(tracer_provider=ragpulse.tracer_provider())
    answer("Where is Paris?")
    ragpulse.flush()
