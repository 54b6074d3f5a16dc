"""`/health`: the pipe itself: received, waiting, dropped and why, size on disk, slow queries."""

from collections.abc import Mapping
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from ragpulse_dashboards.formats import count, counted, seconds
from ragpulse_dashboards.site import Site

__all__ = ["routes"]

LATE_S: Final = 60
"""An evaluation that is pending for longer is a backlog."""


def routes(site: Site) -> list[BaseRoute]:
    """One page."""
    return [site.page("/health", health)]


async def health(site: Site, request: Request) -> Response:
    """The facts of `ragpulse doctor` and `/metrics`, for people."""
    status = await site.api("GET status", {})
    return site.render(request, "health.html", {"status": status, "problems": _problems(status)})


def _problems(status: Mapping[str, Any]) -> list[str]:
    """What a person should do something about, in words."""
    rejected = status["rejected"].get("spans") or 0
    dropped = sum(_numbers(status["evaluations"].get("dropped")))
    judge = status["judge"]
    spent, budget = judge.get("spent_today_usd"), judge.get("budget_usd")
    oldest = status["queue"].get("oldest_s") or 0
    evaluations = status["evaluations"]
    found = [
        ((evaluations.get("oldest_s") or 0) > LATE_S, _backlog(evaluations)),
        (rejected, f"{rejected} spans were rejected: the codes below name the reason."),
        (dropped, f"{dropped} evaluations were dropped: lower a rule's rate or raise the budget."),
        (oldest > 10, f"The oldest waiting body is {oldest:.0f} s old: the disk cannot keep up."),
        (
            budget and spent is not None and spent >= budget,
            "The judge's budget of today is spent; sampling continues tomorrow.",
        ),
        *(
            (one["spent_today_usd"] >= one["budget_usd"], f"The budget of rule {one['name']} of today is spent.")
            for one in judge.get("rules") or ()
        ),
    ]
    listed = [f"{one['text']}: {one['fix']}." for one in status.get("problems") or ()]
    return listed + [text for wrong, text in found if wrong]


def _backlog(evaluations: Mapping[str, Any]) -> str:
    """How many evaluations are pending, how fast they are done, and when that ends."""
    text = f"{counted(evaluations.get('pending'), 'evaluation')} pending, the oldest for"
    text += f" {seconds(evaluations.get('oldest_s'))}; {count(evaluations.get('done_per_s') or 0)} a second are done"
    if evaluations.get("clears_in_s") is not None:
        return f"{text}: done in about {seconds(evaluations['clears_in_s'])}."
    more = count(evaluations.get("new_per_s") or 0)
    return f"{text} and {more} a second are new, so the backlog does not shrink: lower a rule's rate."


def _numbers(mapping: Any) -> list[float]:
    return (
        [value for value in mapping.values() if isinstance(value, int | float)] if isinstance(mapping, Mapping) else []
    )
