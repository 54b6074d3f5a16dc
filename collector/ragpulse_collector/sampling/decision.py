"""The decision: everything that settled gets its facts, its draws and its jobs, all at once.

writer: which traces are due ─▶ this thread: which usage repeats another's ─▶ writer: facts, decisions, jobs
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from itertools import groupby
from typing import Any

from ragpulse_collector.conventions.dedupe import Node, silent_spans, token_spans
from ragpulse_collector.sampling import cascade, sessions
from ragpulse_collector.sampling.rule import OFFLINE, Rule, drawn, named_in
from ragpulse_collector.store.protocol import Store, Transaction
from ragpulse_collector.store.queries import deciding as sql
from ragpulse_collector.store.queries import documents, undecided
from ragpulse_collector.store.queries.decisions import force, sampling_number
from ragpulse_collector.store.queries.undecided import Due

Scale = Callable[[str], tuple[float, str]]

_COMMITS = timedelta(seconds=5)
"""A score may become visible so much later than it was made; a later one moves no unit, which biases nothing."""
_LOOK_BACK = timedelta(hours=1)
"""How old scores may be that a new process still heeds."""


def _within(last: datetime | None, now: datetime, interval: timedelta) -> bool:
    """Whether `last` is less than `interval` ago; an instant in the future (the clock was set back) is not."""
    return last is not None and timedelta() <= now - last < interval


def _unscaled(_evaluator: str) -> tuple[float, str]:
    return 1.0, ""


class Sampler:
    """Decides units `settle_s` after their root was stored, or after `quiet_s` without a root; sessions (for rules
    that ask for them) once they have been quiet for `session_quiet_s`.

    `rules` gives the rules in force now; `pi_scale(evaluator)` gives the share of the designed probability that the
    budget allows and why (`budget` or `throttled`). One sampler may run on a store at a time.
    """

    def __init__(
        self,
        store: Store,
        rules: Callable[[], Sequence[Rule]] = lambda: (OFFLINE,),
        *,
        settle_s: float = 2.0,
        quiet_s: float = 30.0,
        session_quiet_s: float = 1800.0,
        salt: str = "ragpulse",
        pi_scale: Scale = _unscaled,
        every_s: float = 2.0,
        most_traces: int = 4_000,
        most_spans: int = 20_000,
    ) -> None:
        self._store = store
        self._rules = rules
        self._settle = timedelta(seconds=settle_s)
        self._quiet = timedelta(seconds=quiet_s)
        self._session_quiet = timedelta(seconds=session_quiet_s)
        self._salt = salt
        self._pi_scale = pi_scale
        self._every = timedelta(seconds=every_s)
        self._most, self._most_spans = most_traces, most_spans
        self._low: datetime | None = None
        self._last: datetime | None = None
        self._heeded: datetime | None = None
        self._sessions_seen: datetime | None = None

    def decide(self, now: datetime) -> int:
        """Decide everything due at `now` (UTC, naive); returns the number of traces decided, and decided once more.

        Made for being called often: it is cheap while nothing came, and decides at most once in `every_s` seconds,
        because planning the statements of a decision takes 30 ms however few traces it is about.
        """
        if self._is_early(now):
            return 0
        decided = self._heed_scores(now) + self._decide_sessions(now)
        if self._is_idle(now):
            return decided
        while True:
            due = self._store.write(partial(self._find_due, now=now)).result()
            if due.traces:
                uncounted = self._uncounted(due)
                self._store.write(partial(self._write, due=due, uncounted=uncounted)).result()
            self._low = due.next_low
            decided += len(due.traces)
            if not due.more:
                if decided:
                    self._last = now
                return decided

    def force(self, trace_id: str, span_id: str | None, evaluators: Sequence[str]) -> int:
        """Queue evaluations that a person asked for; returns the number of new jobs. Raises LookupError.

        They enter estimates only if the draw had chosen them as well.
        """
        u = None if span_id is None else sampling_number(self._salt, trace_id, span_id)
        return self._store.write(lambda t: force(t, trace_id, span_id, evaluators, u=u)).result()

    def _heed_scores(self, now: datetime) -> int:
        """Draw more of the units whose stored scores put them into such a stratum; no rule names scores: nothing."""
        rules = self._rules_of("trace")
        names = named_in(rules)
        if not names or _within(self._heeded, now, self._every):
            return 0
        since = now - _LOOK_BACK if self._heeded is None or self._heeded > now else self._heeded - _COMMITS
        self._heeded, raised = now, 0
        while (news := cascade.news_since(self._store.read, names, since, self._most)) is not None:
            raised += self._redecide(rules, lo=news.first - timedelta(days=1), since=since)
            if news.scores < self._most or news.last <= since:
                break
            since = news.last
        return raised

    def _rules_of(self, unit: str) -> Sequence[Rule]:
        return _of_unit(unit, self._rules())

    def _decide_sessions(self, now: datetime) -> int:
        """Decide the sessions that are quiet; no rule asks for sessions: nothing."""
        rules, quiet = self._rules_of("session"), now - self._session_quiet
        if not rules or _within(self._sessions_seen, now, max(self._every, self._session_quiet / 60)):
            return 0
        self._sessions_seen = now
        if not sessions.any_quiet(self._store.read, rules, quiet):
            if not sessions.is_marked(self._store.read, quiet):
                self._store.write(lambda transaction: sessions.mark(transaction, quiet)).result()
            return 0
        scales, salt, most = self._scales(rules), self._salt, self._most
        return self._store.write(
            lambda transaction: sessions.decide(transaction, rules, scales, quiet=quiet, salt=salt, most=most)
        ).result()

    def _redecide(self, rules: Sequence[Rule], *, lo: datetime, since: datetime) -> int:
        scales, most = self._scales(rules), self._most
        return self._store.write(
            lambda transaction: cascade.redecide(transaction, rules, scales, lo=lo, since=since, most=most)
        ).result()

    def _scales(self, rules: Sequence[Rule]) -> dict[str, tuple[float, str]]:
        return {name: self._pi_scale(name) for rule in rules for name in rule.evaluators}

    def _is_early(self, now: datetime) -> bool:
        return _within(self._last, now, self._every)

    def _is_idle(self, now: datetime) -> bool:
        if self._low is None or self._low > now:
            return False
        return not self._store.read(undecided.NEWS, {"low": self._low}).rows

    def _find_due(self, transaction: Transaction, now: datetime) -> Due:
        return undecided.find_due(
            transaction, self._low, now,
            settle=self._settle, quiet=self._quiet, most=self._most, most_spans=self._most_spans,
        )  # fmt: skip

    def _uncounted(self, due: Due) -> Mapping[str, Sequence[Any]]:
        """Name the spans that do not count as they are; most traces have none and never leave SQL.

        It runs on this thread: bodies are stored meanwhile.
        """
        rows = self._store.read(undecided.DOUBTFUL_USAGE, {"traces": due.traces, **due.bounds()}).rows
        found = [*_uncounted(rows)]
        return {
            "traces": [trace_id for trace_id, _, _ in found],
            "spans": [int(span_id, 16) for _, span_id, _ in found],
            "silent": [silent for _, _, silent in found],
        }

    def _write(self, transaction: Transaction, due: Due, uncounted: Mapping[str, Sequence[Any]]) -> None:
        run, lo = transaction.execute, {"lo": due.lo}
        mine = dict(zip(("traces", "revisions", "known_spans", "known_late"), due.columns, strict=True)) | due.bounds()
        run(sql.DUE_SPANS, mine)
        if run(sql.COUNT_DOUBLES).rows[0][0]:
            for removal in sql.REMOVE_DOUBLES:
                run(removal, lo)
            run(sql.DUE_SPANS, mine)
        run(sql.PLACED)
        run(sql.INSIDE)
        run(sql.UNIT, {"salt": self._salt})
        run(documents.OWN_TEXTS, lo)
        self._find_texts_below(transaction, lo)
        run(sql.UNCOUNTED, uncounted)
        run(sql.FACT)
        if due.late:
            run(sql.RETIRE_FACTS, lo)
        # What was received since then is late, so that it makes a revision.
        run(sql.ADD_FACTS, {"until": due.until})
        self._draw(transaction, due)
        if due.feedback:
            run(sql.SETTLE_FEEDBACK)
        run(undecided.SET_LOW_WATER, {"low": due.next_low.isoformat(sep=" ")})

    def _draw(self, transaction: Transaction, due: Due) -> None:
        lo, at = {"lo": due.lo}, {"at": transaction.at}
        sets = [(since, _of_unit("trace", rules)) for since, rules in self._known_rules(transaction, due.until)]
        # What was decided before keeps the rules of that time: a changed rule must not change the pi of a decision.
        known = sets if due.late else sets[-1:]
        names = named_in([rule for _, rules in known for rule in rules])
        if names:
            transaction.execute(sql.scores_seen(names), lo)
        if len(known) > 1:
            transaction.execute(sql.FIRST_DECIDED, lo | {"times": [since for since, _ in known]})
            transaction.execute(sql.NOTHING_DRAWN)
            for (place,) in transaction.execute(sql.RULE_SETS).rows:
                rules = known[max(0, place)][1]
                if rules:
                    keep = sql.decided_under(max(0, place))
                    transaction.execute(drawn(rules, self._scales(rules), keep=keep, more=True))
        else:
            rules = known[-1][1]
            transaction.execute(drawn(rules, self._scales(rules)) if rules else sql.NOTHING_DRAWN)
        if due.late:
            transaction.execute(sql.ORPHANED, lo)
            transaction.execute(sql.RETIRE_DECISIONS, lo)
        transaction.execute(sql.ADD_DECISIONS, at)
        if due.late:
            transaction.execute(sql.ADD_NEW_JOBS, lo | at)
        else:
            transaction.execute(sql.ADD_JOBS, at)

    def _known_rules(self, transaction: Transaction, at: datetime) -> list[tuple[datetime, Sequence[Rule]]]:
        """Every set of rules that decided, with the time from which on; the last is in force and is kept if new."""
        now = tuple(self._rules())
        stored = [json.loads(value) for (value,) in transaction.execute(sql.KNOWN_RULES).rows]
        sets: list[tuple[datetime, Sequence[Rule]]] = [
            (datetime.fromisoformat(one["at"]), [Rule.from_json(rule) for rule in one["rules"]]) for one in stored
        ]
        current = [rule.as_json() for rule in now]
        if not stored or stored[-1]["rules"] != json.loads(json.dumps(current)):
            sets.append((at, now))
            value = {"at": at.isoformat(timespec="microseconds"), "rules": current}
            transaction.execute(sql.ADD_RULES, {"value": json.dumps(value)})
        return [*sets[:-1], (sets[-1][0], now)]

    def _find_texts_below(self, transaction: Transaction, lo: dict[str, Any]) -> None:
        """Give units whose own span has no query or response those of the spans below."""
        if not transaction.execute(documents.COUNT_SILENT).rows[0][0]:
            transaction.execute(documents.NOTHING_BELOW)
            return
        transaction.execute(documents.BELOW, lo)
        transaction.execute(documents.REFRESH_TEXTS, lo)
        transaction.execute(documents.ADD_TEXTS, lo)


def _uncounted(rows: Iterable[tuple[Any, ...]]) -> Iterable[tuple[str, str, bool]]:
    """Yield (trace, span, False) for usage that repeats another's, (trace, span, True) for calls that state none."""
    for trace_id, group in groupby(rows, key=lambda row: row[0]):
        spans = list(group)
        nodes = [Node(*span[1:7]) for span in spans]
        counted = set(token_spans(nodes))
        yield from ((trace_id, node.span_id, False) for node in nodes if node.has_usage and node.span_id not in counted)
        calls = {span[1] for span in spans if span[7]}
        yield from ((trace_id, span_id, True) for span_id in silent_spans(nodes, calls))


def _of_unit(unit: str, rules: Iterable[Rule]) -> Sequence[Rule]:
    return [rule for rule in rules if rule.unit == unit]
