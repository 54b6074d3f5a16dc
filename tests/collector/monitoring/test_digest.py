"""The digest: its sentences over real weeks, and one message a week whatever happens to the process."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import forks
import pytest
from receivers import Receiver
from stored_units import Units, open_store, uniform

from ragpulse_collector.api.models import WeekInBuckets
from ragpulse_collector.configuration import load_settings
from ragpulse_collector.monitoring import Monitors, Targets
from ragpulse_collector.monitoring.digest import Digest, Digests
from ragpulse_collector.settings import Settings, SettingsError
from ragpulse_collector.settings.digest import DigestSettings
from ragpulse_collector.store.embedded import EmbeddedStore

END = datetime(2026, 11, 23, 8)
"""A Monday."""
DAY, WEEK = timedelta(days=1), timedelta(days=7)
ANSWERS = 336


def week(
    units: Units, start: datetime, *, after: datetime = END, v2: float = 0.05, skip: range = range(0), **facts: Any
) -> None:  # fmt: skip
    """Add a week: two answers an hour of forty users, one in twenty fails; after a time, prompt v2 with its own share.

    `skip`: hours without a request.
    """
    first = int(start.timestamp() // 3600) * 10
    for number in range(ANSWERS):
        at = start + timedelta(minutes=30 * number)
        if number // 2 in skip:
            continue
        version, share = ("v2", v2) if at >= after else ("v1", 0.05)
        fails = uniform(number) < share
        known = {"user_id": f"user-{number % 40}", "prompt_name": "qa", "prompt_version": version, "cost_usd": 0.01}
        units.scored(first + number, "groundedness", 0.0 if fails else 1.0, at=at, facts=known | facts)


def digests(store: EmbeddedStore, now: datetime = END, **tables: Any) -> Digests:
    """The digests of a collector with these settings."""
    settings = Settings.model_validate(tables)
    outbox = Monitors(store, settings, clock=lambda: now).outbox
    targets = Targets(store, settings.target)
    return Digests(store, settings, outbox, targets, lead=lambda: "groundedness", clock=lambda: now)


def digest(store: EmbeddedStore, now: datetime = END, **params: Any) -> Digest:
    """What `GET digest` answers."""
    asked = {"from": END - WEEK, "to": END, **params}
    return digests(store, now).of(WeekInBuckets.parse(asked).query(now))


def nothing(units: Units) -> None:
    """No request at all."""


def first(units: Units) -> None:
    """A week, and none before."""
    week(units, END - WEEK)


def alike(units: Units) -> None:
    """Two weeks of the same quality."""
    week(units, END - 2 * WEEK)
    week(units, END - WEEK)


def worse(units: Units) -> None:
    """A prompt begins on Friday, and its answers are bad."""
    week(units, END - 2 * WEEK)
    week(units, END - WEEK, after=END - 3 * DAY, v2=0.5)


def outage(units: Units) -> None:
    """A day and a half without a request."""
    week(units, END - 2 * WEEK)
    week(units, END - WEEK, skip=range(30, 66))


def down(units: Units) -> None:
    """Nothing arrives all week."""
    week(units, END - 2 * WEEK)


def failing(units: Units) -> None:
    """Every request of the week fails."""
    week(units, END - 2 * WEEK)
    week(units, END - WEEK, error=True)


def judge_down(units: Units) -> None:
    """Two alike weeks; in the second a second evaluator fails, is capped, is not asked, and has no result yet."""
    alike(units)
    for number in range(9_000, 9_040):
        at = END - DAY + timedelta(minutes=number - 9_000)
        units.unit(number, at=at, user_id=f"user-{number % 40}", cost_usd=0.01)
        kind = number % 4
        sampled = units.decision(
            number, "faithfulness", pi=0.5, u=0.9 if kind == 0 else 0.1, at=at, capped=kind == 1,
            reason="budget" if kind == 1 else None,
        )  # fmt: skip
        if sampled and kind == 2:
            units.score(number, "faithfulness", None, at=at, status="error")


def unclear(units: Units) -> None:
    """A tenth of the verdicts neither passes nor fails; costs are unknown."""
    for number in range(ANSWERS):
        at = END - WEEK + timedelta(minutes=30 * number)
        units.unit(number, at=at, user_id=f"user-{number % 40}")
        units.decision(number, "groundedness", at=at)
        clear = number % 10 > 0
        units.score(
            number,
            "groundedness",
            1.0 if clear else 0.5,
            at=at,
            passing=clear or None,
            label=None if clear else "unclear",
        )


HEAD = "Nov 16 to Nov 23: "
BEFORE = "336 answers, before 336; groundedness {}, before 0.95 (0.91-0.97); $3.36, before $3.36"
UNCHANGED = "Groundedness: no change above 0.04 against the week before. "
FIRST = "Groundedness is {}. Nothing to compare with: the week before has no scores. "
ALL = "Everything was measured."
ROWS: list[tuple[Callable[[Units], None], list[str]]] = [
    (nothing, [HEAD + "0 answers", "No answer in this week."]),
    (first, [HEAD + "336 answers; groundedness 0.95 (0.91-0.97); $3.36", FIRST.format("0.946") + ALL]),
    (alike, [HEAD + BEFORE.format("0.95 (0.91-0.97)"), UNCHANGED + ALL]),
    (worse, [HEAD + BEFORE.format("0.74 (0.69-0.79)"),
             "Groundedness fell 0.96 → 0.45 at Nov 20 08:00 UTC, when prompt qa v2 began.",
             "Whether retrieval fails is not measured. Generation fails for 26 % of answers (before 5.4 %).",
             "What went wrong: 26 % are not supported (before 5.4 %).", ALL]),
    (outage, [HEAD + "264 answers, before 336; groundedness 0.93 (0.89-0.96), before 0.95 (0.91-0.97);"
              " $2.64, before $3.36",
              "Groundedness: no change above 0.07 against the week before.",
              "No request from Nov 17 14:00 to Nov 19 02:00 UTC; a week before there were 72.",
              "What went wrong: 6.8 % are not supported (before 5.4 %).", ALL]),
    (down, [HEAD + "0 answers, before 336", "No answer in this week.",
            "No request from Nov 16 08:00 to Nov 23 08:00 UTC; a week before there were 336."]),
    (failing, [HEAD + BEFORE.format("0.95 (0.91-0.97)"), "100 % of requests fail.",
               "Error rate rose 0 % → 100 % against the week before.",
               "What went wrong: 100 % failed with an error (before 0 %).", ALL]),
    (judge_down, [HEAD + "376 answers, before 336; groundedness 0.95 (0.91-0.97), before 0.95 (0.91-0.97);"
                  " $3.76, before $3.36",
                  UNCHANGED + "Not measured: faithfulness of 40 of 40 answers"
                  " (10 not selected, 10 not scored yet, 10 failed, 10 beyond a budget)."]),
    (unclear, [HEAD + "336 answers; groundedness 0.95 (0.83-0.98)",
               FIRST.format("0.949") + "Not measured: 10 % of the verdicts of groundedness are unclear;"
               " the cost of 100 % of answers is unknown."]),
]  # fmt: skip


def moved(change: dict[str, Any], *, each: int = 1, before: dict[str, Any] | None = None) -> Callable[[Units], None]:
    """Two weeks of the same quality whose requests differ in something else."""

    def make(units: Units) -> None:
        for start, facts, every in ((END - 2 * WEEK, before or {}, 1), (END - WEEK, change, each)):
            for number in range(0, 2 * ANSWERS, every):
                at = start + timedelta(minutes=15 * number)
                known = {"user_id": f"user-{number}", "cost_usd": 0.01, "answer": "answered"}
                given = {key: value(number) if callable(value) else value for key, value in facts.items()}
                units.scored(
                    int(at.timestamp()), "groundedness", float(number % 20 > 0), at=at, facts=known | given
                )  # fmt: skip

    return make


def every(share: float, yes: Any, no: Any) -> Callable[[int], Any]:
    """A value of a share of the requests."""
    return lambda number: yes if uniform(number, "share") < share else no


MOVES: list[tuple[str, Callable[[Units], None], str]] = [
    ("cost", moved({"cost_usd": 0.0161}), "Cost rose $6.72 → $10.82"),
    ("refusals", moved({"answer": every(0.3, "refused", "answered")}), "Refused rate rose 0 % → 32 %"),
    ("fewer refusals", moved({}, before={"answer": every(0.3, "refused", "answered")}), "Refused rate fell 32 % → 0 %"),
    ("fewer errors", moved({"error": every(0.01, True, False)}, before={"error": every(0.24, True, False)}),
     "Error rate fell"),
    ("traffic", moved({}, each=2), "Requests fell 672 → 336"),
]  # fmt: skip


@pytest.mark.parametrize(("make", "told"), [row[1:] for row in MOVES], ids=[row[0] for row in MOVES])
def test_a_week_is_quiet_only_where_everything_is(
    store: EmbeddedStore, make: Callable[[Units], None], told: str
) -> None:
    """Quality is as before, and the rest is not."""
    units = Units(store)
    make(units)
    units.save()
    answer = digest(store)
    assert not answer.quiet
    assert any(line.replace("\N{NO-BREAK SPACE}", " ").startswith(told) for line in answer.lines), answer.lines


def test_a_weekend_is_no_fall(store: EmbeddedStore) -> None:
    """A tenth of the requests of a weekday, as on the weekend before."""
    units = Units(store)
    for hour in range(21 * 24):
        at = END - 3 * WEEK + timedelta(hours=hour)
        for number in range(1 if at.weekday() > 4 else 10):
            units.unit(
                20 * hour + number, at=at + timedelta(minutes=number), user_id=f"u{hour}-{number}", cost_usd=0.01
            )
    units.save()
    weekend = {"from": END - 2 * DAY, "to": END - timedelta(hours=8)}
    assert not digest(store, **weekend).moved


@pytest.mark.parametrize(("make", "told"), ROWS, ids=lambda value: getattr(value, "__name__", ""))
def test_a_week_in_sentences(store: EmbeddedStore, make: Callable[[Units], None], told: list[str]) -> None:
    """Each kind of week has its lines; a quiet one has two."""
    units = Units(store)
    make(units)
    units.save()
    answer = digest(store)
    assert list(answer.lines) == told
    assert answer.quiet == (len(told) == 2)


def test_worst_answers_fail_and_links_lead_to_them(store: EmbeddedStore) -> None:
    """Three at most, with their questions; a message has their links and no text of theirs."""
    units = Units(store)
    worse(units)
    units.save()
    assert [(one.scores["groundedness"].normalized, one.query) for one in digest(store).worst] == [(0.0, "Why?")] * 3
    assert digest(store, user_id=["user-none"]).worst == []


def test_topics_that_came_and_went_are_no_quiet_week(store: EmbeddedStore) -> None:
    """Of a fit in the week alone; a fit of an earlier week is old news."""
    units = Units(store)
    alike(units)
    units.add("topic_fits", fit_id=2, fitted_at=END - DAY, questions=900, other=0, last_id=3, least_users=5)
    for number, (fit, first_fit, name) in enumerate(((2, 1, "billing"), (2, 2, "import"), (1, 1, "print\ners"))):
        units.add("topics", topic_id=number, fit_id=fit, first_fit=first_fit, name=name, terms=[], size=9)
    units.save()
    answer = digest(store)
    assert (answer.appeared, answer.vanished, answer.quiet) == (["import"], ["print\ners"], False)
    assert list(answer.lines[2:4]) == ["New topics: import.", "Lost topics: print ers."]
    assert not digest(store, END + WEEK, **{"from": END, "to": END + WEEK}).appeared


TEAM = [{"name": "team", "slack": "http://127.0.0.1:9/"}, {"name": "pager", "pagerduty": "key"}]
WEEKLY = {"to": ["team"], "when": "Mon 08:00"}


def messages(store: EmbeddedStore) -> list[dict[str, Any]]:
    """The stored messages, oldest first."""
    sql = "SELECT message FROM raw.alert_messages WHERE attempt = 0 ORDER BY created_at"
    return [json.loads(text) for (text,) in store.read(sql).rows]


def test_a_week_is_sent_once_also_over_restarts(store: EmbeddedStore) -> None:
    """Looks before, at and after the time, by several processes, store one message a week, of the week that ended."""
    units = Units(store)
    worse(units)
    units.save()
    times = [END - timedelta(minutes=1), END, END + timedelta(minutes=1), END + 3 * DAY, END + WEEK, END + WEEK]
    sent = [digests(store, now, digest=WEEKLY, destination=TEAM).check() for now in times]
    assert sent == [False, True, False, False, True, False]
    first_message, second = messages(store)
    assert first_message["text"].splitlines() == list(digest(store).lines)
    assert len(first_message["worst"]) == 3
    assert first_message["link"].endswith("/?from=2026-11-16T08%3A00%3A00Z&to=2026-11-23T08%3A00%3A00Z")
    assert (second["worst"], second["text"].splitlines()[1]) == ([], "No answer in this week.")


def test_the_message_of_a_quiet_week_has_two_lines(store: EmbeddedStore) -> None:
    """Nothing to look at: no links."""
    units = Units(store)
    alike(units)
    units.save()
    assert digests(store, digest=WEEKLY, destination=TEAM).check()
    ((text, link, worst),) = [(one["text"], one["link"], one["worst"]) for one in messages(store)]
    assert (len(text.splitlines()), link, worst) == (2, None, [])


def test_a_message_outlives_the_process_and_its_retention(store: EmbeddedStore) -> None:
    """A process that ends before it sends leaves the message; a message that retention removed is not made again."""
    receiver = Receiver()
    tables: dict[str, Any] = {"digest": WEEKLY, "destination": [{"name": "team", "slack": receiver.url}]}
    assert digests(store, digest=WEEKLY, destination=tables["destination"]).check()
    outbox = Monitors(store, Settings.model_validate(tables), clock=lambda: END).outbox
    outbox.deliver("team")
    outbox.deliver("team")
    assert [json.loads(body)["text"].splitlines()[0] for _, body in receiver.taken] == [HEAD + "0 answers"]
    receiver.close()
    store.write(lambda tx: tx.execute("DELETE FROM raw.alert_messages")).result()
    assert not digests(store, END + timedelta(hours=1), **tables).check()


KILLED = """
import os, signal, sys
from pathlib import Path
sys.path[:0] = [{folder!r}, {tests!r}]
from test_digest import TEAM, WEEKLY, digests
from stored_units import open_store
store = open_store(Path(sys.argv[1]))
assert digests(store, digest=WEEKLY, destination=TEAM).check()
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_killed_process_neither_loses_nor_repeats_it(tmp_path: Path) -> None:
    """State and message are one commit: after kill -9 the message is there, and no second one is made."""
    here = Path(__file__).parent
    script = KILLED.format(folder=str(here), tests=str(here.parents[1]))
    killed = forks.run(script, str(tmp_path), timeout_s=300)
    assert killed.returncode == -signal.SIGKILL
    reopened = open_store(tmp_path)
    assert len(messages(reopened)) == 1
    assert not digests(reopened, END + timedelta(hours=1), digest=WEEKLY, destination=TEAM).check()
    reopened.close()


@pytest.mark.parametrize(("late", "sent"), [(timedelta(hours=23), True), (timedelta(hours=25), False)])
def test_a_collector_that_was_down_sends_late_or_not_at_all(store: EmbeddedStore, late: timedelta, sent: bool) -> None:
    """A digest of yesterday is news; a new setting in the middle of the week sends nothing."""
    assert digests(store, END + late, digest=WEEKLY, destination=TEAM).check() is sent
    assert not digests(store, digest={"when": "Mon 08:00"}).check(), "nobody to send it to"


@pytest.mark.parametrize(
    ("when", "now", "last"),
    [
        ("Mon 08:00", END, END),
        ("Mon 08:00", END - timedelta(seconds=1), END - WEEK),
        ("friday 17:30", END, datetime(2026, 11, 20, 17, 30)),
        ("Mon 08:00 UTC", END + 6 * DAY, END),
        ("Mon 08:00 Europe/Berlin", END, END - timedelta(hours=1)),
        ("Mon 08:00 Europe/Berlin", datetime(2026, 10, 24), datetime(2026, 10, 19, 6)),
        ("Sun 02:30 Europe/Berlin", datetime(2026, 3, 29, 12), datetime(2026, 3, 29, 1, 30)),
        ("Mon 00:10 Asia/Tokyo", datetime(2026, 11, 22, 15, 20), datetime(2026, 11, 22, 15, 10)),
        ("Sun 23:50 America/New_York", datetime(2026, 11, 23, 5), datetime(2026, 11, 23, 4, 50)),
    ],
)
def test_the_time_of_a_week(when: str, now: datetime, last: datetime) -> None:
    """In UTC or in a zone with its summer time; a time that a clock skips is an hour later."""
    assert DigestSettings(when=when).last(now) == last


def test_a_time_without_a_zone_is_that_of_the_users() -> None:
    """The zone of `[collector] tz`; a zone of its own wins."""
    assert DigestSettings(when="Mon 08:00").last(END, "Europe/Berlin") == END - timedelta(hours=1)
    assert DigestSettings(when="Mon 08:00 UTC").last(END, "Europe/Berlin") == END


@pytest.mark.parametrize(
    ("table", "told"),
    [
        ('when = "weekly"', "write weekday and time"),
        ('when = "Mon"', "write weekday and time"),
        ('when = "Mon 25:00"', "write weekday and time"),
        ('when = "Mon 8"', "write weekday and time"),
        ('when = "Monkey 08:00"', "write weekday and time"),
        ('when = "day 08:00"', "write weekday and time"),
        ('when = "Mon 08:00 Mars/Base"', "write weekday and time"),
        ('when = "Mon 08:00 ../../etc/passwd"', "write weekday and time"),
        ('when = "Mon 08:00 Europe"', "write weekday and time"),
        ('when = "Mon 08:00 UTC UTC"', "write weekday and time"),
        ('when = ""', "write weekday and time"),
        ('to = ["tema"]', "no destination 'tema'; there are: team, pager"),
        ('to = ["pager"]', "'pager' is PagerDuty, and a digest is no incident"),
        ('too = ["team"]', "did you mean 'to'"),
    ],
)
def test_a_wrong_table_is_refused_at_the_start(tmp_path: Path, table: str, told: str) -> None:
    """With the line, and what to write."""
    path = tmp_path / "ragpulse.toml"
    others = "".join(
        f'[[destination]]\n{key} = "{value}"\nname = "{name}"\n'
        for name, key, value in (("team", "slack", "http://x"), ("pager", "pagerduty", "k"))
    )
    path.write_text(f"{others}[digest]\n{table}\n")
    with pytest.raises(SettingsError) as raised:
        load_settings(path)
    assert told in str(raised.value)
    assert f"{path}:{7 if 'destination' in told or 'PagerDuty' in told else 8}: " in str(raised.value)
