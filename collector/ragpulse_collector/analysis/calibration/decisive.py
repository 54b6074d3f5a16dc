"""The figure that decides about quality: the judge's, or the one that people's labels correct."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ragpulse_collector.analysis.calibration import (
    JudgedUnit,
    JudgeError,
    LabelledJudge,
    correct,
    error_of,
    labelled_judges,
)
from ragpulse_collector.analysis.quality import Bucket
from ragpulse_collector.analysis.query import Query
from ragpulse_collector.store import Store
from ragpulse_collector.store.queries.scores import has_drawn_labels
from ragpulse_collector.words import level
from ragpulse_evaluators.statistics import Interval, hajek, minus

__all__ = ["by_labels", "decisive"]

_ENOUGH = 60
"""The fewest sampled labels for a decision."""
_SURE = 0.999
"""The confidence of each of the two means that show another mix: a false sign costs the correction."""


def decisive(
    store: Store, query: Query, bucket: Bucket, *, evaluator: str, family: str = "quality", corrected: bool = True
) -> Bucket:
    """Return the bucket to compare with a limit, corrected by people's labels where they suffice.

    It is corrected where 60 sampled labels of this version and mix exist. The mix is another one where the judge's mean
    in the window surely differs from that over the labelled answers: then its error there may differ, too. `corrected`
    false keeps the judge's figure. The missing answers widen at the end.
    """
    judged = Interval.of(bucket.estimate) if bucket.bounded else None
    if family != "quality" or judged is None:
        return bucket
    if not has_drawn_labels(store, evaluator):
        return replace(bucket, correction=bucket.judge and f"0 of {_ENOUGH} labels until correction")
    judge = labelled_judges(store, query, evaluator).get(bucket.series, LabelledJudge(bucket, ()))
    return by_labels(bucket, judged, judge, corrected=corrected)


def by_labels(bucket: Bucket, judged: Interval, judge: LabelledJudge, *, corrected: bool = True) -> Bucket:
    """Return a bucket with this judged figure, corrected by the labels of its judge where they suffice."""
    labels, error, moved_mix = len(judge.drawn), error_of(judge, least=2), _moved_mix(judge.drawn, bucket)
    applies = corrected and labels >= _ENOUGH and moved_mix is None
    told = _in_words(labels, judged, error, moved_mix, applies=applies)
    return replace(correct(bucket, error if applies else None), correction=told)


def _in_words(labels: int, judge: Interval, error: JudgeError | None, moved_mix: str | None, *, applies: bool) -> str:
    if error is None:
        few = f"{labels} of {_ENOUGH} labels until correction"
        return few if labels < _ENOUGH else f"not corrected: {labels} labels of too few users"
    if applies:
        return f"corrected by {labels} labels, the judge alone says {_level(judge)}"
    would = _level(error(judge))
    if labels < _ENOUGH:
        return f"{labels} of {_ENOUGH} labels until correction: by them the judge's error could make it {would}"
    return moved_mix or f"by the judge alone; corrected by {labels} labels it is {would}"


def _level(interval: Interval) -> str:
    return level(interval.value, interval.lo, interval.hi)


def _moved_mix(labelled: Sequence[JudgedUnit], bucket: Bucket) -> str | None:
    """Return that the judge's mean in the window surely differs from that over the labelled answers."""
    pi, users = [unit.pi * (unit.label_pi or 1.0) for unit in labelled], [unit.cluster for unit in labelled]
    then = Interval.of(hajek([unit.value for unit in labelled], pi, clusters=users, confidence=_SURE))
    now = Interval.of(bucket.estimate_at(_SURE))
    if now is None or then is None:
        return None
    difference = minus(now, then)
    if difference.lo <= 0.0 <= difference.hi:
        return None
    return f"not corrected: labels are of another mix, where the judge's mean is {then.value:.2f}, not {now.value:.2f}"
