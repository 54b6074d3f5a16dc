"""What the exporter and its transport exchange: a destination, a batch, the answer to it, and the counts."""

import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from ipaddress import ip_address
from typing import Literal
from urllib.parse import urlsplit

RETRYABLE = frozenset({429, 502, 503, 504})
Gzip = Literal["sent", "kept", "never"]
"""Which batches are compressed: all, those that wait for an absent collector, or none."""


def is_loopback(url: str) -> bool:
    """Whether a URL leads to this computer."""
    host = urlsplit(url).hostname or ""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def host_of(address: str) -> str:
    """The host of a URL or `host:port`, in lower case; `*.example.org` becomes `.example.org`, for all below it."""
    return (urlsplit(address if "//" in address else f"//{address}").hostname or "").removeprefix("*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Destination:
    """Where records go, and which setting said so."""

    traces_url: str
    logs_url: str
    headers: Mapping[str, str]
    chosen_by: str
    """argument, RAGPULSE_URL, OTEL_* or default."""
    gzip: Gzip = "sent"
    timeout: float = 10.0
    certificate: str | None = None
    client_certificate: tuple[str, str | None] | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Stats:
    """What became of every finished span and score of this process."""

    exported: int = 0
    """Accepted by the collector."""
    dropped: int = 0
    """Never sent: the queue was full, or the process ended."""
    rejected: int = 0
    """Sent, and refused by the collector."""
    pending: int = 0
    """Queued in memory."""
    spooled: int = 0
    """Written to disk while the collector was away, in all."""
    unsampled: int = 0
    """Calls that were not recorded because their caller's `traceparent` ends in `-00`."""
    reasons: Mapping[str, int] = field(default_factory=dict)
    """Why: counts of what was dropped or rejected."""
    last_error: str = ""


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """The outcome of one request."""

    status: int
    """The HTTP status, or 0 when there was no answer."""
    rejected: int = 0
    """Records that the server refused, of a request it accepted."""
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
class EncodedBatch:
    """An encoded export request."""

    path: str
    """`traces` or `logs`."""
    body: bytes
    count: int
    gzipped: bool

    def compressed(self) -> "EncodedBatch":
        """The same records in fewer bytes."""
        return self if self.gzipped else replace(self, body=zlib.compress(self.body, 1, 31), gzipped=True)
