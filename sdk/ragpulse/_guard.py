"""Keeps failures of the SDK out of the application.

Every entry from the application's code into the SDK passes `contain`: by `containing`, or itself where it takes
microseconds. With `strict=True`, and under pytest unless
`strict=False`, the failure is raised again so that a mistake in a capture function is found where it is written.
"""

import logging
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager

logger = logging.getLogger("ragpulse")
_QUIET_SECONDS = 60.0


class Limiter:
    """Logs one message of each kind a minute, with how many were held back."""

    def __init__(self, quiet_seconds: float = _QUIET_SECONDS) -> None:
        self._quiet = quiet_seconds
        self._logged: dict[str, tuple[float, int]] = {}

    def warn(self, kind: str, message: str, *, exc_info: BaseException | None = None) -> None:
        """Logs a warning, unless one of the same kind was logged within the last minute."""
        now = time.monotonic()
        last_time, suppressed = self._logged.get(kind, (None, 0))
        if last_time is not None and now - last_time < self._quiet:
            self._logged[kind] = (last_time, suppressed + 1)
            return
        self._logged[kind] = (now, 0)
        suffix = f" (and {suppressed} more like it)" if suppressed else ""
        logger.warning("ragpulse: %s%s", message, suffix, exc_info=exc_info)


class FailureGuard:
    """Turns a failure inside the SDK into a rate-limited warning, or in strict mode into the exception."""

    def __init__(self) -> None:
        self.strict: bool | None = None
        self.limiter = Limiter()

    def is_strict(self) -> bool:
        """Whether failures are raised: with `strict=True`, or under pytest unless `strict=False`."""
        return "PYTEST_CURRENT_TEST" in os.environ if self.strict is None else self.strict

    def contain(self, action: str, error: Exception) -> None:
        """Logs that `action` failed with `error`; raises the error again in strict mode."""
        if self.is_strict():
            raise error
        self.limiter.warn(action, f"{action} failed; your function is not affected", exc_info=error)

    @contextmanager
    def containing(self, action: str) -> Iterator[None]:
        """Contains what the block raises: the boundary to the application, or to another package."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 - see above
            self.contain(action, error)


GUARD = FailureGuard()
