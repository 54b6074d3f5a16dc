"""The process of a fit: a request (pickle) on standard input, its topics or a refusal (pickle) on standard output."""

from __future__ import annotations

import os
import pickle
import sys
from dataclasses import dataclass

from ragpulse_collector.refusals import Refusal
from ragpulse_collector.store.topics import Saying
from ragpulse_collector.topics.fitting import fit
from ragpulse_collector.topics.live import embedder_of
from ragpulse_collector.topics.matching import match
from ragpulse_collector.topics.model import Topics

NICE = 19
ONE_THREAD = dict.fromkeys(
    ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS", "RAYON_NUM_THREADS"), "1"
)
"""Environment that keeps a fit to one core."""


@dataclass(frozen=True, slots=True)
class FitRequest:
    """What a fit reads."""

    asked: list[Saying]
    least_users: int
    embedder: str
    before: Topics
    """The topics whose identities go on."""


def main() -> None:
    """Fit, and write the result."""
    if hasattr(os, "nice"):
        os.nice(NICE)
    request: FitRequest = pickle.load(sys.stdin.buffer)
    sys.stdout.buffer.write(pickle.dumps(fitted(request)))


def fitted(request: FitRequest) -> Topics | str:
    """Return the topics under the identities of those before, or why there are none."""
    questions, users = [one.question for one in request.asked], [one.user for one in request.asked]
    try:
        embed = embedder_of(request.embedder)
        found = fit(questions, users, least_users=request.least_users, embed=embed)
    except Refusal as error:
        return str(error)
    return match(request.before, found).topics
