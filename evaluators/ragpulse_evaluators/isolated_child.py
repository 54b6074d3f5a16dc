"""The process in which a user's evaluator runs: cases come in, results go out, until the input ends.

frame = length (8 bytes, big-endian) and payload; requests: the setup (JSON), then cases (pickle)
    answers: an empty one, or why there is no evaluator; then results (JSON)
"""

from __future__ import annotations

import asyncio
import faulthandler
import json
import math
import os
import pickle
import signal
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, BinaryIO

from ragpulse_evaluators.entry import Entry
from ragpulse_evaluators.evaluator import Evaluator
from ragpulse_evaluators.result import EvaluationResult

__all__ = ("Source", "main", "read_frame", "write_frame")

Source = tuple[str, str]
"""("file", path) or ("module", name): where the evaluator is loaded from."""
_GRACE_S = 5.0
"""Beyond the time limit, after which the process ends itself: the parent that would kill it may be gone."""


def read_frame(stream: Any) -> bytes | None:
    """Return the next payload; None at the end of the stream."""
    head = stream.read(8)
    if len(head) < 8:
        return None
    size = int.from_bytes(head, "big")
    payload: bytes = stream.read(size)
    return payload if len(payload) == size else None


def write_frame(stream: Any, payload: bytes) -> None:
    """Write one payload."""
    stream.write(len(payload).to_bytes(8, "big"))
    stream.write(payload)
    stream.flush()


def main() -> None:
    """Score cases until the parent closes the pipe."""
    requests, answers = _own_pipes()
    setup = json.loads(read_frame(requests) or "null")
    if setup is None:
        return
    limits = setup["limits"]
    _restrict(limits["memory_mb"])
    try:
        evaluator = _made(setup)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - the boundary: the parent reports why there is none
        write_frame(answers, f"{type(error).__name__}: {error}".encode())
        return
    write_frame(answers, b"")
    with asyncio.Runner() as runner:
        while (case := read_frame(requests)) is not None:
            _end_in(limits["time_s"] + _GRACE_S)
            result = runner.run(evaluator(pickle.loads(case)))
            _end_in(0)
            full = result.status == "error" and "MemoryError" in (result.explanation or "").partition(":")[0]
            write_frame(answers, _answer(result, limits["memory_mb"] if full else None))
            if full:
                return  # what filled it may still be held; the next case gets a new process


def _own_pipes() -> tuple[BinaryIO, BinaryIO]:
    """Take standard input and output for the frames; what the evaluator prints goes to standard error."""
    requests, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    return requests, answers


def _restrict(memory_mb: int) -> None:
    """Limit the memory, let the collector go first, and leave the end to the parent (a signal may go to the group)."""
    faulthandler.enable()
    for name in ("SIGINT", "SIGTERM"):
        signal.signal(getattr(signal, name), signal.SIG_IGN)
    if os.name != "posix":
        return
    import resource

    os.nice(5)
    with suppress(ValueError, OSError):  # a system that does not know this limit, or sets a lower one
        resource.setrlimit(resource.RLIMIT_AS, (memory_mb * 2**20, memory_mb * 2**20))


def _end_in(seconds: float) -> None:
    """Let the system end this process after so many seconds, even where Python does not run; 0: never."""
    if hasattr(signal, "alarm"):
        signal.alarm(math.ceil(seconds))


def _made(setup: Mapping[str, Any]) -> Evaluator:
    kind, place = setup["source"]
    from ragpulse_evaluators.loading import load, load_module  # imports all families, which the parent may not need

    found: dict[str, Evaluator | Entry] = {item.name: item for item in (load if kind == "file" else load_module)(place)}
    item = found[setup["name"]]
    return item.factory(**setup["params"]) if isinstance(item, Entry) else item


def _answer(result: EvaluationResult, memory_mb: int | None) -> bytes:
    if memory_mb is not None:
        told = f"{result.explanation} (beyond the memory limit of {memory_mb} MB)"
        result = result.model_copy(update={"explanation": told})
    return result.model_dump_json(fallback=str).encode()
