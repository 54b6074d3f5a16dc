"""Every exception of the package, as one tree.

EvaluatorError
├── ConfigurationError   a wrong name, parameter or file: raised where it is configured
│   └── UnknownEvaluator no evaluator has this name; the message names the nearest
├── MissingField         the case lacks a field: the result becomes `skipped`
│   └── NothingToScore   it lacks none, but nothing in it can be scored
│       └── Abstained    the answer states nothing that could be right or wrong: labelled `abstained`
├── Unreadable           a reply or value cannot be read as a verdict: the result becomes `invalid`
│   └── NoVerdict        the reply was cut off, filtered or a refusal: asking again would not help
├── EvaluatorStopped     a user's evaluator ended its process or exceeded its time: the result becomes `error`
└── JudgeError           the judge could not be asked: the result becomes `error`
    ├── JudgeRejected    wrong key, unknown model, used-up quota, bad request: another attempt fails too
    │   └── ContextTooLong  the question does not fit into the model's window
    ├── BudgetExceeded   the budget is reached: nothing more is asked
    └── NoRecording      a replay-only cache has no answer for this question
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any, NoReturn


class EvaluatorError(Exception):
    """Base of every exception that this package raises on purpose."""


class ConfigurationError(EvaluatorError, ValueError):
    """A name, parameter, prompt or file is wrong; the message says how to fix it."""


class UnknownEvaluator(ConfigurationError, LookupError):
    """No evaluator is registered under this name."""


LACKING = "missing: "
"""How the explanation of a result begins that is skipped because its case lacks fields."""


class MissingField(EvaluatorError):
    """The case lacks fields that the evaluator needs; `fields` names them."""

    def __init__(self, *fields: str) -> None:
        super().__init__(LACKING + ", ".join(fields))
        self.fields = fields


class NothingToScore(MissingField):
    """The case has every field, and nothing in it that the evaluator could score."""

    def __init__(self, reason: str) -> None:
        EvaluatorError.__init__(self, reason)
        self.fields = ()


class Abstained(NothingToScore):
    """The answer states nothing that could be right or wrong, such as "I don't know"."""

    label = "abstained"


class Unreadable(EvaluatorError, ValueError):
    """A reply or a value cannot be read as a verdict; no verdict is guessed."""


class NoVerdict(Unreadable):
    """The reply holds no verdict, and the same question would bring none: cut off, filtered, or refused."""


class EvaluatorStopped(EvaluatorError):
    """The evaluator's process ended, or was killed at the time limit, before there was a result."""

    retriable = True


class JudgeError(EvaluatorError):
    """The judge could not be asked; `retriable` says whether another attempt may succeed.

    `retry_after_s` is the wait that the server asks for (`Retry-After`); None without one. `maybe_billed` says that the
    request was sent and may be billed although no reply could be read; `calls` then holds what it cost at most, where
    the judge's price is known.
    """

    retriable = True

    def __init__(self, *message: object, retry_after_s: float | None = None, maybe_billed: bool = False) -> None:
        super().__init__(*message)
        self.retry_after_s, self.maybe_billed = retry_after_s, maybe_billed
        self.calls: tuple[Any, ...] = ()


class JudgeRejected(JudgeError):
    """The server rejects the request for good: key, model, quota, or a malformed question."""

    retriable = False


class ContextTooLong(JudgeRejected):
    """The question is longer than the model's window of `window` tokens (None where the server does not say)."""

    def __init__(self, *message: object, window: int | None = None) -> None:
        super().__init__(*message)
        self.window = window


class BudgetExceeded(JudgeError):
    """A cap refuses this call; `account` is what the cap applies to, where a ledger has several."""

    retriable = False

    def __init__(self, *message: object, account: Any = None) -> None:
        super().__init__(*message)
        self.account = account


class NoRecording(JudgeError):
    """A judge that only replays has no recorded answer for this question."""

    retriable = False


def nearest(name: str, names: Iterable[str], *, cutoff: float = 0.6) -> str:
    """`; did you mean 'x'?`, or nothing when no name is close."""
    close = difflib.get_close_matches(name, list(names), n=1, cutoff=cutoff)
    return f"; did you mean {close[0]!r}?" if close else ""


def excerpt(text: str, size: int = 80) -> str:
    """The beginning of a text on one line, for messages."""
    line = " ".join(text.split())
    return line if len(line) <= size else line[: size - 1] + "…"


def first_problem(error: Any) -> str:
    """Place and message of the first problem in a `ValidationError` of pydantic."""
    first = error.errors()[0]
    place, reason = ".".join(map(str, first["loc"])), first["msg"].removeprefix("Value error, ")
    return f"{place}: {reason}" if place else reason


def unreadable(expected: str, text: str) -> NoReturn:
    """Raise `Unreadable` that says what was expected and how the text begins."""
    raise Unreadable(f"expected {expected}, got {excerpt(text)!r}")
