"""Templates: one sandbox, always escaped, never fed with data as source."""

import re
from importlib.resources import files
from pathlib import Path

import pytest
from jinja2.exceptions import SecurityError
from jinja2.sandbox import ImmutableSandboxedEnvironment

import ragpulse
from ragpulse_dashboards.mount import environment, load_assets

PACKAGE = Path(str(files("ragpulse_dashboards")))
SOURCES = [path for path in PACKAGE.rglob("*") if path.suffix in (".py", ".html") and "vendor" not in path.parts]


@pytest.mark.parametrize(
    "pattern", [r"\|\s*safe\b", r"\bMarkup\b", r"autoescape\s*=?\s*false", r"from_string", r"\bhx-on"]
)
def test_nothing_switches_escaping_off(pattern: str) -> None:
    """No template or module marks text as safe, compiles text as a template, or puts code into attributes.

    Only `answer.py` makes HTML itself: test_evidence.py reads what comes out.
    """
    assert [path.name for path in SOURCES if re.search(pattern, path.read_text(), re.IGNORECASE)] == ["answer.py"] * (
        pattern == r"\bMarkup\b"
    )


def test_pages_name_what_the_sdk_has() -> None:
    """Whoever copies `ragpulse.attributes(...)` from a page finds it."""
    text = " ".join(path.read_text() for path in SOURCES if path.suffix == ".html")
    named = set(re.findall(r"\bragpulse\.([a-z_]+)", text)) - {"toml"}
    assert {"rag", "attributes"} <= named
    assert [name for name in sorted(named) if not hasattr(ragpulse, name)] == []


def test_there_is_one_environment_and_it_is_sandboxed() -> None:
    """Only one module builds a template environment, the sandboxed one, escaping always."""
    builders = [path.name for path in SOURCES if re.search(r"import.*Environment", path.read_text())]
    built = environment(load_assets())
    assert sorted(builders) == ["mount.py", "site.py"]  # the second only names its type
    assert isinstance(built, ImmutableSandboxedEnvironment)
    assert built.autoescape is True


@pytest.mark.parametrize(
    "attack", ["''.__class__.__mro__", "cycler.__init__.__globals__", "asset.__func__.__globals__"]
)
def test_the_sandbox_holds(attack: str) -> None:
    """Even a template of one's own cannot reach Python's insides."""
    built = environment(load_assets()).overlay()
    template = built.parse("{{ " + attack + " }}")
    with pytest.raises(SecurityError):
        built.template_class.from_code(built, built.compile(template), built.make_globals(None)).render()


def test_every_page_template_is_reachable_by_name() -> None:
    """All shipped templates compile."""
    built = environment(load_assets())
    names = built.list_templates()
    assert "overview.html" in names
    assert all(built.get_template(name) for name in names)


FORBIDDEN = (
    "n eff", "shrunk", "waiting, dropped", "never selectable", "with probability 1", "judged by: any", ">any<",
    "blame", "purse", "anew", "lately", "lane", "ceiling", "frozen anchors", "due now", "in the queue",
)  # fmt: skip
"""Words that the glossary replaces, and those that were found on pages once."""


@pytest.mark.parametrize("path", sorted((PACKAGE / "templates").rglob("*.html")), ids=lambda path: str(path.name))
def test_pages_use_the_words_of_the_glossary(path: Path) -> None:
    """What a person reads of a template, between and in its tags, has none of the words that were given up."""
    shown = re.sub(r"\{[{%#].*?[}%#]\}", " ", path.read_text(), flags=re.DOTALL)
    attributes = " ".join(re.findall(r'(?:title|aria-label|placeholder)="([^"]*)"', shown))
    text = f"{re.sub(r'<[^>]*>', ' ', shown)} {attributes}".lower()
    assert [word for word in FORBIDDEN if re.search(rf"(?<!\w){re.escape(word)}(?!\w)", text)] == []
