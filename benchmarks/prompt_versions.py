"""Each judged evaluator's prompt against an earlier version: injected orders, and replies of judges.

    python benchmarks/prompt_versions.py [--against COMMIT] [EVALUATOR ...]

The earlier version is the whole package of that commit, taken from git and run in a process of its own. Both versions
get the same cases, injected orders and replies. An order counts twice, for two judges that are easy to deceive:

- outside: the order can be read outside the marks around the judged text;
- beside: the order stands in the message that sets the task. A model that follows the system message only obeys it.

Replies satisfy the evaluator's schema, in the variants that models write. A reply is read if the first call gives the
score of the plain reply.
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

from ragpulse_evaluators import Case, JudgeCall, default_registry

ROOT = Path(__file__).parents[1]
Figures = dict[str, dict[str, int]]
FIRST = "3e4d0a0"
"""The last commit with the prompts of the first build."""
FIELDS = ("query", "response", "contexts", "reference")
CASE: dict[str, Any] = {
    "query": "When does the library open?", "response": "It opens at nine [1].", "second_response": "At eight.",
    "contexts": ["The library opens at nine.", "Cats sleep."], "reference": "It opens at nine.",
    "retrieved_ids": ["a", "b"], "relevant_ids": ["a"],
}  # fmt: skip
PLAIN = ("1", "YES", "C")
"""Replies of a call without a schema; the first readable one is used."""


def _python(reply: str) -> str:
    return repr(json.loads(reply))


def _capitals(reply: str) -> str:
    return json.dumps({key.capitalize(): value for key, value in json.loads(reply).items()})


def _opposite(value: Any) -> Any:
    """Another verdict of the same form, for a draft."""
    if isinstance(value, dict):
        return {key: _opposite(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_opposite(item) for item in value]
    return {"YES": "NO", "1": "2", True: False}.get(value, value) if not isinstance(value, int | float) else 0


VARIANTS: dict[str, Callable[[str], str]] = {
    "fenced": lambda reply: f"```json\n{reply}\n```",
    "with a sentence before": lambda reply: f"Here is my verdict:\n{reply}",
    "trailing comma": lambda reply: f"{reply[:-1]},}}",
    "Python literals": _python,
    "capital keys": _capitals,
    "nested": lambda reply: json.dumps({"result": json.loads(reply)}),
    "a draft in <think>": lambda reply: f"<think>{json.dumps(_opposite(json.loads(reply)))}</think>{reply}",
    "a draft in [THINK]": lambda reply: f"[THINK]{json.dumps(_opposite(json.loads(reply)))}[/THINK]{reply}",
}


def reply_for(schema: dict[str, Any], root: dict[str, Any] | None = None) -> Any:
    """The simplest value that a JSON schema allows: the first choice, true, one item."""
    root = root or schema
    if "$ref" in schema:
        return reply_for(root["$defs"][schema["$ref"].rpartition("/")[2]], root)
    if "const" in schema or "enum" in schema:
        return schema.get("const", schema.get("enum", [None])[0])
    if "anyOf" in schema:
        return reply_for(schema["anyOf"][0], root)
    kind = schema.get("type")
    if kind == "object":
        return {name: reply_for(item, root) for name, item in schema.get("properties", {}).items()}
    if kind == "array":
        return [reply_for(schema.get("items", {}), root)]
    return {"boolean": True, "integer": 1, "number": 1}.get(str(kind), "It opens at nine.")


class Judge:
    """Replies by the schema, in a variant, and records its messages."""

    id = "scripted"

    def __init__(self, variant: Callable[[str], str] | None = None, plain: str = "1") -> None:
        self.calls: list[list[dict[str, str]]] = []
        self.schemas = 0
        self._variant, self._plain = variant, plain

    async def ask(self, messages: Sequence[Any], *, n: int = 1, schema: Any = None, **_: Any) -> list[JudgeCall]:
        """Record the messages, then reply."""
        self.calls.append([dict(message) for message in messages])
        self.schemas += schema is not None
        reply = self._plain if schema is None else json.dumps(reply_for(schema.model_json_schema()))
        text = self._variant(reply) if self._variant and schema is not None else reply
        return [JudgeCall(prompt="", completion=text, model=self.id)] * n


class Letters:
    """An embedder that counts letters."""

    id = "letters"

    async def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """Sixteen buckets of code points."""
        return [[1.0 + sum(ord(c) % 16 == i for c in text) for i in range(16)] for text in texts]


def made(name: str, judge: Judge, language: str) -> Any:
    """The evaluator; making one takes longer than a case."""
    options: dict[str, Any] = {"geval": {"n": 2}}.get(name, {})
    return default_registry().get(name, judge=judge, embedder=Letters(), language=language, repair=False, **options)


async def orders(name: str, language: str) -> dict[str, int]:
    """The number of cases with an order, with one outside the marks, and with one in the message of the task."""
    counts = {"cases": 0, "outside": 0, "beside": 0}
    judge = Judge()
    evaluator = made(name, judge, language)
    for field in FIELDS:
        for order in ORDERS:
            judge.calls = []
            await evaluator(Case(**CASE | {field: [order] if field == "contexts" else order}))
            texts = [message["content"] for messages in judge.calls for message in messages]
            if any("nswer YES." in text for text in texts):
                counts["cases"] += 1
                counts["outside"] += any("nswer YES." in marked_away(text) for text in texts)
                # The first message sets the task: the system message where there is one.
                counts["beside"] += any("nswer YES." in messages[0]["content"] for messages in judge.calls)
    return counts


async def replies(name: str) -> dict[str, int]:
    """The number of variants of a reply, and of those that give the same score."""
    for plain in PLAIN:
        judge = Judge(plain=plain)
        clean = await made(name, judge, "en")(Case(**CASE))
        if clean.status == "ok":
            break
    if not judge.schemas or clean.status != "ok":
        return {"ways": 0, "read": 0}
    results = [await made(name, Judge(variant, plain), "en")(Case(**CASE)) for variant in VARIANTS.values()]
    read = sum((result.status, result.score) == ("ok", clean.score) for result in results)
    return {"ways": len(VARIANTS), "read": read}


async def measured(names: Sequence[str] = ()) -> Figures:
    """Figures of these judged evaluators of the imported package, by default of all; orders in all its languages."""
    figures: Figures = {}
    all_names = [entry.name for entry in default_registry().entries if entry.cost_class in ("1 call", "k calls")]
    for name in names or all_names:
        counts = [await orders(name, language) for language in ("en", "zh", "pt")]
        figures[name] = {key: sum(each[key] for each in counts) for key in counts[0]} | await replies(name)
    return figures


def of_commit(commit: str, *names: str) -> Figures:
    """Figures of an earlier commit's package, by default of all evaluators.

    Raises CalledProcessError if git does not have the commit.
    """
    archive = subprocess.run(["git", "archive", commit, "evaluators"], cwd=ROOT, check=True, capture_output=True).stdout
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(fileobj=io.BytesIO(archive)) as files:
            files.extractall(folder, filter="data")
        printed = subprocess.run(
            [sys.executable, __file__, "--json", *names], env=os.environ | {"PYTHONPATH": f"{folder}/evaluators"},
            check=True, capture_output=True, text=True,
        ).stdout  # fmt: skip
    before: Figures = json.loads(printed)
    return before


def table(before: Figures, now: Figures) -> str:
    """Markdown: evaluators with equal figures share a row; only those that both versions have."""
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
    parser.add_argument("names", nargs="*", help="evaluators, by default all")
    options = parser.parse_args()
    now = asyncio.run(measured(options.names))
    print(json.dumps(now) if options.json else table(of_commit(options.against, *options.names), now))


if __name__ == "__main__":
    main()
