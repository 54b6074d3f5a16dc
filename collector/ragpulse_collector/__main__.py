"""The console script; imports the standard library only, so that it can say what to install."""

from __future__ import annotations

import sys

INSTALL = "ragpulse: this command needs the collector: pip install 'ragpulse[collector]'"


def main() -> int:
    """Run the command line; exit 2 with the line to install where the extra is missing."""
    if sys.argv[1:2] == ["run"]:
        from ragpulse._instrument import run as run_program  # needs the SDK alone

        return run_program(sys.argv[2:])
    if sys.argv[1:] == ["--version"]:
        from importlib.metadata import version

        print(f"ragpulse, version {version('ragpulse')}")
        return 0
    try:
        from ragpulse_collector.cli import run

        return run()
    except ModuleNotFoundError as error:
        from importlib.metadata import requires

        package = (error.name or "").partition(".")[0]
        if not any(line.startswith(package) and "collector" in line for line in requires("ragpulse") or ()):
            raise
        print(f"{INSTALL}  (missing: {error.name})", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
