"""LangChain: decorate the steps; its documents and messages are understood. Needs `langchain-core`."""

from langchain_core.documents import Document
from langchain_core.language_models import FakeListChatModel
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage

import ragpulse

DOCUMENTS = [Document(page_content="Paris is the capital of France.", metadata={"source": "atlas"})]
MODEL = FakeListChatModel(responses=["Paris."])


@ragpulse.retriever
def search(query: str) -> list[tuple[Document, float]]:
    return [(document, 0.9) for document in DOCUMENTS]


@ragpulse.llm(model="fake-list", query="question")
def write(question: str, found: list[tuple[Document, float]]) -> AIMessage:
    context = "\n".join(document.page_content for document, _ in found)
    return MODEL.invoke([SystemMessage(f"Answer from: {context}"), HumanMessage(question)])


@ragpulse.rag
def answer(question: str) -> str:
    return str(write(question, search(question)).content)


def main() -> None:
    ragpulse.configure(service_name="langchain-example")
    print(answer("What is the capital of France?"))
    ragpulse.flush()


if __name__ == "__main__":
    main()
