"""Is the corpus found guilty: a re-chunking among three other changes, and 20 outdated documents of 500?

    python benchmarks/corpus.py [--runs 40]

Each run plants 800 requests of its own: from noon on every search uses index i2, and a third of the answers is bad
whatever they rest on. At the same time half of the requests get prompt v7, a third another model, a fifth come from a
new service; these harm nothing. Counted is how often Why? names the index first, and, without a new index, how often
it names anything.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from contextlib import closing
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[1] / "tests"), str(Path(__file__).parents[1] / "tests/collector/analysis")]

import test_stale as aged  # noqa: E402 - the tests are no package
import test_why as planted  # noqa: E402 - the tests are no package
from stored_units import open_store  # noqa: E402


def parts(*, is_guilty: bool, seed: int) -> list[tuple[str, str]]:
    """What Why? names, the largest part first."""
    draw = random.Random(seed)
    bad = {number for number in range(800) if draw.random() < 0.33}

    def change(number: int, one: planted.Request) -> planted.Request:
        one = planted.harmless(number, one)
        if not is_guilty:
            return one
        one = planted.replace(one, index="i2")
        return planted.bad(one) if number in bad else one

    with tempfile.TemporaryDirectory() as folder, closing(open_store(Path(folder))) as store:
        planted.plant(store, change, seed=seed)
        found = planted.why(store, "quality:check")["parts"]
    return [(part["attribute"], part["value"]) for part in sorted(found, key=lambda one: -abs(one["amount"]))]


def precision(seed: int) -> float:
    """The share of the ten stalest documents that are outdated, beside 20 that are as old and right."""
    outdated = set(range(0, 500, 25))
    with tempfile.TemporaryDirectory() as folder, closing(open_store(Path(folder))) as store:
        aged.plant(store, outdated, seed=seed)
        found = aged.stale(store, limit=10)
    return sum(int(one["id"].removeprefix("doc")) in outdated for one in found) / 10


def main() -> int:
    """Print both rates; exit 1 where one misses its goal."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--runs", type=int, default=40)
    runs = parser.parse_args().runs
    with_it = [parts(is_guilty=True, seed=seed) for seed in range(runs)]
    without = [parts(is_guilty=False, seed=seed) for seed in range(runs)]
    first = sum(found[:1] == [("index_version", "i2")] for found in with_it)
    blamed = sum(bool(found) for found in without)
    print(f"with a new index: named first in {first} of {runs} (goal 95 %)")
    print(f"without: something named in {blamed} of {runs} (goal at most 5 %)")
    rights = [precision(seed) for seed in range(runs // 2)]
    mean = sum(rights) / len(rights)
    print(
        f"20 outdated of 500 documents: precision at 10 {mean:.2f} of {len(rights)} runs,"
        f" lowest {min(rights):.1f} (goal .9)"
    )
    for seed, found in enumerate(with_it):
        if found[:1] != [("index_version", "i2")]:
            print(f"  run {seed}: {found[:3]}")
    return 0 if first >= 0.95 * runs and blamed <= 0.05 * runs and mean >= 0.9 else 1


if __name__ == "__main__":
    sys.exit(main())
