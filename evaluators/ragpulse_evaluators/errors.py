"""Every exception of the package, as one tree.

EvaluatorError
├── ConfigurationError   a wrong name, parameter or file: raised where it is configured
│   └── UnknownEvaluator no evaluator has this name; the message names the nearest
├── MissingField         the case lacks a field: the result becomes `skipped`
├── Unreadable           a reply or value cannot be read as a verdict: the result becomes `invalid`
└── JudgeError           the judge could not be reached or refused: the result becomes `error`
    ├── BudgetExceeded   the budget is reached: nothing more is asked
    └── NoRecording      a replay-only cache has no answer for this question
"""

from __future__ import annotations

__all__ = (
    "BudgetExceeded",
    "ConfigurationError",
    "EvaluatorError",
    "JudgeError",
    "MissingField",
    "NoRecording",
    "UnknownEvaluator",
    "Unreadable",
)


class EvaluatorError(Exception):
    """Base of every exception that this package raises on purpose."""


class ConfigurationError(EvaluatorError, ValueError):
    """A name, parameter, prompt or file is wrong; the message says how to fix it."""


class UnknownEvaluator(ConfigurationError, LookupError):
    """No evaluator is registered under this name."""


class MissingField(EvaluatorError):
    """The case lacks fields that the evaluator needs; `fields` names them."""

    def __init__(self, *fields: str) -> None:
        super().__init__("missing: " + ", ".join(fields))
        self.fields = fields


class Unreadable(EvaluatorError, ValueError):
    """A reply or a value cannot be read as a verdict; no verdict is guessed."""


class JudgeError(EvaluatorError):
    """The judge could not be asked; `retriable` says whether another attempt may succeed."""

    retriable = True


class BudgetExceeded(JudgeError):
    """The budget is reached."""

    retriable = False


class NoRecording(JudgeError):
    """A judge that only replays has no recorded answer for this question."""

    retriable = False
