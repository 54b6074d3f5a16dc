"""Money: hard caps over restarts, and pacing that moves pi instead of cutting off."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest
from stored_units import T0, Units, open_store

from ragpulse_collector.evaluation.budget import Caps, Ledger, Reservation
from ragpulse_collector.sampling.pacing import Controller, Pacer, Queue
from ragpulse_collector.store.embedded import EmbeddedStore
from ragpulse_collector.store.queries.jobs import selected_usd
from ragpulse_evaluators.errors import BudgetExceeded


@pytest.fixture
def store(tmp_path: Path) -> Iterator[EmbeddedStore]:
    """An open store."""
    opened = open_store(tmp_path)
    yield opened
    opened.close()


LATE = T0.replace(hour=23, minute=59, second=59, microsecond=999_999)
"""The end of T0's day, when the whole budget is released."""


def wanted(usd: float, *, evaluator: str = "judge", run_id: str | None = None, cap: float | None = None) -> Reservation:
    """A reservation at the end of T0's day."""
    return Reservation(evaluator=evaluator, usd=usd, job_id="ab" * 16, day=LATE, run_id=run_id, run_cap=cap)


def reserve(store: EmbeddedStore, ledger: Ledger, *reservations: Reservation) -> None:
    """Reserve them in one commit; raises the first refusal."""
    for refusal in store.write(lambda tx: ledger.reserve(tx, reservations)).result():
        if refusal is not None:
            raise refusal


def test_a_reservation_without_settlement_stays_counted(store: EmbeddedStore) -> None:
    """A process killed during a call may have spent the money: the cap holds over the restart."""
    Ledger(store, Caps()).spent(T0)
    reserve(store, Ledger(store, Caps(usd_per_day=1.0)), wanted(0.7))
    restarted = Ledger(store, Caps(usd_per_day=1.0))
    assert restarted.spent(T0) == pytest.approx(0.7)
    with pytest.raises(
        BudgetExceeded, match=r"the day's judge budget, at this hour, is 1 USD, 0\.3 left, this needs 0\.4"
    ):
        reserve(store, restarted, wanted(0.4))
    reserve(store, restarted, wanted(0.3 - 1e-9))


def test_settling_books_what_was_spent(store: EmbeddedStore) -> None:
    """The rest of a reservation is free again; an unknown price keeps the whole reservation."""
    ledger = Ledger(store, Caps(usd_per_day=1.0))
    for actual, spent in ((0.2, 0.2), (None, 0.7)):
        reserve(store, ledger, wanted(0.5))
        store.write(partial(ledger.settle, settled=[(wanted(0.5), actual)])).result()
        assert ledger.spent(T0) == pytest.approx(spent)


def test_a_month_shares_its_budget_among_its_days(store: EmbeddedStore) -> None:
    """Days that spent little leave more to those that follow; no day spends more than its own cap."""
    caps = Caps(usd_per_day=0.5, usd_per_month=3.1)
    ledger, days_left = Ledger(store, caps), 30 - T0.day + 1
    early = replace(wanted(0.1), day=LATE.replace(day=1))
    assert caps.on(early.day.date(), store.read) == pytest.approx(3.1 / 30)
    reserve(store, ledger, early)
    assert caps.on(T0.date(), store.read) == pytest.approx(min(0.5, 3.0 / days_left))
    share = 3.0 / days_left
    with pytest.raises(BudgetExceeded, match="the day's judge budget"):
        reserve(store, ledger, wanted(share + 0.01))
    reserve(store, ledger, wanted(share - 0.001))
    assert caps.on(T0.date().replace(month=12, day=1), store.read) == pytest.approx(3.1 / 31), "another month"
    assert ledger.limits()


def test_a_burst_leaves_a_tenth_for_the_rest_of_the_day(store: EmbeddedStore) -> None:
    """Early in the day nine tenths can be spent; the last tenth is released evenly until midnight."""
    ledger, midnight = Ledger(store, Caps(usd_per_day=1.0)), T0.replace(hour=0)
    while not store.write(lambda tx: ledger.reserve(tx, [replace(wanted(0.01), day=midnight)])).result()[0]:
        pass
    assert ledger.spent(T0) == pytest.approx(0.90)
    noon = [replace(wanted(0.01), day=T0)] * 10
    refused = [refusal is not None for refusal in store.write(lambda tx: ledger.reserve(tx, noon)).result()]
    assert refused == [False] * 5 + [True] * 5
    assert ledger.spent(T0 + timedelta(days=1)) == 0


def test_a_replay_has_its_own_cap(store: EmbeddedStore) -> None:
    """What a replay was allowed to spend does not starve online evaluation, nor the other way round."""
    ledger = Ledger(store, Caps(usd_per_day=1.0))
    reserve(store, ledger, wanted(5.0, run_id="r", cap=5.0))
    with pytest.raises(BudgetExceeded, match="run r"):
        reserve(store, ledger, wanted(0.1, run_id="r", cap=5.0))
    reserve(store, ledger, wanted(0.99))
    assert ledger.spent(T0) == 0.99


def test_the_controller_spends_the_day_evenly() -> None:
    """Demand of ten times the budget: the scale settles near 0.1 and the money lasts to the end of the day."""
    controller, left = Controller(floor=0.001), 1.0
    for minute in range(1440):
        usd = min(left, 10.0 / 1440 * controller.scale)
        controller.update(usd=usd, seconds=60, budget_usd=left, remaining_s=86_400 - 60 * minute)
        left -= usd
        if minute == 700:
            assert 0.45 < left < 0.55
    assert 0.0 <= left < 0.02


def test_the_controller_keeps_a_floor() -> None:
    """Nothing left: pi stays above zero, paid by the reserve."""
    controller = Controller(floor=0.02)
    assert controller.update(usd=1.0, seconds=60, budget_usd=0.0, remaining_s=1000) == 0.02


@pytest.mark.parametrize(
    ("load", "least", "most_waiting_s"),
    [(0.5, 1.0, 5.0), (1.0, 1.0, 5.0), (1.5, 0.3, 7.0), (3.0, 0.15, 10.0), (20.0, 0.02, 50.0)],
)
def test_checks_are_sampled_where_they_cannot_keep_up(load: float, least: float, most_waiting_s: float) -> None:
    """Decisions every two seconds: below its capacity a process does all, above it the queue stays as short."""
    queue, scales, waiting, done = Queue(), [], [], 0.0
    for _ in range(300):
        selected_s = 2.0 * load * queue.scale
        done += min(2.0, queue.waiting_s + selected_s)
        scales.append(queue.update(selected_s=selected_s, seconds=2.0))
        waiting.append(queue.waiting_s)
    assert min(scales) >= least
    assert max(waiting) <= most_waiting_s
    assert done >= 0.9 * 600.0 * min(load, 1.0)  # nothing is left out that could have been done


def test_a_burst_is_not_sampled() -> None:
    """Four seconds of work at once are worked off; a flood is followed by half of what can be done until it is gone."""
    queue = Queue()
    assert queue.update(selected_s=4.0, seconds=1.0) == 1.0
    assert queue.update(selected_s=40.0, seconds=1.0) == pytest.approx(0.0125)
    assert queue.update(selected_s=0.5, seconds=60.0) == 1.0


def test_updating_twice_changes_nothing() -> None:
    """The demand is followed at full rate, so a second look at the same does not compound."""
    controller = Controller()
    first = controller.update(usd=1.0, seconds=600, budget_usd=500.0, remaining_s=36_000)
    again = controller.update(usd=1.0 * first, seconds=600, budget_usd=500.0, remaining_s=36_000)
    assert again == pytest.approx(first)


def paced(store: EmbeddedStore, caps: Caps, *evaluators: str) -> Pacer:
    """A pacer that looked ten minutes after T0, when one evaluation of each had cost ten cents."""
    ledger = Ledger(store, caps)
    for evaluator in evaluators:
        reserve(store, ledger, wanted(0.1, evaluator=evaluator))
        store.write(partial(ledger.settle, settled=[(wanted(0.1, evaluator=evaluator), 0.1)])).result()
    store.write(lambda tx: tx.execute("UPDATE raw.ledger SET created_at = ?", [T0])).result()
    pacer = Pacer(store, lambda _: caps.usd_per_day)
    pacer.update(T0 + timedelta(minutes=10))
    return pacer


def test_the_pacer_reads_ledger_and_decisions(store: EmbeddedStore) -> None:
    """Ten selected units of ten cents in fifteen minutes against 1 USD a day: pi is scaled down; free ones are not."""
    units = Units(store)
    for number in range(10):
        units.unit(number)
        units.decision(number, "judge", pi=1.0)
        units.decision(number, "groundedness", pi=1.0)
    units.save()
    pacer = paced(store, Caps(usd_per_day=1.0), "judge")
    scale, reason = pacer.pi_scale("judge")
    assert scale == pytest.approx(0.02)
    assert reason == "budget"
    assert pacer.pi_scale("groundedness") == (1.0, "budget")


def test_a_chance_that_rose_counts_once(store: EmbeddedStore) -> None:
    """A unit decided once more, at 0.5 after 0.1, asks for as much money as one decided at 0.5 at once."""
    units = Units(store)
    for number in range(10):
        units.decision(number, "once", pi=0.5)
        units.decision(number, "raised", pi=0.1)
        units.decision(number, "raised", pi=0.5, revision=1)
    units.save()
    paced(store, Caps(usd_per_day=20.0), "once", "raised")
    usd = selected_usd(store.read, T0 - timedelta(minutes=5), T0 + timedelta(minutes=10))
    assert usd["once"] == pytest.approx(usd["raised"]) == pytest.approx(10 * 0.5 * 0.1)
