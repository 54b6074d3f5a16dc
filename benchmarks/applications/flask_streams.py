"""Flask: a disconnect is no error, under its own server and gunicorn's workers; a session reaches the stream."""

import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from _server import disconnect
from flask import Flask, Response

import ragpulse

GROUP = "web"
REQUIREMENTS = ["flask", "gunicorn[gevent]"]
EXPECTED = {
    "development": {
        "kind": "rag",
        "query": "Where is Paris?",
        "response": ...,
        "status": "unset",
        "error_type": None,
        "session_id": "s1",
        "attributes": {"ragpulse.ended_early": True},
    },
    "sync": {"response": ..., "status": "unset", "session_id": "s1", "attributes": {"ragpulse.ended_early": True}},
    "gthread": {"response": ..., "status": "unset", "session_id": "s1", "attributes": {"ragpulse.ended_early": True}},
    "gevent": {"response": ..., "status": "unset", "session_id": "s1", "attributes": {"ragpulse.ended_early": True}},
}
SERVERS = {"development": [sys.executable, "-m", "flask", "--app", "flask_streams", "run", "--port", "PORT"]} | {
    worker: [
        sys.executable,
        "-m",
        "gunicorn",
        "flask_streams:app",
        "--worker-class",
        worker,
        "--bind",
        "127.0.0.1:PORT",
    ]
    for worker in ("sync", "gthread", "gevent")
}

ragpulse.configure()
app = Flask(__name__)


@ragpulse.rag(name=os.environ.get("SERVED_BY"))
def answer(question: str) -> Iterator[str]:
    try:
        for _ in range(5000):
            yield "Paris is the capital of France. "
            time.sleep(0.002)
    finally:
        Path("closed").touch()


@app.get("/")
def ask() -> Response:
    with ragpulse.attributes(session_id="s1"):
        return Response(answer("Where is Paris?"), mimetype="text/plain")


if __name__ == "__main__":
    for name, command in SERVERS.items():
        os.environ["SERVED_BY"] = name
        disconnect(command, Path(__file__).parent, signal.SIGINT if name == "development" else signal.SIGTERM)
