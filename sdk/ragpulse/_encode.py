"""Finished records of several kinds and origins -> the bodies of export requests."""

from collections.abc import Callable
from typing import Protocol

from ._content import ContentPolicy
from ._guard import GUARD
from ._wire import request


class Record(Protocol):
    """Something finished that can encode itself."""

    def size(self) -> int:
        """Bytes it holds in memory, about."""
        ...


Origin = tuple[str, bytes, bytes]
"""Path (`traces` or `logs`), encoded resource and encoded scope of a record."""
Encoder = Callable[[list[Record]], list[tuple[str, bytes, int]]]


def encoder(part: Callable[[Record, ContentPolicy], tuple[Origin, bytes]], policy: ContentPolicy) -> Encoder:
    """An encoder of mixed records: `part` tells each one's origin and bytes; they are grouped by origin.

    A record that cannot be encoded is left out, so that it does not poison its batch.
    """

    def encode(records: list[Record]) -> list[tuple[str, bytes, int]]:
        groups: dict[Origin, list[bytes]] = {}
        for record in records:
            try:
                origin, data = part(record, policy)
            except Exception as error:  # noqa: BLE001 - one bad record must not take its batch along
                GUARD.limiter.warn("encode", f"a span could not be encoded: {error!r}", exc_info=True)
                continue
            groups.setdefault(origin, []).append(data)
        requests: dict[str, tuple[list[bytes], int]] = {}
        for (path, resource, scope), data_list in groups.items():
            bodies, count = requests.get(path, ([], 0))
            bodies.append(request(resource, scope, data_list))
            requests[path] = (bodies, count + len(data_list))
        return [(path, b"".join(bodies), count) for path, (bodies, count) in requests.items()]

    return encode
