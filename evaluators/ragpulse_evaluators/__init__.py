"""Evaluators: a case in, a result out; usable without anything else.

    Case ─▶ Evaluator(needs, version, scale) ─▶ EvaluationResult
                 │ asks
                 ▼
               Judge ─▶ JudgeCall (recorded)

`get_evaluator` makes one by name, `evaluate` runs many cases through many evaluators, `summarize` reports the results.
`calibrate`, `meta_evaluate` and `align` measure and improve how well a judge agrees with people.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ragpulse_evaluators.case import Case, Context, Turn
from ragpulse_evaluators.errors import ConfigurationError, EvaluatorError, JudgeError, UnknownEvaluator
from ragpulse_evaluators.evaluator import Estimate, Evaluator, Function, Scale, evaluator
from ragpulse_evaluators.judges.protocol import Judge, ScriptedJudge
from ragpulse_evaluators.judges.providers import HTTPJudge, LLMJudge
from ragpulse_evaluators.judges.wrappers import CachedJudge, FileCache, JudgeCache
from ragpulse_evaluators.registry import Entry, Registry, default_registry, get_evaluator, list_evaluators
from ragpulse_evaluators.result import EvaluationResult, JudgeCall, Outcome
from ragpulse_evaluators.runner import evaluate, evaluate_queries, evaluate_response, evaluate_sync

if TYPE_CHECKING:
    from ragpulse_evaluators.aggregate import play, summarize, tournament
    from ragpulse_evaluators.judged.questions import generate_questions
    from ragpulse_evaluators.loading import configure_evaluators, load
    from ragpulse_evaluators.meta import align, calibrate, meta_evaluate

__all__ = (
    "CachedJudge",
    "Case",
    "ConfigurationError",
    "Context",
    "Entry",
    "Estimate",
    "EvaluationResult",
    "Evaluator",
    "EvaluatorError",
    "FileCache",
    "Function",
    "HTTPJudge",
    "Judge",
    "JudgeCache",
    "JudgeCall",
    "JudgeError",
    "LLMJudge",
    "Outcome",
    "Registry",
    "Scale",
    "ScriptedJudge",
    "Turn",
    "UnknownEvaluator",
    "align",
    "calibrate",
    "configure_evaluators",
    "default_registry",
    "evaluate",
    "evaluate_queries",
    "evaluate_response",
    "evaluate_sync",
    "evaluator",
    "generate_questions",
    "get_evaluator",
    "list_evaluators",
    "load",
    "meta_evaluate",
    "play",
    "summarize",
    "tournament",
)

_LATE = {
    "align": "meta",
    "calibrate": "meta",
    "configure_evaluators": "loading",
    "generate_questions": "judged.questions",
    "load": "loading",
    "meta_evaluate": "meta",
    "play": "aggregate",
    "summarize": "aggregate",
    "tournament": "aggregate",
}


def __getattr__(name: str) -> Any:
    """Import names that need whole families at their first use: a collector starts without them."""
    if name in _LATE:
        return getattr(import_module(f"{__name__}.{_LATE[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
