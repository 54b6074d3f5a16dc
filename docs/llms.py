"""Writes the guides for assistants: `python docs/llms.py build/site`; `make site` calls it.

`llms.txt` lists every page with its first sentence; each page stands beside its HTML as Markdown.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

DOCS = Path(__file__).parent
LINK = re.compile(r"\[([^\]]+)\]\([^)]*\)")
HEAD = "# ragpulse\n\n> Records the answers of RAG applications, scores them, and says why they got worse.\n"


def main() -> None:
    """Write the list and copy the pages."""
    target = Path(sys.argv[1])
    lines = [HEAD]
    for page in sorted(DOCS.rglob("*.md")):
        name, text = page.relative_to(DOCS), page.read_text(encoding="utf-8")
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        (target / name).write_text(text, encoding="utf-8")
        title, _, rest = text.removeprefix("# ").partition("\n")
        paragraph = " ".join(LINK.sub(r"\1", rest.strip().partition("\n\n")[0]).split())
        lines.append(f"- [{title}]({name}): {re.split(r'(?<=[.?:]) ', paragraph)[0]}")
    (target / "llms.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
