"""pgvector: rows (id, text, distance) become contexts. `pip install 'psycopg[binary]'`, `ragpulse serve`, then
`DATABASE_URL=postgresql://... python pgvector_app.py`, where the extension `vector` is installed.

`embed` stands for your embedder. Rising numbers are read as distances, not as scores.
"""

import os
import zlib
from typing import Any

import psycopg

import ragpulse

NOTES = {
    "refunds": "A refund is possible within thirty days of the purchase.",
    "delivery": "Parcels leave the warehouse on the next working day.",
}


def embed(text: str) -> str:
    words = {zlib.crc32(word.encode()) % 64 for word in text.lower().strip(".?").split()}
    return str([float(number in words) for number in range(64)])


@ragpulse.retriever
def search(database: psycopg.Connection, question: str) -> list[Any]:
    query = "SELECT id, text, embedding <-> %s::vector AS distance FROM notes ORDER BY distance LIMIT 2"
    return database.execute(query, [embed(question)]).fetchall()


@ragpulse.rag(query="question")
def answer(database: psycopg.Connection, question: str) -> str:
    return str(search(database, question)[0][1])


if __name__ == "__main__":
    ragpulse.configure(service_name="pgvector_app")
    with psycopg.connect(os.environ["DATABASE_URL"]) as connection:
        connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
        connection.execute("CREATE TEMP TABLE notes (id text, text text, embedding vector(64))")
        for key, text in NOTES.items():
            connection.execute("INSERT INTO notes VALUES (%s, %s, %s)", [key, text, embed(text)])
        print(answer(connection, "Is a refund possible after the purchase?"))
