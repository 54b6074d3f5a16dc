"""A week in words: one line of figures, then what changed and why, and what was not measured."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from ragpulse_dashboards.formats import counted, estimate, percent, snippet, unit_of, usd
from ragpulse_dashboards.headline import Statement, headline
from ragpulse_dashboards.site import View
from ragpulse_dashboards.times import clock, iso
from ragpulse_dashboards.words import called

if TYPE_CHECKING:
    from ragpulse_collector.analysis.attribution import FailureCell
    from ragpulse_collector.analysis.overview import Headline
    from ragpulse_collector.analysis.quality.coverage import CoverageRow
    from ragpulse_collector.monitoring.digest import Digest

__all__ = ["is_quiet", "lines"]

_PLACES: Final = (("retrieval", "Retrieval"), ("generation", "Generation"))


def is_quiet(week: Digest) -> bool:
    """Return whether nothing changed, nothing is urgent, and nothing was out of order."""
    verdicts = (row.verdict in ("better", "worse") for row in week.overview.quality)
    moved = (week.silence, *week.appeared, *week.vanished, *verdicts)
    return not any(moved) and not any(statement.tone for statement in _statements(week))


def lines(week: Digest) -> list[str]:
    """Return the digest, a fact on each line; a quiet week has two."""
    facts = [*(statement.text for statement in _statements(week)), *_failures(week), *_silent(week), *_asked(week)]
    facts += _measured(week)
    told = [_figures(week), *([" ".join(facts)] if is_quiet(week) else facts)]
    return [_of_weeks(line) for line in told]


def _of_weeks(line: str) -> str:
    """Return a sentence about a range as one about a week; white space of names from spans makes no new line."""
    return " ".join(line.split()).replace("the range before", "the week before").replace("this range", "this week")


def _statements(week: Digest) -> list[Statement]:
    view = View(start=iso(week.from_), end=iso(week.to))
    return headline(view, week.overview, week.targets)


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


def _failures(week: Digest) -> Iterator[str]:
    """`Retrieval fails for 3.0 % of answers (before 3.1 %). Generation fails for 12 % of answers (before 4 %).`"""
    if len(week.failures) == 2:
        now, before = week.failures
        yield " ".join(
            f"{word} fails for {percent(_share(now, kind))} of answers (before {percent(_share(before, kind))})."
            for kind, word in _PLACES
        )


def _share(cell: FailureCell, kind: str) -> float | None:
    kinds = (cell.good, cell.retrieval, cell.generation, cell.refusal_right, cell.refusal_wrong, cell.unknown)
    return float(getattr(cell, kind)) / sum(kinds) if sum(kinds) else None


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
