"""`ragpulse run` with only `pip install "ragpulse[instrument]"`: an unchanged program, no packages of the collector."""

import sys
from importlib.util import find_spec

from openai import OpenAI

GROUP = "run"
REQUIREMENTS = ["--editable={root}[instrument]", "openai"]
COMMAND = ["{python.parent}/ragpulse", "run", "{file}", "Where is Paris?"]
EXPECTED = {
    "ChatCompletion": {
        "kind": "llm",
        "query": "Where is Paris?",
        "response": "Paris is the capital of France.",
        "input_tokens": 120,
        "output_tokens": 5,
        "model": "gpt-5-mini",
    },
    "trace": {"scores": ..., "cost_usd": ...},
}

if __name__ == "__main__":
    assert find_spec("duckdb") is find_spec("click") is None, "the collector's packages are installed"
    OpenAI().chat.completions.create(model="gpt-5-mini", messages=[{"role": "user", "content": sys.argv[1]}])
