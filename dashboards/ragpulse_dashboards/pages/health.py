"""`/health`: received, pending, dropped and why, size on disk; `/settings`: the settings in force."""

import asyncio
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from ragpulse_collector.api.health import CollectorStatus, Evaluations
from ragpulse_collector.api.shown_settings import ShownSettings, ShownTable, ShownValue
from ragpulse_collector.evaluation.judge_checks import JudgeChecks
from ragpulse_collector.words.figures import count, counted, seconds
from ragpulse_dashboards.site import Site

LATE_S: Final = 60
"""An evaluation that is pending for longer is a backlog."""
SLOW_DISK_S: Final = 10


def routes(site: Site) -> list[BaseRoute]:
    """Return both pages."""
    return [site.page("/health", health), site.page("/settings", settings, reads=("changed", "find"))]


async def health(site: Site, request: Request) -> Response:
    """Show the facts of `ragpulse doctor` and `/metrics`."""
    status: CollectorStatus = await site.api("GET status", {})
    return site.render(request, "health.html", {"status": status, "problems": _problems(status)})


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


def _problems(status: "CollectorStatus") -> list[str]:
    """Return sentences about what needs action."""
    evaluations, undecided, judge = status.evaluations, status.undecided, status.judge
    rejected, dropped, oldest = status.rejected.spans, sum(evaluations.dropped.values()), status.queue.oldest_s
    checks = [
        (evaluations.oldest_s > LATE_S, _backlog(evaluations)),
        (
            undecided.oldest_s > LATE_S,
            f"{counted(undecided.traces, 'trace')} undecided, the oldest for {seconds(undecided.oldest_s)}:"
            " services take turns, the oldest of each first.",
        ),
        (rejected, f"{rejected} spans were rejected: the codes below name the reason."),
        (dropped, f"{dropped} evaluations were dropped: lower a rule's rate or raise the budget."),
        (oldest > SLOW_DISK_S, f"The oldest request is not stored after {oldest:.0f} s: the disk cannot keep up."),
        (
            judge.budget_usd and judge.spent_today_usd >= judge.budget_usd,
            "The judge's budget of today is spent; sampling continues tomorrow.",
        ),
        (
            judge.budget_usd_per_month and judge.spent_this_month_usd >= judge.budget_usd_per_month,
            "The judge's budget of this month is spent; sampling continues on the first of the next.",
        ),
        *(
            (rule.spent_today_usd >= rule.budget_usd, f"The budget of rule {rule.name} of today is spent.")
            for rule in judge.rules
        ),
    ]
    listed = [f"{problem.text}: {problem.fix}." for problem in status.problems]
    return listed + [text for wrong, text in checks if wrong]


def _backlog(evaluations: "Evaluations") -> str:
    """Return how many evaluations are pending, how fast they are done, and when the backlog ends."""
    text = f"{counted(evaluations.pending, 'evaluation')} pending, the oldest for {seconds(evaluations.oldest_s)}"
    if len(evaluations.waiting) > 1:
        text += f" ({evaluations.waiting[0].evaluator})"
    text += f"; {count(evaluations.done_per_s)} a second are done"
    if evaluations.clears_in_s is not None:
        return f"{text}: done in about {seconds(evaluations.clears_in_s)}."
    more = count(evaluations.new_per_s)
    return f"{text} and {more} a second are new, so the backlog does not shrink: lower a rule's rate."
