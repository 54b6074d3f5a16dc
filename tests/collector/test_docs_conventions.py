"""docs/conventions.md says what the rules do."""

from __future__ import annotations

import re
from pathlib import Path

from ragpulse_collector.conventions.mapper import rule_book
from ragpulse_collector.otlp.intake import Limits

PAGE = (Path(__file__).parents[2] / "docs" / "conventions.md").read_text(encoding="utf-8")


def test_every_column_lists_the_attributes_it_is_read_from() -> None:
    """In the order of the rules, nothing missing and nothing invented."""
    table = PAGE.split("| column | read from")[1].split("\n\n")[0]
    rows = dict(re.findall(r"^\| `(\w+)` \| (.+) \|$", table, flags=re.MULTILINE))
    sources: dict[str, dict[str, None]] = {}
    for rule in rule_book().rules:
        sources.setdefault(rule.field, {})[rule.attribute] = None
    said = {field: re.findall(r"`([^`]+)`", names) for field, names in rows.items()}
    assert said == {field: list(names) for field, names in sources.items()}


def test_the_limits_on_the_page_are_the_defaults() -> None:
    """64 MiB, 128 MiB, 30 s."""
    limits = Limits()
    row = next(line for line in PAGE.splitlines() if line.startswith("| limits |"))
    figures = (limits.max_body_bytes // 2**20, limits.max_in_flight_bytes // 2**20, int(limits.body_timeout_s))
    assert [int(number) for number in re.findall(r"(\d+) (?:MiB|s\b)", row)] == list(figures)
