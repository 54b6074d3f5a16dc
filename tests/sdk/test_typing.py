"""The public surface keeps its types."""

import pydoc
import re
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import ragpulse
from ragpulse._decorators import Options
from ragpulse._guard import GUARD

ROOT = Path(__file__).parents[2]


def test_the_surfaces_are_typed_as_users_rely_on() -> None:
    """mypy agrees with every `assert_type` of every file in `tests/typing`, and refuses every wrong call."""
    surfaces = sorted(map(str, (ROOT / "tests" / "typing").glob("*.py")))
    command = [sys.executable, "-m", "mypy", "--strict", "--warn-unused-ignores", *surfaces]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"in {len(surfaces)} source files" in done.stdout


def question(number: int, question: str) -> None:
    """A function to decorate."""


PULSE: Any = ragpulse
MISTAKES: dict[str, Callable[[], Any]] = {
    "ragpulse.rag has no option quer=: did you mean query=?": lambda: PULSE.rag(quer="question"),
    "ragpulse.span has no option nam=: did you mean name=?": lambda: PULSE.span("step", nam="x"),
    "query='questoin': question has no parameter of this name: did you mean query='question'?": (
        lambda: PULSE.rag(query="questoin")(question)
    ),
    "ragpulse.rag decorates functions, and 5 is not one": lambda: PULSE.rag(5),
    "ragpulse.llm decorates functions, and Path is a class: decorate its methods": lambda: PULSE.llm(Path),
    "ragpulse.span decorates functions, and Path is a class": lambda: PULSE.span(kind="guardrail")(Path),
    "put `@property` above `@ragpulse.tool`": lambda: PULSE.tool(property(lambda self: 1)),
    "open `with ragpulse.extract(headers):` in the task": lambda: PULSE.traced_executor(ProcessPoolExecutor(1)),
}


@pytest.mark.parametrize("said", MISTAKES)
def test_mistakes_are_refused_with_the_fix(said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where they are written: the message names what is wrong and what to write."""
    monkeypatch.setattr(GUARD, "strict", None)
    with pytest.raises((TypeError, ValueError), match=re.escape(said)):
        MISTAKES[said]()


def test_help_shows_every_option_with_its_type() -> None:
    """`help(ragpulse.rag)`, and each other decorator's."""
    for name in ("rag", "retriever", "reranker", "embedding", "llm", "tool", "agent", "span"):
        text = pydoc.render_doc(getattr(ragpulse, name), renderer=pydoc.plaintext)
        assert f"@ragpulse.{name}" in text
        for option, kind in Options.__annotations__.items():
            assert re.search(rf"^ +{option}: .+ = ", text, re.MULTILINE), option
            if kind in (bool, str):
                assert f"{option}: {kind.__name__} = " in text


def test_what_is_listed_is_what_can_be_imported() -> None:
    """`__all__` is sorted, complete and true; two modules are public beside it."""
    public = {name for name in vars(ragpulse) if not name.startswith("_")} - {"shapes", "testing"}
    assert public == set(ragpulse.__all__)
    assert list(ragpulse.__all__) == sorted(ragpulse.__all__)
