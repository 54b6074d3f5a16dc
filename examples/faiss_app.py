"""FAISS has numbers, no texts: return the texts beside them. `pip install faiss-cpu`, `ragpulse serve`, run this.

`embed` stands for your embedder; it needs no download.
"""

import zlib

import faiss
import numpy

import ragpulse

NOTES = {
    "refunds": "A refund is possible within thirty days of the purchase.",
    "delivery": "Parcels leave the warehouse on the next working day.",
}


def embed(text: str) -> list[float]:
    words = {zlib.crc32(word.encode()) % 64 for word in text.lower().strip(".?").split()}
    return [float(number in words) for number in range(64)]


index = faiss.IndexFlatIP(64)
index.add(numpy.array([embed(text) for text in NOTES.values()], dtype="float32"))


@ragpulse.retriever
def search(question: str) -> list[dict[str, object]]:
    scores, numbers = index.search(numpy.array([embed(question)], dtype="float32"), 2)
    known = list(NOTES.items())
    return [
        {"id": known[number][0], "text": known[number][1], "score": float(score)}
        for score, number in zip(scores[0], numbers[0], strict=True)
    ]


@ragpulse.rag
def answer(question: str) -> str:
    return str(search(question)[0]["text"])


if __name__ == "__main__":
    ragpulse.configure(service_name="faiss_app")
    print(answer("Is a refund possible after the purchase?"))
