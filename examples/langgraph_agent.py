"""A LangGraph agent: search, then answer with a model. Run it beside `ragpulse serve`, after
`pip install langgraph langchain-openai`.

The graph's state is read as it is: `answer` is the answer, `documents` are the contexts. OPENAI_BASE_URL may name a
model on your computer.
"""

from typing import Any, TypedDict

from langchain_openai import ChatOpenAI
from langgraph.graph import END, START, StateGraph

import ragpulse

NOTES = {
    "refunds": "A refund is possible within thirty days of the purchase.",
    "delivery": "Parcels leave the warehouse on the next working day.",
}


class State(TypedDict, total=False):
    """What the steps hand on."""

    question: str
    documents: list[dict[str, Any]]
    answer: str


@ragpulse.retriever
def search(question: str) -> list[dict[str, Any]]:
    shared = {key: len(set(question.lower().split()) & set(text.lower().split())) for key, text in NOTES.items()}
    return [
        {"id": key, "text": NOTES[key], "score": shared[key]} for key in sorted(shared, key=lambda key: -shared[key])
    ]


def look(state: State) -> State:
    return {"documents": search(state["question"])}


@ragpulse.llm
def ask(question: str, documents: list[dict[str, Any]]) -> Any:
    prompt = "\n".join(["Answer from these notes:", *(one["text"] for one in documents), question])
    return ChatOpenAI(model="gpt-5-mini").invoke(prompt)


def write(state: State) -> State:
    return {"answer": str(ask(state["question"], state["documents"]).content)}


graph = StateGraph(State)
graph.add_node("look", look)
graph.add_node("write", write)
graph.add_edge(START, "look")
graph.add_edge("look", "write")
graph.add_edge("write", END)
agent = graph.compile()


@ragpulse.rag(prompt_name="notes", prompt_version="v1")
def answer(question: str) -> Any:
    return agent.invoke({"question": question})


if __name__ == "__main__":
    ragpulse.configure(service_name="langgraph_agent")
    print(answer("Is a refund possible after the purchase?")["answer"])
