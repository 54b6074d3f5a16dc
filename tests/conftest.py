"""Fixtures of several areas: a loopback model and a whole collector on a free port."""

from __future__ import annotations

import contextlib
import gc
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


# anyio imports its modules at their first use, and pytest rewrites a plugin's modules during their import. In a
# server's thread that meets CPython's check against ast.parse in two threads (SystemError): import all modules here.
for _part in pkgutil.walk_packages(anyio.__path__, "anyio."):
    if "_trio" not in _part.name:
        importlib.import_module(_part.name)

# Tests do not depend on variables of ragpulse, OpenTelemetry or a proxy, but for these, which configure the tests.
_TEST_VARIABLES = {
    f"RAGPULSE_{name}" for name in ("SHARED_DATA", "LAKE_PYTHON", "TEST_LAKE", "KILL_ROUNDS", "KILL_SEED")
}
for _name in set(os.environ) - _TEST_VARIABLES:
    if _name.startswith(("RAGPULSE_", "OTEL_")) or _name.lower() in ("http_proxy", "all_proxy"):
        del os.environ[_name]

if importlib.util.find_spec("hypothesis"):  # absent in the lake's environment
    from hypothesis import HealthCheck, settings
    from made_once import share

    share()

    # The same examples in every run, however slow the machine; `--hypothesis-profile default` looks for new ones.
    settings.register_profile(
        "ragpulse", derandomize=True, database=None, deadline=None, suppress_health_check=[HealthCheck.too_slow]
    )
    settings.load_profile("ragpulse")


# As the collector does. A worker of the tests holds thousands of tests and every client library: to look through all of
# them for garbage took a tenth of the CPU time.
gc.set_threshold(50_000, 10, 10)

# Slow files. xdist assigns files in order, so these start early, and short ones are left for the end: the workers end
# together.
_FIRST = (
    "test_lake", "test_lake_contract", "test_importing", "test_browser", "test_serve", "test_interaction",
    "test_security", "test_tasks", "test_isolated", "test_judge_check", "test_upgrade", "test_demo", "test_judges",
    "test_change_one_thing", "test_daylight", "test_examples", "test_real_disks", "test_users", "test_headline",
    "test_lake_upgrade", "test_store_kill", "test_docs", "test_versions", "test_one_incident",
    "test_serve_files", "test_huge_trace", "test_reader_process", "test_pipeline", "test_instrument",
)  # fmt: skip


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run slow files first."""
    items.sort(key=lambda item: _FIRST.index(item.path.stem) if item.path.stem in _FIRST else len(_FIRST))


def pytest_collection_finish() -> None:
    """Let collections of garbage walk only what the tests make, not the tests and their imports."""
    gc.collect()
    gc.freeze()


def pytest_unconfigure() -> None:
    """Let the interpreter free everything at its end: what stays is told as a leak by DuckDB's bindings."""
    gc.unfreeze()


@pytest.fixture
def anyio_backend() -> str:
    """Run async tests on asyncio only."""
    return "asyncio"


@pytest.fixture(scope="module")
def small_heap() -> None:
    """Let a collection of garbage walk the objects of this module alone: those of all tests before take 0.4 s."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def loopback_model() -> Iterator[Callable[[Callable[[str], str]], LoopbackModel]]:
    """Start OpenAI-compatible servers that answer by a function of the prompt."""
    models: list[LoopbackModel] = []

    def start(answer: Callable[[str], str]) -> LoopbackModel:
        models.append(LoopbackModel(answer))
        return models[-1]

    yield start
    for model in models:
        model.close()


@pytest.fixture
def collector(tmp_path: Path) -> Iterator[Callable[..., Collector]]:
    """Start whole collectors, each over a file of its own in tmp_path, on free ports, deciding units at once.

    The first file is ragpulse.duckdb. Two collectors on one file would run each other's jobs.
    """
    with collectors_in(tmp_path) as start:
        yield start


@pytest.fixture(scope="module")
def shared_collector(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Collector]]:
    """Start collectors for all tests of a module, which only read."""
    with collectors_in(tmp_path_factory.mktemp("shared")) as start:
        yield start


@contextlib.contextmanager
def collectors_in(folder: Path) -> Iterator[Callable[..., Collector]]:
    """Start whole collectors over files in `folder`, and stop them in the end."""
    from stored_units import create_empty

    from ragpulse_collector.app import Collector
    from ragpulse_collector.settings import RuleSettings, Settings

    collectors: list[Collector] = []

    def start(
        *,
        judge: dict[str, Any] | None = None,
        rules: Sequence[tuple[str, str, float]] = (),
        settings: dict[str, Any] | None = None,
        **options: Any,
    ) -> Collector:
        db = folder / f"ragpulse{len(collectors) or ''}.duckdb"
        if "db" not in options:
            create_empty(db)
        defaults = {"db": str(db), "port": 0, "settle_s": 0.0, "quiet_s": 0.2} | options
        base = Settings.model_validate(settings or {})
        base = base.with_options("collector", defaults).with_options("judge", judge or {})
        configured = tuple(RuleSettings(name=name, evaluators=(each,), rate=rate) for name, each, rate in rules)
        collectors.append(Collector(base.model_copy(update={"rule": configured, "offline": not configured})))
        collectors[-1].start()
        return collectors[-1]

    yield start
    for each in collectors:
        each.stop()
