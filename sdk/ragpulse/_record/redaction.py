"""Removes secrets from texts, and from values with a secret's name, before they leave the process.

Runs on the exporting thread. Each pattern is guarded by something that is much cheaper than a regular expression: a key
has a run of sixteen letters and digits and a known beginning, or stands behind a name such as `password` and a sign; a
card number has thirteen digits, a blank or hyphen apart at most. Ordinary text is examined in two passes of
`bytes.translate` and never matched.
"""

import base64
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from ragpulse._guard import GUARD
from ragpulse._reading.values import to_json

Redactor = Callable[[str], str]
Guard = Callable[[bytes, bytes], bool]
_Beginnings = tuple[tuple[int, re.Pattern[bytes]], ...]
Rule = str | re.Pattern[str] | Redactor
FAILED = "[ragpulse: withheld, the redaction function failed]"
_KEY = "[redacted:key]"

_KEYS = r"""\b(?:sk|rk)[-_][A-Za-z0-9_-]{16,}
    | \b(?:AKIA|ASIA)[A-Z0-9]{16}\b
    | \bgh[pousr]_[A-Za-z0-9]{20,} | \bgithub_pat_\w{20,} | \bglpat-[\w-]{16,}
    | \bnpm_[A-Za-z0-9]{30,} | \b(?:hf|gsk|jina)_[A-Za-z0-9]{20,} | \bwhsec_[A-Za-z0-9+/=]{20,}
    | \b(?:dckr_[po]at|pcsk|lsv2)_\w{20,}
    | \bSG\.[\w-]{16,}\.[\w-]{16,} | \bya29\.[\w-]{16,}
    | \bxox[abeoprs]-[A-Za-z0-9-]{11,} | \bAIza[\w-]{30,}
    | -----BEGIN[A-Z ]*PRIVATE\ KEY-----[\s\S]*?(?:-----END[A-Z ]*PRIVATE\ KEY-----|\Z)
    | (?<![\w-])eyJ[\w-]{13,}\.[\w-]{8,}\.[\w-]{4,}
    | (?<=[Bb]earer\ )(?=\S{0,64}?[\w-]{16})[\w.~+/=-]{16,}
    | (?<=://)[^\s/?#@:"'<>]{0,256}:[^\s/?#"'<>]{1,512}(?=@)
    | (?<=Basic\ )[A-Za-z0-9+/]{4,}={0,2}"""
"""Patterns that few texts need are compiled when one does."""
_KEY_KINDS = ("api", "account", "access", "private", "secret", "signing", "encryption", "subscription")
_WORDS = (
    "password", "passwd", "passphrase", "pwd", "authorization", "cookie", "cookies", "secret", "token", "credential",
    "credentials", "connectionstring", "connection_string", "connection-string",
    *[f"{kind}{joint}key" for kind in _KEY_KINDS for joint in ("", "_", "-", " ")],
)  # fmt: skip
_SHORT_WORDS = ("auth", "jwt", "otp", "pass")
_NAMES = "|".join(map(re.escape, _WORDS))
_WHOLE_WORDS = "|".join(
    [rf"(?<![^\W\d_])(?:{word}|{word.title()}|{word.upper()})|(?<=[a-z]){word.title()}" for word in _SHORT_WORDS]
)
_SHORT_NAMES = f"(?-i:{_WHOLE_WORDS}|sessionid|SESSIONID)"
"""Names that other words end with: `basicAuth` and `user_pass`, not `compass`. `sessionId` is often a chat's."""
_SECRET_NAME = re.compile(rf"(?:{_NAMES}|{_SHORT_NAMES})\Z", re.IGNORECASE)
"""The end of a name whose value is a secret: `db_password`, `X-Api-Key`, `accessToken`; not `max_tokens`."""
_QUOTED_NAME = rf'(?i:{_NAMES}|{_SHORT_NAMES})"'
_SCHEMES = "Basic|Bearer|Digest|Token|Api-?Key|OAuth|Negotiate|SSWS"
_NAMED_VALUE = rf"""(?P<name>{_NAMES}|(?P<short>{_SHORT_NAMES}(?=\\{{0,3}}["'])))(?P<close>\\{{0,3}}["'])?\s?
    (?P<sign>[:=])\s{{0,3}}
    (?: (?P<quote>\\*["'])(?P<quoted>(?:(?!(?P=quote))(?:[^\\]|\\[\s\S]?))+)
      | (?<=cookie:\ )(?P<header>[^\s=]+=[^\r\n"']++)
      | (?P<bare>(?:(?:{_SCHEMES})\ )?[^\s"'&,;\[\](){{}}][^\s"'&,;\])}}]*+) )"""
"""A name of a secret and its value, as in JSON (also within JSON), Python, a header, a URL or a connection string."""
_OPTION = rf"(?:[a-z]{{1,20}}[-_]){{0,3}}(?:{_NAMES})"
_OPTION_VALUE = rf"""(?<![\w-])--{_OPTION}[ \t]{{1,3}}(?P<value>"[^"]+"|'[^']+'|[^\s"'<$-]\S*)"""
"""`--db-password hunter2` on a command line."""
_PLACEHOLDER = r"(?:[a-z]+|[A-Z_-]+)[).,:;]?"
"""What stands behind an option in a manual or a sentence."""
_NOTHING = frozenset({"null", "none", "true", "false"})
_PROSE = ("secret", "token", "cookie", "credential")
"""Names that ordinary sentences put before a colon: there a value with a digit is meant."""
_KEY_BEGINNINGS = (
    (ord("-"), re.compile(rb"-(?:(?<=\b[sr]k-)|(?<=\bglpat-)|(?<=\bxox[abeoprs]-))[\w-]{11}")),
    (
        ord("_"),
        re.compile(
            rb"_(?:(?<=\b[sr]k_)|(?<=\bgh[pousr]_)|(?<=\bgithub_pat_)|(?<=\bnpm_)|(?<=\bhf_)|(?<=\bgsk_)|(?<=\bjina_)"
            rb"|(?<=\bwhsec_)|(?<=\bdckr_[po]at_)|(?<=\bpcsk_)|(?<=\blsv2_))[\w-]{11}"
        ),
    ),
    (ord("A"), re.compile(rb"A(?:KIA|SIA|Iza)[\w-]{16}")),
    (ord("G"), re.compile(rb"G(?<=\bSG)\.[\w-]{16}")),
    (ord("9"), re.compile(rb"9(?<=\bya29)\.[\w-]{16}")),
    (ord("J"), re.compile(rb"J(?<=eyJ)[\w-]{13}")),
)
"""How every key of `_KEYS` that has a long run begins, but a bearer's; each pattern by the one byte it looks for."""


_ENDS = (
    b"[OoSsPpKkIiRr][RrWwIiEe][DdEeSsTtNnYy]",
    b"[PpZzEeNnSs][HhAaNnTt][RrTtIi][AaIi][SsOoAaLlNn][EeNnLlSsGg]",
)
"""How each name in `_WORDS` ends (`ord`, `swd`, `kie`, `ken`, ...; `zation`, `string`, ...), and few other words do."""
_SHORT_END = b"[UuJjOoNnAa][TtWwIiSs][HhTtPpDdSs]"
"""The same for the short names: they count in quotes only."""


_AT, _QUOTE = ord("@"), ord('"')
_CLOSING = rb"[\\\"'\s]"


def _ending(sign: bytes, closing: bytes = b"") -> bytes:
    """The end of a name in `_WORDS` before its sign, with up to five characters between the two."""
    ends = (*_ENDS, _SHORT_END) if closing else _ENDS
    pattern = b"|".join([b"(?<=" + end + closing + sign + b")" for end in ends])
    if len(closing) == 5 * len(_CLOSING):
        return pattern
    closing += _CLOSING
    return pattern + b"|(?<=" + closing + sign + b")(?:" + _ending(sign, closing) + b")"


_PRIVATE_KEY, _BASIC = re.compile(rb"-----BEGIN"), re.compile(rb"Basic ")
_OPTION_BEGINNING = re.compile(rb"--(?=[A-Za-z])(?<![\w-]--)(?i:%b)[ \t\"]" % _OPTION.encode())
_OTHER_BEGINNINGS = ((ord("-"), _PRIVATE_KEY), (ord("-"), _OPTION_BEGINNING), (ord("B"), _BASIC))
_NAME_ENDINGS = tuple([(ord(sign), re.compile(sign + b"(?:" + _ending(sign) + b")")) for sign in (b":", b"=")])
_WORD_BYTES = tuple([word.encode() for word in (*_WORDS, *_SHORT_WORDS, "sessionid")])
_QUOTED_ENDINGS = ((_QUOTE, re.compile(b"|".join([b'"(?<=' + end + b'")' for end in (*_ENDS, _SHORT_END)]))),)


_CARD = re.compile(r"(?<![\d.])[2-6](?:[ -]?\d){12,18}(?!\d)", re.ASCII)
_EMAIL = re.compile(r"[A-Za-z0-9._%+-]{1,64}@(?:[A-Za-z0-9-]{1,63}\.){1,8}[A-Za-z]{2,63}")
_ORDINARY = bytes(byte for byte in range(32, 256) if byte not in b'0123456789"\\')
_AS_ZERO = bytes.maketrans(b"123456789", b"000000000")
_SHAPES = bytes(119 if chr(byte).isalnum() or byte in b"_-" else 32 for byte in range(128)) + b" " * 128
"""Letters, digits, `_` and `-` become `w`; all else is a blank."""
_LONG_RUN, _CARD_RUN = b"w" * 16, b"0" * 13


def special_characters(data: bytes) -> bytes:
    """The digits of a text and the characters that JSON escapes: enough to decide about cards and quoting."""
    return data.translate(None, _ORDINARY)


@lru_cache(maxsize=1024)
def is_secret_name(name: str) -> bool:
    """Whether a parameter, a key of JSON or an attribute of this name holds a secret."""
    return _SECRET_NAME.search(name) is not None


def _may_hold_key(data: bytes, special: bytes) -> bool:
    if data.translate(_SHAPES).find(_LONG_RUN) >= 0 and (data.find(b"earer ") >= 0 or _holds(data, _KEY_BEGINNINGS)):
        return True
    if _AT in data and data.find(b"://") >= 0:
        return True
    if _holds_name(data) or (_QUOTE in data and _may_name_a_value(data)):
        return True
    return _holds(data, _OTHER_BEGINNINGS)


def _holds(data: bytes, patterns: _Beginnings) -> bool:
    # A number is looked for many times faster than a pattern, or than bytes: those make and discard an exception first.
    for sign, pattern in patterns:  # noqa: SIM110 - a generator for `any` costs as much as the rest
        if sign in data and pattern.search(data) is not None:
            return True
    return False


def _holds_name(data: bytes, endings: _Beginnings = _NAME_ENDINGS) -> bool:
    """Whether a name of `_WORDS` and its sign are in a text, as at the beginning of `_NAMED_VALUE`."""
    for sign, pattern in endings:
        if sign in data:
            for match in pattern.finditer(data):
                before = data[max(match.start() - 32, 0) : match.start()]
                if before.rstrip(b"\\\"' \t\n\r\f\v").lower().endswith(_WORD_BYTES):
                    return True
    return False


def _may_name_a_value(data: bytes) -> bool:
    """Whether the name of a secret may be apart from its value: `{"name": ..., "value": ...}`, `[["Cookie", ...]]`."""
    return (data.find(b'"value"') >= 0 or data.find(b'[["') >= 0) and _holds_name(data, _QUOTED_ENDINGS)


def _may_hold_card(data: bytes, special: bytes) -> bool:
    return (
        len(special) >= 13
        and special.translate(_AS_ZERO).find(_CARD_RUN) >= 0
        and data.translate(_AS_ZERO, b" -").find(_CARD_RUN) >= 0
    )


def _may_hold_email(data: bytes, special: bytes) -> bool:
    return _AT in data


def _redact_keys(text: str) -> str:
    text = re.sub(_NAMED_VALUE, _without_value, text, flags=re.VERBOSE | re.IGNORECASE | re.ASCII)
    if "--" in text:
        text = re.sub(_OPTION_VALUE, _without_argument, text, flags=re.IGNORECASE | re.ASCII)
    return re.sub(_KEYS, _without_key, text, flags=re.VERBOSE | re.ASCII)


def _without_argument(match: re.Match[str]) -> str:
    value = match["value"]
    return match.group() if re.fullmatch(_PLACEHOLDER, value) else match.group()[: -len(value)] + _KEY


def _without_key(match: re.Match[str]) -> str:
    text = match.group()
    before = match.string[max(match.start() - 4, 0) : match.start()]
    if before.endswith("://"):
        return f"{text.partition(':')[0]}:{_KEY}"
    if before.endswith("sic ") and not _is_user_and_password(text):
        return text
    return _KEY


def _is_user_and_password(text: str) -> bool:
    """Whether a word after `Basic` is what HTTP has there; the language Basic has other words."""
    try:
        return b":" in base64.b64decode(text, validate=True)
    except ValueError:
        return False


def _without_value(match: re.Match[str]) -> str:
    bare = match["bare"]
    if bare is not None and not _is_secret(match, bare):
        return match.group()
    value = match["quoted"] or match["header"] or bare
    return match.group()[: -len(value)] + _KEY


def _is_secret(match: re.Match[str], value: str) -> bool:
    """Whether a value without quotes is one, and no word of a sentence."""
    if value.lower() in _NOTHING or (match["short"] and _is_count(match["name"], value)):
        return False
    if match["sign"] == "=":
        return len(value) >= 3
    if match["close"]:
        return True
    sentence = match["name"].lower().startswith(_PROSE) or " " in match["name"]
    return len(value) >= 6 and (not sentence or any(map(str.isdigit, value)))


def _is_count(name: str, value: Any) -> bool:
    """Whether it is a number of tests that pass."""
    return name[-4:].lower() == "pass" and str(value).replace(".", "", 1).isdecimal()


def _redact_cards(text: str) -> str:
    return _CARD.sub(lambda match: "[redacted:card]" if _luhn(match.group()) else match.group(), text)


def _redact_emails(text: str) -> str:
    return _EMAIL.sub("[redacted:email]", text)


def _luhn(number: str) -> bool:
    digits = [int(char) for char in number if char.isdigit()]
    doubled = [sum(divmod(2 * digit, 10)) for digit in digits[-2::-2]]
    return (sum(digits[-1::-2]) + sum(doubled)) % 10 == 0 and any(digits)


def _unguarded(data: bytes, special: bytes) -> bool:
    return True


_RULES: dict[str, tuple[Redactor, Guard]] = {
    "key": (_redact_keys, _may_hold_key),
    "card": (_redact_cards, _may_hold_card),
    "email": (_redact_emails, _may_hold_email),
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
        if self(text, []) == text and not (self.has_key_rule and re.search(_QUOTED_NAME, text)):
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
        if self.has_key_rule and is_secret_name(name) and (isinstance(value, str) or not _is_count(name, value)):
            _note("key", applied)
            return _KEY
        return self(value, applied) if isinstance(value, str) else value

    def _items(self, name: str, items: Sequence[Any], applied: list[str]) -> list[Any]:
        """The items of a list. Pairs are names and values; an option of a command line names the next item."""
        if items and all([_is_pair(item) for item in items]):
            pairs = [(key, self.value(_name_of(name, key, {}), value, applied)) for key, value in items]
            return [type(items[0])(pair) for pair in pairs]
        names = [name] * len(items)
        for place, item in enumerate(items[:-1], 1):
            if isinstance(item, str) and item.startswith("--") and is_secret_name(item):
                names[place] = item
        return [self.value(*named, applied) for named in zip(names, items, strict=True)]

    @property
    def has_key_rule(self) -> bool:
        """Whether values are removed because of their names."""
        return any(rule[1] is _redact_keys for rule in self.rules)

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
