"""The GitHub Action, played: its steps run in bash with the variables that a runner sets."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[1]
CASE = '{"query": "When?", "response": "It opens at nine.", "contexts": ["The library opens at nine."]}\n'
GROUNDED = "evaluate", "cases.jsonl -e groundedness --min 'groundedness=0.5'"


def play(folder: Path, **inputs: str) -> tuple[int, str, str]:
    """Run the steps as a runner does; return the exit status of the last, what was printed, and the comment."""
    action = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
    given = {name: str(one.get("default", "")) for name, one in action["inputs"].items()} | inputs
    tools = folder / "tools"
    tools.mkdir()
    (tools / "gh").write_text('#!/bin/sh\nwhile [ "$1" != --body-file ]; do shift; done\ncat "$2" >comment\n')
    (tools / "gh").chmod(0o755)
    environ = {
        "PATH": f"{tools}:{Path(sys.executable).parent}:{os.environ['PATH']}",
        "RUNNER_TEMP": str(folder), "GITHUB_OUTPUT": str(folder / "output"), "GITHUB_ACTION_PATH": str(ROOT),
        "GITHUB_STEP_SUMMARY": str(folder / "summary"), "GITHUB_REPOSITORY": "o/r", "RAGPULSE_URL": "http://127.0.0.1:9",
    }  # fmt: skip
    printed, status = "", 0
    for step in action["runs"]["steps"]:
        if "install" in step.get("if", "") or ("comment" in step.get("if", "") and given["comment"] != "true"):
            continue
        stated = dict(line.split("=") for line in _text(folder / "output").split())
        known = {f"inputs.{name}": value for name, value in given.items()} | {
            "github.event.pull_request.number": "7", "steps.gate.outputs.status": stated.get("status", ""),
            "github.token": "t",
        }  # fmt: skip
        env = {name: _filled(text, known) for name, text in step["env"].items()}
        command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]]
        done = subprocess.run(command, env=environ | env, cwd=folder, capture_output=True, text=True, check=False)
        printed, status = printed + done.stdout + done.stderr, done.returncode
        if status:
            break
    return status, printed, _text(folder / "comment")


def _filled(text: str, known: dict[str, str]) -> str:
    return re.sub(r"\$\{\{ (.+?) \}\}", lambda found: known[found[1]], text)


def _text(file: Path) -> str:
    return file.read_text(encoding="utf-8") if file.exists() else ""


@pytest.mark.parametrize(
    ("command", "arguments", "undecided", "status", "words"),
    [
        (*GROUNDED, "pass", 0, "groundedness"),
        (*GROUNDED, "fail", 3, "groundedness"),
        ("evaluate", "cases.jsonl -e groundedness --max groundedness=0.5", "fail", 3, "groundedness"),
        ("check", "-e groundedness --min 0.8", "fail", 2, "ragpulse serve"),
        ("serve", "", "fail", 2, "command is evaluate, check or regress"),
    ],
)
def test_a_gate_ends_as_its_command_and_comments(
    tmp_path: Path, command: str, arguments: str, undecided: str, status: int, words: str
) -> None:
    """Too few answers pass only where that is wanted; what cannot run is a sentence, also in the comment."""
    (tmp_path / "cases.jsonl").write_text(CASE * 3, encoding="utf-8")
    inputs = {"command": command, "arguments": arguments, "undecided": undecided, "comment": "true"}
    ended, printed, comment = play(tmp_path, **inputs)
    assert (ended, words in comment) == (status, True), printed
    assert ("::error" in printed) == (status == 2)
