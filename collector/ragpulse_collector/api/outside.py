"""What may not come from outside this process: paths of files to load, addresses to call."""

from __future__ import annotations

import re

from ragpulse_collector.api.models import Replay

FILES = ("loads", "prompts")
_ADDRESS = re.compile(r"://|\bhttps?:", re.IGNORECASE)


def names_only(params: Replay) -> None:
    """Refuse a replay that brings files or a judge's address along; raises ValueError with the fix.

    Whoever may ask for a replay must not thereby make the collector read a file, run code or call a host of their
    choice: evaluators are registered from Python, judges' addresses come from the configuration.
    """
    for name in FILES:
        if getattr(params, name):
            raise ValueError(
                f"{name}: files are not taken over HTTP; `ragpulse replay --load FILE --url ...` runs them in its own"
                " process and sends the results, `ragpulse serve --load FILE` (or [evaluators] files in ragpulse.toml)"
                " makes the collector know them"
            )
    if _ADDRESS.search(params.judge or ""):
        raise ValueError("judge: name a model; its address belongs in ragpulse.toml: [judge] api_base")
