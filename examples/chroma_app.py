"""Chroma: what `query` returns becomes contexts with ids and distances. Run it beside
`ragpulse serve`, after `pip install chromadb`.

`embed` stands for your embedder; it needs no download.
"""

import zlib
from typing import Any

import chromadb

import ragpulse

NOTES = {
    "refunds": "A refund is possible within thirty days of the purchase.",
    "delivery": "Parcels leave the warehouse on the next working day.",
}


def embed(text: str) -> list[float]:
    words = {zlib.crc32(word.encode()) % 64 for word in text.lower().strip(".?").split()}
    return [float(number in words) for number in range(64)]


collection = chromadb.EphemeralClient().create_collection("notes")
collection.add(ids=list(NOTES), documents=list(NOTES.values()), embeddings=[embed(text) for text in NOTES.values()])


@ragpulse.retriever
def search(question: str) -> Any:
    return collection.query(query_embeddings=[embed(question)], n_results=2)


@ragpulse.rag
def answer(question: str) -> str:
    return str(search(question)["documents"][0][0])


if __name__ == "__main__":
    ragpulse.configure(service_name="chroma_app")
    print(answer("Is a refund possible after the purchase?"))
