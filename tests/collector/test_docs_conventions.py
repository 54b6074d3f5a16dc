"""docs/conventions.md says what the rules do."""

from __future__ import annotations

import re
from pathlib import Path

from ragpulse_collector.conventions.mapper import rule_book
from ragpulse_collector.conventions.usage import named_rules
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


LISTS = sorted((Path(__file__).parent / "fixtures").glob("attributes_*.txt"))
"""The attributes of a convention at a date, one a line."""
APART = {
    "gen_ai.main_agent.name": "agent",
    "gen_ai.evaluation.score.value": "a score",
    "gen_ai.evaluation.score.label": "a score",
    "gen_ai.evaluation.explanation": "a score",
    "gen_ai.request.stream": "ttft_ms",
    "llm.cost.completion": "cost_usd",
    "input.mime_type": "query",
    "output.mime_type": "response",
}
"""What is read beside the rules: of the resource, of log events, and together with another attribute."""
RAW = "raw attributes only"


def read_as(attribute: str) -> str:
    """Return the columns that an attribute becomes, by the rules, or that it stays raw."""
    if attribute in APART:
        return APART[attribute]
    if re.search(r"(annotation|evaluation)\.(?!metadata)\w+$", attribute) and ".0." in attribute:
        return "a score"
    columns = dict.fromkeys(
        rule.field
        for rule in (*rule_book().rules, *named_rules(attribute))
        if rule.attribute == attribute
        or (rule.attribute.endswith(".N.") and re.match(re.escape(rule.attribute[:-2]) + r"\d+\.", attribute))
    )
    return ", ".join(columns) or RAW


def tables() -> str:
    """Return the tables of the page: each list by what its attributes become."""
    parts = []
    for path in LISTS:
        title, *names = path.read_text(encoding="utf-8").splitlines()
        rows: dict[str, list[str]] = {}
        for name in names:
            rows.setdefault(read_as(name), []).append(f"`{name.replace('.0.', '.N.')}`")
        lines = [
            f"| {column} | {', '.join(rows[column])} |" for column in sorted(rows, key=lambda one: (one == RAW, one))
        ]
        parts.append(
            "\n".join([f"### {title.removeprefix('# ')}", "", "| becomes | attributes |", "|---|---|", *lines])
        )
    return "\n\n".join(parts)


def test_the_page_says_of_every_attribute_what_it_becomes() -> None:
    """Of the conventions at a date; `python tests/collector/test_docs_conventions.py` writes the tables again."""
    assert len(LISTS) == 2
    assert tables() in PAGE


if __name__ == "__main__":
    page = Path(__file__).parents[2] / "docs" / "conventions.md"
    head, begin, rest = PAGE.partition("<!-- attributes -->\n")
    _, end, tail = rest.partition("<!-- end of attributes -->")
    page.write_text(f"{head}{begin}{tables()}\n{end}{tail}", encoding="utf-8")
