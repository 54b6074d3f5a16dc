"""The simulations of benchmarks/honesty.py in their short form: what the numbers promise, they keep."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

NAMES = (
    "unweighted",
    "weighted",
    "clustered",
    "unlike",
    "a/a",
    "risk",
    "plan",
    "classes",
    "upstream",
    "day",
    "peeking",
    "labels",
    "decided",
    "by class",
    "salts",
)


@pytest.fixture(scope="module")
def honesty() -> ModuleType:
    """The benchmark as a module."""
    path = Path(__file__).parents[2] / "benchmarks" / "honesty.py"
    spec = importlib.util.spec_from_file_location("benchmark_honesty", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up by name
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", NAMES)
def test_promises_are_kept(honesty: ModuleType, name: str) -> None:
    """Every figure of the simulation lies within its stated bounds."""
    simulate, short, _ = honesty.SIMULATIONS[name]
    broken = [str(promise) for promise in simulate(short) if not promise.holds]
    assert not broken, "\n".join(broken)


def test_every_simulation_is_run_here(honesty: ModuleType) -> None:
    """A new simulation must join the short form."""
    assert set(NAMES) == set(honesty.SIMULATIONS)
