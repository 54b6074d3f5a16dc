"""An evaluator that only the caller of a replay has: the collector knows its name and version and never runs it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ragpulse_collector.store.queries.runs import Run
from ragpulse_evaluators import Case, Evaluator

_NAME = re.compile(r"\w[\w.:/ -]{0,99}\Z")
_VERSION = re.compile(r"[\w.+-]{1,64}\Z")
_JUDGE = re.compile(r"[^\x00-\x1f\x7f]{1,400}\Z")
_FIELDS = frozenset(Case.model_fields)


class Declared(Evaluator):
    """Stands for the caller's evaluator wherever verdicts are named and counted."""

    def __init__(self, name: str, version: str, judge: str | None, label: str, needs: frozenset[str]) -> None:
        super().__init__()
        self.name, self.version, self.label, self.needs = name, version, label, needs
        self._judge_id = judge

    @property
    def judge_id(self) -> str | None:
        """The judge's id as the caller named it."""
        return self._judge_id

    @property
    def revision(self) -> str:
        """The label or the digest, as the caller named it."""
        return self.label

    @property
    def written(self) -> dict[str, Any]:
        """Its JSON, as `declared` reads it."""
        own = {"evaluator": self.name, "version": self.version, "judge": self._judge_id}
        return {**own, "label": self.label, "needs": sorted(self.needs)}

    def run(self, case: Case) -> Any:
        """Refuse: its code is elsewhere."""
        raise LookupError(f"{self.name} is known to the caller only")


def declared(given: Any) -> Declared:
    """Read `{"evaluator", "version", "judge", "label", "needs"}`; raises ValueError that names the mistake."""
    if not isinstance(given, Mapping):
        raise ValueError("external: an object with evaluator and version is expected")
    needs = given.get("needs") or []
    if not isinstance(needs, list) or not all(isinstance(field, str) and field in _FIELDS for field in needs):
        raise ValueError(f"external: needs is a list of case fields: {', '.join(sorted(_FIELDS))}")
    judge = given.get("judge")
    return Declared(
        _text(given.get("evaluator"), "evaluator", _NAME),
        _text(given.get("version"), "version", _VERSION),
        None if judge is None else _text(judge, "judge", _JUDGE),
        _text(given.get("label", "1"), "label", _VERSION),
        frozenset(needs),
    )


def declared_by(run: Run) -> Declared:
    """The evaluator of a replay that its caller evaluates; raises ValueError for any other replay."""
    if run.external is None:
        raise ValueError(f"replay {run.run_id} is evaluated by the collector, not by its caller")
    return declared(run.external)


def _text(value: Any, what: str, pattern: re.Pattern[str]) -> str:
    if not isinstance(value, str) or not pattern.match(value):
        raise ValueError(f"external: {what} is a short plain text, not {str(value)[:80]!r}")
    return value
