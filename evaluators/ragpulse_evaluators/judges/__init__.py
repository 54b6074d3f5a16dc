"""Judges: the LLMs that judged evaluators ask, over litellm or HTTP, with cache, rate limit and budget around them.

evaluator ─▶ CachedJudge ─▶ GatedJudge ─▶ BudgetedJudge ─▶ LLMJudge or HTTPJudge ─▶ provider
                                                                 │
            parsing reads the reply ◀────────── JudgeCall ◀── chat
"""

from ragpulse_evaluators.judges.cache import CachedJudge, FileCache, JudgeCache
from ragpulse_evaluators.judges.embedders import Embedder, OfflineEmbedder
from ragpulse_evaluators.judges.http import HTTPJudge
from ragpulse_evaluators.judges.limits import Budget, BudgetedJudge, Gate, GatedJudge
from ragpulse_evaluators.judges.litellm import LLMEmbedder, LLMJudge, as_embedder, as_judge
from ragpulse_evaluators.judges.protocol import Judge, Message, ScriptedJudge, close_judge, max_tokens_of, model_of

__all__ = (
    "Budget",
    "BudgetedJudge",
    "CachedJudge",
    "Embedder",
    "FileCache",
    "Gate",
    "GatedJudge",
    "HTTPJudge",
    "Judge",
    "JudgeCache",
    "LLMEmbedder",
    "LLMJudge",
    "Message",
    "OfflineEmbedder",
    "ScriptedJudge",
    "as_embedder",
    "as_judge",
    "close_judge",
    "max_tokens_of",
    "model_of",
)
