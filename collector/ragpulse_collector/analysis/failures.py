"""What went wrong: the share of requests of each kind of failure, with its interval, beside the range before."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ragpulse_collector.analysis.answers import GroupValue, extended, uncertain
from ragpulse_collector.analysis.quality import Figures
from ragpulse_collector.analysis.query import Query
from ragpulse_collector.analysis.selection import grouping
from ragpulse_collector.analysis.traffic import by_user
from ragpulse_collector.store import Store
from ragpulse_collector.store.estimates import KEPT
from ragpulse_collector.store.queries.failures import FAILURE, KINDS, LEAD
from ragpulse_collector.store.queries.labels import label_column
from ragpulse_collector.store.queries.traces import of_range, public_name
from ragpulse_evaluators.statistics import Uncertain


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureShare(Figures):
    """The share of the requests that fail in one way; a request has one kind, the first that holds."""

    kind: str
    words: str
    """What such requests are: `had no context`."""
    previous: Uncertain | None = None
    """The share in the range before; null without requests there."""
    group: Mapping[str, GroupValue]


@dataclass(frozen=True, slots=True, kw_only=True)
class Failures:
    """What went wrong in a range, the largest share first."""

    lead: str
    """The evaluator that tells what is unsupported."""
    failures: Sequence[FailureShare]
    other_groups: int
    """Groups beyond the largest, which are one: `(other)`."""


def what_went_wrong(store: Store, query: Query) -> Failures:
    """Answer `GET failures`: kinds that no request has are left out."""
    groups, others = grouping(store, query.window.whole, query.filters, query.groups)
    query = replace(query, groups=groups)
    now = _shares(store, query.whole, list(KINDS))
    found = [kind for kind in KINDS if any(key[0] == kind for key, figures in now.items() if figures.value)]
    before = _shares(store, replace(query, window=query.before.whole), found) if found else {}
    names = [public_name(group) for group in groups]
    failures = [
        extended(
            FailureShare,
            figures,
            kind=str(kind),
            words=KINDS[str(kind)].words,
            previous=_as_uncertain(before.get((kind, *group))),
            group=dict(zip(names, group, strict=True)),
        )
        for (kind, *group), figures in now.items()
        if figures.value
    ]
    failures.sort(key=lambda one: (str(one.group), -(one.value or 0.0), [*KINDS].index(one.kind)))
    return Failures(lead=store.read(f"SELECT {LEAD}").value, failures=failures, other_groups=others)


def _as_uncertain(figures: Figures | None) -> Uncertain | None:
    return None if figures is None else uncertain(figures)


def _shares(store: Store, query: Query, kinds: Sequence[str]) -> dict[tuple[GroupValue, ...], Figures]:
    """Return the share of each kind, by kind and group."""
    failure = label_column(FAILURE)
    requests = f"SELECT *, {KEPT} AS pi, {failure} AS found {of_range(query.filters, (*query.groups, failure))}"
    source = (
        "SELECT *, (found IS NOT DISTINCT FROM kind)::INTEGER AS y"
        f" FROM ({requests}), (SELECT unnest($kinds::VARCHAR[]) AS kind)"
    )
    found = by_user(store, source, ("kind", *query.groups), {**query.parameters, "kinds": kinds})
    return {key: Figures.of_sums(sums) for key, sums in found.items()}
