"""The queue before the disk: what is decoded, what is committed together, what is refused."""

from __future__ import annotations

import pytest

from ragpulse_collector.records import RawBody
from ragpulse_collector.store import Busy
from ragpulse_collector.store.queue import BodyItem, WriterQueue


def body(size: int = 10) -> BodyItem:
    """A body of so many bytes."""
    return BodyItem(RawBody(signal="traces", content_type="application/json", body=bytes(size)))


def decode(queue: WriterQueue) -> None:
    """Do what the decoding thread does, once."""
    item = queue.next()
    assert item is not None
    queue.decoded(item)


def test_a_group_is_worth_a_commit_when_half_of_what_waits_is_decoded() -> None:
    """Of four bodies two are committed together while the other two are decoded."""
    queue = WriterQueue(max_bytes=1000, max_items=10, group_bytes=100)
    bodies = [body() for _ in range(4)]
    for item in bodies:
        queue.put(item)
    decode(queue)
    assert not queue.has_group()
    decode(queue)
    assert queue.take() == bodies[:2]
    assert queue.backlog().bytes == 20


def test_a_whole_group_waits_for_nothing() -> None:
    """However much more waits, a group of full size goes."""
    queue = WriterQueue(max_bytes=1000, max_items=10, group_bytes=20)
    for _ in range(9):
        queue.put(body(25))
    decode(queue)
    assert len(queue.take()) == 1


def test_what_is_decoded_still_counts_against_the_bound() -> None:
    """The bound is on what is not on its way to disk, decoded or not; answered bodies make room."""
    queue = WriterQueue(max_bytes=30, max_items=10, group_bytes=100)
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
    queue = WriterQueue(max_bytes=100, max_items=10, group_bytes=100)
    queue.put(body())
    queue.close()
    with pytest.raises(Busy):
        queue.put(body())
    decode(queue)
    assert len(queue.take()) == 1
    assert (queue.next(), queue.take()) == (None, [])
