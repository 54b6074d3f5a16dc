"""Made-up answers become the types that the collector's operations answer with, so that a wrong field fails."""

import re
import tempfile
from collections.abc import Sequence
from dataclasses import is_dataclass
from functools import cache
from typing import Any, get_args

from pydantic import TypeAdapter

from ragpulse_collector.app import Collector
from ragpulse_collector.settings import Settings

TIME = re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+Z")


def typed(operation: str, answer: Any) -> Any:
    """The answer of an operation as its type; raises ValidationError where a field is missing, unknown or wrong.

    Answers of operations whose type is no dataclass stay as they are.
    """
    kind = next((kind for pattern, kind in _kinds() if pattern.match(operation)), None)
    return answer if kind is None else kind.validate_python(_without_zone(answer), extra="forbid")


@cache
def _kinds() -> Sequence[tuple[re.Pattern[str], TypeAdapter[Any]]]:
    with tempfile.TemporaryDirectory() as folder:
        collector = Collector(Settings().with_options("collector", {"db": f"{folder}/ragpulse.duckdb", "port": 0}))
        try:
            table = tuple(collector.components.operations)
        finally:
            collector.stop()
    return [(one.pattern, TypeAdapter(one.answer)) for one in table if _is_dataclass(one.answer)]


def _is_dataclass(kind: Any) -> bool:
    return all(map(is_dataclass, get_args(kind) or (kind,)))


def _without_zone(value: Any) -> Any:
    """Times are UTC without a zone in the types, and end with Z in JSON."""
    if isinstance(value, dict):
        return {key: _without_zone(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_without_zone(item) for item in value]
    return value.removesuffix("Z") if isinstance(value, str) and TIME.fullmatch(value) else value
