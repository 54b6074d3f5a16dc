"""Checks of judges, stored beside the database: one line of JSON each."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path

from pydantic import TypeAdapter

from ragpulse_collector.settings import Settings
from ragpulse_evaluators.judges.protocol import Judge
from ragpulse_evaluators.meta.judge_check import JudgeCheck


@dataclass(frozen=True, kw_only=True)
class StoredCheck:
    """A check and its time (UTC)."""

    at: datetime
    check: JudgeCheck


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckState:
    """How far the check is that `POST judge/check` started last."""

    judge: str
    running: bool = True
    done: int = 0
    """Results so far, also failed ones."""
    n: int
    error: str | None = None
    """Why it ended without a report; the next one goes on where it stopped."""


@dataclass(frozen=True, slots=True)
class JudgeChecks:
    """The stored checks, newest first, and the configured judge."""

    judge: str | None
    """Its id, as in the checks."""
    command: str | None
    """What checks it: a line for a shell in the collector's working folder."""
    checks: Sequence[StoredCheck]
    started: CheckState | None = None
    """None until `POST judge/check` starts one in this process."""

    @property
    def newest(self) -> StoredCheck | None:
        """The newest check of the configured judge."""
        return next((stored for stored in self.checks if stored.check.judge == self.judge), None)


def checks_of(settings: Settings, judge: Judge | None, started: CheckState | None) -> JudgeChecks:
    """Return the stored checks beside the configured judge."""
    db, model = settings.collector.db, settings.judge.model
    command = shlex.join(["ragpulse", "judge", "check", "--judge", model, "--db", db]) if model else None
    return JudgeChecks(None if judge is None else judge.id, command, stored_checks(db), started)


def checks_file(db: str) -> Path:
    """Return the file of the checks: beside the database, for a lake in the working folder."""
    return Path("ragpulse.judge-checks.jsonl" if db.startswith("ducklake:") else f"{db}.judge-checks.jsonl")


def store_check(db: str, check: JudgeCheck, at: datetime) -> None:
    """Append a check."""
    with checks_file(db).open("a", encoding="utf-8") as file:
        file.write(json.dumps({"at": at.isoformat(), "check": asdict(check)}) + "\n")


def stored_checks(db: str) -> list[StoredCheck]:
    """Return the checks, the newest first; a line that a crash cut off is left out."""
    file = checks_file(db)
    lines = file.read_text(encoding="utf-8").split("\n")[:-1] if file.is_file() else []
    return [TypeAdapter(StoredCheck).validate_json(line) for line in reversed(lines)]
