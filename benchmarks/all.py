"""`make bench`: run every benchmark and print its figures; `BENCH=--short` runs the shortened forms."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent


def main() -> int:
    """Run the scripts one after another (timings must not overlap); exit 1 when one fails."""
    names = [argument for argument in sys.argv[1:] if not argument.startswith("--")]
    options = [argument for argument in sys.argv[1:] if argument.startswith("--")]
    failed = []
    for script in sorted(HERE.glob("*.py")):
        text = script.read_text(encoding="utf-8")
        if script.stem == "all" or "__main__" not in text or (names and script.stem not in names):
            continue
        print(f"\n== {script.stem}", flush=True)
        if subprocess.run(
            [sys.executable, str(script), *(option for option in options if option in text)], check=False
        ).returncode:
            failed.append(script.stem)
    print(f"\n{len(failed)} failed" + (f": {', '.join(failed)}" if failed else ""))
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
