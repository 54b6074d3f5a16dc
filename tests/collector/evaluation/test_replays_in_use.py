"""A replay of the version in force fills missing verdicts at once; any other one is exploratory until it is used."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from asking import replay_of
from stored_units import T0, Units, open_store
from traffic import rag_trace, send
from waiting import until

from ragpulse_collector.cli import run
from ragpulse_collector.client import Client, ClientError, connect
from ragpulse_collector.evaluation.replay import Replays
from ragpulse_collector.refusals import Conflict, Invalid, NotFound
from ragpulse_collector.store.embedded import EmbeddedStore
from ragpulse_collector.store.queries.runs import Declaration
from ragpulse_evaluators import Evaluator, evaluator

if TYPE_CHECKING:
    from loopback import LoopbackModel

    from ragpulse_collector.app import Collector

NOW = T0 + timedelta(hours=1)
Start = Callable[..., "Collector"]
StartModel = Callable[[Callable[[str], str]], "LoopbackModel"]


@evaluator(version="3", name="polite")
def polite(response: str) -> float:
    """1 for any answer."""
    return 1.0


@evaluator(version="4", name="polite")
def politer(response: str) -> float:
    """0 for any answer."""
    return 0.0


@pytest.fixture
def store(tmp_path: Path) -> Iterator[EmbeddedStore]:
    """A store with one unit."""
    opened = open_store(tmp_path)
    units = Units(opened)
    units.unit(1)
    units.save()
    yield opened
    opened.close()


def replays_of(store: EmbeddedStore, ruled: Sequence[str], *, replayed: Evaluator = polite) -> Replays:
    """Replays of a collector whose rules run these evaluators; `polite@4` and `gone` are among what they may name."""

    def resolve(name: str, *, judge: str | None = None, **_: Any) -> Evaluator:
        if name == "gone":
            raise Invalid("gone needs a judge")
        return politer if name == "polite@4" else replayed

    return Replays(store, resolve, clock=lambda: NOW, in_force=lambda: ruled)


def started(replays: Replays, **params: Any) -> str:
    """The id of a replay that was just started."""
    (one,) = replays.start(replay_of("polite", clock=NOW, since="7d", **params)).replays
    return one.run_id


@pytest.mark.parametrize(
    ("ruled", "in_use"),
    [(["polite"], True), (["other", "polite"], True), ([], False), (["other"], False), (["polite@4"], False),
     (["politer"], False), (["gone"], False)],
)  # fmt: skip
def test_a_rule_puts_its_version_in_force(store: EmbeddedStore, ruled: list[str], in_use: bool) -> None:
    """A rule that runs another evaluator, or another version of this one, does not."""
    replays = replays_of(store, ruled)
    assert replays.get(started(replays)).in_use == in_use


def test_what_was_put_in_use_is_in_force_until_undone(store: EmbeddedStore) -> None:
    """Without a rule; a replay of another version stays exploratory. The start decides, not a later look."""
    replays = replays_of(store, [])
    first = started(replays)
    assert replays.use(first, actor="me").in_use
    second = started(replays)
    assert replays.get(second).in_use
    other = replays_of(store, [], replayed=politer)
    assert not other.get(started(other)).in_use
    assert not replays.use(first, actor="me", undo=True).in_use
    assert replays.get(second).in_use
    assert not replays.get(started(replays)).in_use
    actions = store.read("SELECT action, actor FROM raw.audit ORDER BY created_at").rows
    assert actions == [("use", "me"), ("set aside", "me")]


@pytest.mark.parametrize(("version", "in_use"), [("3", True), ("4", False)])
def test_a_client_side_replay_is_held_to_the_same_rule(store: EmbeddedStore, version: str, in_use: bool) -> None:
    """By the name, version and judge that its caller declares."""
    replays = replays_of(store, ["polite"])
    request = replay_of(clock=NOW, since="7d", external=[Declaration("polite", version)])
    (run,) = replays.start(request).replays
    assert run.in_use == in_use


def test_a_replay_that_runs_is_cancelled_before_it_is_deleted(store: EmbeddedStore) -> None:
    """Deleted it is unknown, its jobs are gone, and it stays so for a worker that still has one."""
    replays = replays_of(store, ["polite"])
    run_id = started(replays)
    with pytest.raises(Conflict, match="cancel it first"):
        replays.delete(run_id, actor="me")
    replays.use(run_id, actor="me")
    replays.cancel(run_id)
    replays.delete(run_id, actor="me")
    with pytest.raises(NotFound):
        replays.get(run_id)
    with pytest.raises(NotFound):
        replays.use(run_id, actor="me")
    assert replays.list().replays == []
    assert store.read("SELECT count(*) FROM raw.eval_jobs").rows == [(0,)]
    late = Units(store)
    late.score(1, "polite", 1.0, version="3", source="replay", run_id=run_id)
    late.save()
    assert store.read("SELECT exploratory FROM scores").rows == [(True,)]


def receiving(collector: Start, count: int, **options: Any) -> tuple[str, Client]:
    """A running collector with `count` decided traces."""
    running = collector(**options)
    for number in range(count):
        send(running.url, rag_trace(number))
    client = connect(running.url)
    until(client, "select 1 from scores where evaluator = 'groundedness'", count)
    return running.url, client


def test_a_replay_with_a_judge_from_start_to_deletion(
    collector: Start, loopback_model: StartModel, capsys: pytest.CaptureFixture[str]
) -> None:
    """On the command line: no list and no chart shows it, its result does; used, everything does; deleted, nothing."""
    model = loopback_model(lambda _: '{"reason": "rude", "score": 0.0}')
    url, client = receiving(collector, 4, judge={"model": f"{model.url}#m"}, rules=[("all", "groundedness", 1.0)])

    def listed() -> set[str]:
        return {name for row in client.call("GET traces", {})["traces"] for name in row["scores"]}

    def charted() -> int:
        return len(client.call("GET metrics", {"name": "quality:helpfulness", "from": "-1d"})["series"])

    before, failing = listed(), client.call("GET traces", {"failing": True})["traces"]
    assert run(["replay", "-e", "helpfulness", "--url", url, "--yes", "--json"]) == 0
    (replay,) = json.loads(capsys.readouterr().out)["replays"]
    result = replay["result"]
    assert (replay["status"], replay["in_use"], result["value"], result["n"]) == ("done", False, 0.0, 4)
    assert result["histogram"][0] == {"lo": 0.0, "hi": 0.1, "n": 4}
    assert (result["against"]["evaluator"], result["against"]["shared"]) == ("groundedness", 4)
    assert (listed(), charted()) == (before, 0)
    assert client.call("GET traces", {"failing": True})["traces"] == failing
    assert client.sql("select count(*) as n from scores where exploratory").rows() == [{"n": 4}]

    assert run(["replays", "use", replay["run_id"], "--url", url]) == 0
    assert "in use" in capsys.readouterr().out
    assert (listed(), charted()) == ({*before, "helpfulness"}, 1)
    assert run(["replays", "set-aside", replay["run_id"], "--url", url, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["in_use"] is False
    assert (listed(), charted()) == (before, 0)

    assert run(["replays", "--url", url]) == 0
    assert replay["run_id"] in capsys.readouterr().out
    assert run(["replays", "delete", replay["run_id"], "--url", url, "--yes"]) == 0
    assert client.sql("select count(*) as n from scores where evaluator = 'helpfulness'").rows() == [{"n": 0}]
    with pytest.raises(ClientError, match="no replay"):
        client.call(f"GET replays/{replay['run_id']}/result")
    assert run(["replays", "show", "--url", url]) == 2


def test_a_replay_of_the_version_in_force_is_seen_at_once(collector: Start, capsys: pytest.CaptureFixture[str]) -> None:
    """A rule runs groundedness on some traces: the replay fills in the others, and no verdict is made twice."""
    running = collector(rules=[("all", "refusal", 1.0)])
    for number in range(3):
        send(running.url, rag_trace(number))
    client = connect(running.url)
    until(client, "select 1 from scores where evaluator = 'refusal'", 3)
    client.call("POST rules", {"name": "few", "evaluators": ["groundedness"], "rate": 0.001})
    assert run(["replay", "-e", "groundedness", "--url", running.url, "--yes", "--json"]) == 0
    (replay,) = json.loads(capsys.readouterr().out)["replays"]
    against = replay["result"]["against"]
    assert (replay["in_use"], replay["ok"], against["evaluator"]) == (True, 3, "refusal"), "nothing else scored these"
    assert all("groundedness" in row["scores"] for row in client.call("GET traces", {})["traces"])
    assert client.sql("select count(*) as n from scores where exploratory").rows() == [{"n": 0}]
