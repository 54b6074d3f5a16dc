"""Handles exit, SIGTERM, fork and `multiprocessing`: each span is delivered once, and in time."""

import atexit
import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol


class Running(Protocol):
    """What ends with the process: the current configuration."""

    def exit(self) -> None:
        """Delivers and stops."""

    def forked(self) -> None:
        """Starts anew in a forked child."""

    def terminate(self, timeout: float = 0.0, /) -> None:
        """Delivers what is finished, and from then on each span when it ends."""


class Lifecycle:
    """The hooks of this process. They are registered once and look up the current configuration when they run."""

    def __init__(self, current: Callable[[], Running | None]) -> None:
        self._current = current
        self._is_hooked = self._is_fork = False

    def hook(self) -> None:
        """Registers with the interpreter; the second time does nothing."""
        if not self._is_hooked:
            self._is_hooked = True
            atexit.register(self._at_exit)
            if hasattr(os, "register_at_fork"):
                os.register_at_fork(after_in_child=self._forked)
        self.watch_sigterm()

    def _at_exit(self) -> None:
        runtime = self._current()
        if runtime is not None:
            runtime.exit()

    def _forked(self) -> None:
        self._is_fork = True
        runtime = self._current()
        if runtime is not None:
            runtime.forked()

    def watch_workers(self) -> None:
        """`multiprocessing` ends its workers by `os._exit`, which skips `atexit` but not its own finalizers."""
        util = sys.modules.get("multiprocessing.util")
        if util is not None:
            util.Finalize(None, self._at_exit, exitpriority=0)

    def ends_without_notice(self) -> bool:
        """Whether this is a worker that its parent ends by an unhandled SIGTERM, or that leaves by `os._exit`."""
        process = sys.modules.get("multiprocessing.process")
        is_child = self._is_fork or _was_forked() or (process is not None and process.parent_process() is not None)
        return is_child and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL

    def watch_sigterm(self) -> bool:
        """Delivers from a server's SIGTERM on: uvicorn ends by the signal itself, which skips `atexit`.

        The default disposition, under which no Python code runs, is left as it is. Returns False where a server's
        handler is in place and this thread may not replace it: the endpoints of an application may all run in threads.
        """
        previous: Any = signal.getsignal(signal.SIGTERM)
        if not callable(previous) or isinstance(previous, _Chained):
            return True
        if threading.current_thread() is not threading.main_thread():
            return False
        signal.signal(signal.SIGTERM, _Chained(previous, self._current))
        return True


def _was_forked() -> bool:
    """Whether this process was forked before it imported us, as a child of RQ is: on Linux, PF_FORKNOEXEC is set."""
    try:
        with open("/proc/self/stat", encoding="utf-8", errors="replace") as stat:
            return int(stat.read().rpartition(")")[2].split()[6]) & 0x40 != 0
    except (OSError, ValueError, IndexError):
        return False


@dataclass(eq=False)
class _Chained:
    """A SIGTERM handler that hurries delivery and then calls the previous one; it never raises and never blocks.

    Under an event loop it delivers at once: uvicorn's loop and the process end a tenth of a second later.
    """

    _previous: Callable[[int, Any], Any]
    _current: Callable[[], Running | None]

    def __call__(self, number: int, frame: Any) -> Any:
        with contextlib.suppress(Exception):
            runtime = self._current()
            if runtime is not None:
                runtime.terminate()
                asyncio = sys.modules.get("asyncio")
                if asyncio is not None:
                    asyncio.get_running_loop().call_soon_threadsafe(runtime.terminate, 0.25)
        return self._previous(number, frame)
