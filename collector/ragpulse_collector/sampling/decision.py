"""The decision: every settled trace gets its facts, decisions and jobs in one transaction.

writer: find settled traces ─▶ this thread: find repeated usage ─▶ writer: facts, decisions, jobs
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from datetime import datetime, timedelta
from functools import partial
from itertools import groupby
from typing import NamedTuple

from ragpulse_collector.conventions.dedupe import Node, silent_spans, token_spans
from ragpulse_collector.sampling.rules import OFFLINE, Rule, RuleSet, draw_sql, of_unit, scored_evaluators
from ragpulse_collector.settings import ACCEPTANCE
from ragpulse_collector.store.protocol import Read, Store, Transaction
from ragpulse_collector.store.queries import deciding as sql
from ragpulse_collector.store.queries import decisions, documents
from ragpulse_collector.store.queries.decisions import DoubtfulSpan, Due, force
from ragpulse_collector.store.topics import OF_QUESTIONS, PlacedQuestion
from ragpulse_collector.store.units import decided
from ragpulse_collector.store.units.numbers import sampling_number

Scale = Callable[[str], tuple[float, str]]
TopicsOf = Callable[[Sequence[str]], Sequence[PlacedQuestion]]
"""Returns the topic of each question, 0 for none."""

_COMMIT_DELAY = timedelta(seconds=5)
"""A score may become visible this much later than it was made. A later score moves no unit, which is no bias."""
_LOOK_BACK = timedelta(hours=1)
"""How old scores may be that a new process still reads."""

_REACH = timedelta(days=1)
"""A session that ended this long before the last look is not decided: a new rule does not apply to the past."""
_MAX_REACH = timedelta(days=30)
"""The longest look back after a stop of the collector."""
_MARK_LAG = timedelta(hours=1)
"""How far the mark of the last look may lag behind: not every look writes."""


def _within(last: datetime | None, now: datetime, interval: timedelta) -> bool:
    """Whether `last` is less than `interval` ago; an instant in the future (the clock was set back) is not."""
    return last is not None and timedelta() <= now - last < interval


@dataclass(eq=False)
class Sampler:
    """Decides units `settle_s` after their root was stored, or after `quiet_s` without a root; sessions (for rules
    that ask for them) once they have been quiet for `session_quiet_s`.

    `rules` gives the rules in force now; `pi_scale(evaluator)` gives the share of the designed probability that the
    budget allows and why (`budget` or `throttled`); `keep_up` is called before it is asked. `topics` gives the function
    that finds the topics of questions, None while there is none. `acceptance` and `scales` are those of the settings,
    and `refused` tells which responses decline to answer, None where nobody knows. One sampler may run on a store at a
    time.
    """

    store: Store
    rules: Callable[[], Sequence[Rule]] = lambda: (OFFLINE,)
    _: KW_ONLY
    settle_s: float = 2.0
    quiet_s: float = 30.0
    session_quiet_s: float = 1800.0
    salt: str = "ragpulse"
    pi_scale: Scale = lambda _: (1.0, "")
    keep_up: Callable[[], object] = lambda: None
    every_s: float = 2.0
    acceptance: Sequence[str] = ACCEPTANCE
    scales: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    refused: Callable[[Sequence[str]], Sequence[bool | None]] = lambda responses: [False] * len(responses)
    topics: Callable[[], TopicsOf | None] = lambda: None
    max_traces: int = 4_000
    max_spans: int = 20_000
    within_s: float = 10.0
    """After this time the rest is left to the next call: other background tasks do not wait for a flood."""

    def __post_init__(self) -> None:
        self._every = timedelta(seconds=self.every_s)
        self._low: datetime | None = None
        self._last: datetime | None = None
        self._scores_read_at: datetime | None = None
        self._sessions_read_at: datetime | None = None

    def decide(self, now: datetime) -> int:
        """Decide everything due at `now` (UTC, naive); returns the number of traces that were decided or redecided.

        Call it often: it is cheap while nothing arrives. It decides at most once in `every_s` seconds, because planning
        the statements takes 30 ms however few the traces are.
        """
        if self._is_early(now):
            return 0
        count = self._redecide_by_scores(now) + self._decide_sessions(now)
        if self._is_idle(now):
            return count
        begun = time.monotonic()
        while True:
            due = self.store.write(partial(self._find_due, now=now)).result()
            if due.traces:
                self.keep_up()
                self.store.write(partial(self._write, due=due, facts=self._facts_of(due))).result()
            self._low = due.next_low
            count += len(due.traces)
            if not due.more and count:
                self._last = now
            if not due.more or time.monotonic() - begun > self.within_s:
                return count

    def force(self, trace_id: str, span_id: str | None, evaluators: Sequence[str]) -> int:
        """Queue evaluations that a person requested; returns the number of new jobs. Raises NotFound.

        A result enters estimates only if the sampler would have selected the unit.
        """
        u = None if span_id is None else sampling_number(self.salt, trace_id, span_id)
        return self.store.write(lambda t: force(t, trace_id, span_id, evaluators, u=u)).result()

    def _redecide_by_scores(self, now: datetime) -> int:
        """Decide units again whose scores put them into another stratum, if any rule names scores."""
        rules = self._rules_of("trace")
        names = scored_evaluators(rules)
        if not names or _within(self._scores_read_at, now, self._every):
            return 0
        since = (
            now - _LOOK_BACK
            if self._scores_read_at is None or self._scores_read_at > now
            else self._scores_read_at - _COMMIT_DELAY
        )
        self._scores_read_at, raised = now, 0
        while (scores := new_scores(self.store.read, names, since, self.max_traces)) is not None:
            raised += self._redecide(rules, lo=scores.first - timedelta(days=1), since=since)
            if scores.n < self.max_traces or scores.last <= since:
                break
            since = scores.last
        return raised

    def _rules_of(self, unit: str) -> Sequence[Rule]:
        return of_unit(unit, self.rules())

    def _decide_sessions(self, now: datetime) -> int:
        """Decide the quiet sessions, if any rule is for sessions."""
        rules, silence = self._rules_of("session"), timedelta(seconds=self.session_quiet_s)
        if not rules or _within(self._sessions_read_at, now, max(self._every, silence / 60)):
            return 0
        self._sessions_read_at, quiet = now, now - silence
        if not has_quiet_session(self.store.read, rules, quiet):
            if not is_marked(self.store.read, quiet):
                self.store.write(lambda transaction: mark_sessions(transaction, quiet)).result()
            return 0
        decide = partial(decide_sessions, rules=rules, scales=self._scales(rules), before=quiet, salt=self.salt)
        return self.store.write(partial(decide, limit=self.max_traces)).result()

    def _redecide(self, rules: Sequence[Rule], *, lo: datetime, since: datetime) -> int:
        decide = partial(redecide, rules=rules, scales=self._scales(rules), lo=lo, since=since)
        return self.store.write(partial(decide, limit=self.max_traces)).result()

    def _scales(self, rules: Sequence[Rule]) -> dict[str, tuple[float, str]]:
        return {name: self.pi_scale(name) for rule in rules for name in rule.evaluators}

    def _is_early(self, now: datetime) -> bool:
        return _within(self._last, now, self._every)

    def _is_idle(self, now: datetime) -> bool:
        if self._low is None or self._low > now:
            return False
        return not self.store.read(decisions.NEWS, {"low": self._low}).rows

    def _find_due(self, transaction: Transaction, now: datetime) -> Due:
        return decisions.find_due(
            transaction, self._low, now, most=self.max_traces, most_spans=self.max_spans,
            settle=timedelta(seconds=self.settle_s), quiet=timedelta(seconds=self.quiet_s),
        )  # fmt: skip

    def _facts_of(self, due: Due) -> FoundOutside:
        """Find what takes longer than SQL outside the transaction, so that bodies are stored meanwhile."""
        rows = self.store.read(decisions.DOUBTFUL_USAGE, {"traces": due.traces, **due.bounds()})
        # Most traces have no doubtful usage, and stay in SQL.
        spans = [*_uncounted(rows.tuples(DoubtfulSpan))]
        uncounted = Uncounted(
            traces=[trace_id for trace_id, _, _ in spans],
            spans=[int(span_id, 16) for _, span_id, _ in spans],
            silent=[silent for _, _, silent in spans],
        )
        among, topics_of = {"traces": due.traces, "lo": due.lo}, self.topics()
        topics = QuestionTopics([], [], [])
        if topics_of is not None:
            questions = self.store.read(decisions.QUESTIONS, among)
            placed = topics_of([text for _, text in questions.rows])
            topics = QuestionTopics(questions.values, [q.topic_id for q in placed], [q.distance for q in placed])
        responses = self.store.read(decisions.RESPONSES, among)
        refused = self.refused([text for _, text in responses.rows])
        return FoundOutside(uncounted, topics, Refusals(responses.values, refused))

    def _write(self, transaction: Transaction, due: Due, facts: FoundOutside) -> None:
        run, lo = transaction.execute, {"lo": due.lo}
        parameters = {**due.columns._asdict(), **due.bounds()}
        run(sql.DUE_SPANS, parameters)
        if run(sql.COUNT_DOUBLES).value:
            for removal in sql.REMOVE_DOUBLES:
                run(removal, lo)
            run(sql.DUE_SPANS, parameters)
        run(decided.PLACED)
        run(decided.INSIDE)
        run(decided.ROOT)
        run(documents.OWN_TEXTS, lo)
        self._add_texts_below(transaction, lo)
        run(decided.UNIT, {"salt": self.salt})
        run(sql.UNCOUNTED, facts.uncounted._asdict())
        run(sql.REFUSED, facts.refusals._asdict())
        run(OF_QUESTIONS, facts.topics._asdict())
        ranges = [list(scale) for scale in self.scales.values()]
        run(decided.FACT, {"accepted": list(self.acceptance), "scaled": list(self.scales), "ranges": ranges})
        if due.late:
            run(sql.RETIRE_FACTS, lo)
        # Spans received after this are late: they make a revision.
        run(sql.ADD_FACTS, {"until": due.until})
        self._draw(transaction, due)
        if due.feedback:
            run(sql.SETTLE_FEEDBACK)
        run(decisions.SET_LOW_WATER, {"low": due.next_low.isoformat(sep=" ")})

    def _draw(self, transaction: Transaction, due: Due) -> None:
        lo, now = {"lo": due.lo}, {"at": transaction.at}
        sets = [each.of_unit("trace") for each in self._rule_sets(transaction, due.until)]
        # Earlier decisions keep the rules of their time: a changed rule must not change the pi of a decision.
        history = sets if due.late else sets[-1:]
        names = scored_evaluators([rule for each in history for rule in each.rules])
        if names:
            transaction.execute(sql.scores_seen(names), lo)
        if len(history) > 1:
            transaction.execute(sql.FIRST_DECIDED, lo | {"times": [each.since for each in history]})
            transaction.execute(sql.NOTHING_DRAWN)
            for index in transaction.execute(sql.RULE_SETS).values:
                rules = history[max(0, index)].rules
                if rules:
                    where = sql.decided_under(max(0, index))
                    transaction.execute(draw_sql(rules, self._scales(rules), where=where, append=True))
        else:
            rules = history[-1].rules
            transaction.execute(draw_sql(rules, self._scales(rules)) if rules else sql.NOTHING_DRAWN)
        if due.late:
            transaction.execute(sql.ORPHANED, lo)
            transaction.execute(sql.RETIRE_DECISIONS, lo)
        transaction.execute(sql.ADD_DECISIONS, now)
        if due.late:
            transaction.execute(sql.ADD_NEW_JOBS, lo | now)
        else:
            transaction.execute(sql.ADD_JOBS, now)

    def _rule_sets(self, transaction: Transaction, time: datetime) -> list[RuleSet]:
        """Return every set of rules that decided, with its start; the last one is in force and is stored if new."""
        now = tuple(self.rules())
        sets = list(map(RuleSet.stored, transaction.execute(sql.KNOWN_RULES).values))
        if not sets or not sets[-1].decides_like(now):
            sets.append(RuleSet(time, now))
            transaction.execute(sql.ADD_RULES, {"value": sets[-1].text})
        return [*sets[:-1], sets[-1]._replace(rules=now)]

    def _add_texts_below(self, transaction: Transaction, lo: Mapping[str, datetime | None]) -> None:
        """Give roots without query or response the texts of the spans below."""
        if not transaction.execute(documents.COUNT_SILENT).value:
            transaction.execute(documents.NOTHING_BELOW)
            return
        transaction.execute(documents.BELOW, lo)
        transaction.execute(documents.REFRESH_TEXTS, lo)
        transaction.execute(documents.ADD_TEXTS, lo)


class Uncounted(NamedTuple):
    """Spans whose usage does not count: trace, span, and whether it is a call that states none."""

    traces: list[str]
    spans: list[int]
    silent: list[bool]


class QuestionTopics(NamedTuple):
    """Questions by their hashes, the topic of each and its distance."""

    questions: Sequence[int]
    topics: Sequence[int]
    distances: Sequence[float]


class Refusals(NamedTuple):
    """Responses by their hashes, and whether each declines to answer; None: nobody knows."""

    responses: Sequence[int]
    refused: Sequence[bool | None]


class FoundOutside(NamedTuple):
    """Facts of the traces that are due."""

    uncounted: Uncounted
    topics: QuestionTopics
    refusals: Refusals


def _uncounted(rows: Iterable[DoubtfulSpan]) -> Iterable[tuple[str, str, bool]]:
    """Yield (trace, span, False) for repeated usage, (trace, span, True) for calls that state none."""
    for trace_id, group in groupby(rows, key=lambda row: row.trace_id):
        spans = list(group)
        nodes = [Node(*span[1:7]) for span in spans]
        counted = set(token_spans(nodes))
        yield from ((trace_id, node.span_id, False) for node in nodes if node.has_usage and node.span_id not in counted)
        calls = {span.span_id for span in spans if span.silent}
        yield from ((trace_id, span_id, True) for span_id in silent_spans(nodes, calls))


class NewScores(NamedTuple):
    """Stored scores: how many, the earliest request, and when the last score was made."""

    n: int
    first: datetime
    last: datetime


def new_scores(read: Read, names: Sequence[str], since: datetime, limit: int) -> NewScores | None:
    """Return what scores were made since then, the oldest `limit` of them; None for none."""
    (found,) = read(
        f"SELECT count(*), min(request_time), max(created_at) FROM ({sql.SCORES_SINCE})",
        {"names": list(names), "since": since, "most": limit},
    ).tuples(NewScores)
    return found if found.n else None


def redecide(
    transaction: Transaction, rules: Sequence[Rule], scales: Mapping[str, tuple[float, str]], *,
    lo: datetime, since: datetime, limit: int,
) -> int:  # fmt: skip
    """Decide the units again whose probability the newer scores raise; returns the number of evaluations.

    The cascade: scores of cheap evaluators move units to strata with a higher rate for costly evaluators. A unit is
    decided once more, with the same u and the stratum's pi; the row is appended, and all other decisions stay. Both
    probabilities depend on the unit and never on u, so both are exact. Before the scores are stored the estimate is
    unbiased too, with wider intervals.
    """
    names, run = scored_evaluators(rules), transaction.execute
    bound = {"lo": lo}
    evaluators = sorted({name for rule in rules if rule.scores for name in rule.evaluators})
    run(sql.FACT_OF_SCORED, bound | {"names": list(names), "since": since, "most": limit})
    run(sql.UNIT_OF_SCORED, bound | {"evaluators": evaluators})
    run(sql.scores_seen(names), bound)
    run(draw_sql(rules, scales))
    run(sql.RAISED, bound | {"evaluators": evaluators, "policies": [rule.policy for rule in rules]})
    count = int(run("SELECT count(*) FROM drawn").value)
    if count:
        run(sql.RETIRE_DECISIONS, bound)
        run(sql.ADD_DECISIONS, {"at": transaction.at})
        run(sql.ADD_NEW_JOBS, bound | {"at": transaction.at})
    return count


def has_quiet_session(read: Read, rules: Sequence[Rule], before: datetime) -> bool:
    """Whether a session whose last turn ended `before` is undecided."""
    return bool(read(f"{sql.QUIET_SESSIONS} LIMIT 1", _session_bounds(read, rules, before)).rows)


def is_marked(read: Read, before: datetime) -> bool:
    """Whether the mark of the last look need not be moved yet."""
    last_look = _last_look(read)
    return last_look is not None and before - last_look < _MARK_LAG


def mark_sessions(transaction: Transaction, before: datetime) -> None:
    """Store that every session which ended `before` was looked at: the next look may follow a long stop."""
    transaction.execute(sql.DELETE_SESSIONS_SEEN)
    transaction.execute(sql.ADD_SESSIONS_SEEN, {"seen": before})


def decide_sessions(
    transaction: Transaction, rules: Sequence[Rule], scales: Mapping[str, tuple[float, str]], *,
    before: datetime, salt: str, limit: int,
) -> int:  # fmt: skip
    """Decide the last turn of at most `limit` sessions, where it ended `before`; returns how many.

    Its case has the turns before as its history. A session that continues is decided again at its next end, and its
    earlier decision leaves the estimates: each session counts once.
    """
    run, bounds = transaction.execute, _session_bounds(transaction.execute, rules, before)
    lo = {"lo": bounds["since"]}
    run(sql.FACT_OF_SESSIONS, bounds | {"most": limit})
    run(sql.UNIT_OF_SESSIONS, {"salt": salt})
    names = scored_evaluators(rules)
    if names:
        run(sql.scores_seen(names), lo)
    run(draw_sql(rules, scales))
    run(sql.RETIRE_SESSIONS, lo)
    run(sql.ADD_DECISIONS, {"at": transaction.at})
    run(sql.ADD_JOBS, {"at": transaction.at})
    return int(run("SELECT count(*) FROM unit").value)


def _session_bounds(read: Read, rules: Sequence[Rule], before: datetime) -> dict[str, datetime | list[str]]:
    evaluators = sorted({name for rule in rules for name in rule.evaluators})
    last_look = max(min(_last_look(read) or before, before), before - _MAX_REACH)
    return {"quiet": before, "since": last_look - _REACH, "evaluators": evaluators}


def _last_look(read: Read) -> datetime | None:
    last_look: datetime | None = read(sql.SESSIONS_SEEN).value
    return last_look
