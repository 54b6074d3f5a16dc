"""Removes secrets from texts, and from values with a secret's name, before they leave the process.

Runs on the exporting thread. A guard that is much cheaper than a regular expression precedes each pattern: a card
number has thirteen digits, a blank or hyphen apart at most. `credentials` has the patterns and guards of keys.
"""

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from ragpulse._guard import GUARD
from ragpulse._reading.values import to_json

from .credentials import CARD, EMAIL, QUOTED_NAME, REDACTED_KEY, is_count, is_secret_name, may_hold_key, redact_keys

Redactor = Callable[[str], str]
Guard = Callable[[bytes, bytes], bool]
Rule = str | re.Pattern[str] | Redactor
FAILED = "[ragpulse: withheld, the redaction function failed]"

_CARD, _EMAIL = re.compile(CARD, re.ASCII), re.compile(EMAIL)
_ORDINARY = bytes(byte for byte in range(32, 256) if byte not in b'0123456789"\\')
_AS_ZERO = bytes.maketrans(b"123456789", b"000000000")
_CARD_RUN = b"0" * 13


def special_characters(data: bytes) -> bytes:
    """The digits of a text and the characters that JSON escapes: enough to decide about cards and quoting."""
    return data.translate(None, _ORDINARY)


def _may_hold_card(data: bytes, special: bytes) -> bool:
    return (
        len(special) >= 13
        and special.translate(_AS_ZERO).find(_CARD_RUN) >= 0
        and data.translate(_AS_ZERO, b" -").find(_CARD_RUN) >= 0
    )


def _redact_cards(text: str) -> str:
    return _CARD.sub(lambda match: "[redacted:card]" if _luhn(match.group()) else match.group(), text)


def _luhn(number: str) -> bool:
    digits = [int(char) for char in number if char.isdigit()]
    doubled = [sum(divmod(2 * digit, 10)) for digit in digits[-2::-2]]
    return (sum(digits[-1::-2]) + sum(doubled)) % 10 == 0 and any(digits)


def _unguarded(data: bytes, special: bytes) -> bool:
    return True


_RULES: dict[str, tuple[Redactor, Guard]] = {
    "key": (redact_keys, may_hold_key),
    "card": (_redact_cards, _may_hold_card),
    "email": (partial(_EMAIL.sub, "[redacted:email]"), lambda data, special: b"@" in data),
}
_SETS: dict[str, tuple[str, ...]] = {"default": ("key", "card"), "all": ("key", "card", "email"), "off": (), "none": ()}


@dataclass(frozen=True, slots=True)
class Redaction:
    """An ordered list of named rules, each a function from text to text and the guard that decides when to call it."""

    rules: tuple[tuple[str, Redactor, Guard], ...] = ()

    def suspects(self, data: bytes, special: bytes) -> bool:
        """Whether any rule could change a text with these bytes and special characters; False is exact."""
        for _, _, guard in self.rules:  # noqa: SIM110 - a generator for `any` would cost as much as the guards
            if guard(data, special):
                return True
        return False

    def __call__(self, text: str, applied: list[str]) -> str:
        """The text without its secrets; the names of the rules that changed it are added to `applied`."""
        data = text.encode("utf-8", "replace")
        for name, rule, guard in self.rules:
            if guard(data, special_characters(data)) and (clean := rule(text)) != text:
                text, data = clean, clean.encode("utf-8", "replace")
                _note(name, applied)
        return text

    def json(self, text: str, applied: list[str]) -> str:
        """A JSON text without the secrets in its strings and under their names; JSON stays JSON."""
        if self(text, []) == text and not (self.has_key_rule and re.search(QUOTED_NAME, text)):
            return text
        return to_json(self.value("", json.loads(text), applied))

    def value(self, name: str, value: Any, applied: list[str]) -> Any:
        """A value of this name without its secrets; under the name of a secret no text and no number is left."""
        if isinstance(value, dict):
            return {self(key, applied): self.value(_name_of(name, key, value), value[key], applied) for key in value}
        if isinstance(value, tuple) and value and isinstance(value[0], float):
            return value  # an embedding
        if isinstance(value, (list, tuple)):
            return type(value)(self._items(name, value, applied))
        if value in ("", None) or isinstance(value, bool):
            return value
        if self.has_key_rule and is_secret_name(name) and (isinstance(value, str) or not is_count(name, value)):
            _note("key", applied)
            return REDACTED_KEY
        return self(value, applied) if isinstance(value, str) else value

    def _items(self, name: str, items: Sequence[Any], applied: list[str]) -> list[Any]:
        """The items of a list. Pairs are names and values; an option of a command line names the next item."""
        if items and _is_pair(items[0]) and all([_is_pair(item) for item in items]):
            pairs = [(key, self.value(_name_of(name, key, {}), value, applied)) for key, value in items]
            return [type(items[0])(pair) for pair in pairs]
        clean, name_of_next = [], name
        for item in items:
            clean.append(self.value(name_of_next, item, applied))
            is_option = type(item) is str and item[:2] == "--" and is_secret_name(item)
            name_of_next = item if is_option else name
        return clean

    @property
    def has_key_rule(self) -> bool:
        """Whether values are removed because of their names."""
        return any(rule[1] is redact_keys for rule in self.rules)

    def describe(self) -> str:
        """The rules' names, for the start-up line."""
        return ", ".join(name for name, _, _ in self.rules) or "off"


def _note(rule: str, applied: list[str]) -> None:
    if rule not in applied:
        applied.append(rule)


def _name_of(outer: str, key: str, members: dict[str, Any]) -> str:
    """The name that counts for a member: a secret's name holds for all that is below it."""
    if key == "token" and "logprob" in members:  # a piece of a model's answer
        return outer
    if is_secret_name(outer):
        return outer
    named = members.get("name", members.get("key")) if key == "value" else None  # a header, a cookie, a variable
    return named if isinstance(named, str) and is_secret_name(named) else key


def _is_pair(item: Any) -> bool:
    return type(item) in (list, tuple) and [type(part) for part in item] == [str, str] and len(item[0]) < 100


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
        unknown = [name for name in names if name not in _RULES]
        if unknown:
            raise ValueError(f"unknown redaction {unknown[0]!r}: use one of {', '.join([*_SETS, *_RULES])}")
        return [(name, *_RULES[name]) for name in names]
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
