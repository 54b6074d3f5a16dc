"""Versions of evaluators; digests of texts, without releasing the interpreter's lock, and of values by their JSON."""

from __future__ import annotations

import hashlib
import inspect
import json
from typing import Any, Self

_PIECE = 2047
"""From 2,048 bytes on hashlib releases the lock: microseconds of work, then up to 5 ms until it is acquired again."""


def sha256_hex(text: str) -> str:
    """The sha256 of a text in UTF-8 as 64 hex digits; lone surrogates are digested as they are."""
    data = text.encode("utf-8", "surrogatepass")
    state = hashlib.sha256(data[:_PIECE])
    for start in range(_PIECE, len(data), _PIECE):
        state.update(data[start : start + _PIECE])
    return state.hexdigest()


class Version(str):
    """The version of an evaluator: scores with equal versions are one series, and no others.

    A version is made of a `label`, which a person raises when the meaning changes, and a `digest`:

    - Built-in evaluators, adapters and classes: the version is the digest of everything that decides a score (label,
      prompts, parameters, parser, scale, language: `Evaluator.version_parts`). A change of any byte breaks the series.
    - A user's function: the version is the label alone, so that a comment in the code breaks no series.

    Of users' code, `source` digests the source. Where the label is the version, the collector stores it beside each
    score (`beside`), and logs a change of the code under an unchanged version. Everywhere else it stores the label.
    """

    # A text, and no dataclass: stored rows, JSON, messages and comparisons use it as it is.
    __slots__ = ("label", "source")
    label: str
    source: str | None
    """None for built-in evaluators, and where the source cannot be read."""

    def __new__(cls, text: str, label: str = "1", source: str | None = None) -> Self:
        """Return the version that reads `text`: the digest, or the label."""
        version = super().__new__(cls, text)
        version.label, version.source = label, source
        return version

    @property
    def beside(self) -> str:
        """What is stored beside the version: the other of the two."""
        return (self.source or self.label) if self == self.label else self.label


def source_digest(code: Any) -> str | None:
    """12 hex of sha256 over the source of a function or class; None where it cannot be read."""
    try:
        return hashlib.sha256(inspect.getsource(code).encode()).hexdigest()[:12]
    except (OSError, TypeError):  # typed at a prompt, or compiled
        return None


def digest(value: Any) -> str:
    """12 hex of sha256 over canonical JSON."""
    text = json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"), default=_canonical)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _canonical(value: Any) -> Any:
    if isinstance(value, (set, frozenset)):
        return sorted(value)
    if callable(value) and not hasattr(value, "version_parts"):  # an evaluator is named by its version
        return getattr(value, "__qualname__", type(value).__name__)
    kind: Any = type(value)
    named = getattr(value, "id", None) or getattr(value, "version", None)
    if named is None and kind.__repr__ is object.__repr__:  # its address would change with each start
        return kind.__qualname__
    return named or repr(value)
