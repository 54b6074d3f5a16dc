"""One line of the registry: how an evaluator is made and what a person should know before using it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ragpulse_evaluators.evaluator import CostClass, Evaluator, Scale

__all__ = ("Entry",)


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A registered evaluator. Each family lists its own in `ENTRIES: tuple[Entry, ...]`."""

    name: str
    factory: Callable[..., Evaluator]
    """Takes the parameters as keywords. One named `judge`, `embedder` or `resolve` is filled by the registry
    (`resolve(name, **params) -> Evaluator` for evaluators made of others)."""
    needs: tuple[str, ...]
    """Case fields without which the result is skipped, with the default parameters."""
    scale: Scale
    cost_class: CostClass = "free"
    source: str
    """Paper or project whose definition is followed."""
    description: str
    """One sentence a user understands."""
    example: str
    """A line of Python that evaluates to the evaluator, e.g. `get_evaluator("ndcg", k=5)`."""
