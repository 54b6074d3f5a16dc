"""Removes secrets from texts before they leave the process, on the exporting thread.

Each pattern is guarded by something that is much cheaper than a regular expression: a key has a run of sixteen letters
and digits and a known beginning (or stands behind `password=`), a card number has thirteen digits, a blank or hyphen
apart at most. Ordinary text is examined in two passes of `bytes.translate` and never matched.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ragpulse._guard import GUARD

Redactor = Callable[[str], str]
Guard = Callable[[bytes, bytes], bool]
Rule = str | re.Pattern[str] | Redactor
FAILED = "[ragpulse: withheld, the redaction function failed]"

_KEYS = re.compile(
    r"""\b(?:sk|rk)[-_][A-Za-z0-9_-]{16,}
    | \b(?:AKIA|ASIA)[A-Z0-9]{16}\b
    | \bgh[pousr]_[A-Za-z0-9]{20,} | \bgithub_pat_\w{20,} | \bglpat-[\w-]{16,}
    | \bnpm_[A-Za-z0-9]{30,} | \bhf_[A-Za-z0-9]{20,}
    | \bxox[abeoprs]-[A-Za-z0-9-]{11,} | \bAIza[\w-]{30,}
    | -----BEGIN[A-Z ]*PRIVATE\ KEY-----[\s\S]*?(?:-----END[A-Z ]*PRIVATE\ KEY-----|\Z)
    | (?<![\w-])eyJ[\w-]{13,}\.[\w-]{8,}\.[\w-]{4,}
    | (?<=[Bb]earer\ )(?=\S{0,64}?[\w-]{16})[\w.~+/=-]{16,}
    | (?i:(?<=password=)|(?<=password:\ )|(?<=api_key=)|(?<=apikey=)|(?<=api-key:\ )|(?<=secret=)|(?<=token=))
      [^\s"'&,;]{6,}""",
    re.VERBOSE | re.ASCII,
)
_STARTS = {
    ord("-"): re.compile(rb"-(?:(?<=\b[sr]k-)|(?<=\bglpat-)|(?<=\bxox[abeoprs]-))[\w-]{11}"),
    ord("_"): re.compile(rb"_(?:(?<=\b[sr]k_)|(?<=\bgh[pousr]_)|(?<=\bgithub_pat_)|(?<=\bnpm_)|(?<=\bhf_))[\w-]{11}"),
    ord("A"): re.compile(rb"A(?:KIA|SIA|Iza)[\w-]{16}"),
    ord("J"): re.compile(rb"J(?<=eyJ)[\w-]{13}"),
}
"""How every key of `_KEYS` that has a long run begins, but a bearer's; each pattern by the one byte it looks for."""
_SAID = {
    ord("="): re.compile(rb"=(?i:(?<=password=)|(?<=api_key=)|(?<=apikey=)|(?<=secret=)|(?<=token=))"),
    ord(":"): re.compile(rb":(?i:(?<=password:)|(?<=api-key:)) "),
    ord("-"): re.compile(rb"-----BEGIN"),
}
"""What stands before the keys of `_KEYS` that have no long run."""
_CARD = re.compile(r"(?<![\d.])\d(?:[ -]?\d){12,18}(?!\d)", re.ASCII)
_EMAIL = re.compile(r"[A-Za-z0-9._%+-]{1,64}@(?:[A-Za-z0-9-]{1,63}\.){1,8}[A-Za-z]{2,63}")
_ORDINARY = bytes(byte for byte in range(32, 256) if byte not in b'0123456789"\\')
_AS_ZERO = bytes.maketrans(b"123456789", b"000000000")
_SHAPES = bytes(119 if chr(byte).isalnum() or byte in b"_-" else 32 for byte in range(128)) + b" " * 128
"""Letters, digits, `_` and `-` become `w`; all else is a blank."""
_LONG_RUN, _CARD_RUN = b"w" * 16, b"0" * 13
_AT = ord("@")


def marks(data: bytes) -> bytes:
    """The digits of a text and the characters that JSON escapes: enough to decide about cards and quoting."""
    return data.translate(None, _ORDINARY)


def _may_hold_key(data: bytes, marked: bytes) -> bool:
    if data.translate(_SHAPES).find(_LONG_RUN) >= 0 and (data.find(b"earer ") >= 0 or _holds(data, _STARTS)):
        return True
    return _holds(data, _SAID)


def _holds(data: bytes, patterns: dict[int, re.Pattern[bytes]]) -> bool:
    # A number is looked for many times faster than a pattern, or than bytes: those make and discard an exception first.
    for sign, pattern in patterns.items():  # noqa: SIM110 - a generator for `any` costs as much as the rest
        if sign in data and pattern.search(data) is not None:
            return True
    return False


def _may_hold_card(data: bytes, marked: bytes) -> bool:
    return (
        len(marked) >= 13
        and marked.translate(_AS_ZERO).find(_CARD_RUN) >= 0
        and data.translate(_AS_ZERO, b" -").find(_CARD_RUN) >= 0
    )


def _may_hold_email(data: bytes, marked: bytes) -> bool:
    return _AT in data


def _redact_keys(text: str) -> str:
    return _KEYS.sub("[redacted:key]", text)


def _redact_cards(text: str) -> str:
    return _CARD.sub(lambda found: "[redacted:card]" if _luhn(found.group()) else found.group(), text)


def _redact_emails(text: str) -> str:
    return _EMAIL.sub("[redacted:email]", text)


def _luhn(number: str) -> bool:
    digits = [int(char) for char in number if char.isdigit()]
    doubled = [sum(divmod(2 * digit, 10)) for digit in digits[-2::-2]]
    return (sum(digits[-1::-2]) + sum(doubled)) % 10 == 0 and any(digits)


def _unguarded(data: bytes, marked: bytes) -> bool:
    return True


_NAMED: dict[str, tuple[Redactor, Guard]] = {
    "key": (_redact_keys, _may_hold_key),
    "card": (_redact_cards, _may_hold_card),
    "email": (_redact_emails, _may_hold_email),
}
_SETS: dict[str, tuple[str, ...]] = {"default": ("key", "card"), "all": ("key", "card", "email"), "off": (), "none": ()}


@dataclass(frozen=True, slots=True)
class Redaction:
    """An ordered list of named rules, each a function from text to text and the guard that decides when to call it."""

    rules: tuple[tuple[str, Redactor, Guard], ...] = ()

    def suspects(self, data: bytes, marked: bytes) -> bool:
        """Whether any rule could change a text with these bytes and `marks`; False is exact."""
        for _, _, guard in self.rules:  # noqa: SIM110 - a generator for `any` would cost as much as the guards
            if guard(data, marked):
                return True
        return False

    def __call__(self, text: str, applied: list[str]) -> str:
        """The text without its secrets; the names of the rules that changed it are added to `applied`."""
        data = text.encode("utf-8", "replace")
        for name, rule, guard in self.rules:
            if guard(data, marks(data)) and (clean := rule(text)) != text:
                text, data = clean, clean.encode("utf-8", "replace")
                if name not in applied:
                    applied.append(name)
        return text

    def describe(self) -> str:
        """The rules' names, for the start-up line."""
        return ", ".join(name for name, _, _ in self.rules) or "off"


def redaction(setting: Any) -> Redaction:
    """The rules for a `redact=` setting.

    Accepts `"default"` (credentials and card numbers), `"all"` (and e-mail addresses), `"off"`, False or None; a
    comma-separated string of `key`, `card`, `email`; a compiled pattern; a function from text to text; or a sequence
    of these. Raises ValueError for an unknown name.
    """
    if setting is None or setting is False:
        return Redaction()
    if setting is True:
        setting = "default"
    parts: Sequence[Any] = setting if isinstance(setting, (list, tuple)) else (setting,)
    return Redaction(tuple(rule for part in parts for rule in _rules(part)))


def _rules(part: Any) -> list[tuple[str, Redactor, Guard]]:
    if isinstance(part, str):
        names = [name.strip() for word in part.split(",") for name in _SETS.get(word.strip(), (word.strip(),))]
        unknown = [name for name in names if name not in _NAMED]
        if unknown:
            raise ValueError(f"unknown redaction {unknown[0]!r}: use one of {', '.join([*_SETS, *_NAMED])}")
        return [(name, *_NAMED[name]) for name in names]
    if isinstance(part, re.Pattern):
        return [("custom", lambda text: part.sub("[redacted]", text), _unguarded)]
    if callable(part):
        return [("custom", _contained(part), _unguarded)]
    raise ValueError(f"redact= accepts names, patterns and functions, not {part!r}")


def _contained(function: Redactor) -> Redactor:
    """A user's function that fails withholds the text: what should have been redacted must not leave."""

    def apply(text: str) -> str:
        try:
            return str(function(text))
        except Exception as error:  # noqa: BLE001 - the user's function; fail closed
            GUARD.limiter.warn("redaction", f"the redact= function raised {error!r}; the text was withheld")
            return FAILED

    return apply
