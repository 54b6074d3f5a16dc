"""How a process ends or multiplies: exit, SIGTERM, fork, `multiprocessing`. Each time spans arrive once, and soon."""

import atexit
import os
import signal
import sys
import threading
from collections.abc import Callable
from typing import Any, Protocol

EXIT_SECONDS = 1.5


class Living(Protocol):
    """What has to be told."""

    def shutdown(self, timeout: float) -> bool:
        """Deliver within `timeout` and stop."""
        ...

    def terminating(self) -> None:
        """SIGTERM came: deliver now, and from here on at once."""
        ...

    def forked(self) -> None:
        """This is a forked child."""
        ...


class Lifecycle:
    """The hooks of this process, made once; they look up what is current when they are called."""

    def __init__(self, current: Callable[[], Living | None]) -> None:
        self._current = current
        self._hooked = False

    def hook(self) -> None:
        """Register with the interpreter; the second time does nothing."""
        if not self._hooked:
            self._hooked = True
            atexit.register(self._at_exit)
            if hasattr(os, "register_at_fork"):
                os.register_at_fork(after_in_child=self._forked)
        self.watch_sigterm()

    def _at_exit(self) -> None:
        living = self._current()
        if living is not None:
            living.shutdown(EXIT_SECONDS)

    def _forked(self) -> None:
        living = self._current()
        if living is not None:
            living.forked()

    def watch_workers(self) -> None:
        """`multiprocessing` ends its workers by `os._exit`, which skips `atexit` but not its own finalizers."""
        util = sys.modules.get("multiprocessing.util")
        if util is not None:
            util.Finalize(None, self._at_exit, exitpriority=0)

    def watch_sigterm(self) -> None:
        """Join a server's own SIGTERM handler: uvicorn ends by the signal itself, which skips `atexit`.

        The default disposition, under which no Python code runs, is left as it is.
        """
        if threading.current_thread() is not threading.main_thread():
            return
        previous: Any = signal.getsignal(signal.SIGTERM)
        if not callable(previous) or isinstance(previous, _Joined):
            return
        signal.signal(signal.SIGTERM, _Joined(previous, self._current))


class _Joined:
    """A SIGTERM handler that delivers first and then does what was there before."""

    def __init__(self, previous: Callable[[int, Any], Any], current: Callable[[], Living | None]) -> None:
        self._previous = previous
        self._current = current

    def __call__(self, number: int, frame: Any) -> Any:
        living = self._current()
        if living is not None:
            # On another thread: this one may have been interrupted while it holds the queue's lock.
            delivering = threading.Thread(target=living.terminating, name="ragpulse-sigterm", daemon=True)
            delivering.start()
            delivering.join(1.0)
        return self._previous(number, frame)
