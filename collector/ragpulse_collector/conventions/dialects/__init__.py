"""The rules of each dialect, one module each; `DIALECTS` is their order: the first rule that finds a value wins.

The rules of `LAST` are consulted after those of all dialects.
"""

from ragpulse_collector.conventions.dialects import (
    frameworks,
    genai,
    langfuse,
    llama_index,
    mlflow,
    openinference,
    others,
    own,
    traceloop,
    vendors,
)

DIALECTS = (
    own.RULES,
    frameworks.RULES,
    vendors.RULES,
    genai.RULES,
    openinference.RULES,
    traceloop.RULES,
    langfuse.RULES,
    mlflow.RULES,
    llama_index.RULES,
    others.RULES,
    vendors.LAST,
    genai.LAST,
    openinference.LAST,
    traceloop.LAST,
    others.LAST,
)

__all__ = ["DIALECTS"]
