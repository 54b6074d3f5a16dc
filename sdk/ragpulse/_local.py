"""`local()`: a collector beside this process, for notebooks and scripts. It ends with the process."""

import atexit
import os
import re
import subprocess
import sys
import tempfile
import time
from typing import Any

from ._config import configure

_PATIENCE_S = 30.0
_PROGRAM = """
import os, signal, threading
from ragpulse_collector.__main__ import main
end = lambda: (os.read(0, 1), os.kill(os.getpid(), signal.SIGTERM))
threading.Thread(target=end, daemon=True).start()  # the pipe closes when the process that holds it ends
main()
"""
_STARTED: "dict[str, Local]" = {}


class Local:
    """A collector that this process started."""

    def __init__(self, db: str) -> None:
        arguments = ["serve", "--db", db, "--port", "0", "--no-grpc"]
        with tempfile.TemporaryFile() as printed:
            self._process = subprocess.Popen(
                [sys.executable, "-c", _PROGRAM, *arguments], stdin=subprocess.PIPE, stdout=printed, stderr=printed
            )
            until, said = time.monotonic() + _PATIENCE_S, ""
            while not (found := re.search(r"collector at (http://\S+)", said)):
                ended = self._process.poll() is not None
                printed.seek(0)
                said = printed.read().decode(errors="replace").strip()
                if (ended and "collector at" not in said) or time.monotonic() > until:
                    self.close()
                    raise RuntimeError(f"no collector was started: {said.splitlines()[-1] if said else 'it is silent'}")
                time.sleep(0.05)
        self.url = found[1]
        """The address of its pages, and what `connect()` reads."""
        atexit.register(self.close)

    def close(self) -> None:
        """Ends the collector; what it stored stays in its file."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._process.terminate()
        self._process.wait()

    @property
    def running(self) -> bool:
        """Whether it still answers."""
        return self._process.poll() is None

    def __repr__(self) -> str:
        return f"Local({self.url!r})"

    def _repr_html_(self) -> str:
        return f'ragpulse at <a href="{self.url}" target="_blank">{self.url}</a>'


def local(service_name: str = "notebook", *, db: str | os.PathLike[str] = "ragpulse.duckdb", **options: Any) -> Local:
    """Starts a collector beside this process and records into it; a second call returns the first one.

    It stores in `db` and ends with this process. RAGPULSE_URL names it from then on, for `connect()` of the client.
    `options` are those of `configure`. Raises RuntimeError where no collector starts: its extra is not installed, or
    another process has the file.
    """
    key = os.path.abspath(db)
    if key not in _STARTED or not _STARTED[key].running:
        _STARTED[key] = Local(key)
    os.environ["RAGPULSE_URL"] = _STARTED[key].url
    configure(service_name, endpoint=_STARTED[key].url, **options)
    return _STARTED[key]
