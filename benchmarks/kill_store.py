"""kill -9 at fifty random moments of ingest, checkpoints and decisions (`--short`: three): what was lost or doubled.

Runs tests/collector/store/test_store_kill.py with more rounds and a seed of today; exit 1 when anything is missing.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

TEST = Path(__file__).parents[1] / "tests" / "collector" / "store" / "test_store_kill.py"


def main() -> int:
    """Run the rounds and say how many."""
    rounds = "3" if "--short" in sys.argv else "50"
    seed = str(int(time.time()) // 86_400)
    environment = os.environ | {"RAGPULSE_KILL_ROUNDS": rounds, "RAGPULSE_KILL_SEED": seed}
    command = [sys.executable, "-m", "pytest", "-q", "-o", "timeout=1800", str(TEST)]
    begun = time.monotonic()
    code = subprocess.run(command, env=environment, check=False).returncode
    verdict = "nothing lost, nothing doubled" if code == 0 else "FAILED"
    print(f"{rounds} kills (seed {seed}) in {time.monotonic() - begun:.0f} s: {verdict}")
    return code


if __name__ == "__main__":
    sys.exit(main())
