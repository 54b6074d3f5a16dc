"""Exceptions that are no errors: how a framework pauses, hands over, retries, redirects or ends a function.

A class is known by its top-level package and its name, or by those of a class that it inherits from: no framework is
imported. A response that a web framework raises is judged by its status. A redirect and a client's mistake are no
errors; 408, 409 and 429 are, because they show trouble on the server's side.
"""

import re
from collections.abc import Callable
from typing import Any

_FLOWS = {
    "interrupt": (
        "airflow.TaskDeferred haystack.BreakpointException langgraph.GraphBubbleUp langgraph.GraphInterrupt "
        "prefect.Pause prefect.PauseSignal prefect.PausedRun pydantic_ai.ApprovalRequired pydantic_ai.CallDeferred"
    ),
    "handoff": "langgraph.ParentCommand temporalio.ContinueAsNewError",
    "retry": (
        "airflow.AirflowRescheduleException arq.Retry celery.Retry dagster.RetryRequested dramatiq.Retry "
        "huey.RetryTask prefect.RetrySignal procrastinate.JobRetry pydantic_ai.ModelRetry tenacity.TryAgain"
    ),
    "ignored": (
        "airflow.AirflowSkipException builtins.Skipped celery.Ignore celery.Reject "
        "pydantic_ai.SkipModelRequest pydantic_ai.SkipToolExecution pydantic_ai.SkipToolValidation "
        "taskiq.NoResultError unittest.SkipTest"
    ),
    "exit": (
        "_pytest.Exit bdb.BdbQuit builtins.StopAsyncIteration builtins.StopIteration prefect.TerminationSignal "
        "tornado.Finish workflows.WorkflowDone"
    ),
    "cancelled": (
        "asyncio.CancelledError builtins.GeneratorExit builtins.KeyboardInterrupt click.Abort "
        "concurrent.CancelledError curio.CancelledError gevent.GreenletExit greenlet.GreenletExit huey.CancelExecution "
        "langgraph.GraphDrained llama_index.WorkflowCancelledByUser prefect.CancelledRun temporalio.CancelledError "
        "trio.Cancelled workflows.WorkflowCancelledByUser"
    ),
}
_FLOW_OF = {name: flow for flow, listed in _FLOWS.items() for name in listed.split()}


def _exit(error: Any) -> str | None:
    code = getattr(error, "code", getattr(error, "exit_code", None))
    return "exit" if code in (None, 0) else None


def _response(error: Any) -> str | None:
    """The kind of a raised response, by its status: a number, an enumeration, or a text such as `404 Not Found`."""
    stated = [getattr(error, name, None) for name in ("status_code", "status_int", "code", "status")]
    found = [re.match(r"\d{3}$|\d{3} ", str(getattr(status, "value", status))) for status in stated]
    status = next((int(match[0]) for match in found if match), 500)
    if 300 <= status < 400:
        return "redirect"
    return "http_4xx" if 400 <= status < 500 and status not in (408, 409, 429) else "exit" if status < 300 else None


_JUDGED: dict[str, Callable[[Any], str | None]] = {
    **dict.fromkeys(("builtins.SystemExit", "click.Exit", "typer.Exit"), _exit),
    **dict.fromkeys(
        (
            "aiohttp.HTTPException", "blacksheep.HTTPException", "bottle.HTTPResponse", "cherrypy.HTTPError",
            "cherrypy.HTTPRedirect", "falcon.HTTPError", "falcon.HTTPStatus", "litestar.HTTPException",
            "ninja.HttpError", "pyramid.HTTPException", "rest_framework.APIException", "sanic.SanicException",
            "starlette.HTTPException", "tornado.HTTPError", "webob.HTTPException",
            "werkzeug.HTTPException",
        ),
        _response,
    ),
    **dict.fromkeys(
        (
            "django.BadRequest", "django.Http404", "django.PermissionDenied", "django.SuspiciousOperation",
            "fastapi.RequestValidationError", "ninja.ValidationError",
        ),
        lambda error: "http_4xx",
    ),
}  # fmt: skip
"""Classes whose objects decide; a client of HTTP that receives a 404 raises other classes, and has failed."""


def control_flow(error: BaseException) -> str | None:
    """What ended the function: interrupt, handoff, retry, ignored, redirect, http_4xx, exit, cancelled; or None.

    None is an error. A group of exceptions is no error where none of its members is one.
    """
    if isinstance(error, BaseExceptionGroup):
        flows = [control_flow(member) for member in error.exceptions]
        return flows[0] if all(flows) else None
    for cls in type(error).__mro__:
        name = f"{cls.__module__.partition('.')[0]}.{cls.__name__}"
        if name in _FLOW_OF:
            return _FLOW_OF[name]
        if name in _JUDGED:
            return _JUDGED[name](error)
    return None
