"""Decodes bodies on a thread of its own, while DuckDB writes without Python's lock."""

from __future__ import annotations

import logging
from collections.abc import Callable

from ragpulse_collector.records import Batch, DecodeError, RawBody
from ragpulse_collector.store.connection import is_short_of_memory
from ragpulse_collector.store.prices import Prices
from ragpulse_collector.store.protocol import Busy
from ragpulse_collector.store.queue import BodyItem, Item, WriterQueue

_log = logging.getLogger(__name__)


class Decoder:
    """Runs until the queue is closed and drained; a body that cannot be decoded is answered here and fails alone."""

    def __init__(self, queue: WriterQueue, decode: Callable[[RawBody], Batch], price: Prices | None) -> None:
        self._queue = queue
        self._decode = decode
        self._price = price

    def run(self) -> None:
        """Take item after item; pass on what is ready to be committed."""
        while item := self._queue.next():
            if self._is_ready(item):
                self._queue.decoded(item)
            else:
                self._queue.dropped(item)
            del item  # while this thread waits for the next, the body must not stay in memory

    def _is_ready(self, item: Item) -> bool:
        """Drop what was cancelled, decode what is a body."""
        if not item.future.set_running_or_notify_cancel():
            return False
        if not isinstance(item, BodyItem):
            return True
        try:
            item.batch = self._decode(item.body)
            if self._price is not None:
                for spans in item.batch.spans:
                    self._price.settle(spans)
        except DecodeError as error:
            # The caught exception would keep this frame alive, and with it the body, until garbage is collected.
            item.future.set_exception(DecodeError(str(error)))
        except Exception as error:  # noqa: BLE001 - foreign bytes: a decoder's bug must cost one body, not the writer
            item.future.set_exception(_refusal(error))
        else:
            return True
        return False


def _refusal(error: Exception) -> Exception:
    """A body that memory was too short for may be sent again; one that a decoder fails on may not."""
    if is_short_of_memory(error):
        _log.error("a body could not be decoded: too little memory")
        return Busy("the collector has too little memory to decode this body")
    _log.error("a body could not be decoded", exc_info=error)
    return DecodeError(f"the body could not be decoded: {type(error).__name__}")
