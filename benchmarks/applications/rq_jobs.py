"""RQ with a real Redis: the child of each job ends by `os._exit`, and its spans arrive without `flush`.

Needs `redis-server` (Debian: `apt-get install redis-server`). It listens only on a socket file.
"""

import shutil
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

from _server import wait
from redis import Redis
from redis.exceptions import ConnectionError as RedisConnectionError
from rq import Queue
from rq.job import Job

import ragpulse

GROUP = "queues"
REQUIREMENTS = ["rq"]
EXPECTED = {
    "search": {"contexts": ["Paris is a city."], "parent": "answer"},
    "answer": {
        "kind": "rag",
        "query": "Where is Paris?",
        "response": "Paris is the capital of France.",
        "session_id": "s1",
    },
    "refuse": {"kind": "rag", "status": "error", "error_type": "LookupError"},
    "answer_30": {"kind": "rag", "response": "30"},
}
SOCKET = Path("redis.sock").absolute()

ragpulse.configure()


@ragpulse.retriever
def search(question: str) -> list[str]:
    return ["Paris is a city."]


@ragpulse.rag
def answer(question: str) -> str:
    search(question)
    return "Paris is the capital of France."


@ragpulse.rag
def refuse(question: str) -> str:
    raise LookupError(question)


def ask(question: str) -> str:
    """The job: it sets the session around the root span."""
    with ragpulse.attributes(session_id="s1"):
        return answer(question)


def count(number: int) -> str:
    """One job of many, each in a child of its own."""
    with ragpulse.rag(f"answer_{number}") as turn:
        turn.set(response=str(number))
        return str(number)


def answers(redis: Redis) -> bool:
    """Whether the server is up."""
    try:
        return bool(redis.ping())
    except RedisConnectionError:
        return False


if __name__ == "__main__":
    server = shutil.which("redis-server")
    if server is None:
        sys.exit("this application needs redis-server: apt-get install redis-server")
    redis = Redis(unix_socket_path=str(SOCKET))
    with ExitStack() as running:
        process = subprocess.Popen(
            [server, "--port", "0", "--unixsocket", str(SOCKET), "--save", "", "--loglevel", "warning"]
        )
        running.callback(process.wait, 60)
        running.callback(process.terminate)
        wait(lambda: answers(redis))
        queue = Queue(connection=redis)
        jobs: list[Job] = [queue.enqueue("rq_jobs.ask", "Where is Paris?"), queue.enqueue("rq_jobs.refuse", "Where?")]
        jobs += [queue.enqueue("rq_jobs.count", number) for number in range(31)]
        rq = [
            str(Path(sys.executable).with_name("rq")),
            "worker",
            "--burst",
            "--quiet",
            "--path",
            str(Path(__file__).parent),
        ]
        subprocess.run([*rq, "--url", f"unix://{SOCKET}"], check=True, timeout=120)
        assert [job.get_status(refresh=True).value for job in jobs] == ["finished", "failed", *["finished"] * 31]
