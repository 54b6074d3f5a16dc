"""Simulated figures with their bounds, and the command that prints them."""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Promise:
    """One figure and its bounds."""

    name: str
    value: float
    low: float = -math.inf
    high: float = math.inf
    note: str = ""

    @property
    def holds(self) -> bool:
        """Whether the figure lies in its bounds."""
        return self.low <= self.value <= self.high

    def __str__(self) -> str:
        bounds = f"{'' if self.low == -math.inf else f'>= {self.low:.4g} '}" + (
            "" if self.high == math.inf else f"<= {self.high:.4g}"
        )
        return f"{'ok ' if self.holds else 'BAD'} {self.name:76s} {self.value:9.4f}   {bounds:22s} {self.note}"


Simulate = Callable[[], Iterable[Promise]]


def run(description: str | None, simulations: Mapping[str, tuple[Simulate, Simulate]]) -> int:
    """Run each simulation in its short or its full form, print each figure as it comes, return 1 if one is broken."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--short", action="store_true")
    parser.add_argument("--only", choices=simulations)
    options = parser.parse_args()
    broken = 0
    for name, (short, full) in simulations.items():
        if options.only in (None, name):
            started = time.perf_counter()
            print(f"\n{name}", flush=True)
            for promise in short() if options.short else full():
                print(promise, flush=True)
                broken += not promise.holds
            print(f"{name}: {time.perf_counter() - started:.1f} s", flush=True)
    print(f"\n{broken} promises broken")
    return int(broken > 0)
