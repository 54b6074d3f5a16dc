"""The cascade: scores of checks that run on everything say what a judge is asked about more often."""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from ragpulse_collector.configuration import load_settings
from ragpulse_collector.records import ScoreRecord
from ragpulse_collector.sampling import Rule, Sampler
from ragpulse_collector.sampling.rules import OFFLINE
from ragpulse_collector.settings import Stratum
from ragpulse_collector.store.units.numbers import sampling_number
from ragpulse_evaluators.statistics import hajek

CHECK = Rule(name="check", evaluators=("groundedness",), rate=1.0)
DOUBT = Stratum(where="score.groundedness < 0.5", rate=1.0)
JUDGE = Rule(name="judge", evaluators=("faithfulness",), rate=0.1, strata=(DOUBT,))
RULES = (CHECK, JUDGE)


def trace_of(number: int) -> str:
    """A trace id of its own."""
    return f"{number:032x}"


def send(kit: Any, store: Any, count: int, **fields: Any) -> None:
    """So many one-span traces."""
    kit.send(store, *[kit.span(1, kind="rag", trace_id=trace_of(n), **fields) for n in range(1, count + 1)])


def score(kit: Any, store: Any, values: dict[int, float], evaluator: str = "groundedness", **more: Any) -> None:
    """Store what an evaluator says of traces by number, now."""
    row = {
        "span_id": 1,
        "request_time": kit.start + timedelta(milliseconds=1),
        "evaluator": evaluator,
        "source": "online",
        "status": "ok",
    } | more
    columns = ["trace_id", "normalized", "score", "created_at", *row]
    tick = timedelta(microseconds=1)
    rows = [[trace_of(n), value, value, kit.now + n * tick, *row.values()] for n, value in values.items()]
    store.write(lambda transaction: transaction.append("scores", columns, rows)).result()


LATEST = "SELECT pi, sampled, revision FROM decisions WHERE latest AND evaluator = 'faithfulness' ORDER BY trace_id"


@pytest.mark.parametrize(
    "where",
    [
        "score.groundedness < 0.5",
        "label.groundedness = 'bad'",
        "label.groundedness = 'bad' AND score.groundedness < 0.5 AND label.topic IS NULL",
    ],
)
def test_a_doubtful_score_moves_the_unit_to_its_stratum(kit: Any, rows: Any, where: str) -> None:
    """Decided at the base rate first, once more with the same u when the score is there, and never a third time."""
    store = kit.store()
    rules = (CHECK, JUDGE.changed(strata=(Stratum(where=where, rate=1.0),)))
    sampler = Sampler(store, lambda: rules)
    send(kit, store, 2)
    assert sampler.decide(kit.later(3)) == 2
    assert [row[0] for row in rows(store, LATEST)] == [0.1, 0.1]
    score(kit, store, {1: 0.2}, label="bad")
    score(kit, store, {2: 0.9}, label="good")
    assert [sampler.decide(kit.later(2)), sampler.decide(kit.later(2))] == [1, 0]
    assert [(pi, revision) for pi, _, revision in rows(store, LATEST)] == [(1.0, 1), (0.1, 0)]
    assert rows(store, "SELECT count(DISTINCT u) FROM decisions WHERE trace_id = ?", trace_of(1)) == [(1,)]
    assert rows(store, "SELECT count(*) FROM decisions") == [(5,)]


@pytest.mark.parametrize(
    "where", ["label.groundedness = 'bad'", "label.groundedness LIKE 'b%' AND label.topic IS NULL"]
)
def test_a_rule_may_be_for_the_traces_of_a_label(kit: Any, rows: Any, where: str) -> None:
    """Nothing is drawn before the label is there; then those that have it are decided once more, with the same u."""
    store = kit.store()
    rules = (CHECK, JUDGE.changed(where=where, rate=1.0, strata=()))
    sampler = Sampler(store, lambda: rules)
    send(kit, store, 2)
    assert sampler.decide(kit.later(3)) == 2
    assert [row[:2] for row in rows(store, LATEST)] == [(0.0, False), (0.0, False)]
    score(kit, store, {1: 0.2}, label="bad")
    score(kit, store, {2: 0.9}, label="good")
    assert [sampler.decide(kit.later(2)), sampler.decide(kit.later(2))] == [1, 0]
    assert rows(store, LATEST) == [(1.0, True, 1), (0.0, False, 0)]
    assert rows(store, "SELECT count(*) FROM raw.eval_jobs WHERE evaluator = 'faithfulness'") == [(1,)]


def test_nothing_is_queued_twice(kit: Any, rows: Any) -> None:
    """What the base rate had drawn keeps its one job when its chance rises."""
    store = kit.store()
    sampler = Sampler(store, lambda: RULES)
    send(kit, store, 60)
    sampler.decide(kit.later(3))
    before = rows(store, "SELECT count(*) FROM raw.eval_jobs WHERE evaluator = 'faithfulness'")[0][0]
    score(kit, store, dict.fromkeys(range(1, 61), 0.0))
    sampler.decide(kit.later(2))
    jobs = rows(store, "SELECT count(*), count(DISTINCT trace_id) FROM raw.eval_jobs WHERE evaluator = 'faithfulness'")
    assert 0 < before < 60
    assert jobs == [(60, 60)]


def test_late_facts_keep_the_stratum_of_the_score(kit: Any, rows: Any) -> None:
    """Feedback decides the unit again from all that is known, scores included."""
    store = kit.store()
    sampler = Sampler(store, lambda: RULES)
    send(kit, store, 1)
    sampler.decide(kit.later(3))
    score(kit, store, {1: 0.2})
    sampler.decide(kit.later(2))
    kit.send(store, scores=[ScoreRecord(trace_id=trace_of(1), span_id=None, time_ns=kit.start_ns, name="t", score=1.0)])
    assert sampler.decide(kit.later(2)) == 1
    assert [row[:2] for row in rows(store, LATEST)] == [(1.0, True)]


@pytest.mark.parametrize("rules", [(CHECK.changed(rate=0.999), JUDGE), (JUDGE,)])
def test_a_score_that_only_some_have_moves_nothing(kit: Any, rows: Any, rules: tuple[Rule, ...]) -> None:
    """Were the check drawn by chance, or forced by a person, that its score exists would say something about u."""
    store = kit.store()
    sampler = Sampler(store, lambda: rules)
    send(kit, store, 1)
    sampler.decide(kit.later(3))
    score(kit, store, {1: 0.2})
    assert sampler.decide(kit.later(2)) == 0
    assert [row[0] for row in rows(store, LATEST)] == [0.1]


@pytest.mark.parametrize("more", [{"source": "replay"}, {"status": "error"}, {"span_id": 9}])
def test_other_verdicts_move_nothing(kit: Any, rows: Any, more: dict[str, Any]) -> None:
    """Replays, failures and spans that are no unit do not count."""
    store = kit.store()
    sampler = Sampler(store, lambda: RULES)
    send(kit, store, 1)
    sampler.decide(kit.later(3))
    score(kit, store, {1: 0.2}, **more)
    assert sampler.decide(kit.later(2)) == 0
    assert [row[0] for row in rows(store, LATEST)] == [0.1]


def test_what_a_cap_left_out_stays_counted_as_such(kit: Any, rows: Any) -> None:
    """It was drawn and dropped: deciding it again would hide that its verdict is missing."""
    store = kit.store()
    sampler = Sampler(store, lambda: (CHECK, JUDGE.changed(rate=0.5)))
    send(kit, store, 20)
    sampler.decide(kit.later(3))
    dropped = "UPDATE raw.decisions SET sampled = false, reason = 'budget' WHERE sampled AND evaluator = 'faithfulness'"
    store.write(lambda transaction: transaction.execute(dropped)).result()
    score(kit, store, dict.fromkeys(range(1, 21), 0.0))
    sampler.decide(kit.later(2))
    found = rows(store, "SELECT DISTINCT u < 0.5, pi, reason FROM decisions WHERE latest AND rule = 'judge' ORDER BY 1")
    assert found == [(False, 1.0, "sampled"), (True, 0.5, "budget")]


def test_the_first_units_score_moves_all_units_of_a_trace(kit: Any, rows: Any) -> None:
    """As the facts of a trace are those of its first unit; each keeps its own number."""
    store = kit.store()
    sampler = Sampler(store, lambda: RULES)
    kit.send(store, kit.span(9), *[kit.span(n, 9, "rag", trace_id=kit.trace) for n in (1, 2)])
    sampler.decide(kit.later(3))
    [(first,)] = rows(store, "SELECT unit_span_id FROM raw.trace_facts")
    place = {"trace_id": kit.trace, "span_id": first}
    columns = ["evaluator", "source", "status", "normalized", "created_at", "request_time", *place]
    row = ["groundedness", "online", "ok", 0.1, kit.now, kit.start + timedelta(milliseconds=1), *place.values()]
    store.write(lambda transaction: transaction.append("scores", columns, [row])).result()
    assert sampler.decide(kit.later(2)) == 2
    assert [row[0] for row in rows(store, LATEST)] == [1.0, 1.0]


def test_a_new_rule_does_not_reach_back(kit: Any, rows: Any) -> None:
    """Units decided under another policy stay as they are: no rule bills yesterday's traffic."""
    store, rules = kit.store(), [CHECK, JUDGE.changed(strata=())]
    sampler = Sampler(store, lambda: rules)
    send(kit, store, 1)
    sampler.decide(kit.later(3))
    rules[1] = JUDGE
    score(kit, store, {1: 0.2})
    assert sampler.decide(kit.later(2)) == 0
    assert [row[0] for row in rows(store, LATEST)] == [0.1]


def test_a_new_process_heeds_what_the_last_one_left(kit: Any, rows: Any) -> None:
    """Scores that were stored just before a crash still move their units."""
    store = kit.store()
    send(kit, store, 3)
    Sampler(store, lambda: RULES).decide(kit.later(3))
    score(kit, store, dict.fromkeys((1, 2, 3), 0.1))
    assert Sampler(store, lambda: RULES, max_traces=2).decide(kit.later(60)) == 3
    assert [row[:2] for row in rows(store, LATEST)] == [(1.0, True)] * 3


def test_a_condition_waits_for_all_its_scores(kit: Any, rows: Any) -> None:
    """`score.a` OR anything else holds once `a` is there; the budget scales the stratum as any."""
    check = CHECK.changed(evaluators=("groundedness", "refusal"))
    both = JUDGE.changed(strata=(Stratum(where="score.refusal = 0 OR score.groundedness IS NULL OR error", rate=0.8),))
    store = kit.store()
    sampler = Sampler(store, lambda: [check, both], pi_scale=lambda name: (0.5 if name == "faithfulness" else 1.0, ""))
    send(kit, store, 1, status="error")
    sampler.decide(kit.later(3))
    for name, chance in (("refusal", 0.05), ("groundedness", 0.4)):
        score(kit, store, {1: 1.0}, name)
        sampler.decide(kit.later(2))
        assert [row[0] for row in rows(store, LATEST)] == [chance]


def test_without_such_a_rule_no_score_is_looked_at(kit: Any) -> None:
    """Who uses no cascade pays nothing for it."""
    store = kit.store()
    asked: list[str] = []
    read = store.read

    def listening(sql: str, *rest: Any, **more: Any) -> Any:
        asked.append(sql)
        return read(sql, *rest, **more)

    store.read = listening
    sampler = Sampler(store, lambda: [OFFLINE])
    send(kit, store, 1)
    sampler.decide(kit.later(3))
    sampler.decide(kit.later(9))
    assert asked
    assert not [sql for sql in asked if "raw.scores" in sql]


def test_the_weighted_mean_is_right_and_the_naive_one_wrong(kit: Any, rows: Any) -> None:
    """600 answers, a fifth doubtful and mostly bad, drawn always, the rest at 0.1: over 20 salts Hajek has no bias."""
    bad = {n: (n * 7919) % 100 < (70 if n % 5 == 0 else 6) for n in range(1, 601)}
    truth = 1 - sum(bad.values()) / len(bad)
    store = kit.store()
    sampler = Sampler(store, lambda: RULES)
    send(kit, store, 600)
    sampler.decide(kit.later(3))
    score(kit, store, {n: 0.3 if n % 5 == 0 else 0.9 for n in bad})
    sampler.decide(kit.later(2))
    chances = rows(store, "SELECT trace_id, span_id, pi FROM decisions WHERE latest AND evaluator = 'faithfulness'")
    means: list[float] = []
    naive: list[float] = []
    for salt in map(str, range(20)):
        drawn = [(1.0 - bad[int(t, 16)], pi) for t, span, pi in chances if sampling_number(salt, t, span) < pi]
        found = hajek([y for y, _ in drawn], [pi for _, pi in drawn])
        means.append(found.estimate if found else 0.0)
        naive.append(sum(y for y, _ in drawn) / len(drawn))
    assert sum(means) / 20 == pytest.approx(truth, abs=0.01)
    assert sum(naive) / 20 < truth - 0.2


def test_the_guides_example_is_such_a_rule(tmp_path: Path) -> None:
    """The configuration in docs/rules.md names scores of a check that another of its rules runs on everything."""
    guide = (Path(__file__).parents[3] / "docs" / "rules.md").read_text(encoding="utf-8")
    example = next(text for text in re.findall(r"```toml\n(.*?)```", guide, re.DOTALL) if "score." in text)
    (tmp_path / "ragpulse.toml").write_text(example, encoding="utf-8")
    rules = [Rule.of(rule, source="file") for rule in load_settings(tmp_path / "ragpulse.toml").rule]
    everywhere = {name for rule in (OFFLINE, *rules) if rule.rate == 1.0 for name in rule.evaluators}
    named = {name for rule in rules for name in rule.scores}
    assert named
    assert named <= everywhere


def test_a_rule_may_not_wait_for_itself() -> None:
    """Nor may `where` name scores: what it leaves out would not be covered; each is said at once."""
    with pytest.raises(ValueError, match="faithfulness is not there before faithfulness is drawn"):
        JUDGE.changed(strata=(Stratum(where="score.faithfulness < 0.5", rate=1.0),))
    with pytest.raises(ValueError, match=r"where .score\.groundedness < 0\.5.: .* strata"):
        JUDGE.changed(where="score.groundedness < 0.5")
    with pytest.raises(ValueError, match="faithfulness is not there before faithfulness is drawn"):
        JUDGE.changed(where="label.faithfulness = 'bad'")
    with pytest.raises(ValueError, match="score"):
        JUDGE.changed(strata=(Stratum(where="score < 0.5", rate=1.0),))


def test_a_changed_condition_is_a_new_policy_and_a_name_stays_a_name() -> None:
    """As for other rules; quotes in a name are no SQL."""
    other = JUDGE.changed(strata=(Stratum(where="score.groundedness < 0.4", rate=1.0),))
    odd = JUDGE.changed(strata=(Stratum(where='score."it\'s ""x""" < 0.4', rate=1.0),))
    assert len({JUDGE.policy, other.policy, odd.policy}) == 3
    assert odd.scores == ('it\'s "x"',)


def test_the_preview_counts_what_the_scores_would_select(kit: Any, rows: Any) -> None:
    """The rule's chance can be asked of any row of `traces`."""
    odd = Stratum(where='score."it\'s ""x""" < 0.4', rate=0.7)
    store = kit.store()
    send(kit, store, 3)
    Sampler(store, lambda: RULES).decide(kit.later(3))
    score(kit, store, {1: 0.2, 2: 0.9})
    score(kit, store, {3: 0.2}, 'it\'s "x"')
    rule = JUDGE.changed(strata=(*JUDGE.strata, odd))
    found = rows(store, f"SELECT {rule.pi_sql()} FROM traces t ORDER BY trace_id")
    assert [float(pi) for (pi,) in found] == [1.0, 0.1, 0.7]
