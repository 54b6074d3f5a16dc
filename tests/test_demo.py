"""`ragpulse demo` runs the main job by itself and finds the planted regression."""

from __future__ import annotations

import subprocess
import sys

from ragpulse_collector.demo.corpus import Index, guides, passages
from ragpulse_collector.demo.questions import QUESTIONS


def test_the_demo_ends_by_itself_and_names_the_worse_prompt() -> None:
    """Offline, exit 0: a table per prompt version, the verdict, the address of the page."""
    done = subprocess.run(
        [sys.executable, "-m", "ragpulse_collector", "demo"], capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 0, done.stderr
    for told in ("prompt v1", "prompt v2", "latency p95 ms", "tokens in", "cost USD", "groundedness", "page: http://"):
        assert told in done.stdout, told
    assert "groundedness, v2 against v1: worse" in done.stdout


def test_every_question_finds_passages_of_the_guides() -> None:
    """The corpus is the project's own documentation, ranked by BM25, best first."""
    index = Index(passages(guides()))
    assert len(index.entries) > 50
    for question in QUESTIONS:
        scores = [score for _, score in index.search(question, 4)]
        assert len(scores) == 4
        assert scores == sorted(scores, reverse=True)
