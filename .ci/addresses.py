"""Writes the public addresses into pyproject.toml before a release is built.

    python .ci/addresses.py https://HOST/OWNER/NAME

The repository does not know where it is hosted; the release workflow does. Nothing is written twice.
"""

from __future__ import annotations

import sys
from pathlib import Path
from urllib.parse import urlsplit

PROJECT = Path(__file__).parents[1] / "pyproject.toml"
BEFORE = "[project.scripts]"


def main() -> None:
    """Put `[project.urls]` before the scripts."""
    address = sys.argv[1].rstrip("/") if len(sys.argv) == 2 else ""
    if urlsplit(address).scheme != "https" or not urlsplit(address).path.strip("/"):
        sys.exit("name the address of the repository, as in https://github.com/OWNER/ragpulse")
    text = PROJECT.read_text(encoding="utf-8")
    if "[project.urls]" in text:
        return
    urls = {"Source": address, "Issues": f"{address}/issues", "Changelog": f"{address}/blob/main/CHANGELOG.md"}
    table = "\n".join(["[project.urls]", *(f'{name} = "{url}"' for name, url in urls.items())])
    PROJECT.write_text(text.replace(BEFORE, f"{table}\n\n{BEFORE}", 1), encoding="utf-8")


if __name__ == "__main__":
    main()
