"""The rules of each dialect, one module each; `DIALECTS` is their order: the first rule that finds a value wins.

The rules of `LAST` are consulted after those of all dialects.
"""

from ragpulse_collector.conventions.dialects import (
    frameworks,
    genai,
    langfuse,
    mlflow,
    openinference,
    others,
    own,
    traceloop,
)

DIALECTS = (
    own.RULES,
    frameworks.RULES,
    genai.RULES,
    openinference.RULES,
    traceloop.RULES,
    langfuse.RULES,
    mlflow.RULES,
    others.RULES,
    genai.LAST,
    openinference.LAST,
    traceloop.LAST,
    others.LAST,
)

__all__ = ["DIALECTS"]
