"""ragpulse: observability for RAG applications.

    your function ──decorator──▶ span ──one background thread──▶ collector (OTLP/HTTP)

Decorate, `configure()`, and look at the collector's page. Nothing here ever changes what your functions do: arguments,
results, exceptions and signatures stay as they are, and a failure of ours is logged, not raised.
"""

from ._config import configure, doctor, feedback, last_trace, stats, tracer_provider
from ._decorators import CurrentSpan, agent, current_span, embedding, llm, rag, reranker, retriever, span, tool
from ._export.batch import Stats
from ._instrument import instrument
from ._local import Local, local
from ._propagation import attributes, extract, inject, traced_executor, variant
from ._reading.usage import Usage
from ._runtime import flush, shutdown

__all__ = [
    "CurrentSpan",
    "Local",
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
    "instrument",
    "last_trace",
    "llm",
    "local",
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
