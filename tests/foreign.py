"""Runs tests/evaluators/foreign_metrics.py with the genuine packages, each in a cached environment: `make foreign`."""

from __future__ import annotations

import os
import subprocess
import sys

from environments import ROOT, SOURCES, environment

PACKAGES = {
    "ragas": ("ragas==0.4.3", "langchain-community==0.3.31"),
    "deepeval": ("deepeval==4.3.1",),
    "autoevals": ("autoevals==0.4.1", "openai"),
    "trulens": ("trulens-core==2.16.0", "trulens-feedback==2.16.0", "trulens-providers-openai==2.16.0"),
    "llama_index": ("llama-index-core==0.14.25",),
}
QUIET = {"DEEPEVAL_TELEMETRY_OPT_OUT": "YES", "RAGAS_DO_NOT_TRACK": "true", "PYTHONPATH": SOURCES}


def main(names: list[str]) -> int:
    """Test the named packages, all by default; returns the number of failures."""
    failed = 0
    for name in names or PACKAGES:
        python = environment(f"foreign-{name}", "collector", "grpcio", "pytest", "pytest-timeout", *PACKAGES[name])
        print(f"{name}: {', '.join(PACKAGES[name])}", flush=True)
        tests = [str(ROOT / "tests/evaluators/foreign_metrics.py"), "-k", name, "-q", "-W", "default"]
        failed += (
            subprocess.run([str(python), "-m", "pytest", *tests], cwd=ROOT, env=os.environ | QUIET).returncode != 0
        )
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
