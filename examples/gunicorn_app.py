"""A WSGI service under gunicorn: each worker delivers its own spans, with `--preload` or without.

Run: `gunicorn gunicorn_app:app --workers 2`. Configure at import, once; a forked worker begins with an empty queue, an
exporting thread and a connection of its own.
"""

import json
import os
from collections.abc import Callable, Iterable
from typing import Any
from urllib.parse import parse_qs

import ragpulse

ragpulse.configure(service_name="gunicorn-example")


@ragpulse.rag
def answer(question: str) -> str:
    return f"{question} was answered by process {os.getpid()}"


def app(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
    asked = parse_qs(environ["QUERY_STRING"]).get("q", [""])[0]
    body = json.dumps({"answer": answer(asked), "pid": os.getpid()}).encode()
    start_response("200 OK", [("Content-Type", "application/json"), ("Content-Length", str(len(body)))])
    return [body]
