"""Judges: the LLMs that judged evaluators ask, over litellm or HTTP, with cache, rate limit and budget around them.

evaluator ─▶ CachedJudge ─▶ GatedJudge ─▶ BudgetedJudge ─▶ LLMJudge or HTTPJudge ─▶ provider
                                                                 │
            parsing reads the reply ◀────────── JudgeCall ◀── chat
"""

from ragpulse_evaluators.judges.http import HTTPJudge
from ragpulse_evaluators.judges.litellm import LLMEmbedder, LLMJudge, as_embedder, as_judge
from ragpulse_evaluators.judges.protocol import (
    Embedder,
    Judge,
    Message,
    OfflineEmbedder,
    ScriptedJudge,
    close_judge,
    max_tokens_of,
    model_of,
)
from ragpulse_evaluators.judges.wrappers import (
    Budget,
    BudgetedJudge,
    CachedJudge,
    FileCache,
    Gate,
    GatedJudge,
    JudgeCache,
)

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
