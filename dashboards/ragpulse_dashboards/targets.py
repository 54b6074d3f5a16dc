"""Targets as charts and their tables show them: a line to stay above or below, and a word for each bucket."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ragpulse_dashboards.formats import by_unit, snippet

__all__ = ["Bound", "bounds_of"]


@dataclass(frozen=True, kw_only=True)
class Bound:
    """One side of a target on one metric."""

    metric: str
    limit: float
    at_least: bool
    text: str
    """`at least 0.900`, and where it holds if not everywhere."""

    def judged(self, row: Mapping[str, Any]) -> str:
        """Whether a table row meets it: by its whole interval where it has one, else by its value."""
        edges = [row[name] for name in ("lo", "value", "hi") if row.get(name) is not None]
        if row.get("value") is None:
            return ""
        beyond = [edge >= self.limit if self.at_least else edge <= self.limit for edge in (edges[0], edges[-1])]
        return "met" if all(beyond) else "undecided" if any(beyond) else "missed"


def bounds_of(targets: Sequence[Mapping[str, Any]], metrics: Sequence[str], unit: str) -> list[Bound]:
    """The bounds of `GET targets` that are about these metrics."""
    return [
        Bound(metric=one["metric"], limit=float(one[side]), at_least=side == "min", text=_text(one, side, unit))
        for one in targets
        if one.get("metric") in metrics
        for side in ("min", "max")
        if one.get(side) is not None
    ]


def _text(target: Mapping[str, Any], side: str, unit: str) -> str:
    where = f" where {snippet(target['where'], 40)}" if target.get("where") else ""
    return f"{'at least' if side == 'min' else 'at most'} {by_unit(target[side], unit)}{where}"
