"""Runs real applications against a collector and prints the stored values beside the expected values.

An application is one file of this folder (files with an underscore are shared modules):

    GROUP = "clients"                      # applications of one group share an environment, installed once
    REQUIREMENTS = ["openai", "anthropic"] # added to the group's environment; the SDK comes from PYTHONPATH,
                                           # or as a package from "--editable={root}[instrument]"
    COMMAND = ["{python}", "{file}"]       # optional: another command (a server, `ragpulse run`)
    EXPECTED = {"answer": {"kind": "rag", "response": "Paris."}, "trace": {"input_tokens": 120}}

`EXPECTED` names spans by the last part of their name. Its columns are those of the view `spans`; `contexts`, `ids`,
`scores` and `sources` are lists of the texts, ids, scores and documents of the contexts, `parent` the name of the
parent span, `attributes` a subset of the span's attributes, and `"absent": True` means that no such span exists.
`trace` is the row of the view `traces`; its `scores` are the names of its evaluators.
`...` stands for any value but null. The application gets a model on loopback by `OPENAI_BASE_URL` and
`ANTHROPIC_BASE_URL`, keys, and the collector by `RAGPULSE_URL`.

Run: `make applications` or `python benchmarks/applications/run.py [name ...]`. Exit 1 when something differs.
"""

import argparse
import ast
import json
import os
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parents[1] / "tests"))

from _examples import EXAMPLES  # noqa: E402
from environments import ROOT, environment  # noqa: E402 - the line above makes it importable
from loopback import LoopbackModel  # noqa: E402
from served import Served  # noqa: E402
from waiting import eventually  # noqa: E402

from ragpulse_collector.client import Client  # noqa: E402

_ALL = ["opentelemetry-sdk>=1.36"]
_LIMIT_S = 180
_OF_CONTEXTS = {"contexts": "text", "ids": "id", "scores": "score", "sources": "source"}
_FIELD = re.compile(r"\[\[ ## (\w+) ## \]\]")


@dataclass(frozen=True, kw_only=True)
class Application:
    """One file of this folder, by its top-level declarations, or an example (`_examples.py`)."""

    file: Path
    group: str
    requirements: list[str]
    expected: dict[str, dict[str, Any]]
    command: list[str] = field(default_factory=lambda: ["{python}", "{file}"])

    @property
    def name(self) -> str:
        """The name of the file and of the service."""
        return self.file.stem


def applications(names: list[str]) -> list[Application]:
    """Every application of the folder, or the named ones."""
    known = [_application(file) for file in sorted(HERE.glob("[!_]*.py")) if file.name != "run.py"]
    known += [Application(file=ROOT / "examples" / f"{name}.py", **one) for name, one in EXAMPLES.items()]
    unknown = set(names) - {each.name for each in known}
    if unknown:
        sys.exit(f"no application {', '.join(sorted(unknown))}; there are {', '.join(each.name for each in known)}")
    return [each for each in known if not names or each.name in names]


def _application(file: Path) -> Application:
    """Read an application without an import: its libraries are in another environment."""
    declared = {
        target.id.lower(): ast.literal_eval(node.value)
        for node in ast.parse(file.read_text()).body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name) and target.id in ("GROUP", "REQUIREMENTS", "EXPECTED", "COMMAND")
    }
    return Application(file=file, **declared)


def answer(prompt: str) -> str:
    """The loopback model's answer: one sentence, in dspy's form if the prompt has it."""
    fields = [name for name in dict.fromkeys(_FIELD.findall(prompt)) if name in ("reasoning", "answer")]
    if not fields:
        return "Paris is the capital of France."
    parts = [f"[[ ## {name} ## ]]\nParis is the capital of France." for name in fields]
    return "\n\n".join([*parts, "[[ ## completed ## ]]"])


def run(application: Application, python: Path, collector: str, model: LoopbackModel) -> str:
    """Run it to its end; returns its output if it failed."""
    variables = {
        "RAGPULSE_URL": collector,
        "OTEL_SERVICE_NAME": application.name,
        "OPENAI_BASE_URL": model.url,
        "OPENAI_API_BASE": model.url,
        "OPENAI_API_KEY": "none",
        "ANTHROPIC_BASE_URL": model.url.removesuffix("/v1"),
        "ANTHROPIC_API_KEY": "none",
        "PYTHONPATH": f"{ROOT / 'sdk'}",
        "DO_NOT_TRACK": "1",
        "HAYSTACK_TELEMETRY_ENABLED": "False",
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    }
    command = [part.format(python=python, file=application.file) for part in application.command]
    with tempfile.TemporaryDirectory() as folder:
        try:
            result = subprocess.run(
                command,
                cwd=folder,
                env={**os.environ, **variables},
                capture_output=True,
                text=True,
                timeout=_LIMIT_S,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            return f"not done after {_LIMIT_S} s: {(error.stderr or b'').decode()[-3000:]}"
    return f"exit {result.returncode}: {(result.stdout + result.stderr)[-3000:]}" if result.returncode else ""


class Stored:
    """The stored traces of one application."""

    def __init__(self, client: Client, service: str) -> None:
        parameters = [service]
        self.traces = client.sql("SELECT * FROM traces WHERE service = ? ORDER BY start_time", parameters).rows()
        self.spans = client.sql("SELECT * FROM spans WHERE service = ? ORDER BY start_time", parameters).rows()
        self._contexts = client.sql(
            "SELECT c.* FROM contexts c JOIN spans s USING (trace_id, span_id) WHERE s.service = ? ORDER BY rank",
            parameters,
        ).rows()
        self._scores = client.sql(
            "SELECT DISTINCT x.trace_id, evaluator FROM scores x JOIN traces t USING (trace_id) WHERE t.service = ?",
            parameters,
        ).rows()

    def value(self, name: str, column: str) -> Any:
        """A column of the span of that name, or of `trace`."""
        if name == "trace":
            row = self.traces[0] if self.traces else {}
            if column == "scores":
                return sorted(each["evaluator"] for each in self._scores if each["trace_id"] == row.get("trace_id"))
            return row.get(column)
        spans = [span for span in self.spans if name in (span["name"], span["name"].rpartition(".")[2])]
        if column == "absent":
            return not spans
        return self._of_span(spans[0], column) if spans else "no such span"

    def _of_span(self, span: dict[str, Any], column: str) -> Any:
        if column in _OF_CONTEXTS:
            return [each[_OF_CONTEXTS[column]] for each in self._contexts if each["span_id"] == span["span_id"]]
        if column == "parent":
            parents = [each["name"] for each in self.spans if each["span_id"] == span["parent_span_id"]]
            return parents[0].rpartition(".")[2] if parents else None
        if column == "attributes":
            return json.loads(span["attributes"]) if isinstance(span["attributes"], str) else span["attributes"]
        return span.get(column)


def agrees(expected: Any, actual: Any) -> bool:
    """Whether values are equal; `...` is any value, and of a mapping only the expected keys count."""
    if expected is ...:
        return actual is not None and actual != []
    if isinstance(expected, dict) and isinstance(actual, dict):
        return all(agrees(value, actual.get(key)) for key, value in expected.items())
    return bool(expected == actual)


def report(application: Application, stored: Stored, failure: str) -> int:
    """Print the table of expected and stored values; returns the number of differences."""
    print(f"{application.name} ({application.group}): {len(stored.spans)} spans {failure}")
    wrong = int(bool(failure))
    for name, columns in application.expected.items():
        for column, expected in columns.items():
            actual = stored.value(name, column)
            good = agrees(expected, actual)
            wrong += not good
            text = (
                json.dumps(actual, default=str, ensure_ascii=False) if isinstance(actual, dict | list) else str(actual)
            )
            hint = "" if good else f"expected {'(any)' if expected is ... else expected}"[:130]
            print(f"  {'ok   ' if good else 'WRONG'} {name:24} {column:16} {text[:70]:70} {hint}")
    return wrong


def main() -> None:
    """Run the named applications, or all."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("names", nargs="*", help="applications; default: all")
    selected = applications(arguments.parse_args().names)
    groups: dict[str, list[str]] = {}
    for each in applications([]):
        groups.setdefault(each.group, []).extend(each.requirements)
    model = LoopbackModel(answer)
    with tempfile.TemporaryDirectory() as folder, Served(Path(folder) / "applications.duckdb") as served:
        failures = {}
        for each in selected:
            requirements = {requirement.format(root=ROOT) for requirement in (*groups[each.group], *_ALL)}
            python = environment(f"applications-{each.group}", None, *sorted(requirements))
            failures[each.name] = run(each, python, served.url, model)
        client = Client(served.url)
        eventually(
            lambda: client.sql("SELECT count(*) AS n FROM traces WHERE NOT decided").rows()[0]["n"], lambda n: n == 0
        )
        eventually(lambda: client.call("GET status")["evaluations"]["pending"], lambda jobs: jobs == 0)
        wrong = {each.name: report(each, Stored(client, each.name), failures[each.name]) for each in selected}
    model.close()
    print("\n".join(f"{name:24} {'ok' if not count else f'{count} differ'}" for name, count in wrong.items()))
    sys.exit(any(wrong.values()))


if __name__ == "__main__":
    main()
