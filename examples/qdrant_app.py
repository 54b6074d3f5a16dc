"""Qdrant: points with a payload become contexts. `pip install qdrant-client`, `ragpulse serve`, run this.

`embed` stands for your embedder; `:memory:` for the address of your server.
"""

import zlib
from typing import Any

from qdrant_client import QdrantClient
from qdrant_client.models import Distance, PointStruct, VectorParams

import ragpulse

NOTES = [
    {"id": "refunds", "text": "A refund is possible within thirty days of the purchase."},
    {"id": "delivery", "text": "Parcels leave the warehouse on the next working day."},
]


def embed(text: str) -> list[float]:
    words = {zlib.crc32(word.encode()) % 64 for word in text.lower().strip(".?").split()}
    return [float(number in words) for number in range(64)]


client = QdrantClient(":memory:")
client.create_collection("notes", vectors_config=VectorParams(size=64, distance=Distance.COSINE))
client.upsert("notes", [PointStruct(id=n, vector=embed(note["text"]), payload=note) for n, note in enumerate(NOTES)])


@ragpulse.retriever
def search(question: str) -> Any:
    return client.query_points("notes", query=embed(question), limit=2)


@ragpulse.rag
def answer(question: str) -> str:
    return str(search(question).points[0].payload["text"])


if __name__ == "__main__":
    ragpulse.configure(service_name="qdrant_app")
    print(answer("Is a refund possible after the purchase?"))
