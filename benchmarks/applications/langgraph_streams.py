"""LangGraph's streams and interrupts: only what the model says is the answer; a paused graph has none."""

from typing import Any

from langchain_core.messages import HumanMessage, ToolMessage
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.types import interrupt

import ragpulse

GROUP = "langchain"
REQUIREMENTS = ["langchain-openai", "langgraph"]
EXPECTED = {
    "messages": {"kind": "rag", "response": "Paris is the capital of France."},
    "modes": {"response": "Paris is the capital of France."},
    "values": {"response": "Paris is the capital of France."},
    "whole": {"response": "Paris is the capital of France."},
    "paused": {"response": None, "error_type": None},
}

MODEL = ChatOpenAI(model="gpt-5-mini", streaming=True)


def look_up(state: MessagesState) -> Any:
    return {"messages": [ToolMessage("Paris is a city.", tool_call_id="t")]}


def call(state: MessagesState) -> Any:
    return {"messages": [MODEL.invoke([HumanMessage("Where is Paris?")])]}


def confirm(state: MessagesState) -> Any:
    return {"messages": [HumanMessage(interrupt("Shall I?"))]}


GRAPH = (
    StateGraph(MessagesState)
    .add_node("look_up", look_up)
    .add_node("call", call)
    .add_edge(START, "look_up")
    .add_edge("look_up", "call")
    .add_edge("call", END)
    .compile()
)
PAUSING = StateGraph(MessagesState).add_node("confirm", confirm).add_edge(START, "confirm").add_edge("confirm", END)


def state(question: str) -> Any:
    return {"messages": [HumanMessage(question)]}


@ragpulse.rag
def messages(question: str) -> Any:
    return GRAPH.stream(state(question), stream_mode="messages")


@ragpulse.rag
def modes(question: str) -> Any:
    return GRAPH.stream(state(question), stream_mode=["updates", "messages"])


@ragpulse.rag
def values(question: str) -> Any:
    return GRAPH.stream(state(question), stream_mode="values")


@ragpulse.rag
def whole(question: str) -> Any:
    return GRAPH.invoke(state(question))


@ragpulse.rag
def paused(question: str) -> Any:
    graph = PAUSING.compile(checkpointer=InMemorySaver())
    return graph.invoke(state(question), {"configurable": {"thread_id": "1"}})


if __name__ == "__main__":
    ragpulse.configure()
    for stream in (messages, modes, values):
        list(stream("Where is Paris?"))
    whole("Where is Paris?")
    paused("Where is Paris?")
    ragpulse.flush()
