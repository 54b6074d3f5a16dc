"""Memory that was needed and is not any more, handed back to the system; nothing happens but on Linux with glibc."""

from __future__ import annotations

import ctypes
import gc
import sys
from collections.abc import Iterator
from pathlib import Path

_LARGE = 8 * 2**20
"""Bytes of code from which on a library is worth the look."""
_DONTNEED = 4
"""MADV_DONTNEED of linux/mman.h."""
_ARENA_MAX, _MMAP_THRESHOLD, _TRIM_THRESHOLD = -8, -3, -1
"""M_ARENA_MAX, M_MMAP_THRESHOLD and M_TRIM_THRESHOLD of malloc.h."""
_ARENAS, _ALONE, _SPARE = 2, 2 * 2**20, 8 * 2**20
"""How many heaps; from how many bytes on memory is asked for alone, so that it goes back when it is freed; and how much
may be free at the end of a heap until `give_back`. Asking anew for each body's columns took a twentieth of the time."""


def share_heaps() -> None:
    """Let all threads share two heaps; to be called before there are threads.

    By default glibc makes up to eight for each core, and every one keeps what its threads' peaks took; after the first
    large body it takes all others from them as well.
    """
    libc = _glibc()
    if libc is not None:
        libc.mallopt(_ARENA_MAX, _ARENAS)
        libc.mallopt(_MMAP_THRESHOLD, _ALONE)
        libc.mallopt(_TRIM_THRESHOLD, _SPARE)


def give_back() -> None:
    """Return freed heap, and the pages of large libraries' code, most of which only their start-up runs.

    Code is never written to: a page that is needed again comes back from the system's cache. Garbage in cycles goes
    first: decoding keeps Python from looking for any before there are 50,000 objects more than at the last look.
    """
    gc.collect()
    libc = _glibc()
    if libc is None:
        return
    libc.malloc_trim(0)
    for start, size in _large_code():
        libc.madvise(ctypes.c_void_p(start), ctypes.c_size_t(size), _DONTNEED)


def _glibc() -> ctypes.CDLL | None:
    libc = ctypes.CDLL(None) if sys.platform.startswith("linux") else None
    return libc if hasattr(libc, "malloc_trim") else None


def _large_code() -> Iterator[tuple[int, int]]:
    """Address and size of every mapped file's code that is large: readable, executable, not writable."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        span, access, _, _, _, *file = line.split(maxsplit=5)
        start, _, end = span.partition("-")
        size = int(end, 16) - int(start, 16)
        if file and file[0].startswith("/") and access.startswith("r-x") and size >= _LARGE:
            yield int(start, 16), size
