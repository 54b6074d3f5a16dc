"""A service of several worker processes: each delivers its own, also when the server is stopped.

Run: `python multiworker.py 8000 2` (port, workers). Under gunicorn it is the same: see `gunicorn_app.py`.
"""

import os
import sys

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

import ragpulse

ragpulse.configure(service_name="workers-example")


@ragpulse.rag
def answer(question: str) -> str:
    return f"{question} was answered by process {os.getpid()}"


async def ask(request: Request) -> Response:
    return JSONResponse({"answer": answer(request.query_params["q"]), "pid": os.getpid()})


app = Starlette(routes=[Route("/ask", ask)])


if __name__ == "__main__":
    port, workers = int(sys.argv[1]), int(sys.argv[2])
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    uvicorn.run("multiworker:app", host="127.0.0.1", port=port, workers=workers, log_level="warning")
