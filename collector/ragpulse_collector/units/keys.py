"""The keys of scores: the same unit, case and evaluator have one verdict."""

from __future__ import annotations

import json

from ragpulse_collector.units.cases import Unit
from ragpulse_evaluators import Case, Evaluator
from ragpulse_evaluators.digest import sha256_hex


def score_key(unit: Unit, case: Case, evaluator: Evaluator) -> str:
    """Return the key of a verdict: the same unit, case, evaluator, version and judge give the same key.

    Latency, tokens and cost enter only where the evaluator needs them, so that a late span does not ask a judge again
    about unchanged texts.
    """
    return ScoreKeys()(unit, case, evaluator)


class ScoreKeys:
    """`score_key` for many evaluators of the same cases: equal parts are digested once."""

    def __init__(self) -> None:
        self._digests: dict[tuple[Unit, frozenset[str]], str] = {}

    def __call__(self, unit: Unit, case: Case, evaluator: Evaluator) -> str:
        """Return the key of the evaluator's verdict on the case of this unit."""
        excluded = _FIGURES - evaluator.needs
        if not case.history or (evaluator.judge_id is None and "history" not in evaluator.needs):
            excluded |= {"history"}  # only judges and evaluators that need it use it
        digest = self._digest(unit, case, excluded)
        parts = (unit.trace_id, unit.span_id, digest, evaluator.name, evaluator.version, evaluator.judge_id or "")
        return sha256_hex("\n".join(parts))

    def _digest(self, unit: Unit, case: Case, excluded: frozenset[str]) -> str:
        key = (unit, excluded)
        if key not in self._digests:
            content = case.model_dump(mode="json", exclude=set(excluded))
            self._digests[key] = sha256_hex(json.dumps(content, sort_keys=True, separators=(",", ":")))
        return self._digests[key]


_FIGURES = frozenset({"latency_s", "input_tokens", "output_tokens", "cost_usd", "metadata", "trace"})
