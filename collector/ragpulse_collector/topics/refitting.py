"""Fits of topics in the background: the first at 500 questions, then at an interval or when somebody asks.

A fit runs in a process of its own at low priority. Its topics are stored in one transaction at the end: a process that
is killed leaves the topics before. Then traces that were decided before the fit get their topics, in batches.
"""

from __future__ import annotations

import json
import logging
import os
import pickle
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import datetime, timedelta

from ragpulse_collector.refusals import Conflict, Refusal
from ragpulse_collector.settings import TopicSettings
from ragpulse_collector.store import Store, Transaction
from ragpulse_collector.store import topics as stored
from ragpulse_collector.store.protocol import utc_now
from ragpulse_collector.topics.child import ONE_THREAD, FitRequest
from ragpulse_collector.topics.fitting import LEAST_QUESTIONS, MOST_QUESTIONS, free_name
from ragpulse_collector.topics.live import Assigner, problem_of
from ragpulse_collector.topics.model import Topics

_log = logging.getLogger(__name__)
_CHILD = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]);from ragpulse_collector.topics.child import main; main()"
)
RECENT = timedelta(days=28)
"""What a fit reads, and how far back traces get topics of a new fit."""
_RETRY = timedelta(hours=1)
_BATCH = 1_000
_FUTURE = datetime(9999, 1, 1)


@dataclass(frozen=True, slots=True)
class FitState:
    """Whether a fit runs, and why there is none."""

    running: bool
    problem: str | None
    """The line to install, too few questions, or how the last attempt ended."""


class Refits:
    """Fits topics when it is time; one at once."""

    def __init__(
        self,
        store: Store,
        options: TopicSettings,
        *,
        clock: Callable[[], datetime] = utc_now,
        find: Callable[[FitRequest], Topics | str] | None = None,
    ) -> None:
        """`find` finds the topics; default: a process of its own."""
        self._store, self._options, self._clock, self._find = store, options, clock, find or self._in_child
        self.assigner = Assigner(store, options)
        self._thread, self._stop = threading.Thread(), threading.Event()
        self._child: subprocess.Popen[bytes] | None = None
        self._failure: str | None = None
        self._not_before = datetime.min

    def state(self) -> FitState:
        """Return what `GET topics` says of fits."""
        return FitState(self._thread.is_alive(), problem_of(self._options) or self._failure or self._too_few())

    def _too_few(self) -> str | None:
        if stored.last_fit(self._store.read):
            return None
        count = stored.count_asked(self._store.read, self._clock() - RECENT, LEAST_QUESTIONS)
        return f"topics begin at {LEAST_QUESTIONS} questions; there are {count}" if count < LEAST_QUESTIONS else None

    def tick(self) -> None:
        """Fit if it is time, and give topics to traces without those of the last fit, on a thread."""
        if problem_of(self._options) is None and not self._thread.is_alive():
            self._begin(self.is_due())

    def start_fit(self) -> FitState:
        """Answer `POST topics/fit`; raises Conflict where no fit can begin."""
        problem = problem_of(self._options) or self._too_few()
        if problem or self._thread.is_alive():
            raise Conflict(problem or "a fit of topics is running")
        self._begin(True)
        return self.state()

    def _begin(self, fits: bool) -> None:
        if fits or self._unassigned(stored.last_fit(self._store.read)):
            self._thread = threading.Thread(target=self.run, args=(fits,), name="ragpulse-topics", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """Stop after the current batch; a fit is killed."""
        self._stop.set()
        if self._child is not None:
            self._child.kill()

    def is_due(self) -> bool:
        """Whether it is time for a fit."""
        fit, now = stored.last_fit(self._store.read), self._clock()
        if now < self._not_before:
            return False
        if fit is None:
            return self._too_few() is None
        every = timedelta(days=self._options.refit_days)
        return fit.embedder != self._options.embedder or (bool(every) and now - fit.fitted_at >= every)

    def run(self, fits: bool) -> None:
        """Fit, if told to, and assign; a failure is told by `state`, and tried again later."""
        try:
            if fits:
                self.fit()
            self.assign()
        except Refusal as error:
            self._failure, self._not_before = str(error), self._clock() + _RETRY
            _log.warning("topics: %s", error)

    def fit(self) -> None:
        """Fit now; raises Conflict where the topics before stay."""
        read, now = self._store.read, self._clock()
        before, known, forgotten = stored.last_fit(read), stored.stored_topics(read), stored.count_forgotten(read)
        asked = stored.asked(read, now - RECENT, MOST_QUESTIONS)
        comparable = known if before and before.embedder == self._options.embedder else []
        continued = Topics(comparable, before.other, before.last_id) if before else Topics((), 0, 0)
        found = self._find(FitRequest(asked, self._options.least_users, self._options.embedder, continued))
        if isinstance(found, str):
            raise Conflict(found)
        fit = stored.TopicFit(
            fit_id=(before.fit_id if before else 0) + 1, fitted_at=now, questions=len(asked), other=found.other,
            last_id=found.last_id, embedder=self._options.embedder, least_users=self._options.least_users,
            assigned_from=None,
        )  # fmt: skip

        def work(transaction: Transaction) -> None:
            if stored.count_forgotten(transaction.execute) != forgotten:
                raise Conflict("a person was forgotten during the fit: it is made again")
            names = {one.topic_id: one for one in stored.stored_topics(transaction.execute)}
            stored.add_fit(transaction, fit, _continued(fit, found, before, names))

        self._store.write(work).result()
        self._failure = None

    def _in_child(self, request: FitRequest) -> Topics | str:
        """Return the topics that a child process finds, or why it finds none; raises Conflict where it ends."""
        command = [sys.executable, "-c", _CHILD, json.dumps(sys.path)]
        pipe = subprocess.PIPE
        with subprocess.Popen(command, stdin=pipe, stdout=pipe, env=os.environ | ONE_THREAD) as self._child:
            reply, _ = self._child.communicate(pickle.dumps(request))
        if self._child.returncode:
            raise Conflict(f"the process of the fit ended with {self._child.returncode}: the topics before stay")
        result: Topics | str = pickle.loads(reply)
        return result

    def assign(self) -> None:
        """Give traces of before the fit its topics: the latest first, in batches, for half of the time at most."""
        fit, find = stored.last_fit(self._store.read), self.assigner()
        while fit is not None and find is not None and (batch := self._unassigned(fit)) and not self._stop.is_set():
            began = time.monotonic()
            placed = find([one.question for one in batch])

            def work(
                transaction: Transaction, fit_id: int = fit.fit_id,
                traces: Sequence[stored.TraceQuestion] = batch, found: Sequence[stored.PlacedQuestion] = placed,
            ) -> bool:  # fmt: skip
                return stored.assign_again(transaction, fit_id, traces, found)

            if not self._store.write(work).result():
                return
            fit = replace(fit, assigned_from=min(one.start_time for one in batch))
            self._stop.wait(time.monotonic() - began)

    def _unassigned(self, fit: stored.TopicFit | None) -> Sequence[stored.TraceQuestion]:
        if fit is None:
            return ()
        since = fit.fitted_at - RECENT
        return stored.questions_before(self._store.read, fit.assigned_from or _FUTURE, since, _BATCH)


def _continued(
    fit: stored.TopicFit, found: Topics, before: stored.TopicFit | None, known: Mapping[int, stored.StoredTopic]
) -> list[stored.StoredTopic]:
    """Return found topics as they are stored: under the name that theirs has now, a new one under a free name."""
    taken = {stored.OTHER_TOPIC, *(one.name.casefold() for one in known.values())}
    result = []
    for topic in found.topics:
        was = known.get(topic.topic_id)
        name = was.name if was else free_name(topic.name, topic.topic_id, taken)
        taken.add(name.casefold())
        continues = was is not None and before is not None and was.fit_id == before.fit_id
        own = {field.name: getattr(topic, field.name) for field in fields(stored.Topic)} | {"name": name}
        share = was.size / before.questions if was and before and continues else None
        first, named_by = (was.first_fit, was.named_by) if was else (fit.fit_id, None)
        result.append(
            stored.StoredTopic(**own, fit_id=fit.fit_id, first_fit=first, named_by=named_by, share_before=share)
        )
    return result
