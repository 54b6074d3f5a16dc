"""ragpulse: observability for RAG applications.

    your function ──decorator──▶ span ──one background thread──▶ collector (OTLP/HTTP)

Decorate, `configure()`, and look at the collector's page. Nothing here ever changes what your functions do: arguments,
results, exceptions and signatures stay as they are, and a failure of ours is logged, not raised.
"""

from ._configure import configure, feedback, flush, shutdown
from ._current import CurrentSpan, current_span
from ._decorators import agent, embedding, llm, rag, reranker, retriever, span, tool
from ._export import Stats
from ._propagate import attributes, extract, inject, traced_executor, variant
from ._report import doctor, stats, tracer_provider
from ._usage import Usage

__all__ = [
    "CurrentSpan",
    "Stats",
    "Usage",
    "agent",
    "attributes",
    "configure",
    "current_span",
    "doctor",
    "embedding",
    "extract",
    "feedback",
    "flush",
    "inject",
    "llm",
    "rag",
    "reranker",
    "retriever",
    "shutdown",
    "span",
    "stats",
    "tool",
    "traced_executor",
    "tracer_provider",
    "variant",
]
