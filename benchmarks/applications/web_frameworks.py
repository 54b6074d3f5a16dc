"""FastAPI, Litestar and aiohttp: answers, streams, and exceptions that are responses."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import litestar
from aiohttp import web
from aiohttp.test_utils import TestClient as AiohttpClient
from aiohttp.test_utils import TestServer
from fastapi import FastAPI, HTTPException
from fastapi.responses import JSONResponse, StreamingResponse
from fastapi.testclient import TestClient
from litestar.exceptions import NotFoundException
from litestar.testing import TestClient as LitestarClient

import ragpulse

GROUP = "web"
REQUIREMENTS = ["aiohttp", "fastapi", "httpx", "httpx2", "litestar[standard]"]
EXPECTED = {
    "fastapi_dict": {"kind": "rag", "response": "Paris is in France.", "status": ...},
    "fastapi_json": {"response": "Paris is in France."},
    "fastapi_stream": {"response": "Paris is in France."},
    "fastapi_missing": {"error_type": None, "control_flow": ...},
    "fastapi_conflict": {"error_type": ...},
    "litestar_dict": {"response": "Paris is in France."},
    "litestar_missing": {"error_type": None, "control_flow": ...},
    "aiohttp_found": {"error_type": None, "control_flow": ...},
    "aiohttp_json": {"response": "Paris is in France."},
}

SAID = "Paris is in France."
FASTAPI = FastAPI()


@FASTAPI.get("/dict")
@ragpulse.rag
async def fastapi_dict(question: str) -> dict[str, str]:
    return {"answer": SAID}


@FASTAPI.get("/json")
@ragpulse.rag
def fastapi_json(question: str) -> JSONResponse:
    return JSONResponse({"answer": SAID})


@FASTAPI.get("/stream")
@ragpulse.rag
async def fastapi_stream(question: str) -> StreamingResponse:
    async def words() -> AsyncIterator[str]:
        for word in ("Paris ", "is in ", "France."):
            yield word

    return StreamingResponse(words())


@FASTAPI.get("/missing")
@ragpulse.rag
async def fastapi_missing(question: str) -> str:
    raise HTTPException(404)


@FASTAPI.get("/conflict")
@ragpulse.rag
async def fastapi_conflict(question: str) -> str:
    raise HTTPException(409)


@litestar.get("/dict")
@ragpulse.rag
async def litestar_dict(question: str) -> dict[str, str]:
    return {"answer": SAID}


@litestar.get("/missing")
@ragpulse.rag
async def litestar_missing(question: str) -> dict[str, str]:
    raise NotFoundException


@ragpulse.rag
async def aiohttp_json(request: web.Request) -> web.Response:
    return web.json_response({"answer": SAID})


@ragpulse.rag
async def aiohttp_found(request: web.Request) -> web.Response:
    raise web.HTTPFound("/json")


async def ask_aiohttp() -> None:
    """Send two requests to a server on loopback."""
    application = web.Application()
    application.add_routes([web.get("/json", aiohttp_json), web.get("/found", aiohttp_found)])
    async with AiohttpClient(TestServer(application)) as client:
        await client.get("/json")
        await client.get("/found", allow_redirects=False)


def ask(client: Any, *paths: str) -> None:
    for path in paths:
        client.get(path, params={"question": "Where is Paris?"})


if __name__ == "__main__":
    ragpulse.configure()
    ask(TestClient(FASTAPI), "/dict", "/json", "/stream", "/missing", "/conflict")
    with LitestarClient(litestar.Litestar([litestar_dict, litestar_missing])) as client:
        ask(client, "/dict", "/missing")
    asyncio.run(ask_aiohttp())
    ragpulse.flush()
