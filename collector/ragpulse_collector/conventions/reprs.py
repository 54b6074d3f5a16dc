"""Recognizes the repr of Python objects (`ChatMessage(...)`, `<generator ...>`), and reads the text in it.

Nothing is evaluated: the parser gets only a quoted text, without nesting or names.
"""

from __future__ import annotations

import re
from ast import literal_eval

QUOTED = r"""'(?:[^'\\\n]|\\[\\'"nrt]|\\[xuU][0-9a-f]+)*+'|"(?:[^"\\\n]|\\[\\'"nrt]|\\[xuU][0-9a-f]+)*+\""""
"""A quoted text. Possessive, like the patterns below: a hostile text would be matched in exponential time otherwise."""
_OBJECT = re.compile(
    r"<[\w.]++(?: object| of)?+\b[^<>]*(?:<locals>[^<>]*)? at 0x[0-9a-fA-F]++>|<[A-Z]\w*+\(.*\)>", flags=re.DOTALL
)
"""`<generator object answer at 0x7f>`, `<NodeWithScore(node=...)>`."""
_CONSTRUCTOR = re.compile(r"\[?[A-Z]\w*\([a-z_]\w*=.*\)\]?", flags=re.DOTALL)
"""`ChatMessage(_role=...)`, a list of such; dataclasses and pydantic's repr."""
_FIELDS = re.compile(
    rf"(?:[a-z_]\w*=(?:{QUOTED}|[^\s'\"]++)(?:\s|$))+|[a-z_]\w*=(?:{QUOTED}) [a-z_]\w*=.*", flags=re.DOTALL
)
"""`answer='Yes.' sources=['a']`: pydantic's str."""
BEGINS = r"<[A-Za-z]|\[?[A-Z]\w*+\([a-z_]|[a-z_]\w*+=['\"]"
may_be_repr = re.compile(BEGINS).match
"""Whether a text begins like a repr: a quick check that excludes almost all texts."""
_TEXT = re.compile(rf"\bText(?:Content|Block|Part)?\((?:\w+=(?:{QUOTED}), )*?text=({QUOTED})")
_ANSWER_FIELDS = (
    "answer",
    "response",
    "output",
    "final_output",
    "raw",
    "text",
    "content",
    "_content",
    "completion",
    "result",
)
_NAMED = re.compile(rf"(?<![\w.])(\w+)=({QUOTED})")
_ROLE = re.compile(r"\b_?role=(?:<\w+\.\w+: '(\w+)'>|'(\w+)'|\w+\.(\w+))")
_MAX_LENGTH = 65_536


def is_repr(text: str) -> bool:
    """Return whether a text is the repr of a Python object."""
    if may_be_repr(text) is None:
        return False
    if text[0] == "<":
        return _OBJECT.fullmatch(text) is not None
    return _CONSTRUCTOR.fullmatch(text) is not None or _is_fields(text)


def text_in(text: str) -> str | None:
    """Return the text for people in a repr: that of a message, or a field such as `answer`."""
    if len(text) > _MAX_LENGTH:
        return None
    texts = [unquote(quoted) for quoted in _TEXT.findall(text)]
    if texts:
        return "\n".join(filter(None, texts)) or None
    by_name: dict[str, str] = {}
    for name, quoted in _NAMED.findall(text):
        by_name.setdefault(name, quoted)
    return next((unquote(by_name[name]) for name in _ANSWER_FIELDS if name in by_name), None)


def role_of(text: str) -> str | None:
    """Return the role of a chat message given as its repr."""
    match = _ROLE.search(text[:200]) if is_repr(text) else None
    return None if match is None else next(filter(None, match.groups())).lower()


def unquote(quoted: str) -> str | None:
    """Return the text of a quoted Python string, None if it is empty or invalid."""
    try:
        text = str(literal_eval(quoted))
        text.encode()  # half a surrogate pair is no text
    except (ValueError, SyntaxError):
        return None
    return text or None


def _is_fields(text: str) -> bool:
    names = {name for name, _ in _NAMED.findall(text[:_MAX_LENGTH])}
    return not names.isdisjoint(_ANSWER_FIELDS) and _FIELDS.fullmatch(text[:_MAX_LENGTH]) is not None
