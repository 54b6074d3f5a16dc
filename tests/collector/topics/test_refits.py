"""Fits over a store: identities over weeks, what few people said, and a fit that ends too early."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from stored_units import T0, Units, create_empty, open_store
from waiting import eventually

from ragpulse_collector.analysis.query import Query
from ragpulse_collector.analysis.selection import Window
from ragpulse_collector.analysis.topics import TopicReport, topic_report
from ragpulse_collector.app import Collector
from ragpulse_collector.refusals import Conflict
from ragpulse_collector.settings import Settings, SettingsError, TopicSettings
from ragpulse_collector.store import topics as stored
from ragpulse_collector.store.retention import forget
from ragpulse_collector.topics import live
from ragpulse_collector.topics.child import FitRequest, fitted
from ragpulse_collector.topics.forgetting import forget_texts
from ragpulse_collector.topics.model import Topics
from ragpulse_collector.topics.refitting import Refits

pytest.importorskip("wordllama", reason="the extra [topics] is not installed")
pytest.importorskip("sklearn", reason="the extra [topics] is not installed")

VERBS = ("reset", "change", "find", "cancel", "follow", "request")
FRAMES = ("How do I {} my {}?", "I want to {} a {}", "Where can I {} the {} please?", "Help me {} this {} today")
NAMES = ("password", "parcel", "invoice", "vacation", "refund", "webhook")
DAY = timedelta(days=1)


class Weeks:
    """A store to which weeks of questions are added, and its fits."""

    def __init__(self, folder: Path, **options: Any) -> None:
        self.store = open_store(folder)
        self.now = T0
        self.options = TopicSettings(**options)
        self._number = 0

    def ask(self, names: Sequence[str] = NAMES, *, each: int = 100, users: int = 40, texts: Sequence[str] = ()) -> None:
        """Add a week of questions; one person asks the `texts`."""
        rng, units = random.Random(self._number), Units(self.store)
        made = [rng.choice(FRAMES).format(rng.choice(VERBS), name) for name in names for _ in range(each)]
        for text in (*made, *texts):
            self._number += 1
            user = "one" if text in texts else f"user {self._number % users}"
            units.unit(self._number, at=self.now - DAY, query=text, user_id=user)
        units.save()

    def refits(self, **more: Any) -> Refits:
        """Fits at this time, in this process unless told otherwise."""
        return Refits(self.store, self.options, clock=lambda: self.now, **{"find": fitted} | more)

    def week(self, names: tuple[str, ...] = NAMES, **more: Any) -> None:
        """A week later: its questions, a fit, and their topics."""
        self.now += 7 * DAY
        self.ask(names, **more)
        refits = self.refits()
        assert refits.is_due()
        refits.run(True)
        assert refits.state().problem is None

    def topics(self) -> dict[str, stored.StoredTopic]:
        """The topics of the last fit by the planted word that they are about."""
        fit, known = stored.last_fit(self.store.read), stored.stored_topics(self.store.read)
        now = [one for one in known if fit and one.fit_id == fit.fit_id]
        return {name: one for name in NAMES for one in now if one.terms[:1] == [name]}

    def report(self) -> TopicReport:
        """What `GET topics` says of the last week."""
        query = Query(window=Window(self.now - 7 * DAY, self.now, 0), now=self.now)
        return topic_report(self.store, query, "x", limit=50)


@pytest.fixture
def weeks(tmp_path: Path) -> Iterator[Weeks]:
    """An empty store."""
    made = Weeks(tmp_path)
    yield made
    made.store.close()


def test_names_go_on_over_ten_weekly_fits(weeks: Weeks) -> None:
    """Also one that a person chose; what is new or gone is listed."""
    weeks.week(NAMES[:5])
    first = {name: one.topic_id for name, one in weeks.topics().items()}
    assert len(first) == 5
    weeks.store.write(lambda tx: stored.rename(tx, first["refund"], "Money back", actor="ann")).result()
    for number in range(9):
        if number == 4:
            weeks.ask(NAMES[5:], each=400)
        weeks.week(NAMES[:5], each=120)
        now = weeks.topics()
        assert {name: now[name].topic_id for name in first} == first
        assert (now["refund"].name, now["refund"].named_by) == ("Money back", "ann")
        assert now["parcel"].name.startswith("parcel")
        assert now["parcel"].share_before == pytest.approx(0.2, abs=0.1)
        if number == 4:
            assert weeks.report().appeared == [now["webhook"].name]
    vanished = next(one for one in stored.stored_topics(weeks.store.read) if one.terms[:1] == ["webhook"])
    assert vanished.fit_id < 10  # stored traces still have it
    assert "Money back" in {one.name for one in weeks.report().topics}


def test_a_share_that_grew_is_listed(weeks: Weeks) -> None:
    """With users as clusters, against the range before."""
    weeks.week()
    weeks.week(each=100)
    assert weeks.report().grew == []
    weeks.now += 7 * DAY
    weeks.ask(("webhook",), each=300)
    weeks.ask()
    batch = stored.questions_before(weeks.store.read, weeks.now, weeks.now - 2 * DAY, 2000)
    find = weeks.refits().assigner()
    assert find is not None
    placed = find([one.question for one in batch])
    assert weeks.store.write(lambda tx: stored.assign_again(tx, 2, batch, placed)).result()
    report = weeks.report()
    assert report.grew == [weeks.topics()["webhook"].name]
    shares = {one.name: one.share.value for one in report.topics}
    assert sum(filter(None, shares.values())) == pytest.approx(1.0)


def test_texts_of_few_people_are_never_shown(weeks: Weeks) -> None:
    """A name that one person repeats, a question of one person, and a topic of one user alone."""
    weeks.week(texts=("Is Zanzibar Meier's refund approved?",) * 8)
    known = stored.stored_topics(weeks.store.read)
    shown = [text for one in known for text in (one.name, one.question or "", *one.terms)]
    assert not any("zanzibar" in text.casefold() for text in shown)


def test_one_user_who_asks_everything_shows_nothing(weeks: Weeks) -> None:
    """Topics are there, under numbers."""
    weeks.ask(users=1)
    weeks.refits().run(True)
    known = stored.stored_topics(weeks.store.read)
    assert len(known) >= 5
    assert all(not one.terms and one.question is None and one.name == f"Topic {one.topic_id}" for one in known)
    report = weeks.report()
    assert not any(one.worse for one in report.topics)
    assert report.topics[0].share.lo is None


def test_a_person_is_forgotten_at_once(weeks: Weeks) -> None:
    """Five users share a word; as one of them is forgotten, the word is gone from terms, names and traces."""
    texts = ("Refund for Zanzibar please", "Get my Zanzibar refund", "A refund of Zanzibar")
    weeks.ask(users=40)
    units = Units(weeks.store)
    for number in range(15):
        units.unit(9000 + number, at=weeks.now - DAY, query=texts[number % 3], user_id=f"z{number % 5}")
    units.save()
    weeks.refits().run(True)
    read = weeks.store.read
    assert any("zanzibar" in one.terms for one in stored.stored_topics(read))
    forget(weeks.store, "user", "z1", also={"topics": forget_texts}, actor="x")
    shown = read("SELECT name, terms, question FROM raw.topics").rows
    assert not any("zanzibar" in str(row).casefold() for row in shown)
    assert not read("SELECT 1 FROM raw.trace_facts WHERE contains(lower(topic), 'zanzibar')").rows


def test_a_person_who_is_forgotten_during_a_fit_is_not_in_it(weeks: Weeks) -> None:
    """The fit is given up, and made again later."""
    weeks.ask()

    def find(request: FitRequest) -> Topics | str:
        forget(weeks.store, "user", "user 3", also={"topics": forget_texts}, actor="x")
        return fitted(request)

    refits = weeks.refits(find=find)
    refits.run(True)
    assert stored.last_fit(weeks.store.read) is None
    assert "forgotten" in (refits.state().problem or "")
    assert not refits.is_due()
    weeks.now += timedelta(hours=2)
    assert refits.is_due()


def test_fits_begin_at_500_questions_and_come_weekly(weeks: Weeks) -> None:
    """Fewer say how many there are; a fit that is asked for does not wait; another embedder is a reason, too."""
    weeks.ask(each=80)
    refits = weeks.refits()
    assert not refits.is_due()
    assert refits.state().problem == "topics begin at 500 questions; there are 480"
    with pytest.raises(Conflict, match="480"):
        refits.start_fit()
    weeks.ask(each=10)
    assert refits.is_due()
    assert refits.start_fit().running
    eventually(lambda: not refits.state().running)
    assert not refits.is_due()
    weeks.now += 7 * DAY
    assert refits.is_due()
    assert not Refits(weeks.store, TopicSettings(refit_days=0), clock=lambda: weeks.now).is_due()
    other = TopicSettings(refit_days=0, embedder="ragpulse_collector.topics.vectors:static_vectors")
    changed = Refits(weeks.store, other, clock=lambda: weeks.now, find=fitted)
    assert changed.is_due()
    assert changed.assigner() is None
    changed.run(True)
    assert changed.assigner() is not None


def test_old_questions_get_topics_in_batches(weeks: Weeks) -> None:
    """After a fit, also where the process ended in between; those of before four weeks have none."""
    weeks.ask()
    weeks.now += 40 * DAY
    weeks.ask(each=200)
    weeks.refits().fit()
    lacking = "SELECT count(*) FROM raw.trace_facts WHERE topic IS NULL"
    assert weeks.store.read(lacking).rows == [(1800,)]
    batch = stored.questions_before(weeks.store.read, datetime(9999, 1, 1), T0, 10)
    assert len(batch) == 1200  # all of one instant
    weeks.refits().assign()
    assert weeks.store.read(lacking).rows == [(600,)]
    weeks.refits().tick()


def test_a_fit_that_is_killed_leaves_the_topics_before(weeks: Weeks) -> None:
    """kill -9 at once: the old topics are in force, and the reason is told."""
    weeks.week()
    before = stored.stored_topics(weeks.store.read)
    refits = weeks.refits(find=None)
    thread = threading.Thread(target=refits.run, args=(True,))
    thread.start()
    os.kill(eventually(_child), signal.SIGKILL)
    thread.join(60)
    assert stored.stored_topics(weeks.store.read) == before
    assert "ended with -9" in (refits.state().problem or "")


def test_a_fit_in_its_own_process_is_the_same(weeks: Weeks) -> None:
    """At low priority: its topics are those of this process."""
    weeks.ask()
    weeks.refits(find=None).fit()
    found = stored.stored_topics(weeks.store.read)
    request = FitRequest(stored.asked(weeks.store.read, T0 - 7 * DAY, 20_000), 5, "static", Topics((), 0, 0))
    topics = fitted(request)
    assert isinstance(topics, Topics)
    assert [(one.name, one.size) for one in found] == [(one.name, one.size) for one in topics.topics]


def _child() -> int:
    """The process of the fit."""
    children = [pid for path in Path("/proc/self/task").glob("*/children") for pid in path.read_text().split()]
    fits = [pid for pid in children if b"topics.child" in Path(f"/proc/{pid}/cmdline").read_bytes()]
    return int(fits[0]) if fits else 0


REFUSED = {
    "no such module": ({"embedder": "no_such_module:f"}, "no_such_module"),
    "no such function": ({"embedder": "json:nothing"}, "nothing"),
    "no function named": ({"embedder": "json"}, "embedder"),
    "no users": ({"least_users": 0}, "least_users"),
    "a negative interval": ({"refit_days": -1}, "refit_days"),
    "an unknown key": ({"model": "x"}, "model"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_settings_that_cannot_be_are_refused_at_start(case: str, tmp_path: Path) -> None:
    """By name, before the port opens."""
    values, named = REFUSED[case]
    with pytest.raises(ValueError, match=named):
        _start(tmp_path, values)


def test_without_the_extra_nothing_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Topics say the line to install; settings that ask for them refuse to start."""
    monkeypatch.setattr(live, "_NEEDED", ("no_such_package",))
    with pytest.raises(SettingsError, match="pip install 'ragpulse\\[topics\\]'"):
        _start(tmp_path, {"enabled": True})
    collector = _start(tmp_path, {})
    try:
        refits = collector.components.refits
        assert refits.assigner() is None
        assert "pip install" in (refits.state().problem or "")
        with pytest.raises(Conflict, match="pip install"):
            refits.start_fit()
        assert not refits.state().running
    finally:
        collector.stop()
    off = Refits(collector.store, TopicSettings(enabled=False))
    assert "enabled = false" in (off.state().problem or "")


def _start(folder: Path, values: dict[str, Any]) -> Collector:
    create_empty(folder / "t.duckdb")
    settings = Settings.model_validate({"topics": values, "collector": {"db": str(folder / "t.duckdb"), "port": 0}})
    collector = Collector(settings)
    try:
        collector.start(listen=False)
    except BaseException:
        collector.stop()
        raise
    return collector


KILLED = """
import os, signal, sys, threading
from pathlib import Path
sys.path[:0] = [{folder!r}, {tests!r}]
from stored_units import open_store
from test_refits import T0, DAY, Refits, TopicSettings, _child, eventually
store = open_store(Path(sys.argv[1]))
refits = Refits(store, TopicSettings(), clock=lambda: T0 + 14 * DAY)
assert refits.is_due()
threading.Thread(target=refits.run, args=(True,), daemon=True).start()
eventually(_child)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_collector_that_is_killed_in_a_fit_fits_again(tmp_path: Path) -> None:
    """kill -9 of the whole process: the topics before are in force, and the next start finds that a fit is due."""
    first = Weeks(tmp_path)
    first.week()
    before = stored.stored_topics(first.store.read)
    first.store.close()
    here = Path(__file__).parent
    script = KILLED.format(folder=str(here), tests=str(here.parents[1]))
    killed = subprocess.run([sys.executable, "-c", script, str(tmp_path)], timeout=300, check=False)
    assert killed.returncode == -signal.SIGKILL
    again = Weeks(tmp_path)
    assert stored.stored_topics(again.store.read) == before
    again.now = T0 + 14 * DAY
    refits = again.refits()
    assert refits.is_due()
    refits.run(True)
    fit = stored.last_fit(again.store.read)
    assert (fit and fit.fit_id, refits.is_due()) == (2, False)
    again.store.close()
