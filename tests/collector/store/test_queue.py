"""The queue before the disk: what is decoded, what is committed together, what is refused."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from ragpulse_collector.records import RawBody
from ragpulse_collector.store import Busy
from ragpulse_collector.store.ingest.queue import BodyItem, WriterQueue


def body(size: int = 10) -> BodyItem:
    """A body of so many bytes."""
    return BodyItem(RawBody(signal="traces", content_type="application/json", body=bytes(size)))


def decode(queue: WriterQueue) -> None:
    """Do what the decoding thread does, once."""
    item = queue.next()
    assert item is not None
    queue.decoded(item)


def queue_of(**options: Any) -> WriterQueue:
    """A queue with room for a hundred bytes a group."""
    return WriterQueue(**{"max_bytes": 1000, "max_items": 10, "group_bytes": 100} | options)


def test_a_group_is_everything_that_is_queued() -> None:
    """It waits until the last of them is decoded, and the next group is decoded while it is committed."""
    queue = queue_of()
    first, second, third = body(), body(), body()
    queue.put(first)
    queue.put(second)
    decode(queue)
    with ThreadPoolExecutor() as pool:
        group = pool.submit(queue.take)
        with pytest.raises(TimeoutError):
            group.result(0.1)
        decode(queue)
        assert group.result() == [first, second]
    queue.put(third)
    decode(queue)
    assert queue.take() == [third]


def test_a_full_group_waits_for_nothing() -> None:
    """A group of full size is taken however much more is queued, and nothing is decoded beyond it."""
    queue = queue_of(group_bytes=20)
    for _ in range(9):
        queue.put(body(25))
    decode(queue)
    assert len(queue.take()) == 1


def test_what_is_decoded_still_counts_against_the_bound() -> None:
    """The bound is on what is not on its way to disk, decoded or not; answered bodies make room."""
    queue = queue_of(max_bytes=30)
    queue.put(body(20))
    decode(queue)
    with pytest.raises(Busy):
        queue.put(body(20))
    queue.take()
    queue.put(body(20))
    item = queue.next()
    assert item is not None
    queue.dropped(item)
    assert queue.backlog().bytes == 0


def test_a_closed_queue_hands_out_what_it_holds() -> None:
    """Then it says that this was all."""
    queue = queue_of(max_bytes=100)
    queue.put(body())
    queue.close()
    with pytest.raises(Busy):
        queue.put(body())
    decode(queue)
    assert len(queue.take()) == 1
    assert (queue.next(), queue.take()) == (None, [])
