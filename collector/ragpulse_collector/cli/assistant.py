"""`ragpulse mcp setup`: the entry of ragpulse in the configuration of an assistant."""

from __future__ import annotations

import json
import sys
import tomllib
from pathlib import Path
from typing import Any

from ragpulse_collector.cli.options import Failure

JSON_FILES = {
    "claude": (".mcp.json", "mcpServers"),
    "cursor": (".cursor/mcp.json", "mcpServers"),
    "vscode": (".vscode/mcp.json", "servers"),
}
"""Per project: the file, and the key that holds the servers."""
CODEX = ".codex/config.toml"
ASSISTANTS = (*JSON_FILES, "codex")


def setup(assistant: str, url: str) -> Path:
    """Add ragpulse to the configuration; returns its file. Other entries stay; the key stays in the environment."""
    entry = {"command": sys.executable, "args": ["-m", "ragpulse_collector", "mcp", "--url", url]}
    if assistant == "codex":
        return _codex(entry)
    name, key = JSON_FILES[assistant]
    file = Path(name)
    try:
        configuration: Any = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
        servers = configuration.setdefault(key, {})
        servers["ragpulse"] = entry
    except (ValueError, AttributeError, TypeError) as error:
        raise Failure(f"{file} is not JSON with an object {key!r}: correct it, then run this again") from error
    file.parent.mkdir(exist_ok=True)
    file.write_text(json.dumps(configuration, indent=2) + "\n", encoding="utf-8")
    return file


def _codex(entry: dict[str, Any]) -> Path:
    file = Path.home() / CODEX
    text = file.read_text(encoding="utf-8") if file.exists() else ""
    try:
        known = tomllib.loads(text).get("mcp_servers", {})
    except tomllib.TOMLDecodeError as error:
        raise Failure(f"{file} is not TOML: {error}") from error
    if "ragpulse" not in known:
        lines = ["", "[mcp_servers.ragpulse]", *(f"{name} = {json.dumps(value)}" for name, value in entry.items()), ""]
        file.parent.mkdir(exist_ok=True)
        file.write_text(text + "\n".join(lines), encoding="utf-8")
    return file
