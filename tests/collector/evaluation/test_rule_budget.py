"""A budget per rule beside the day's: the same ledger, reserved and settled on both."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest
from loopback import LoopbackModel
from served import Served
from stored_units import T0, Units, open_store
from traffic import rag_trace, send
from waiting import eventually, until

from ragpulse_collector.client import Client, connect
from ragpulse_collector.configuration import load_settings
from ragpulse_collector.evaluation.budget import Account, Caps, Ledger, Reservation
from ragpulse_collector.sampling import Pacer, Rule
from ragpulse_collector.settings import SettingsError
from ragpulse_collector.store.embedded import EmbeddedStore
from ragpulse_evaluators.errors import BudgetExceeded

LATE = T0.replace(hour=23, minute=59, second=59, microsecond=999_999)
CAPS = {"small": 0.3, "large": 5.0}
VERDICT = '{"reason": "fine", "score": 1.0}'


@pytest.fixture
def store(tmp_path: Path) -> Iterator[EmbeddedStore]:
    """An open store."""
    opened = open_store(tmp_path)
    yield opened
    opened.close()


def wanted(usd: float, rule: str | None) -> Reservation:
    """A reservation at the end of T0's day."""
    return Reservation(evaluator="judge", usd=usd, job_id="ab" * 16, day=LATE, rule=rule)


def refused(store: EmbeddedStore, ledger: Ledger, *reservations: Reservation) -> list[BudgetExceeded | None]:
    """Reserve in one commit; the refusals."""
    return store.write(lambda tx: ledger.reserve(tx, reservations)).result()


def test_both_caps_hold(store: EmbeddedStore) -> None:
    """The rule's cap refuses what the day's allows, the day's what the rule's allows; others go on."""
    ledger = Ledger(store, Caps(usd_per_day=1.0, of_rule=CAPS.get))
    first, second, other, nobody, last = refused(
        store,
        ledger,
        *(wanted(0.2, "small"), wanted(0.2, "small"), wanted(0.5, "large"), wanted(0.2, None), wanted(0.2, "large")),
    )
    assert (first, other, nobody) == (None, None, None)
    assert str(second) == "the day's judge budget of rule small, at this hour, is 0.3 USD, 0.1 left, this needs 0.2"
    assert second is not None
    assert second.account == Account(day=T0.date(), rule="small")
    assert last is not None
    assert str(last).startswith("the day's judge budget, at this hour, is 1 USD")


def test_a_settlement_frees_the_rules_money_over_a_restart(store: EmbeddedStore) -> None:
    """A reservation of 0.29 settled at 0.1 leaves 0.2 for the rule, for the next process too."""
    ledger = Ledger(store, Caps(of_rule=CAPS.get))
    assert refused(store, ledger, wanted(0.29, "small")) == [None]
    store.write(partial(ledger.settle, settled=[(wanted(0.29, "small"), 0.1)])).result()
    again = Ledger(store, Caps(of_rule=CAPS.get))
    assert [bool(one) for one in refused(store, again, wanted(0.21, "small"), wanted(0.19, "small"))] == [True, False]


def test_a_cap_of_a_rule_alone_is_a_cap(store: EmbeddedStore) -> None:
    """Without a budget of the day the rule's limits its jobs, and only those."""
    ledger = Ledger(store, Caps(of_rule=CAPS.get))
    assert [ledger.limits(), ledger.limits(rule="small"), ledger.limits(rule="none")] == [False, True, False]


@pytest.mark.parametrize(("also_free", "scale"), [(False, 0.02), (True, 1.0)])
def test_sampling_slows_down_for_the_rules_budget(store: EmbeddedStore, also_free: bool, scale: float) -> None:
    """Ten units of ten cents against 0.3 USD a day; a second rule without one may use the day's."""
    units = Units(store)
    for number in range(10):
        units.unit(number)
        units.decision(number, "judge", rule="small")
    units.save()
    ledger = Ledger(store, Caps(usd_per_day=1000.0, of_rule=CAPS.get))
    refused(store, ledger, wanted(0.1, "small"))
    store.write(partial(ledger.settle, settled=[(wanted(0.1, "small"), 0.1)])).result()
    store.write(lambda tx: tx.execute("UPDATE raw.ledger SET created_at = ?", [T0])).result()
    rules = [Rule(name="small", evaluators=("judge",), rate=1.0, budget_usd_per_day=0.3)]
    rules += [Rule(name="open", evaluators=("judge",), rate=0.1)] * also_free
    pacer = Pacer(store, lambda _: 1000.0, rules=lambda: rules)
    pacer.update(T0 + timedelta(minutes=10))
    assert pacer.pi_scale("judge") == (pytest.approx(scale), "budget")


def test_a_rule_without_a_budget_keeps_its_policy() -> None:
    """The key is written only where it is given: decisions of earlier versions stay in one series."""
    plain = Rule(name="a", evaluators=("refusal",), rate=1.0)
    assert plain.policy == "9b504b9f022a"
    assert plain.changed(budget_usd_per_day=0.5).policy != plain.policy


def test_wrong_budgets_are_refused_by_name(tmp_path: Path) -> None:
    """Negative amounts and words, from the file and from the API, name the key."""
    with pytest.raises(ValueError, match="budget_usd_per_day"):
        Rule(name="a", evaluators=("refusal",), rate=1.0, budget_usd_per_day=-1)
    config = tmp_path / "ragpulse.toml"
    config.write_text('[[rule]]\nname = "a"\nevaluators = ["refusal"]\nrate = 1\nbudget_usd_per_day = "much"\n')
    with pytest.raises(SettingsError, match="budget_usd_per_day"):
        load_settings(config, {})


CONFIG = """
offline = false
[collector]
settle_s = 0
[judge]
model = "{url}#paid"
budget_usd_per_day = 50
[prices.paid]
input = 0.25
output = 2.0
[[rule]]
name = "small"
evaluators = ["helpfulness"]
rate = 1
budget_usd_per_day = 0.06
[[rule]]
name = "plenty"
evaluators = ["conciseness"]
rate = 1
"""


OWN_JUDGE = """
offline = false
[collector]
settle_s = 0
[judge]
model = "{local}#free"
budget_usd_per_day = 0.06
[prices.paid]
input = 0.25
output = 2.0
[[evaluator]]
name = "second"
use = "helpfulness"
judge = "{paid}#paid"
[[rule]]
name = "both"
evaluators = ["helpfulness", "second"]
rate = 1
"""


def test_the_judge_of_an_evaluator_draws_on_the_budget(tmp_path: Path) -> None:
    """The configured judge is free and scores everything; the other one is paid, stops at the cap, and is announced."""
    local, paid = (LoopbackModel(lambda _: VERDICT, writes=2_500) for _ in range(2))
    config = tmp_path / "ragpulse.toml"
    config.write_text(OWN_JUDGE.format(local=local.url, paid=paid.url_at("127.1")))
    with Served(tmp_path / "ragpulse.duckdb", "--config", str(config)) as process:
        client = connect(process.url)
        for number in range(20):
            send(process.url, rag_trace(number, query=f"How tall is tower {number}?"))
        until(client, "select 1 from scores where evaluator = 'helpfulness'", 20)
        eventually(lambda: client.call("GET status")["evaluations"]["pending"], lambda pending: pending == 0)
        costs = client.sql("select evaluator, sum(cost_usd) as usd, min(judge) as judge from scores group by 1").rows()
        spent = client.call("GET status")["judge"]["spent_today_usd"]
        process.terminate()
    for model in (local, paid):
        model.close()
    cost = {row["evaluator"]: (row["judge"].split()[0], row["usd"]) for row in costs}
    assert cost["helpfulness"] == ("free", 0.0)
    assert cost["second"] == ("paid", pytest.approx(spent))
    assert len(local.asked) == 20
    assert 5 <= len(paid.asked) < 20
    assert 0.025 < spent <= 0.06
    assert f"go to {paid.url_at('127.1')}#paid at" in process.output


def test_a_judge_that_fails_holds_up_no_other(tmp_path: Path) -> None:
    """The configured judge answers 503 alone: another one, and evaluators without a judge, finish meanwhile."""
    failing, other = LoopbackModel(lambda _: 503), LoopbackModel(lambda _: VERDICT)
    config = tmp_path / "ragpulse.toml"
    rule = OWN_JUDGE.format(local=failing.url, paid=other.url).replace('["helpfulness",', '["helpfulness", "refusal",')
    config.write_text(rule)
    with Served(tmp_path / "ragpulse.duckdb", "--config", str(config)) as process:
        client = connect(process.url)
        spans = [span for number in range(60) for span in rag_trace(number, query=f"How tall is tower {number}?")]
        send(process.url, spans)
        count = "select 1 from scores where evaluator in ('second', 'refusal') and status = 'ok' having count(*) = 120"
        until(client, count)
        pending = client.call("GET status")["evaluations"]["pending"]
        process.terminate()
    for model in (failing, other):
        model.close()
    assert len(failing.asked) > 2
    assert pending == 60


def figures(client: Client) -> dict[str, tuple[int, int]]:
    """Evaluations by rule: drawn and not left out, and left out by a budget."""
    sql = (
        "select rule, count(*) filter (sampled) as drawn, count(*) filter (reason = 'budget') as out"
        " from decisions where latest group by 1"
    )
    return {row["rule"]: (row["drawn"], row["out"]) for row in client.sql(sql).rows()}


def test_through_the_collector(tmp_path: Path) -> None:
    """What the provider billed for the rule stays within its cap; Status, rules, Health and the page show it."""
    model = LoopbackModel(lambda _: VERDICT, writes=2_500)
    config = tmp_path / "ragpulse.toml"
    config.write_text(CONFIG.format(url=model.url_at("127.1")))
    with Served(tmp_path / "ragpulse.duckdb", "--config", str(config)) as process:
        client = connect(process.url)
        for number in range(20):
            send(process.url, rag_trace(number, query=f"How tall is tower {number}?"))
        until(client, "select 1 from scores where evaluator = 'conciseness'", 20)
        eventually(lambda: client.call("GET status")["evaluations"]["pending"], lambda pending: pending == 0)
        found, (shown,) = figures(client), client.call("GET status")["judge"]["rules"]
        listed = {one["name"]: one for one in client.call("GET rules")["rules"]}
        process.terminate()
    model.close()
    assert found["plenty"] == (20, 0)
    assert found["small"][0] >= 5
    assert found["small"][1] > 0
    assert shown["name"] == "small"
    assert 0.025 < shown["spent_today_usd"] <= shown["budget_usd"] == 0.06
    assert listed["small"]["spent_today_usd"] == pytest.approx(shown["spent_today_usd"])
    assert listed["plenty"]["budget_usd_per_day"] is None
    assert "0.06 of them for rule small" in process.output
    assert "budget of rule small" in process.errors
