"""The operations of the API, a module for each noun. To add one, write a function here: nothing else names it."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from pkgutil import iter_modules

from ragpulse_collector.api.operations import Operation, declared


def all_operations() -> Iterator[Operation]:
    """Yield the operations of all modules."""
    for module in iter_modules(__path__):
        yield from declared(import_module(f"{__name__}.{module.name}"))
