"""What a process of the product makes once and a process of the tests would make hundreds of times: made once here too.

Each collector of a test compiles the templates of the pages again, and each HTTP client reads the list of the
certificate authorities again: a twentieth of the CPU time of all tests.
"""

from __future__ import annotations

import ssl
from functools import cache
from types import CodeType
from typing import Any

import certifi
import jinja2
from jinja2.bccache import Bucket, BytecodeCache


class _Compiled(BytecodeCache):
    """Code of templates by name and content."""

    def __init__(self) -> None:
        self._code: dict[tuple[str, str], CodeType | None] = {}

    def load_bytecode(self, bucket: Bucket) -> None:
        bucket.code = self._code.get((bucket.key, bucket.checksum))

    def dump_bytecode(self, bucket: Bucket) -> None:
        self._code[bucket.key, bucket.checksum] = bucket.code


def share() -> None:
    """Let all template environments share their compiled code, and all clients one list of authorities."""
    compiled, make, context = _Compiled(), jinja2.Environment.__init__, ssl.create_default_context

    def make_sharing(environment: jinja2.Environment, *arguments: Any, **options: Any) -> None:
        make(environment, *arguments, **{"bytecode_cache": compiled, **options})

    @cache
    def usual() -> ssl.SSLContext:
        return context(cafile=certifi.where())

    def shared(*arguments: Any, **options: Any) -> ssl.SSLContext:
        is_usual = not arguments and options == {"cafile": certifi.where()}  # as httpx asks where nothing is set
        return usual() if is_usual else context(*arguments, **options)

    jinja2.Environment.__init__ = make_sharing  # type: ignore[method-assign, assignment]
    ssl.create_default_context = shared
