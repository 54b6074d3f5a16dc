"""Two lines, no decorator: a chain of LangChain, whose model uses the instrumented client of OpenAI."""

from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import RunnablePassthrough
from langchain_core.vectorstores import InMemoryVectorStore
from langchain_openai import ChatOpenAI

import ragpulse

GROUP = "instrument_langchain"
REQUIREMENTS = [
    "langchain-openai", "numpy", "openinference-instrumentation-langchain", "openinference-instrumentation-openai",
]  # fmt: skip
EXPECTED = {
    "RunnableSequence": {"query": "Where is Paris?", "response": "Paris is the capital of France."},
    "VectorStoreRetriever": {"kind": "retriever", "contexts": ["Paris is a city."]},
    "ChatOpenAI": {"kind": "llm", "input_tokens": 120, "output_tokens": 5, "model": ...},
    "ChatCompletion": {"kind": "llm", "input_tokens": 120, "parent": "ChatOpenAI"},
    "trace": {
        "query": "Where is Paris?",
        "input_tokens": 120,
        "output_tokens": 5,
        "scores": ["citation_check", "context_utilization", "groundedness", "refusal"],
    },
}

if __name__ == "__main__":
    ragpulse.configure()
    ragpulse.instrument()
    store = InMemoryVectorStore(DeterministicFakeEmbedding(size=8))
    store.add_documents([Document(page_content="Paris is a city.")])
    prompt = ChatPromptTemplate.from_template("Answer from {context}: {question}")
    inputs = {"context": store.as_retriever(), "question": RunnablePassthrough()}
    (inputs | prompt | ChatOpenAI(model="gpt-5-mini") | StrOutputParser()).invoke("Where is Paris?")
    ragpulse.flush()
