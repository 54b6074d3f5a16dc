"""What the collector can be asked: each operation has a path, typed parameters, a scope and a function."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import anyio.to_thread

from ragpulse_collector.api.handlers.data import Download
from ragpulse_collector.api.params import Caller, Params
from ragpulse_collector.api.replies import plain
from ragpulse_collector.settings import Scope
from ragpulse_collector.store import Busy, StoreError
from ragpulse_dashboards import ApiError

__all__ = ["ApiError", "Operation", "Operations"]

Run = Callable[[Any], Any]
_PLACEHOLDER = re.compile(r"\{(\w+)\}")


@dataclass(frozen=True, kw_only=True)
class Operation:
    """One thing the API does."""

    method: Literal["GET", "POST", "PUT", "DELETE"]
    path: str
    """Below `/api/v1/`; `{name}` parts become parameters."""
    slashes: bool = False
    """Whether the placeholder takes texts with slashes, too."""
    run: Run
    """Called with an instance of `params` on a worker thread (or awaited, where it is a coroutine function)."""
    summary: str
    params: type[Params] = Params
    answer: Any = None
    """The type of the JSON answer, as the OpenAPI document describes it."""
    files: tuple[str, ...] = ()
    """The media types of answers that are files."""
    scope: Scope = "read"
    bound: bool = False
    """Whether keys that are bound to services or environments may ask: only where the answer holds theirs alone."""
    outside: Callable[[Any], None] | None = None
    """Called first when the request comes from outside this process; raises ValueError for what may not."""

    @property
    def pattern(self) -> re.Pattern[str]:
        """The path as a regular expression."""
        return re.compile(
            _PLACEHOLDER.sub(rf"(?P<\1>{'.' if self.slashes else '[^/]'}+)", self.path) + r"\Z", re.DOTALL
        )

    @property
    def in_path(self) -> list[str]:
        """The parameters that stand in the path."""
        return _PLACEHOLDER.findall(self.path)


class Operations:
    """The table of operations; a value, built once by the app."""

    def __init__(self, operations: Iterable[Operation]) -> None:
        self._operations = tuple(operations)
        self._patterns = [(operation, operation.pattern) for operation in self._operations]

    def __iter__(self) -> Iterator[Operation]:
        return iter(self._operations)

    def from_outside(self) -> Operations:
        """Return the table as HTTP and the pages may use it: each operation refuses what may not come from outside."""
        return Operations(map(_checked, self._operations))

    async def call(self, operation: str, params: Mapping[str, Any]) -> Any:
        """Run `"GET traces/abc"` and return what its JSON holds; raises ApiError."""
        method, _, path = operation.partition(" ")
        for candidate, pattern in self._patterns:
            match = pattern.match(path) if candidate.method == method else None
            if match:
                answer = await perform(candidate, {**params, **match.groupdict()})
                return answer if isinstance(answer, Download) else plain(answer)
        raise ApiError(404, f"no operation {operation!r}")


def _checked(operation: Operation) -> Operation:
    check = operation.outside
    if check is None:
        return operation

    def run(params: Params) -> Any:
        check(params)
        return operation.run(params)

    return replace(operation, run=run)


async def perform(operation: Operation, given: Mapping[str, Any], caller: Caller | None = None) -> Any:
    """Read the parameters and run one operation off the event loop; every refusal becomes an ApiError."""
    if caller is not None and caller.binding is not None and not operation.bound:
        raise ApiError(403, f"the key {caller.actor!r} is bound to services or environments: not for {operation.path}")
    params = operation.params.parse(given, caller)
    try:
        if inspect.iscoroutinefunction(operation.run):
            return await operation.run(params)
        return await anyio.to_thread.run_sync(operation.run, params)
    except _REFUSALS as error:
        status = next(status for kind, status in _STATUS if isinstance(error, kind))
        again = error.retry_after_s if isinstance(error, Busy) else None
        raise ApiError(status, str(error.args[0]) if error.args else str(error), retry_after_s=again) from error


_STATUS: tuple[tuple[type[Exception], int], ...] = (
    (Busy, 503),
    (StoreError, 400),
    (ValueError, 400),
    (LookupError, 404),
    (TimeoutError, 504),
    (PermissionError, 409),
)
_REFUSALS = tuple(kind for kind, _ in _STATUS)
