"""A streaming endpoint: the trace lasts until the last token is sent. Run: `uvicorn starlette_stream:app`."""

import asyncio
from collections.abc import AsyncIterator

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

import ragpulse

ragpulse.configure(service_name="stream-example")


@ragpulse.retriever
async def search(query: str) -> list[str]:
    return ["Paris is the capital of France.", "Lyon lies on the Rhône."]


@ragpulse.llm(model="fake")
async def tokens(question: str, found: list[str]) -> AsyncIterator[str]:
    for word in found[0].split(" "):
        await asyncio.sleep(0)
        yield word + " "


@ragpulse.rag
async def answer(question: str) -> AsyncIterator[str]:
    async for token in tokens(question, await search(question)):
        yield token


async def ask(request: Request) -> Response:
    # The session reaches the stream although this block ends before the stream is read.
    with ragpulse.attributes(session_id=request.headers.get("x-session", "none")):
        return StreamingResponse(answer(request.query_params["q"]), media_type="text/plain")


async def thumbs(request: Request) -> Response:
    told = await request.json()
    ragpulse.feedback(told["trace_id"], score=told["score"], comment=told.get("comment"))
    return JSONResponse({"ok": True})


app = Starlette(routes=[Route("/ask", ask), Route("/thumbs", thumbs, methods=["POST"])])
