from asking import DOCUMENTS, MODEL, ask, provider
from langchain_core.documents import Document
from langchain_core.retrievers import BaseRetriever
from langchain_openai import ChatOpenAI
from langgraph.graph import END, START, StateGraph
from openinference.instrumentation.langchain import LangChainInstrumentor
from typing_extensions import TypedDict

LangChainInstrumentor().instrument(tracer_provider=provider())


class Search(BaseRetriever):
    def _get_relevant_documents(self, query, *, run_manager):
        return [Document(id=f"d{number}", page_content=text) for number, text in enumerate(DOCUMENTS)]


class State(TypedDict, total=False):
    question: str
    context: list[Document]
    answer: str


def retrieve(state):
    return {"context": Search().invoke(state["question"])}


def generate(state):
    texts = "\n".join(document.page_content for document in state["context"])
    model = ChatOpenAI(model=MODEL, max_retries=0)
    return {"answer": model.invoke(f"{texts}\n\nQuestion: {state['question']}").content}


graph = StateGraph(State)
graph.add_node("retrieve", retrieve)
graph.add_node("generate", generate)
graph.add_edge(START, "retrieve")
graph.add_edge("retrieve", "generate")
graph.add_edge("generate", END)
compiled = graph.compile()
ask(lambda question: compiled.invoke({"question": question}))
