"""Judges: the LLMs that judged evaluators ask, over litellm or HTTP, with cache, rate limit and budget around them.

evaluator ─▶ CachedJudge ─▶ GatedJudge ─▶ BudgetedJudge ─▶ LLMJudge or HTTPJudge ─▶ provider
                                                                 │
            parsing reads what tokens finds ◀── JudgeCall ◀── chat
"""
