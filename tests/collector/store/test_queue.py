"""The queue before the disk: what is decoded, what is committed together, what is refused."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

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


def queue_of(**options: Any) -> WriterQueue:
    """A queue with room for a hundred bytes a group."""
    return WriterQueue(**{"max_bytes": 1000, "max_items": 10, "group_bytes": 100} | options)


def test_a_group_is_worth_a_commit_when_half_is_decoded() -> None:
    """The other half is decoded while it is committed."""
    queue = queue_of()
    bodies = [body() for _ in range(4)]
    for item in bodies:
        queue.put(item)
    decode(queue)
    assert not queue.has_group()
    decode(queue)
    assert queue.take() == bodies[:2]
    assert queue.backlog().bytes == 20
    queue.written()
    decode(queue)
    assert queue.take() == [bodies[2]]


def test_nothing_is_decoded_while_rows_are_made() -> None:
    """And nothing is begun when a group is waited for and there is one."""
    queue = queue_of()
    for _ in range(3):
        queue.put(body())
    decode(queue)
    decode(queue)
    assert queue.may_decode()  # nobody has asked for the group yet
    queue.take()
    assert not queue.may_decode()
    queue.written()
    assert queue.may_decode()


def test_a_group_waits_for_what_is_being_decoded() -> None:
    """It would not be quicker without: who makes the rows and who decodes need the same lock."""
    queue = queue_of()
    first, second = body(), body()
    queue.put(first)
    decode(queue)
    queue.put(second)
    begun = queue.next()
    with ThreadPoolExecutor() as pool:
        group = pool.submit(queue.take)
        assert begun is second
        queue.decoded(second)
        assert group.result() == [first, second]


def test_one_sender_is_waited_for_by_nobody() -> None:
    """A body alone is a group."""
    queue = queue_of()
    for _ in range(3):
        item = body()
        queue.put(item)
        decode(queue)
        assert queue.take() == [item]
        queue.written()


def arrive(queue: WriterQueue, count: int) -> list[BodyItem]:
    """Put so many bodies and decode them."""
    bodies = [body() for _ in range(count)]
    for item in bodies:
        queue.put(item)
    for _ in bodies:
        decode(queue)
    return bodies


def test_a_dear_commit_takes_all_that_is_there() -> None:
    """Half is not enough."""
    queue = queue_of(again_s=60)
    queue.put(body())
    queue.put(body())
    decode(queue)
    assert not queue.has_group()
    decode(queue)
    assert len(queue.take()) == 2


def test_a_dear_commit_waits_for_who_was_answered_together() -> None:
    """After two comes a group of three, if only a third sender is there by then."""
    queue = queue_of(again_s=60)
    arrive(queue, 2)
    queue.take()
    queue.written()
    with ThreadPoolExecutor() as pool:
        group = pool.submit(queue.take)
        bodies = [*arrive(queue, 1), *arrive(queue, 2)]
        assert group.result() == bodies


def test_who_does_not_come_again_is_not_waited_for_long() -> None:
    """One of two senders is done: the other is answered alone."""
    queue = queue_of(again_s=0.001)
    arrive(queue, 2)
    queue.take()
    queue.written()
    bodies = arrive(queue, 1)
    assert queue.take() == bodies


def test_a_whole_group_waits_for_nothing() -> None:
    """However much more waits, a group of full size goes."""
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
    queue.written()
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
    queue.written()
    assert (queue.next(), queue.take()) == (None, [])
