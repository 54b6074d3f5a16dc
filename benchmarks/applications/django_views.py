"""Django under gunicorn: a view's answer with its retrieval, and a streamed one whose client disconnects."""

import sys
import time
from collections.abc import Iterator
from pathlib import Path

from _server import disconnect
from django.conf import settings
from django.core.wsgi import get_wsgi_application
from django.http import HttpRequest, JsonResponse, StreamingHttpResponse
from django.test import Client
from django.urls import path

import ragpulse

GROUP = "web"
REQUIREMENTS = ["django", "gunicorn[gevent]"]
EXPECTED = {
    "search": {"contexts": ["Paris is a city."], "parent": "answer"},
    "answer": {"kind": "rag", "query": "Where is Paris?", "response": "In France.", "session_id": "s1"},
    "stream": {"response": ..., "status": "unset", "attributes": {"ragpulse.ended_early": True}},
    "refuse": {"status": "error", "error_type": "LookupError", "response": None},
}

ragpulse.configure()


@ragpulse.retriever
def search(question: str) -> list[str]:
    return ["Paris is a city."]


@ragpulse.rag
def answer(question: str) -> str:
    search(question)
    return "In France."


@ragpulse.rag
def refuse(question: str) -> str:
    raise LookupError(question)


@ragpulse.rag
def stream(question: str) -> Iterator[str]:
    try:
        for _ in range(5000):
            yield "Paris is the capital of France. "
            time.sleep(0.002)
    finally:
        Path("closed").touch()


def ask(request: HttpRequest) -> JsonResponse:
    with ragpulse.attributes(session_id="s1"):
        return JsonResponse({"answer": answer(request.GET["q"])})


urlpatterns = [
    path("", lambda request: StreamingHttpResponse(stream("Where is Paris?"))),
    path("ask", ask),
    path("refuse", lambda request: JsonResponse({"answer": refuse("Where?")})),
]
settings.configure(ROOT_URLCONF=__name__, ALLOWED_HOSTS=["*"], SECRET_KEY="for the loopback only")
app = get_wsgi_application()

if __name__ == "__main__":
    visitor = Client(raise_request_exception=False)
    assert visitor.get("/ask", {"q": "Where is Paris?"}).json() == {"answer": "In France."}
    assert visitor.get("/refuse").status_code == 500
    gunicorn = [sys.executable, "-m", "gunicorn", "django_views:app", "--bind", "127.0.0.1:PORT"]
    disconnect(gunicorn, Path(__file__).parent)
