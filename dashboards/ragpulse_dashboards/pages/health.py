"""`/health`: received, pending, dropped and why, size on disk; `/settings`: the settings in force."""

import asyncio

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from ragpulse_collector.api.health import CollectorStatus
from ragpulse_collector.api.shown_settings import ShownSettings, ShownTable, ShownValue
from ragpulse_collector.evaluation.judge_checks import JudgeChecks
from ragpulse_dashboards.site import Site


def routes(site: Site) -> list[BaseRoute]:
    """Return both pages."""
    return [site.page("/health", health), site.page("/settings", settings, reads=("changed", "find"))]


async def health(site: Site, request: Request) -> Response:
    """Show the facts of `ragpulse doctor` and `/metrics`."""
    status: CollectorStatus = await site.api("GET status", {})
    return site.render(request, "health.html", {"status": status})


async def settings(site: Site, request: Request) -> Response:
    """Show each value with its origin, what the judge's check found, and the TOML that gives the settings again."""
    shown: ShownSettings
    judge: JudgeChecks
    shown, judge = await asyncio.gather(site.api("GET settings", {}), site.api("GET judge/checks", {}))
    find, changed = request.query_params.get("find", "").strip(), request.query_params.get("changed") == "true"
    tables = [(table, [one for one in table.values if _is_shown(table, one, find.lower(), changed)])
              for table in shown.tables]  # fmt: skip
    context = {"shown": shown, "judge": judge, "find": find, "changed": changed}
    return site.render(request, "settings.html", {**context, "tables": [each for each in tables if each[1]]})


def _is_shown(table: ShownTable, value: ShownValue, find: str, changed: bool) -> bool:
    """Whether a value is listed: one that is given, or has a default of its own; of a search its name or text."""
    given = value.origin or (not changed and (not table.title or value.value not in ("", "[]", "{}")))
    return bool(given) and find in f"{table.table} {value.key} {value.value}".lower()
