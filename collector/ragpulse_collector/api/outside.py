"""What may not come from outside this process: paths of files to load, addresses to call."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

FILES = ("loads", "prompts")
_ADDRESS = re.compile(r"://|\bhttps?:", re.IGNORECASE)


def names_only(params: Mapping[str, Any]) -> None:
    """Refuse a replay that brings files or a judge's address along; raises ValueError with the mend.

    Whoever may ask for a replay must not thereby make the collector read a file, run code or call a host of their
    choice: evaluators are registered from Python, judges' addresses come from the configuration.
    """
    for name in FILES:
        if params.get(name):
            raise ValueError(
                f"{name}: files are not taken over HTTP; `ragpulse replay --load FILE --url ...` runs them in its own"
                " process and sends the results, `ragpulse serve --load FILE` (or [evaluators] files in ragpulse.toml)"
                " makes the collector know them"
            )
    judge = params.get("judge") or ""
    if not isinstance(judge, str) or _ADDRESS.search(judge):
        raise ValueError("judge: name a model; its address belongs in ragpulse.toml: [judge] api_base")
