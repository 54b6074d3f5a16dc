"""docs/first-alert.md followed literally: from an empty environment to the first message, in seconds.

The wheel of this checkout is installed where the guide installs ragpulse; `--here` uses this environment instead.
Files, commands and the expected text are read from the guide. Fails past ten minutes, past three until the first
scored answer is on the pages, or where the message is another one.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from install import PORT, ROOT, UV, environment, install, run

GUIDE = (ROOT / "docs" / "first-alert.md").read_text(encoding="utf-8")
FENCES = re.findall(r"^```(\w+)\n(.*?)^```", GUIDE, re.M | re.S)
MOST_S, MOST_UNTIL_SEEN_S = 600.0, 180.0


def main() -> int:
    """Install, write the guide's files, start what it starts, wait for the message."""
    with tempfile.TemporaryDirectory() as temporary:
        folder, begun = Path(temporary), time.monotonic()
        programs = Path(sys.executable).parent
        if "--here" not in sys.argv:
            run(folder, UV, "build", "--quiet", "--wheel", "--out-dir", folder / "dist", ROOT)
            (wheel,) = (folder / "dist").glob("*.whl")
            begun = time.monotonic()
            install(folder, "collector", f"{wheel}[collector]")
            programs = folder / "collector" / "bin"
        for _, text in FENCES:
            if named := re.match(r"# ([\w.]+)\n", text):
                (folder / named[1]).write_text(text, encoding="utf-8")
        environ = environment() | {"PATH": f"{programs}{os.pathsep}{os.environ['PATH']}"}
        commands = (["python", "receiver.py"], ["ragpulse", "serve"])
        with (folder / "printed").open("w") as printed:
            started = [subprocess.Popen(one, cwd=folder, env=environ, stdout=printed) for one in commands]
            try:
                wait(
                    lambda: not subprocess.run(["ragpulse", "healthy"], cwd=folder, env=environ, check=False).returncode
                )
                subprocess.run(["python", "app.py"], cwd=folder, env=environ, check=True)
                seen = ["ragpulse", "sql", "select score from scores where status = 'ok' limit 1", "--json"]
                wait(lambda: '"score"' in subprocess.check_output(seen, cwd=folder, env=environ, text=True))
                seen_s = time.monotonic() - begun
                (expected,) = [text.strip() for kind, text in FENCES if kind == "text"]
                wait(lambda: expected in (folder / "printed").read_text())
                message_s = time.monotonic() - begun
            finally:
                for process in started:
                    process.terminate()
                    process.wait()
        print((folder / "printed").read_text().partition(expected)[1:])
    print(f"port {PORT}: first scored answer after {seen_s:.1f} s, first message after {message_s:.1f} s")
    return int(seen_s > MOST_UNTIL_SEEN_S or message_s > MOST_S)


def wait(done: Callable[[], bool]) -> None:
    """Ask until it is so; ten minutes are the end."""
    until = time.monotonic() + MOST_S
    while not done():
        if time.monotonic() > until:
            raise SystemExit("this took longer than ten minutes")
        time.sleep(0.5)


if __name__ == "__main__":
    sys.exit(main())
