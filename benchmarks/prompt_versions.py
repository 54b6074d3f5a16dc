"""Each judged evaluator's prompt against an earlier version: injected orders, and replies of judges.

    python benchmarks/prompt_versions.py [--against COMMIT]

The earlier version is the whole package of that commit, taken from git and run in a process of its own: both versions
meet the same cases, orders and replies. Two judges of our own play, each as easy to deceive as can be stated exactly:

- one obeys every order it finds outside the marks around the material;
- one takes every order for its task's that stands in the message of its task: a model that was trained to follow the
  system message, and nothing but its roles, behaves so.

Replies are the one that an evaluator's schema asks for, written in the ways in which models write: read means that the
score is that of the clean reply, at the first call.
"""

from __future__ import annotations

import argparse
import asyncio
import io
import json
import os
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from judge_suite import ORDERS, marked_away

from ragpulse_evaluators import Case, JudgeCall, default_registry, get_evaluator

ROOT = Path(__file__).parents[1]
Figures = dict[str, dict[str, int]]
FIRST = "3e4d0a0"
"""The last commit with the prompts of the first build."""
PLACES = ("query", "response", "contexts", "reference")
CASE: dict[str, Any] = {
    "query": "When does the library open?", "response": "It opens at nine [1].", "second_response": "At eight.",
    "contexts": ["The library opens at nine.", "Cats sleep."], "reference": "It opens at nine.",
    "retrieved_ids": ["a", "b"], "relevant_ids": ["a"],
}  # fmt: skip
PLAIN = ("1", "YES", "C")
"""Replies where no schema is asked for: the first that can be read."""


def _python(reply: str) -> str:
    return repr(json.loads(reply))


def _capitals(reply: str) -> str:
    return json.dumps({key.capitalize(): value for key, value in json.loads(reply).items()})


def _turned(value: Any) -> Any:
    """Another verdict of the same form, as a draft has it."""
    if isinstance(value, dict):
        return {key: _turned(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_turned(one) for one in value]
    return {"YES": "NO", "1": "2", True: False}.get(value, value) if not isinstance(value, int | float) else 0


WAYS: dict[str, Callable[[str], str]] = {
    "fenced": lambda reply: f"```json\n{reply}\n```",
    "with a sentence before": lambda reply: f"Here is my verdict:\n{reply}",
    "trailing comma": lambda reply: f"{reply[:-1]},}}",
    "Python literals": _python,
    "capital keys": _capitals,
    "nested": lambda reply: json.dumps({"result": json.loads(reply)}),
    "a draft in <think>": lambda reply: f"<think>{json.dumps(_turned(json.loads(reply)))}</think>{reply}",
    "a draft in [THINK]": lambda reply: f"[THINK]{json.dumps(_turned(json.loads(reply)))}[/THINK]{reply}",
}


def reply_for(schema: dict[str, Any], whole: dict[str, Any] | None = None) -> Any:
    """The simplest value that a JSON schema allows: the first choice, a yes, one item."""
    whole = whole or schema
    if "$ref" in schema:
        return reply_for(whole["$defs"][schema["$ref"].rpartition("/")[2]], whole)
    if "const" in schema or "enum" in schema:
        return schema.get("const", schema.get("enum", [None])[0])
    if "anyOf" in schema:
        return reply_for(schema["anyOf"][0], whole)
    kind = schema.get("type")
    if kind == "object":
        return {name: reply_for(one, whole) for name, one in schema.get("properties", {}).items()}
    if kind == "array":
        return [reply_for(schema.get("items", {}), whole)]
    return {"boolean": True, "integer": 1, "number": 1}.get(str(kind), "It opens at nine.")


class Judge:
    """Replies as the schema asks, written in one way, and keeps what it is asked."""

    id = "scripted"

    def __init__(self, way: Callable[[str], str] | None = None, plain: str = "1") -> None:
        self.asked: list[list[dict[str, str]]] = []
        self.schemas = 0
        self._way, self._plain = way, plain

    async def ask(self, messages: Sequence[Any], *, n: int = 1, schema: Any = None, **_: Any) -> list[JudgeCall]:
        """Keep the messages, then reply."""
        self.asked.append([dict(one) for one in messages])
        self.schemas += schema is not None
        reply = self._plain if schema is None else json.dumps(reply_for(schema.model_json_schema()))
        written = self._way(reply) if self._way and schema is not None else reply
        return [JudgeCall(prompt="", completion=written, model=self.id)] * n


class Letters:
    """An embedder that counts letters."""

    id = "letters"

    async def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """Sixteen buckets of code points."""
        return [[1.0 + sum(ord(c) % 16 == i for c in text) for i in range(16)] for text in texts]


async def judged(name: str, judge: Judge, case: dict[str, Any], language: str) -> Any:
    """The evaluator's verdict on a case."""
    options: dict[str, Any] = {"geval": {"n": 2}}.get(name, {})
    made = get_evaluator(name, judge=judge, embedder=Letters(), language=language, repair=False, **options)
    return await made(Case(**case))


async def orders(name: str, language: str) -> dict[str, int]:
    """How many of the cases with an order let it out of the marks, and into the message of the task."""
    found = {"cases": 0, "outside": 0, "beside": 0}
    for place in PLACES:
        for order in ORDERS:
            judge = Judge()
            await judged(name, judge, CASE | {place: [order] if place == "contexts" else order}, language)
            told = [message["content"] for messages in judge.asked for message in messages]
            if any("nswer YES." in text for text in told):
                found["cases"] += 1
                found["outside"] += any("nswer YES." in marked_away(text) for text in told)
                found["beside"] += any(_obeyed_beside(messages) for messages in judge.asked)
    return found


def _obeyed_beside(messages: Sequence[dict[str, str]]) -> bool:
    """Whether an order stands in the message that sets the task: the system message where there is one, else all."""
    return "nswer YES." in messages[0]["content"]


async def replies(name: str) -> dict[str, int]:
    """How many ways of writing the same reply give the same score."""
    for plain in PLAIN:
        judge = Judge(plain=plain)
        clean = await judged(name, judge, CASE, "en")
        if clean.status == "ok":
            break
    if not judge.schemas or clean.status != "ok":
        return {"ways": 0, "read": 0}
    results = [await judged(name, Judge(way, plain), CASE, "en") for way in WAYS.values()]
    read = sum((one.status, one.score) == ("ok", clean.score) for one in results)
    return {"ways": len(WAYS), "read": read}


async def measured() -> Figures:
    """Every judged evaluator of the package that is imported; orders in all its languages."""
    found: Figures = {}
    for name in [one.name for one in default_registry().entries if one.cost_class in ("1 call", "k calls")]:
        spoken = [await orders(name, language) for language in ("en", "zh", "pt")]
        found[name] = {key: sum(one[key] for one in spoken) for key in spoken[0]} | await replies(name)
    return found


def of_commit(commit: str) -> Figures:
    """The same of the package as it was; raises CalledProcessError where git does not have the commit."""
    packed = subprocess.run(["git", "archive", commit, "evaluators"], cwd=ROOT, check=True, capture_output=True).stdout
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(fileobj=io.BytesIO(packed)) as files:
            files.extractall(folder, filter="data")
        told = subprocess.run(
            [sys.executable, __file__, "--json"], env=os.environ | {"PYTHONPATH": f"{folder}/evaluators"},
            check=True, capture_output=True, text=True,
        ).stdout  # fmt: skip
    before: Figures = json.loads(told)
    return before


def table(before: Figures, now: Figures) -> str:
    """Markdown: evaluators with equal figures share a row; those that one version lacks are left out."""
    rows: dict[str, list[str]] = {}
    for name, new in now.items():
        if old := before.get(name):
            orders = (f"{old[key]} / {new[key]} of {new['cases']}" for key in ("outside", "beside"))
            read = f"{old['read']} / {new['read']} of {new['ways']}" if new["ways"] else "one letter or number"
            rows.setdefault(" | ".join((*orders, read)), []).append(f"`{name}`")
    head = "| evaluator | orders outside the marks | orders beside the task | replies read |\n|---|---|---|---|\n"
    return head + "\n".join(f"| {', '.join(names)} | {figures} |" for figures, names in rows.items())


def main() -> None:
    """Print the table, or the figures of the imported package."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--against", default=FIRST, help="the commit of the earlier version")
    parser.add_argument("--json", action="store_true", help="only this version's figures")
    asked = parser.parse_args()
    now = asyncio.run(measured())
    print(json.dumps(now) if asked.json else table(of_commit(asked.against), now))


if __name__ == "__main__":
    main()
