"""Celery: a worker's child runs the task and ends with the worker; the application never calls `flush`."""

import subprocess
import sys
from pathlib import Path

from celery import Celery

import ragpulse

GROUP = "queues"
REQUIREMENTS = ["celery"]
EXPECTED = {
    "search": {"contexts": ["Paris is a city."], "parent": "answer"},
    "answer": {"kind": "rag", "query": "Where is Paris?", "response": "Paris is the capital of France."},
}

ragpulse.configure()
app = Celery("celery_tasks", broker="filesystem://", backend="file://.")
app.conf.broker_transport_options = {"data_folder_in": ".", "data_folder_out": ".", "control_folder": "."}


@ragpulse.retriever
def search(question: str) -> list[str]:
    return ["Paris is a city."]


@app.task(name="answer")
@ragpulse.rag
def answer(question: str) -> str:
    search(question)
    return "Paris is the capital of France."


if __name__ == "__main__":
    options = ["worker", "--pool", "prefork", "--concurrency", "1", "--loglevel", "error"]
    start = f"import sys; sys.path.insert(0, sys.argv.pop()); from celery_tasks import app; app.worker_main({options})"
    worker = subprocess.Popen([sys.executable, "-c", start, str(Path(__file__).parent)])
    try:
        app.signature("answer", ["Where is Paris?"]).delay().get(timeout=60)
    finally:
        worker.terminate()
        worker.wait(60)
