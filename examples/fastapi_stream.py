"""FastAPI: decorated dependencies and a streaming endpoint. Run: `uvicorn fastapi_stream:app`."""

from collections.abc import AsyncIterator

from fastapi import FastAPI
from fastapi.responses import StreamingResponse

import ragpulse

ragpulse.configure(service_name="fastapi-example")
app = FastAPI()


@ragpulse.retriever
def search(query: str) -> list[str]:
    return ["Paris is the capital of France."]


@ragpulse.rag
async def answer(question: str) -> AsyncIterator[str]:
    for word in search(question)[0].split(" "):
        yield word + " "


@app.get("/ask")
async def ask(q: str, session: str = "none") -> StreamingResponse:
    with ragpulse.attributes(session_id=session):
        return StreamingResponse(answer(q), media_type="text/plain")
