"""Colours as people see them, also those who cannot tell red from green."""

import math
import re
from importlib.resources import files
from itertools import combinations

import pytest

SHEET = (files("ragpulse_dashboards") / "static" / "css" / "tokens.css").read_text()
THEMES = [dict(re.findall(r"(--[\w-]+): (#[0-9a-f]{6})", block)) for block in re.split(r"@media", SHEET)]
DEUTERANOPIA = ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.01182, 0.04294, 0.968881))
"""Machado, Oliveira and Fernandes (2009), severity 1."""
XYZ = ((0.4124, 0.3576, 0.1805), (0.2126, 0.7152, 0.0722), (0.0193, 0.1192, 0.9505))
WHITE = (0.95047, 1.0, 1.08883)


def linear(colour: str) -> list[float]:
    """Linear sRGB of `#rrggbb`."""
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    return [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]


def times(matrix: tuple[tuple[float, ...], ...], vector: list[float]) -> list[float]:
    """A matrix times a vector, cut at 0 and 1."""
    return [min(1.0, max(0.0, sum(a * b for a, b in zip(row, vector, strict=True)))) for row in matrix]


def lab(vector: list[float]) -> tuple[float, float, float]:
    """CIE Lab of linear sRGB."""
    x, y, z = (
        part ** (1 / 3) if part > 0.008856 else 7.787 * part + 16 / 116
        for part in (value / white for value, white in zip(times(XYZ, vector), WHITE, strict=True))
    )
    return 116 * y - 16, 500 * (x - y), 200 * (y - z)


def contrast(first: str, second: str) -> float:
    """The WCAG contrast of two colours."""
    low, high = sorted(times(XYZ, linear(one))[1] for one in (first, second))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("theme", [0, 1, 2])
def test_lines_are_told_apart_without_red_and_green(theme: int) -> None:
    """Any two of the six differ by far more than what is just noticed (2.3), and each stands out from its card."""
    colours = [THEMES[theme][f"--c{number}"] for number in range(6)]
    seen = [lab(times(DEUTERANOPIA, linear(colour))) for colour in colours]
    assert min(math.dist(*pair) for pair in combinations(seen, 2)) > 20
    assert min(contrast(colour, THEMES[theme]["--card"]) for colour in colours) >= 3


@pytest.mark.parametrize("theme", [0, 1, 2])
def test_the_lightest_cell_of_a_heatmap_is_seen(theme: int) -> None:
    """Each shade stands out from the empty heatmap, and more than the one before."""
    steps = [contrast(THEMES[theme][f"--heat{shade}"], THEMES[theme]["--heat0"]) for shade in range(1, 5)]
    assert steps[0] >= 3
    assert steps == sorted(steps)
