"""An existing FastAPI application: two lines record its model calls; two decorators add its search and its answer.

Needs `ragpulse[instrument]`, `fastapi`, `openai`. Run: `uvicorn existing_fastapi:app`.
"""

from fastapi import FastAPI
from openai import OpenAI

import ragpulse

ragpulse.configure(service_name="existing-fastapi")
ragpulse.instrument("openai")

app = FastAPI()
client = OpenAI()  # OPENAI_BASE_URL and OPENAI_API_KEY


@ragpulse.retriever
def search(question: str) -> list[dict[str, str]]:
    return [{"id": "atlas-1", "text": "Paris is the capital of France."}]


@ragpulse.rag
def answer(question: str) -> str:
    context = "\n".join(document["text"] for document in search(question))
    messages = [{"role": "system", "content": f"Answer from: {context}"}, {"role": "user", "content": question}]
    reply = client.chat.completions.create(model="gpt-5-mini", messages=messages)  # type: ignore[arg-type]
    return str(reply.choices[0].message.content)


@app.get("/ask")
def ask(q: str, session: str = "none") -> str:
    with ragpulse.attributes(session_id=session):
        return answer(q)
