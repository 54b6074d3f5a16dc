"""Replays: stored traces through evaluators, in the collector or in the caller's process."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import Field
from pydantic.json_schema import SkipJsonSchema

from ragpulse_collector.analysis.answers import Done, extended
from ragpulse_collector.analysis.cache import Snapshots
from ragpulse_collector.analysis.compare.results import ReplayResult
from ragpulse_collector.analysis.compare.results import replay_result as found
from ragpulse_collector.api.drafts import SentResult
from ragpulse_collector.api.models import LastWeek
from ragpulse_collector.api.operations import operation
from ragpulse_collector.api.params import Caller, Count, Many, Names, Since
from ragpulse_collector.evaluation import ClientReplays
from ragpulse_collector.evaluation.budget import Bill
from ragpulse_collector.evaluation.client_replay import CallerResult, PendingCase
from ragpulse_collector.evaluation.replay import ReplayList, ReplayProgress, ReplayRequest, Replays
from ragpulse_collector.refusals import Invalid
from ragpulse_collector.settings.lead import Lead
from ragpulse_collector.store import Store
from ragpulse_collector.store.queries.runs import Declaration

Usd = Annotated[float, Field(ge=0)]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayCases(ReplayProgress):
    """Cases for the caller to evaluate."""

    cases: Sequence[PendingCase]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayAccepted(ReplayProgress):
    """The number of new results."""

    accepted: int


@operation("GET replays")
def replay_list(replays: Replays, /) -> ReplayList:
    """Replays, newest first."""
    return replays.list()


@operation("GET replays/{id}")
def replay(replays: Replays, /, id: str) -> ReplayProgress:
    """One replay with its progress."""
    return replays.get(id)


@operation("GET replays/{id}/result")
def replay_result(store: Store, lead: Lead, /, id: str) -> ReplayResult:
    """Mean, distribution, what was left out, and the evaluator in use on the same answers."""
    return found(store, id, lead())


@operation("POST replays/{id}/use", scope="admin")
def use(replays: Replays, snapshots: Snapshots, /, id: str, caller: Caller) -> ReplayProgress:
    """Let lists, charts and alerts read its scores."""
    used = replays.use(id, actor=caller.actor)
    snapshots.clear()
    return used


@operation("POST replays/{id}/set_aside", scope="admin")
def set_aside(replays: Replays, snapshots: Snapshots, /, id: str, caller: Caller) -> ReplayProgress:
    """Make it exploratory (again)."""
    used = replays.use(id, actor=caller.actor, undo=True)
    snapshots.clear()
    return used


@operation("DELETE replays/{id}", scope="admin")
def delete(replays: Replays, snapshots: Snapshots, /, id: str, caller: Caller) -> Done:
    """Delete an ended replay and the scores that nothing else uses."""
    replays.delete(id, actor=caller.actor)
    snapshots.clear()
    return Done()


FILES = ("loads", "prompts")
_ADDRESS = re.compile(r"://|\bhttps?:", re.IGNORECASE)


def names_only(params: Any) -> None:
    """Refuse a replay with files or the address of a judge; raises Invalid with the fix.

    A caller with the right to start a replay must not make the collector read a file, run code or call a host of their
    choice. Evaluators are registered from Python; addresses of judges come from the configuration.
    """
    for name in FILES:
        if getattr(params, name):
            raise Invalid(
                f"{name}: no files over HTTP; `ragpulse replay --load FILE --url ...` runs them in its own"
                " process and sends the results, `ragpulse serve --load FILE` (or [evaluators] files in ragpulse.toml)"
                " makes the collector know them"
            )
    if _ADDRESS.search(params.judge or ""):
        raise Invalid(
            "judge: name a model that litellm knows; an address belongs in ragpulse.toml: [judge] model or api_base"
        )


@operation("POST replays", scope="admin", outside=names_only)
def start(
    replays: Replays,
    /,
    choice: LastWeek,
    evaluators: Names = [],
    external: Annotated[list[Declaration], "Evaluators of the caller's process."] = [],
    since: Since | None = None,
    limit: Count | None = None,
    max_usd: Usd | None = None,
    judge: str | None = None,
    dry_run: Annotated[bool, "Only report count, tokens and cost."] = False,
    loads: SkipJsonSchema[Many] = [],
    prompts: SkipJsonSchema[Many] = [],
) -> ReplayList | Bill:
    """Run stored traces through evaluators, or only report tokens and cost.

    `loads` and `prompts` (one folder) are only for the same process.
    """
    request = ReplayRequest(
        query=choice.query(replays.clock(), since=since),
        evaluators=tuple(dict.fromkeys(evaluators)),
        external=external,
        judge=judge,
        prompts=next(iter(prompts), None),
        loads=loads,
        where=choice.where,
        limit=limit,
        max_usd=max_usd,
    )
    return replays.bill(request) if dry_run else replays.start(request)


@operation("POST replays/{id}/cancel", scope="admin")
def cancel(replays: Replays, /, id: str) -> ReplayProgress:
    """Stop a replay."""
    return replays.cancel(id)


@operation("POST replays/{id}/resume", scope="admin")
def resume(replays: Replays, /, id: str, max_usd: Usd | None = None) -> ReplayProgress:
    """Continue a stopped replay."""
    return replays.resume(id, max_usd=max_usd)


@operation("GET replays/{id}/cases", scope="admin")
def cases(store: Store, replays: Replays, /, id: str, limit: Count | None = None) -> ReplayCases:
    """Cases for an evaluator of the caller's process."""
    handed_out = ClientReplays(store).cases(id, limit=limit)  # first: it finishes jobs that have a verdict already
    return extended(ReplayCases, replays.get(id), cases=handed_out)


@operation("POST replays/{id}/results", scope="admin")
def results(
    store: Store,
    replays: Replays,
    /,
    id: str,
    results: list[SentResult] = [],
    capped: Annotated[str | None, "The reason why the caller stops before the end."] = None,
) -> ReplayAccepted:
    """The results of the caller."""
    sent = [CallerResult(one.job_id, one.result, one.elapsed_ms) for one in results]
    accepted = ClientReplays(store).store_results(id, sent, capped=capped or "")
    return extended(ReplayAccepted, replays.get(id), accepted=accepted)
