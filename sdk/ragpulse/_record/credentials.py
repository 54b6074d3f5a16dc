"""Finds credentials: known keys, passwords in URLs, and values with a secret's name.

A guard that is much cheaper than a regular expression precedes each pattern: a key has a run of sixteen letters and
digits and a known beginning, or stands behind a name such as `password` and a sign. Ordinary text is never matched.

`KEYS`, `CARD` and `EMAIL` are the only list of such patterns: the page of a single trace masks them, too.
"""

import base64
import re
from functools import lru_cache
from typing import Any

_Beginnings = tuple[tuple[int, re.Pattern[bytes]], ...]
REDACTED_KEY = "[redacted:key]"

KEYS = r"""\b(?:sk|rk)[-_][A-Za-z0-9_-]{16,} | \brp_[A-Za-z0-9_-]{43}\b
    | \b(?:AKIA|ASIA)[A-Z0-9]{16}\b
    | \bgh[pousr]_[A-Za-z0-9]{20,} | \bgithub_pat_\w{20,} | \bglpat-[\w-]{16,}
    | \bnpm_[A-Za-z0-9]{30,} | \b(?:hf|gsk|jina)_[A-Za-z0-9]{20,} | \bwhsec_[A-Za-z0-9+/=]{20,}
    | \b(?:dckr_[po]at|pcsk|lsv2)_\w{20,}
    | \bSG\.[\w-]{16,}\.[\w-]{16,} | \bya29\.[\w-]{16,}
    | \bxox[abeoprs]-[A-Za-z0-9-]{11,} | \bAIza[\w-]{30,}
    | -----BEGIN[A-Z ]*PRIVATE\ KEY-----[\s\S]*?(?:-----END[A-Z ]*PRIVATE\ KEY-----|\Z)
    | (?<![\w-])eyJ[\w-]{13,}\.[\w-]{8,}\.[\w-]{4,}
    | (?<=[Bb]earer\ )(?=\S{0,64}?[\w-]{16})[\w.~+/=-]{16,}
    | (?<=://)[^\s/?#@:"'<>]{0,256}:[^\s/?#"'<>]{1,512}(?=@)"""
"""Verbose, ASCII. Patterns that few texts need are compiled when one does."""
_BASIC_VALUE = r"(?<=Basic\ )[A-Za-z0-9+/]{4,}={0,2}"
CARD = r"(?<![\d.])[2-6](?:[ -]?\d){12,18}(?!\d)"
EMAIL = r"[A-Za-z0-9._%+-]{1,64}@(?:[A-Za-z0-9-]{1,63}\.){1,8}[A-Za-z]{2,63}"
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
QUOTED_NAME = rf'(?i:{_NAMES}|{_SHORT_NAMES})"'
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


def _by_first_byte(*patterns: bytes) -> _Beginnings:
    """Each pattern with the byte that it begins with: a text without it is not searched."""
    return tuple([(pattern[0], re.compile(pattern)) for pattern in patterns])


_KEY_BEGINNINGS = _by_first_byte(
    rb"-(?:(?<=\b[sr]k-)|(?<=\bglpat-)|(?<=\bxox[abeoprs]-))[\w-]{11}",
    rb"_(?:(?<=\b[sr]k_)|(?<=\bgh[pousr]_)|(?<=\bgithub_pat_)|(?<=\bnpm_)|(?<=\bhf_)|(?<=\bgsk_)|(?<=\bjina_)"
    rb"|(?<=\bwhsec_)|(?<=\bdckr_[po]at_)|(?<=\bpcsk_)|(?<=\blsv2_)|(?<=\brp_))[\w-]{11}",
    rb"A(?:KIA|SIA|Iza)[\w-]{16}",
    rb"G(?<=\bSG)\.[\w-]{16}",
    rb"9(?<=\bya29)\.[\w-]{16}",
    rb"J(?<=eyJ)[\w-]{13}",
)
"""How every key of `KEYS` that has a long run begins, but a bearer's."""


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


_OTHER_BEGINNINGS = _by_first_byte(
    b"-----BEGIN", rb"--(?=[A-Za-z])(?<![\w-]--)(?i:%b)[ \t\"]" % _OPTION.encode(), b"Basic "
)
_NAME_ENDINGS = _by_first_byte(*[sign + b"(?:" + _ending(sign) + b")" for sign in (b":", b"=")])
_WORD_BYTES = tuple([word.encode() for word in (*_WORDS, *_SHORT_WORDS, "sessionid")])
_QUOTED_ENDINGS = _by_first_byte(b"|".join([b'"(?<=' + end + b'")' for end in (*_ENDS, _SHORT_END)]))
_SHAPES = bytes(119 if chr(byte).isalnum() or byte in b"_-" else 32 for byte in range(128)) + b" " * 128
"""Letters, digits, `_` and `-` become `w`; all else is a blank."""
_LONG_RUN = b"w" * 16


@lru_cache(maxsize=1024)
def is_secret_name(name: str) -> bool:
    """Whether a parameter, a key of JSON or an attribute of this name holds a secret."""
    return _SECRET_NAME.search(name) is not None


def may_hold_key(data: bytes, special: bytes) -> bool:
    """Whether a text with these bytes may hold a credential; False is exact."""
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


def redact_keys(text: str) -> str:
    """The text without its credentials."""
    text = re.sub(_NAMED_VALUE, _without_value, text, flags=re.VERBOSE | re.IGNORECASE | re.ASCII)
    if "--" in text:
        text = re.sub(_OPTION_VALUE, _without_argument, text, flags=re.IGNORECASE | re.ASCII)
    return re.sub(f"{KEYS} | {_BASIC_VALUE}", _without_key, text, flags=re.VERBOSE | re.ASCII)


def _without_argument(match: re.Match[str]) -> str:
    value = match["value"]
    return match.group() if re.fullmatch(_PLACEHOLDER, value) else match.group()[: -len(value)] + REDACTED_KEY


def _without_key(match: re.Match[str]) -> str:
    text = match.group()
    before = match.string[max(match.start() - 4, 0) : match.start()]
    if before.endswith("://"):
        return f"{text.partition(':')[0]}:{REDACTED_KEY}"
    if before.endswith("sic ") and not _is_user_and_password(text):
        return text
    return REDACTED_KEY


def _is_user_and_password(text: str) -> bool:
    """Whether a word after `Basic` encodes user and password, as in HTTP; sentences have other words."""
    try:
        return b":" in base64.b64decode(text, validate=True)
    except ValueError:
        return False


def _without_value(match: re.Match[str]) -> str:
    bare = match["bare"]
    if bare is not None and not _is_secret(match, bare):
        return match.group()
    value = match["quoted"] or match["header"] or bare
    return match.group()[: -len(value)] + REDACTED_KEY


def _is_secret(match: re.Match[str], value: str) -> bool:
    """Whether an unquoted value is a secret and not a word of a sentence."""
    if value.lower() in _NOTHING or (match["short"] and is_count(match["name"], value)):
        return False
    if match["sign"] == "=":
        return len(value) >= 3
    if match["close"]:
        return True
    sentence = match["name"].lower().startswith(_PROSE) or " " in match["name"]
    return len(value) >= 6 and (not sentence or any(map(str.isdigit, value)))


def is_count(name: str, value: Any) -> bool:
    """Whether the value counts tests that pass."""
    return name[-4:].lower() == "pass" and str(value).replace(".", "", 1).isdecimal()
