"""What the exporter and its transports hand each other: a batch to send, and what became of it."""

from dataclasses import dataclass

RETRYABLE = frozenset({429, 502, 503, 504})


@dataclass(frozen=True, slots=True)
class Answer:
    """What became of one request."""

    status: int
    """The HTTP status, or 0 when there was no answer."""
    rejected: int = 0
    """Records that the server says it refused, of a request it accepted."""
    message: str = ""
    retry_after: float | None = None

    @property
    def accepted(self) -> bool:
        """Only a 2xx is success: a redirect delivered nothing."""
        return 200 <= self.status < 300

    @property
    def retryable(self) -> bool:
        """Whether the same bytes may be sent again."""
        return self.status == 0 or self.status in RETRYABLE


@dataclass(frozen=True, slots=True)
class Batch:
    """An encoded export request."""

    path: str
    """`traces` or `logs`."""
    body: bytes
    count: int
    gzipped: bool
