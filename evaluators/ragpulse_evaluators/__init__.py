"""Evaluators: a case in, a result out; usable without anything else.

Case ─▶ Evaluator(needs, version, scale) ─▶ EvaluationResult
             │ asks
             ▼
           Judge
"""

from ragpulse_evaluators.case import Case, Context
from ragpulse_evaluators.evaluator import Evaluator, Function, Scale, evaluator
from ragpulse_evaluators.judge import Judge, ScriptedJudge
from ragpulse_evaluators.result import EvaluationResult, JudgeCall, Outcome

__all__ = (
    "Case",
    "Context",
    "EvaluationResult",
    "Evaluator",
    "Function",
    "Judge",
    "JudgeCall",
    "Outcome",
    "Scale",
    "ScriptedJudge",
    "evaluator",
)
