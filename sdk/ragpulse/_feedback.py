"""A person's score for a trace: an OTLP log record through the same pipe."""

from dataclasses import dataclass
from typing import Any

from . import attributes as names
from ._content import ContentPolicy
from ._wire import log_record


@dataclass(frozen=True, slots=True)
class Score:
    """One finished score, ready for the exporter."""

    trace_number: int
    span_number: int
    time_ns: int
    name: str
    score: float
    comment: str | None

    def size(self) -> int:
        """Bytes it holds in memory, about."""
        return 300 + len(self.comment or "")

    def encode(self, policy: ContentPolicy) -> bytes:
        """The score as an OTLP log record, its comment redacted like any text."""
        attributes: dict[str, Any] = {
            names.EVALUATION_NAME: self.name,
            names.EVALUATION_SCORE: self.score,
            names.SCORE_SOURCE: names.SCORE_SOURCE_HUMAN,
        }
        if self.comment and policy.capture:
            attributes[names.EVALUATION_EXPLANATION] = policy.redact(self.comment, [])
        return log_record(self.time_ns, names.EVALUATION_EVENT, self.trace_number, self.span_number, attributes)
