"""Vector stores in the process: Chroma, LanceDB, FAISS and LangChain's Chroma, with their distances and ids."""

from typing import Any

import chromadb
import faiss
import lancedb
import numpy
from langchain_chroma import Chroma
from langchain_core.embeddings import FakeEmbeddings

import ragpulse

GROUP = "stores"
REQUIREMENTS = ["chromadb", "lancedb", "faiss-cpu", "langchain-chroma", "pandas", "polars"]
EXPECTED = {
    "with_chroma": {"contexts": ["Paris is a city.", "Rome is a city."], "ids": ["p", "r"], "scores": [None, None]},
    "two_queries": {"contexts": ["Paris is a city.", "Rome is a city."], "ids": ["p", "r"]},
    "chroma_documents": {"contexts": ["Paris is a city.", "Rome is a city."]},
    "chroma_get": {"contexts": ["Paris is a city.", "Rome is a city."], "sources": ["a.md", "b.md"]},
    "chroma_ids": {"contexts": [None, None], "ids": ["p", "r"], "attributes": {"ragpulse.result.unread": ...}},
    "with_lancedb": {"contexts": ["Paris is a city.", "Rome is a city."], "ids": ["p", "r"], "scores": [None, None]},
    "lancedb_arrow": {"contexts": ["Paris is a city.", "Rome is a city."], "ids": ["p", "r"], "scores": [None, None]},
    "lancedb_pandas": {"contexts": ["Paris is a city.", "Rome is a city."], "ids": ["p", "r"], "scores": [None, None]},
    "lancedb_polars": {"contexts": ["Paris is a city.", "Rome is a city."], "ids": ["p", "r"], "scores": [None, None]},
    "faiss_texts": {"contexts": ["Paris is a city.", "Rome is a city."], "scores": [None, None]},
    "faiss_search": {"contexts": [None, None], "ids": ["0", "1"], "attributes": {"ragpulse.result.unread": ...}},
    "langchain_pairs": {"contexts": ["Paris is a city.", "Rome is a city."], "ids": ["faq-1", "faq-2"]},
    "columns": {"contexts": ["Paris is a city.", "Rome is a city."], "ids": ["p", "r"], "scores": [0.9, 0.5]},
    "zipped": {"contexts": ["Paris is a city.", "Rome is a city."], "ids": ["p", "r"], "scores": [0.9, 0.5]},
}

TEXTS = ["Paris is a city.", "Rome is a city."]
HITS = [("p", TEXTS[0], 0.9), ("r", TEXTS[1], 0.5)]
VECTORS = numpy.eye(2, dtype="float32")
CITIES = chromadb.EphemeralClient().create_collection("cities")
CITIES.add(ids=["p", "r"], documents=TEXTS, embeddings=VECTORS, metadatas=[{"source": "a.md"}, {"source": "b.md"}])
LANCE = lancedb.connect("./lance").create_table(
    "cities",
    [{"id": key, "text": text, "vector": vector} for (key, text, _), vector in zip(HITS, VECTORS, strict=True)],
)
INDEX = faiss.IndexFlatL2(2)
INDEX.add(VECTORS)
LANGCHAIN = Chroma("langchain", FakeEmbeddings(size=2))
LANGCHAIN.add_texts(TEXTS, metadatas=[{"id": "faq-1"}, {"id": "faq-2"}])


@ragpulse.retriever
def with_chroma(query: str) -> Any:
    return CITIES.query(query_embeddings=VECTORS[:1])


@ragpulse.retriever
def two_queries(query: str) -> Any:
    return CITIES.query(query_embeddings=VECTORS, n_results=1)


@ragpulse.retriever
def chroma_documents(query: str) -> Any:
    return CITIES.query(query_embeddings=VECTORS[:1])["documents"]


@ragpulse.retriever
def chroma_get(query: str) -> Any:
    return CITIES.get()


@ragpulse.retriever
def chroma_ids(query: str) -> Any:
    return CITIES.query(query_embeddings=VECTORS[:1], include=["distances"])


@ragpulse.retriever
def with_lancedb(query: str) -> Any:
    return LANCE.search(VECTORS[0]).to_list()


@ragpulse.retriever
def lancedb_arrow(query: str) -> Any:
    return LANCE.search(VECTORS[0]).to_arrow()


@ragpulse.retriever
def lancedb_pandas(query: str) -> Any:
    return LANCE.search(VECTORS[0]).to_pandas()


@ragpulse.retriever
def lancedb_polars(query: str) -> Any:
    return LANCE.search(VECTORS[0]).to_polars()


@ragpulse.retriever
def faiss_texts(query: str) -> Any:
    distances, numbers = INDEX.search(VECTORS[:1], 2)
    return [TEXTS[number] for number in numbers[0]], distances[0]


@ragpulse.retriever
def faiss_search(query: str) -> Any:
    return INDEX.search(VECTORS[:1], 2)


@ragpulse.retriever
def langchain_pairs(query: str) -> Any:
    pairs = LANGCHAIN.similarity_search_with_score("q")
    return sorted(pairs, key=lambda pair: str(pair[0].metadata["id"]))


@ragpulse.retriever
def columns(query: str) -> Any:
    keys, texts, scores = zip(*HITS, strict=True)
    return keys, texts, scores


@ragpulse.retriever
def zipped(query: str) -> Any:
    return zip(*HITS, strict=True)


if __name__ == "__main__":
    ragpulse.configure()
    for search in (
        with_chroma, two_queries, chroma_documents, chroma_get, chroma_ids, with_lancedb, lancedb_arrow, lancedb_pandas,
        lancedb_polars, faiss_texts, faiss_search, langchain_pairs, columns,
    ):  # fmt: skip
        search("Which city?")
    list(zipped("Which city?"))
    ragpulse.flush()
