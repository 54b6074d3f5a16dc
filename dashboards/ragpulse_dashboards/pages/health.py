"""`/health`: the pipe itself: received, waiting, dropped and why, size on disk, slow queries."""

from collections.abc import Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from ragpulse_dashboards.site import Site

__all__ = ["routes"]


def routes(site: Site) -> list[BaseRoute]:
    """One page."""
    return [site.page("/health", health)]


async def health(site: Site, request: Request) -> Response:
    """The facts of `ragpulse doctor` and `/metrics`, for people."""
    status = await site.api("GET status", {})
    return site.render(request, "health.html", {"status": status, "problems": _problems(status)})


def _problems(status: Mapping[str, Any]) -> list[str]:
    """What a person should do something about, in words."""
    rejected = (status.get("rejected") or {}).get("spans") or 0
    dropped = sum(_numbers((status.get("evaluations") or {}).get("dropped")))
    judge = status.get("judge") or {}
    spent, budget = judge.get("spent_today_usd"), judge.get("budget_usd")
    oldest = (status.get("queue") or {}).get("oldest_s") or 0
    found = [
        (rejected, f"{rejected} spans were rejected: the codes below name the reason."),
        (dropped, f"{dropped} evaluations were dropped: lower a rule's rate or raise the budget."),
        (oldest > 10, f"The oldest waiting body is {oldest:.0f} s old: the disk cannot keep up."),
        (
            budget and spent is not None and spent >= budget,
            "The judge's budget of today is spent; sampling continues tomorrow.",
        ),
    ]
    return [text for wrong, text in found if wrong]


def _numbers(mapping: Any) -> list[float]:
    return (
        [value for value in mapping.values() if isinstance(value, int | float)] if isinstance(mapping, Mapping) else []
    )
