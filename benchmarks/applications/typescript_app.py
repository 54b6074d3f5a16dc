"""The example in TypeScript, by `npm install` and `npm start`."""

import shutil
import subprocess
from pathlib import Path

GROUP = "stores"
REQUIREMENTS = ["opentelemetry-sdk"]
EXPECTED = {
    "search": {"ids": ["refunds"], "contexts": ..., "query": ...},
    "answer": {"response": "A refund is possible within thirty days of the purchase."},
    "trace": {
        "query": "Is a refund possible after the purchase?",
        "response": "A refund is possible within thirty days of the purchase.",
    },
}

if __name__ == "__main__":
    shutil.copytree(Path(__file__).parents[2] / "examples" / "typescript", "typescript")
    for command in ("install", "start"):
        subprocess.run(["npm", command, "--silent"], cwd="typescript", check=True)
