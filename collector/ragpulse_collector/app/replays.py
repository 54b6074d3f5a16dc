"""The operations of replays, on the collector and of the caller's evaluators."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial

from ragpulse_collector.analysis.answers import Done, extended
from ragpulse_collector.analysis.compare.results import ReplayResult, replay_result
from ragpulse_collector.api import drafts, models
from ragpulse_collector.api.handlers.rules import names_only
from ragpulse_collector.api.operations import Admin, AnyOperation, Operation
from ragpulse_collector.api.params import Params
from ragpulse_collector.evaluation import ClientReplays
from ragpulse_collector.evaluation.budget import Bill
from ragpulse_collector.evaluation.client_replay import CallerResult, PendingCase
from ragpulse_collector.evaluation.replay import ReplayList, ReplayProgress, ReplayRequest, Replays
from ragpulse_collector.settings.lead import Lead
from ragpulse_collector.store import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayCases(ReplayProgress):
    """Cases for the caller to evaluate."""

    cases: Sequence[PendingCase]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayAccepted(ReplayProgress):
    """The number of new results."""

    accepted: int


def replay_request(params: drafts.ReplayDraft, now: datetime) -> ReplayRequest:
    """Return what a caller asked to replay."""
    return ReplayRequest(
        query=params.query(now),
        evaluators=tuple(dict.fromkeys(params.evaluators)),
        external=params.external,
        judge=params.judge,
        prompts=next(iter(params.prompts), None),
        loads=params.loads,
        where=params.where,
        limit=params.limit,
        max_usd=params.max_usd,
    )


def replay_operations(
    store: Store, replays: Replays, lead: Lead, counted: Callable[[], None]
) -> tuple[AnyOperation, ...]:
    """Return the operations; `counted` is called when other scores count from now on."""
    external = ClientReplays(store)

    def start(params: drafts.ReplayDraft) -> ReplayList | Bill:
        request = replay_request(params, replays.clock())
        return replays.bill(request) if params.dry_run else replays.start(request)

    def cases(params: models.Cases) -> ReplayCases:
        pending = external.cases(params.id, limit=params.limit)
        return extended(ReplayCases, replays.get(params.id), cases=pending)

    def results(params: drafts.Results) -> ReplayAccepted:
        sent = [CallerResult(one.job_id, one.result, one.elapsed_ms) for one in params.results]
        accepted = external.store_results(params.id, sent, capped=params.capped or "")
        return extended(ReplayAccepted, replays.get(params.id), accepted=accepted)

    def use(params: models.ById, *, undo: bool) -> ReplayProgress:
        used = replays.use(params.id, actor=params.caller.actor, undo=undo)
        counted()
        return used

    def delete(params: models.ById) -> Done:
        replays.delete(params.id, actor=params.caller.actor)
        counted()
        return Done()

    return (
        Operation("GET replays", lambda _: replays.list(), "Replays, newest first.", Params, ReplayList),
        Operation("GET replays/{id}", lambda params: replays.get(params.id), "One replay with its progress.",
                  models.ById, ReplayProgress),
        Operation("GET replays/{id}/result", lambda params: replay_result(store, params.id, lead()),
                  "Mean, distribution, what was left out, and the evaluator in use on the same answers.", models.ById,
                  ReplayResult),
        Admin("POST replays/{id}/use", partial(use, undo=False), "Let lists, charts and alerts read its scores.",
              models.ById, ReplayProgress),
        Admin("POST replays/{id}/set_aside", partial(use, undo=True), "Make it exploratory (again).", models.ById,
              ReplayProgress),
        Admin("DELETE replays/{id}", delete, "Delete an ended replay and the scores that nothing else uses.",
              models.ById, Done),
        Admin("POST replays", start, "Run stored traces through evaluators, or only report tokens and cost.",
              drafts.ReplayDraft, ReplayList | Bill, outside=names_only),
        Admin("POST replays/{id}/cancel", lambda params: replays.cancel(params.id), "Stop a replay.", models.ById,
              ReplayProgress),
        Admin("POST replays/{id}/resume", lambda params: replays.resume(params.id, max_usd=params.max_usd),
              "Continue a stopped replay.", drafts.Resume, ReplayProgress),
        Admin("GET replays/{id}/cases", cases, "Cases for an evaluator of the caller's process.", models.Cases,
              ReplayCases),
        Admin("POST replays/{id}/results", results, "The results of the caller.", drafts.Results, ReplayAccepted),
    )  # fmt: skip
