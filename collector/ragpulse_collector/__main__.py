"""The console script; imports the standard library only, so that it can say what to install."""

from __future__ import annotations

import sys

INSTALL = "ragpulse: this command needs the collector: pip install 'ragpulse[collector]'"


def main() -> int:
    """Run the command line; exit 2 with the line to install where the extra is missing."""
    if sys.argv[1:2] == ["run"]:
        from ragpulse._instrument import run as run_program  # needs the SDK alone

        return run_program(sys.argv[2:])
    try:
        from ragpulse_collector.cli import run
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0].startswith("ragpulse"):
            raise
        print(f"{INSTALL}  (missing: {error.name})", file=sys.stderr)
        return 2
    return run()


if __name__ == "__main__":
    sys.exit(main())
