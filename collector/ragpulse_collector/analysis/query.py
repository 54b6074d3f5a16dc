"""What a request covers, typed: a range of request times in buckets, filters, groups. Made once, at the edge."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any, Literal

from ragpulse_collector.analysis.answers import GroupValue
from ragpulse_collector.analysis.selection import (
    MAX_POINTS,
    METADATA,
    Window,
    auto_step,
    dimension,
    duration_s,
    instant,
    iso,
)
from ragpulse_collector.refusals import Invalid
from ragpulse_collector.store import Store
from ragpulse_collector.store.queries.datasets import DATASET_ITEMS
from ragpulse_collector.store.queries.labels import PREFIX as LABEL
from ragpulse_collector.store.queries.labels import holding, is_labelled
from ragpulse_collector.store.queries.traces import Filter, has_label, holds_words
from ragpulse_collector.store.sql.where import members_in
from ragpulse_collector.zones import DAY_S, Day, aligned, days_of, local, utc

_WIDTH = 120
"""The most buckets, where no number is asked for."""
Moment = datetime | timedelta | Literal["now"] | Day | None
"""A time as asked for: absolute, from now (negative), the beginning of a day or week, or not given."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """A range of request times, the requests of it, and what divides them."""

    window: Window
    filters: Filter = field(default_factory=Filter)
    groups: tuple[str, ...] = ()
    """SQL columns."""
    now: datetime
    """The time that relative times were read at."""
    bound: Filter = field(default_factory=Filter)
    """What the caller's key is bound to; a part of `filters`."""
    asked: tuple[Moment, Moment] = (None, None)
    """`from` and `to` as asked for: a range such as `-24h` stays the same question while time passes."""

    @property
    def parameters(self) -> dict[str, Any]:
        """The SQL parameters of window and filters."""
        return {**self.window.parameters, **self.filters.parameters}

    @property
    def whole(self) -> Query:
        """The same requests as one bucket."""
        return replace(self, window=self.window.whole)

    def cut_into(self, width: int) -> Query:
        """Return the same range in at most so many buckets."""
        cut = window_between(*self.asked, now=self.now, step="auto", width=width, zone=self.window.zone)
        return replace(self, window=cut)

    @property
    def before(self) -> Window:
        """The range before, as long as the whole buckets of this one: the same while a bucket lasts.

        Before a local day or week it is the one before, up to the same time of the day.
        """
        window, step = self.window, timedelta(seconds=self.window.step_s)
        length = window.last - window.first
        if step:
            length = max(length // step, 1) * step
        if days := timedelta(days=days_of(self.asked[0])):
            last = min(window.last, window.first + length) if self.asked[1] in (None, "now") else window.last
            first, last = (utc(local(end, window.zone) - days, window.zone) for end in (window.first, last))
            return replace(window.whole, first=first, last=last)
        return replace(window.whole, first=window.first - length, last=window.first)

    def reader(self, store: Store) -> Store:
        """Return the store to read: SQL that a user wrote runs under the limits of users' SQL."""
        return store.limited() if self.filters.written else store


def window_between(
    first: Moment,
    last: Moment,
    *,
    now: datetime,
    back: str = "24h",
    step: float | Literal["auto", "all"] = "all",
    width: int = _WIDTH,
    zone: tzinfo = UTC,
) -> Window:
    """Return the range from `first` (default: `back` before its end) to `last` (default: now), cut into buckets.

    `step` is their length in seconds; `auto` takes the shortest that gives at most `width` buckets. Raises Invalid.
    """
    end = instant(last, now=now, zone=zone) or now
    begin = instant(first, now=now, zone=zone) or end - timedelta(seconds=duration_s(back))
    if not begin < end:
        raise Invalid(f"from ({iso(begin)}) must lie before to ({iso(end)})")
    long = (end - begin).total_seconds()
    step_s = _step_s(step, long, width)
    moving = isinstance(first, timedelta) or (first is None and last in (None, "now"))
    begin = begun(begin, end - begin, zone, days=step_s >= DAY_S) if moving else begin
    end = begun(end, timedelta(seconds=long), zone, days=step_s >= DAY_S) if isinstance(last, timedelta) else end
    return Window(begin, end, step_s, zone)


def begun(edge: datetime, length: timedelta, zone: tzinfo, *, days: bool = False) -> datetime:
    """Return an edge that moves with the clock as the begin of a bucket, at most 1/120 of the range earlier.

    So the range changes when a bucket ends, not at each look. Where the buckets are `days` it begins with a local day.
    """
    return aligned(edge, max(auto_step(length.total_seconds(), _WIDTH), DAY_S if days else 0), zone)


def _step_s(step: float | Literal["auto", "all"], long: float, width: int) -> int:
    if step == "all":
        return 0
    if step == "auto":
        return auto_step(long, min(MAX_POINTS, max(1, width)))
    step_s = max(1, round(step))
    if long / step_s > MAX_POINTS:
        raise Invalid(f"step {step:g} gives more than {MAX_POINTS} points over this range: use a longer one, or auto")
    return step_s


def having(wanted: Mapping[str, Sequence[str]]) -> Filter:
    """Return the filter for traces with one of these values in each column.

    `tag`, `metadata.<key>` and `label:<evaluator>` are columns, too.
    """
    metadata = {name.removeprefix(METADATA): values for name, values in wanted.items() if name.startswith(METADATA)}
    columns = {name: values for name, values in wanted.items() if values and not name.startswith(METADATA)}
    return every((*(_among(name, values) for name, values in columns.items()), _with_metadata(metadata)))


def having_group(group: Mapping[str, GroupValue]) -> Filter:
    """Return the filter for the traces of a group of an answer; a column without a value is no condition."""
    error = group.get("error")
    values = {name: [str(value)] for name, value in group.items() if name != "error" and value not in (None, "")}
    return having(values) & in_error(error if isinstance(error, bool) else None)


def _among(column: str, values: Sequence[str]) -> Filter:
    if column == "label":
        return labelled(values)
    if column.startswith(LABEL):
        name = column.removeprefix(LABEL)
        parameter = f"f_label_{hashlib.md5(name.encode()).hexdigest()[:8]}"
        condition, beside = is_labelled(name, f"${parameter}")
        return Filter(condition, {parameter: list(values)}, labels=(name,), beside_labels=beside)
    if column == "tag":
        return Filter("list_has_any(tags, $f_tag::VARCHAR[])", {"f_tag": list(values)})
    sql = f"list_contains($f_{column}::VARCHAR[], {column}::VARCHAR)"
    return Filter(sql, {f"f_{column}": list(values)}, tests=column == "environment")


def _with_metadata(wanted: Mapping[str, Sequence[str]]) -> Filter:
    parts, parameters = [], dict[str, Any]()
    for number, (key, values) in enumerate(wanted.items()):
        parameters |= {f"key_{number}": key, f"f_key_{number}": list(values)}
        parts.append(f"list_contains($f_key_{number}::VARCHAR[], metadata[$key_{number}::VARCHAR])")
    return Filter(" AND ".join(parts) or "true", parameters)


def in_error(wanted: bool | None) -> Filter:
    """Return the filter for failed requests, or for the others; None keeps all."""
    if wanted is None:
        return Filter()
    return Filter("coalesce(error, false)" if wanted else "NOT coalesce(error, false)")


def labelled(labels: Sequence[str], evaluator: str | None = None) -> Filter:
    """Return the filter for traces with a score that has one of these labels, of one evaluator or of any."""
    if not labels:
        return Filter()
    parameters: dict[str, Any] = {"f_label": list(labels)} | ({"f_label_of": evaluator} if evaluator else {})
    return Filter(has_label("$f_label", "$f_label_of" if evaluator else None), parameters)


def in_dataset(name: str | None) -> Filter:
    """Return the filter for requests with a question of a dataset."""
    if not name:
        return Filter()
    return Filter(f"query IN (SELECT query FROM ({DATASET_ITEMS}) WHERE name = $f_dataset)", {"f_dataset": name})


def with_words(text: str | None) -> Filter:
    """Return the filter of a search: each word occurs in the question, in the answer, or is an id."""
    return Filter(*holds_words(text)) if text else Filter()


def meeting(where: str | None) -> Filter:
    """Return the filter of a condition that a user wrote in SQL; raises Invalid."""
    if not where:
        return Filter()
    (condition, beside), labels = holding(where), members_in(where, "label")
    return Filter(condition, tests="environment" in where, written=True, labels=labels, beside_labels=beside)


def columns_of(names: Iterable[str]) -> tuple[str, ...]:
    """Return the SQL columns of the dimensions to group by; raises Invalid with the possible ones."""
    return tuple(dict.fromkeys(dimension(name.strip()) for name in names if name.strip()))


def every(filters: Iterable[Filter]) -> Filter:
    """Return the filter that keeps what all of these keep."""
    joined = Filter()
    for one in filters:
        joined = joined & one
    return joined
