"""An existing LangChain application: two lines record the chain, its retriever with documents, and its model.

Needs `ragpulse[instrument]` and `langchain-core`. `ragpulse run` does it without the two lines.
"""

from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding
from langchain_core.language_models import FakeListChatModel
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import RunnablePassthrough
from langchain_core.vectorstores import InMemoryVectorStore

import ragpulse

STORE = InMemoryVectorStore(DeterministicFakeEmbedding(size=8))
STORE.add_documents([Document(id="atlas-1", page_content="Paris is the capital of France.")])
PROMPT = ChatPromptTemplate.from_template("Answer from {context}: {question}")
MODEL = FakeListChatModel(responses=["Paris."])
CHAIN = {"context": STORE.as_retriever(), "question": RunnablePassthrough()} | PROMPT | MODEL | StrOutputParser()


def main() -> None:
    ragpulse.configure(service_name="existing-langchain")
    ragpulse.instrument("langchain")
    print(CHAIN.invoke("What is the capital of France?"))
    ragpulse.flush()


if __name__ == "__main__":
    main()
