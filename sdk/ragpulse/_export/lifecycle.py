"""Handles exit, SIGTERM, fork and `multiprocessing`, so that each span is delivered once and in time."""

import atexit
import os
import signal
import sys
import threading
from collections.abc import Callable
from typing import Any, Protocol


class Runtime(Protocol):
    """What is notified."""

    def exit(self) -> None:
        """Delivers and stops: the process ends."""
        ...

    def terminate(self) -> None:
        """Delivers now, and from here on each span as it ends."""
        ...

    def forked(self) -> None:
        """Starts afresh in a forked child."""
        ...


class Lifecycle:
    """The hooks of this process. They are registered once and look up the current configuration when they run."""

    def __init__(self, current: Callable[[], Runtime | None]) -> None:
        self._current = current
        self._hooked = False

    def hook(self) -> None:
        """Registers with the interpreter; the second time does nothing."""
        if not self._hooked:
            self._hooked = True
            atexit.register(self._at_exit)
            if hasattr(os, "register_at_fork"):
                os.register_at_fork(after_in_child=self._forked)
        self.watch_sigterm()

    def _at_exit(self) -> None:
        runtime = self._current()
        if runtime is not None:
            runtime.exit()

    def _forked(self) -> None:
        runtime = self._current()
        if runtime is not None:
            runtime.forked()

    def watch_workers(self) -> None:
        """`multiprocessing` ends its workers by `os._exit`, which skips `atexit` but not its own finalizers."""
        util = sys.modules.get("multiprocessing.util")
        if util is not None:
            util.Finalize(None, self._at_exit, exitpriority=0)

    def watch_sigterm(self) -> None:
        """Delivers before a server's own SIGTERM handler runs: uvicorn ends by the signal itself, which skips `atexit`.

        The default disposition, under which no Python code runs, is left as it is.
        """
        if threading.current_thread() is not threading.main_thread():
            return
        previous: Any = signal.getsignal(signal.SIGTERM)
        if not callable(previous) or isinstance(previous, _Chained):
            return
        signal.signal(signal.SIGTERM, _Chained(previous, self._current))


class _Chained:
    """A SIGTERM handler that delivers and then calls the previous one."""

    def __init__(self, previous: Callable[[int, Any], Any], current: Callable[[], Runtime | None]) -> None:
        self._previous = previous
        self._current = current

    def __call__(self, number: int, frame: Any) -> Any:
        runtime = self._current()
        if runtime is not None:
            # On another thread: the interrupted code of this one may hold the queue's lock.
            delivering = threading.Thread(target=runtime.terminate, name="ragpulse-sigterm", daemon=True)
            delivering.start()
            delivering.join(1.0)
        return self._previous(number, frame)
