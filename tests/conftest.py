"""Fixtures that several areas share: a loopback model and a whole collector on a free port."""

from __future__ import annotations

import importlib
import importlib.util
import os
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

# What the environment asks of ragpulse, OpenTelemetry or a proxy is no part of any test; these are meant for the tests.
_KEPT = {f"RAGPULSE_{name}" for name in ("SHARED_DATA", "LAKE_PYTHON", "TEST_LAKE", "KILL_ROUNDS", "KILL_SEED")}
for _name in set(os.environ) - _KEPT:
    if _name.startswith(("RAGPULSE_", "OTEL_")) or _name.lower() in ("http_proxy", "all_proxy"):
        del os.environ[_name]

if importlib.util.find_spec("hypothesis"):  # the lake's environment has none
    from hypothesis import HealthCheck, settings

    # The same examples in every run, however slow the machine; `--hypothesis-profile default` looks for new ones.
    settings.register_profile(
        "ragpulse", derandomize=True, database=None, deadline=None, suppress_health_check=[HealthCheck.too_slow]
    )
    settings.load_profile("ragpulse")


# Files that take long and hold few tests; xdist hands out files in order, so that these do not begin last.
_FIRST = (
    "test_lake", "test_lake_contract", "test_importing", "test_isolated", "test_examples", "test_upgrade",
    "test_serve_files", "test_huge_trace", "test_serve", "test_reader_process",
)  # fmt: skip


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files that take long come first."""
    items.sort(key=lambda item: _FIRST.index(item.path.stem) if item.path.stem in _FIRST else len(_FIRST))


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
    """Start whole collectors, each over a file of its own in tmp_path, on free ports, deciding units at once.

    The first one's file is ragpulse.duckdb: two on one file would do each other's work.
    """
    from ragpulse_collector.app import Collector
    from ragpulse_collector.settings import RuleSettings, Settings

    started: list[Collector] = []

    def start(
        *,
        judge: dict[str, Any] | None = None,
        rules: Sequence[tuple[str, str, float]] = (),
        settings: dict[str, Any] | None = None,
        **options: Any,
    ) -> Collector:
        db = tmp_path / f"ragpulse{len(started) or ''}.duckdb"
        given = {"db": str(db), "port": 0, "settle_s": 0.0, "quiet_s": 0.2} | options
        wanted = Settings.model_validate(settings or {})
        wanted = wanted.with_options("collector", given).with_options("judge", judge or {})
        configured = [RuleSettings(name=name, evaluators=(chosen,), rate=rate) for name, chosen, rate in rules]
        started.append(Collector(wanted.model_copy(update={"rule": tuple(configured)})))
        started[-1].start()
        return started[-1]

    yield start
    for running in started:
        running.stop()
