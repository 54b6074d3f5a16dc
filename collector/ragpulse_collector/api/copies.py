"""Files of one answer (snapshots, exports): few at a time, beside the database, and gone when they were sent."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from uuid import uuid4

from ragpulse_collector.refusals import Busy
from ragpulse_collector.store.protocol import CannotWrite
from ragpulse_collector.store.reading import make_private

MAX_COPIES = 4
"""Copies that are written or sent at a time; each may need the space of the database."""


class Download:
    """A file of one answer. `discard` deletes it once it was sent; an answer that nobody takes deletes it too."""

    def __init__(self, folder: Path, slots: threading.Semaphore, media_type: str) -> None:
        self.path, self.media_type = folder, media_type
        self._folder: Path | None = folder
        self._slots = slots

    def discard(self) -> None:
        """Delete the file and its folder."""
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None
            self._slots.release()

    __del__ = discard


class Copies:
    """Makes the files of answers in folders below one folder, which the store clears when it is opened."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._slots = threading.BoundedSemaphore(MAX_COPIES)

    def make(self, write: Callable[[Path], Path], media_type: str) -> Download:
        """Return the file that `write` makes in a folder of its own; raises Busy, CannotWrite."""
        if not self._slots.acquire(blocking=False):
            raise Busy(f"{MAX_COPIES} snapshots and exports are being made or sent: try again later", retry_after_s=10)
        download = Download(self._folder / f"answer-{uuid4().hex}", self._slots, media_type)
        try:
            make_private(download.path)
            download.path = write(download.path)
        except OSError as error:
            download.discard()
            raise CannotWrite(f"cannot write a copy: {error.strerror}") from error
        except BaseException:
            download.discard()
            raise
        return download
