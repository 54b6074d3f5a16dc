"""What the exporter and its transports hand each other: a batch to send, and what became of it."""

import zlib
from dataclasses import dataclass, replace
from typing import Literal

RETRYABLE = frozenset({429, 502, 503, 504})
Gzip = Literal["sent", "kept", "never"]
"""What is compressed: each batch that is sent, only those that are kept while the collector is away, or none."""


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

    def compressed(self) -> "Batch":
        """The same records in fewer bytes."""
        return self if self.gzipped else replace(self, body=zlib.compress(self.body, 1, 31), gzipped=True)
