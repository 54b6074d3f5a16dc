"""Memory that starting took and running does not need, handed back to the system."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator
from pathlib import Path

_LARGE = 8 * 2**20
"""Bytes of code from which on a library is worth the look."""
_DONTNEED = 4
"""MADV_DONTNEED of linux/mman.h."""


def give_back() -> None:
    """Return freed heap, and the pages of large libraries' code, most of which only their start-up runs.

    Code is never written to: a page that is needed again comes back from the system's cache. Nothing happens where the
    system is not Linux with glibc.
    """
    if not sys.platform.startswith("linux"):
        return
    libc = ctypes.CDLL(None)
    if not hasattr(libc, "malloc_trim"):
        return
    libc.malloc_trim(0)
    for start, size in _large_code():
        libc.madvise(ctypes.c_void_p(start), ctypes.c_size_t(size), _DONTNEED)


def _large_code() -> Iterator[tuple[int, int]]:
    """Address and size of every mapped file's code that is large: readable, executable, not writable."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        span, access, _, _, _, *file = line.split(maxsplit=5)
        start, _, end = span.partition("-")
        size = int(end, 16) - int(start, 16)
        if file and file[0].startswith("/") and access.startswith("r-x") and size >= _LARGE:
            yield int(start, 16), size
