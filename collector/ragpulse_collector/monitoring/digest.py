"""The digest: a week in figures and in words, for the command line, assistants, and one message a week."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Annotated, Any, Final
from urllib.parse import urlencode
from uuid import uuid4

from pydantic import Field

from ragpulse_collector.analysis.attribution import FailureCell, Roles, failure_attribution
from ragpulse_collector.analysis.cache import Snapshot
from ragpulse_collector.analysis.exemplars import exemplars
from ragpulse_collector.analysis.failures import FailureShare, what_went_wrong
from ragpulse_collector.analysis.figures import Condition, readings
from ragpulse_collector.analysis.gaps import gaps
from ragpulse_collector.analysis.overview import Headline, RangeSummary, TrafficSummary, overview, traffic_alone
from ragpulse_collector.analysis.quality.coverage import CoverageRow
from ragpulse_collector.analysis.query import Query, window_between
from ragpulse_collector.analysis.selection import Window, iso
from ragpulse_collector.analysis.topics import news
from ragpulse_collector.instants import EPOCH
from ragpulse_collector.monitoring.definitions import DIGEST
from ragpulse_collector.monitoring.delivery import Outbox
from ragpulse_collector.monitoring.headline import Statement, headline, levels, moved
from ragpulse_collector.monitoring.messages import Alert
from ragpulse_collector.monitoring.targets import Targets, TargetState
from ragpulse_collector.refusals import Conflict
from ragpulse_collector.settings import Settings
from ragpulse_collector.store import Store, Transaction
from ragpulse_collector.store.estimates import WEIGHT
from ragpulse_collector.store.protocol import utc_now
from ragpulse_collector.store.queries.monitors import add_messages, add_state, latest_states
from ragpulse_collector.store.queries.scored_traces import ScoredTrace
from ragpulse_collector.store.queries.traces import first_span, requests_since
from ragpulse_collector.store.topics import last_fit, stored_topics
from ragpulse_collector.words import called, times
from ragpulse_collector.words.figures import counted, estimate, metric_name, percent, snippet, title, unit_of, usd
from ragpulse_collector.words.times import clock
from ragpulse_evaluators.statistics import Interval, minus

__all__ = ["Digest", "Digests", "Silence"]

_WEEK = timedelta(days=7)
_LATE = timedelta(days=1)
"""A collector that was down sends the digest up to so much later."""
_EXPECTED = 50
"""Fewer requests in the same hours a week before: silence may be chance."""
_SILENCES = f"""
    WITH requests AS (
        SELECT floor(epoch(start_time - $first) / 3600) AS hour, sum({WEIGHT}) AS n FROM traces
        WHERE start_time >= $first - INTERVAL 7 DAY AND start_time < $last AND {{filters}} GROUP BY 1),
    silent AS (
        SELECT r.hour, coalesce(was.n, 0.0) AS n, r.hour - row_number() OVER (ORDER BY r.hour) AS run
        FROM range(floor(epoch($last - $first) / 3600)::INTEGER) r(hour)
        LEFT JOIN requests was ON was.hour = r.hour - 168 AND $first + to_hours(was.hour::INTEGER) >= $counted
        WHERE r.hour NOT IN (SELECT hour FROM requests))
    SELECT $first + to_hours(min(hour)), $first + to_hours(max(hour) + 1), round_even(sum(n), 0)::BIGINT AS usual
    FROM silent GROUP BY run HAVING usual >= {_EXPECTED} ORDER BY usual DESC, 1 LIMIT 1"""
"""Runs of hours without a request, and how many those hours had a week before."""
_WORST, _CONFIDENCE = 3, 0.99
_TOTALS, _SHARES = ("requests", "cost_usd"), ("error_rate", "refused_rate", "empty_rate")
_LEAST_TOTAL, _LEAST_SHARE = 0.25, 0.02
"""The smallest move that is news: of a count or a sum by its former level, of a share as it is."""


@dataclass(frozen=True, slots=True)
class Silence:
    """Hours without a request, which had so many a week before."""

    from_: Annotated[datetime, Field(alias="from")]
    to: datetime
    usual: int


@dataclass(frozen=True, slots=True)
class Moved:
    """A figure of the traffic that surely moved against the same days of the week before."""

    metric: str
    before: float
    after: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Digest:
    """A week in figures and in words."""

    from_: Annotated[datetime, Field(alias="from")]
    to: datetime
    overview: RangeSummary
    before: TrafficSummary
    """The traffic of the range before."""
    targets: Sequence[TargetState]
    failures: Sequence[FailureCell]
    """Where answers failed in this range and in the one before; empty where quality did not surely fall."""
    failures_by: Roles | None = None
    """The evaluators that tell where: without one of the contexts, retrieval is unknown."""
    went_wrong: Sequence[FailureShare] = ()
    """The share of requests of each kind of failure, the largest first."""
    moved: Sequence[Moved] = ()
    """What surely moved in traffic, cost, errors, refusals and empty answers."""
    silence: Silence | None
    worst: Sequence[ScoredTrace]
    """The worst answers that do not pass the evaluator that leads."""
    appeared: Sequence[str]
    """Topics that a fit of this range found first."""
    vanished: Sequence[str]
    gaps: Sequence[str]
    """Groups of questions that fail, in sentences; empty without the extra `[topics]`."""
    quiet: bool = False
    """Whether nothing changed: then it has two lines."""
    lines: Sequence[str] = ()


class Digests:
    """Makes digests, and sends one a week."""

    def __init__(
        self,
        store: Store,
        settings: Settings,
        outbox: Outbox,
        targets: Targets,
        *,
        lead: Callable[[], str],
        clock: Callable[[], datetime] = utc_now,
    ) -> None:
        self._store, self._settings, self._outbox, self._targets = store, settings.digest, outbox, targets
        self._lead, self._clock, self._url = lead, clock, settings.collector.pages_url
        self._least_users, self._tz = settings.topics.least_users, settings.collector.tz

    def of(self, query: Query) -> Digest:
        """Answer `GET digest`."""
        week = self._week(Snapshot(self._store, query))
        return replace(week, quiet=is_quiet(week), lines=lines(week))

    def _week(self, snapshot: Snapshot) -> Digest:
        query, lead = snapshot.query, self._lead()
        whole, earlier = query.whole, replace(query, window=snapshot.before_window)
        summary, fit = overview(snapshot, lead), _fit_in(snapshot.store, query)
        topics = stored_topics(snapshot.store.read) if fit else ()
        appeared, vanished = news(snapshot.store, whole, topics, fit)
        fell = any(row.evaluator == lead and row.verdict == "worse" for row in moved(summary))
        attributed = [failure_attribution(snapshot.store, part, lead) for part in (whole, earlier) if fell]
        return Digest(
            from_=query.window.first,
            to=query.window.last,
            overview=summary,
            before=traffic_alone(Snapshot(self._store, earlier)),
            targets=self._targets(query).targets,
            failures=[cell for one in attributed for cell in one.cells],
            failures_by=attributed[0].evaluators if attributed else None,
            went_wrong=what_went_wrong(snapshot.store, whole).failures,
            moved=_moved(snapshot.store, whole, earlier),
            silence=_silence(snapshot.store, query),
            worst=_worst(snapshot.store, whole, lead),
            appeared=appeared,
            vanished=vanished,
            gaps=_gaps(snapshot.store, whole, lead, self._least_users),
        )

    def check(self, now: datetime | None = None) -> bool:
        """Store the message of the week that has ended, once; returns whether it did."""
        now = now or self._clock()
        due = self._settings.last(now, self._tz)
        week = json.dumps({"week": iso(due)})
        if not self._settings.to or now - due > _LATE or week in latest_states(self._store.read, DIGEST):
            return False
        query = Query(window=window_between(due - _WEEK, due, now=now, step="auto"), now=now)
        event_id, alert = uuid4(), self._message(self.of(query))
        message = replace(alert, event_id=event_id).encode().decode()

        def work(tx: Transaction) -> None:
            add_state(tx, (DIGEST, week, "ok"), (None, None, None), (alert.text, None), event_id)
            add_messages(tx, event_id, message, self._settings.to, at=now)

        self._store.write(work).result()
        self._outbox.wake()
        return True

    def _message(self, digest: Digest) -> Alert:
        """Return the digest as a message: links lead to answers, their texts stay here."""
        week = urlencode({"from": str(iso(digest.from_)), "to": str(iso(digest.to))})
        return Alert(
            monitor="digest",
            metric=f"quality:{digest.overview.lead}",
            state="digest",
            since=digest.to,
            text="\n".join(digest.lines),
            link=None if digest.quiet else f"{self._url}/?{week}",
            worst=() if digest.quiet else [f"{self._url}/traces/{answer.trace_id}" for answer in digest.worst],
        )


def _fit_in(store: Store, query: Query) -> int:
    """Return the number of the last fit of topics, if it was in this range; else 0."""
    fit = last_fit(store.read)
    return fit.fit_id if fit and query.window.first <= fit.fitted_at < query.window.last else 0


def _gaps(store: Store, query: Query, lead: str, least_users: int) -> list[str]:
    try:
        return [gap.text for gap in gaps(store, query, lead, least_users).gaps[:_WORST]]
    except Conflict:  # the extra is not installed
        return []


def _moved(store: Store, query: Query, earlier: Query) -> list[Moved]:
    """Return what surely moved against the same days of the week before: a weekend is no fall.

    Where these are unknown, shares are held against the range before, and totals against nothing.
    """
    window, weeks = query.window, math.ceil((query.window.last - query.window.first) / _WEEK) * _WEEK
    start = requests_since(store) or first_span(store)
    known = start is not None and start <= window.first - weeks
    before = replace(query, window=Window(window.first - weeks, window.last - weeks, 0)) if known else earlier
    found = []
    for metric in (*(_TOTALS if known else ()), *_SHARES):
        was, now = (_reading(store, metric, one) for one in (before, query))
        if was is None or now is None:
            continue
        move, least = minus(now, was), _LEAST_SHARE if metric in _SHARES else _LEAST_TOTAL * was.value
        if (move.lo > 0.0 or move.hi < 0.0) and abs(move.value) >= least and (metric in _SHARES or now.value):
            found.append(Moved(metric, was.value, now.value))
    return found


def _reading(store: Store, metric: str, query: Query) -> Interval | None:
    found = readings(store, metric, query, Condition("change"))["{}"](_CONFIDENCE)
    if found.value is None or found.lo is None or found.hi is None or not found.n:
        return None
    return Interval(found.value, found.lo, found.hi)


def _silence(store: Store, query: Query) -> Silence | None:
    """Return the hours without a request that had the most a week before; None where that may be chance."""
    parameters = {**query.parameters, "counted": requests_since(store) or EPOCH}
    rows = store.read(_SILENCES.format(filters=query.filters.sql), parameters).rows
    return Silence(*rows[0]) if rows else None


def _worst(store: Store, query: Query, evaluator: str) -> list[ScoredTrace]:
    """Return the worst answers that do not pass."""
    worst = exemplars(store, query, f"quality:{evaluator}").worst
    return [trace for trace in worst if trace.scores[evaluator].passing is not True][:_WORST]


@dataclass(frozen=True, slots=True)
class _Week:
    """A range whose sentences have no links."""

    start: str
    end: str
    before: str = "the range before"

    def url(self, path: str, /, **changes: Any) -> str:
        """Return no link."""
        del path, changes
        return ""


_PLACES: Final = (("retrieval", "Retrieval"), ("generation", "Generation"))


def is_quiet(week: Digest) -> bool:
    """Return whether nothing changed, nothing is urgent, and nothing was out of order."""
    found = (week.silence, *week.moved, *week.appeared, *week.vanished, *moved(week.overview))
    return not any(found) and not any(statement.tone for statement in _statements(week))


def lines(week: Digest) -> list[str]:
    """Return the digest, a fact on each line; a quiet week has two."""
    statements = [statement.text for statement in _statements(week)]
    moves = [
        text
        for text in _moves(week)
        if not any(text[: text.index(" ")] == one[: text.index(" ")] for one in statements)
    ]
    facts = [*statements, *moves, *_failures(week), *_silent(week), *_asked(week), *_went_wrong(week)]
    facts += _measured(week)
    told = [_figures(week), *([" ".join(facts)] if is_quiet(week) else facts)]
    return [_of_weeks(line) for line in told]


def _of_weeks(line: str) -> str:
    """Return a sentence about a range as one about a week; white space of names from spans makes no new line."""
    return " ".join(line.split()).replace("the range before", "the week before").replace("this range", "this week")


def _statements(week: Digest) -> list[Statement]:
    return headline(_Week(times.iso(week.from_), times.iso(week.to)), week.overview, week.targets)


def _figures(week: Digest) -> str:
    """`Nov 16 to Nov 23: 9,120 answers, before 8,800; groundedness 0.87 ± 0.01, before 0.94 ± 0.01; $12`."""
    now, before, row = week.overview, week.before, _leading(week)
    figures = [_beside(counted(now.n_traces, "answer"), f"{before.n_traces:,}" if before.n_traces else "")]
    if row:
        unit = unit_of(f"quality:{row.evaluator}")
        was = estimate(row.previous, unit) if row.previous else ""
        figures.append(_beside(f"{called(row.evaluator)} {estimate(row, unit)}", was))
    if now.cost_usd is not None:
        figures.append(_beside(usd(now.cost_usd), "" if before.cost_usd is None else usd(before.cost_usd)))
    return f"{week.from_:%b %d} to {week.to:%b %d}: {'; '.join(figures)}"


def _beside(now: str, before: str) -> str:
    return f"{now}, before {before}" if before else now


def _leading(week: Digest) -> Headline | None:
    rows = sorted(week.overview.quality, key=lambda row: row.evaluator != week.overview.lead)
    return next(iter(rows), None)


def _went_wrong(week: Digest) -> Iterator[str]:
    """`What went wrong: 8 % had no context (before 2 %), 5 % are not supported (before 5 %).`; not of a quiet week."""
    shares = [
        f"{percent(one.value)} {one.words}{f' (before {percent(one.previous.value)})' if one.previous else ''}"
        for one in week.went_wrong[:_WORST]
    ]
    if shares and not is_quiet(week):
        yield f"What went wrong: {', '.join(shares)}."


def _failures(week: Digest) -> Iterator[str]:
    """`Retrieval fails for 3.0 % of answers (before 3.1 %). Generation fails for 12 % of answers (before 4 %).`"""
    if len(week.failures) == 2 and week.failures_by:
        now, before = week.failures
        known = {"retrieval": week.failures_by.sufficient or week.failures_by.used, "generation": True}
        yield " ".join(
            f"{word} fails for {percent(_share(now, kind))} of answers (before {percent(_share(before, kind))})."
            if known[kind]
            else f"Whether {word.lower()} fails is not measured."
            for kind, word in _PLACES
        )


def _share(cell: FailureCell, kind: str) -> float | None:
    kinds = (cell.good, cell.retrieval, cell.generation, cell.refusal_right, cell.refusal_wrong, cell.unknown)
    return float(getattr(cell, kind)) / sum(kinds) if sum(kinds) else None


def _moves(week: Digest) -> Iterator[str]:
    """`Refused rate rose 0 % → 30 % against the same days of the week before.`"""
    for one in week.moved:
        moved = levels(one.metric, one.before, one.after)
        yield f"{title(metric_name(one.metric))} {moved} against the same days of the week before."


def _silent(week: Digest) -> Iterator[str]:
    if silence := week.silence:
        hours = f"from {clock(silence.from_)} to {clock(silence.to)} UTC"
        yield f"No request {hours}; a week before there were {silence.usual:,}."


def _asked(week: Digest) -> Iterator[str]:
    """Yield new and lost topics; the gaps of a week in which something changed, else their number."""
    for names, word in ((week.appeared, "New"), (week.vanished, "Lost")):
        if names:
            yield f"{word} topics: {snippet('; '.join(names))}."
    if week.gaps and is_quiet(week):
        yield f"{counted(len(week.gaps), 'content gap')}: ragpulse gaps."
    else:
        yield from (f"Missing content: {gap}." for gap in week.gaps)


def _measured(week: Digest) -> Iterator[str]:
    if week.overview.n_traces:
        missing = "; ".join(_unmeasured(week))
        yield f"Not measured: {missing}." if missing else "Everything was measured."


def _unmeasured(week: Digest) -> Iterator[str]:
    """Yield what the figures do not know: answers without a score, unclear verdicts, unknown costs."""
    overview, row = week.overview, _leading(week)
    for coverage in sorted(overview.coverage, key=lambda one: one.evaluator != overview.lead):
        yield from _unscored(coverage)
    if row and row.clear_share is not None and row.clear_share < 1.0:
        yield f"{percent(1.0 - row.clear_share)} of the verdicts of {called(row.evaluator)} are unclear"
    if overview.cost_unknown_share:
        yield f"the cost of {percent(overview.cost_unknown_share)} of answers is unknown"
    if overview.n_traces and not overview.quality:
        yield "quality: no answer was scored"


def _unscored(row: CoverageRow) -> Iterator[str]:
    """`groundedness of 8,100 of 9,120 answers (8,000 not selected, 60 failed, 40 beyond a budget)`."""
    fitting, failed = row.selected - row.skipped, row.invalid + row.error
    reasons = (
        (row.eligible - row.selected, "not selected"),
        (fitting - row.scored - failed - row.dropped, "not scored yet"),
        (failed, "failed"),
        (row.dropped, "beyond a budget"),
    )
    if parts := [f"{n:,} {reason}" for n, reason in reasons if n > 0]:
        missing = row.eligible - row.skipped - row.scored
        yield f"{called(row.evaluator)} of {missing:,} of {row.eligible:,} answers ({', '.join(parts)})"
