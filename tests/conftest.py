"""Fixtures that several areas share: a loopback model and a whole collector on a free port."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import pytest
from loopback import LoopbackModel

if TYPE_CHECKING:
    from ragpulse_collector.app import Collector


# anyio imports its parts when they are first used, and pytest rewrites a plugin's modules as they are imported: in a
# server's thread that runs into CPython's check of ast.parse in two threads at once (SystemError). So: all of it now.
for _part in pkgutil.walk_packages(anyio.__path__, "anyio."):
    if "_trio" not in _part.name:
        importlib.import_module(_part.name)


@pytest.fixture
def anyio_backend() -> str:
    """Run async tests on asyncio only."""
    return "asyncio"


@pytest.fixture
def loopback_model() -> Iterator[Callable[[Callable[[str], str]], LoopbackModel]]:
    """Start OpenAI-compatible servers that answer by a function of the prompt."""
    started: list[LoopbackModel] = []

    def start(answer: Callable[[str], str]) -> LoopbackModel:
        started.append(LoopbackModel(answer))
        return started[-1]

    yield start
    for model in started:
        model.close()


@pytest.fixture
def collector(tmp_path: Path) -> Iterator[Callable[..., Collector]]:
    """Start whole collectors over files in tmp_path, on free ports, deciding units at once."""
    from ragpulse_collector.app import Collector
    from ragpulse_collector.settings import RuleSettings, Settings

    started: list[Collector] = []

    def start(
        *, judge: dict[str, Any] | None = None, rules: Sequence[tuple[str, str, float]] = (), **options: Any
    ) -> Collector:
        given = {"db": str(tmp_path / "ragpulse.duckdb"), "port": 0, "settle_s": 0.0, "quiet_s": 0.2} | options
        settings = Settings().with_options("collector", given).with_options("judge", judge or {})
        configured = [RuleSettings(name=name, evaluators=(chosen,), rate=rate) for name, chosen, rate in rules]
        settings = settings.model_copy(update={"rule": tuple(configured)})
        started.append(Collector(settings))
        started[-1].start()
        return started[-1]

    yield start
    for running in started:
        running.stop()
