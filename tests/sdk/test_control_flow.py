"""Exceptions that end a function and are no errors, and their neighbours that are errors."""

import asyncio
import concurrent.futures
import unittest
from collections.abc import Iterator
from typing import Any

import pytest
from fastapi import HTTPException
from fastapi.exceptions import RequestValidationError
from workflows.errors import WorkflowCancelledByUser, WorkflowTimeoutError

import ragpulse
from ragpulse.testing import RecordedSpans, ragpulse_spans

__all__ = ["ragpulse_spans"]


def _foreign(name: str, *bases: type[BaseException], **fields: Any) -> BaseException:
    """An exception of a package that is not installed here."""
    module, _, cls = name.rpartition(".")
    error: BaseException = type(cls, bases or (Exception,), {"__module__": module, **fields})("why")
    return error


class NotHere(HTTPException):
    """A subclass of the application."""


SKIPPED = pytest.skip.Exception("not today")
FLOWS: list[tuple[BaseException, str]] = [
    (_foreign("langgraph.errors.GraphInterrupt"), "interrupt"),
    (_foreign("app.NodePaused", type(_foreign("langgraph.errors.GraphBubbleUp"))), "interrupt"),
    (_foreign("airflow.sdk.exceptions.TaskDeferred", BaseException), "interrupt"),
    (_foreign("pydantic_ai.exceptions.CallDeferred"), "interrupt"),
    (_foreign("langgraph.errors.ParentCommand", type(_foreign("langgraph.errors.GraphBubbleUp"))), "handoff"),
    (_foreign("celery.exceptions.Retry"), "retry"),
    (_foreign("dramatiq.errors.Retry"), "retry"),
    (_foreign("pydantic_ai.exceptions.ModelRetry"), "retry"),
    (_foreign("celery.exceptions.Ignore"), "ignored"),
    (_foreign("celery.exceptions.Reject"), "ignored"),
    (_foreign("airflow.exceptions.AirflowSkipException"), "ignored"),
    (SKIPPED, "ignored"),
    (unittest.SkipTest("not today"), "ignored"),
    (HTTPException(307), "redirect"),
    (_foreign("werkzeug.exceptions.RequestRedirect", type(_foreign("werkzeug.exceptions.HTTPException")), code=308),
     "redirect"),
    (_foreign("aiohttp.web_exceptions.HTTPException", status=302), "redirect"),
    (_foreign("bottle.HTTPResponse", status="303 See Other", code=None), "redirect"),
    (HTTPException(404), "http_4xx"),
    (NotHere(410), "http_4xx"),
    (RequestValidationError([]), "http_4xx"),
    (_foreign("werkzeug.exceptions.HTTPException", code=401), "http_4xx"),
    (_foreign("django.http.response.Http404"), "http_4xx"),
    (_foreign("django.core.exceptions.PermissionDenied"), "http_4xx"),
    (_foreign("tornado.web.HTTPError", status_code=400), "http_4xx"),
    (_foreign("rest_framework.exceptions.APIException", status_code=403), "http_4xx"),
    (_foreign("falcon.http_error.HTTPError", status="404 Not Found"), "http_4xx"),
    (SystemExit(), "exit"),
    (SystemExit(0), "exit"),
    (_foreign("click.exceptions.Exit", RuntimeError, exit_code=0), "exit"),
    (StopIteration(), "exit"),
    (KeyboardInterrupt(), "cancelled"),
    (asyncio.CancelledError(), "cancelled"),
    (concurrent.futures.CancelledError(), "cancelled"),
    (GeneratorExit(), "cancelled"),
    (_foreign("trio.Cancelled", BaseException), "cancelled"),
    (_foreign("greenlet.GreenletExit", BaseException), "cancelled"),
    (WorkflowCancelledByUser(), "cancelled"),
    (BaseExceptionGroup("tasks", [asyncio.CancelledError(), KeyboardInterrupt()]), "cancelled"),
]  # fmt: skip
ERRORS: list[BaseException] = [
    HTTPException(500),
    HTTPException(408),
    HTTPException(409),
    HTTPException(429),
    SystemExit(1),
    SystemExit("usage"),
    WorkflowTimeoutError("late"),
    _foreign("langgraph.errors.GraphRecursionError", RecursionError),
    _foreign("celery.exceptions.MaxRetriesExceededError"),
    _foreign("werkzeug.exceptions.HTTPException", code=429),
    _foreign("werkzeug.exceptions.HTTPException", code=None),
    _foreign("aiohttp.client_exceptions.ClientResponseError", status=404),
    _foreign("httpx.HTTPStatusError", status_code=404),
    _foreign("openai.NotFoundError", status_code=404),
    _foreign("tornado.httpclient.HTTPClientError", code=404),
    _foreign("requests.exceptions.HTTPError"),
    _foreign("app.Retry"),
    _foreign("app.Cancelled"),
    BaseExceptionGroup("tasks", [asyncio.CancelledError(), ValueError("x")]),
]


def _names(errors: list[BaseException]) -> list[str]:
    return [f"{number} {type(error).__name__}" for number, error in enumerate(errors)]


def _raised(kind: str, error: BaseException) -> None:
    """Raises it from a decorated function, coroutine, generator, or block."""

    async def coroutine(question: str) -> str:
        raise error

    def generator(question: str) -> Iterator[str]:
        yield "Paris"
        raise error

    def function(question: str) -> str:
        raise error

    if kind == "block":
        with ragpulse.rag("call"):
            raise error
    run: Any = ragpulse.rag(name="call")({"coroutine": coroutine, "generator": generator}.get(kind, function))
    if kind == "coroutine":
        run("q").send(None)
    elif kind == "generator":
        for _ in run("q"):
            pass
    else:
        run("q")


@pytest.mark.parametrize("kind", ["function", "generator", "coroutine", "block"])
@pytest.mark.parametrize(("error", "flow"), FLOWS, ids=_names([error for error, _ in FLOWS]))
def test_control_flow_is_no_error(ragpulse_spans: RecordedSpans, error: BaseException, flow: str, kind: str) -> None:
    """The exception leaves the function as before, and the span says what it was."""
    if isinstance(error, StopIteration) and kind != "function":
        pytest.skip("Python makes a RuntimeError of it")
    with pytest.raises(type(error)):
        _raised(kind, error)
    span = ragpulse_spans.one("call")
    assert (span.attributes.get("ragpulse.control_flow"), span.error) == (flow, None)
    assert span.attributes.get("ragpulse.ended_early", False) is (flow == "cancelled")
    assert kind != "generator" or span.response == "Paris"


@pytest.mark.parametrize("error", ERRORS, ids=_names(ERRORS))
def test_other_exceptions_are_errors(ragpulse_spans: RecordedSpans, error: BaseException) -> None:
    """A client that receives a 404 has failed; so has a class that only has the name of control flow."""
    with pytest.raises(type(error)):
        _raised("function", error)
    span = ragpulse_spans.one("call")
    assert span.error is not None
    assert "ragpulse.control_flow" not in span.attributes
