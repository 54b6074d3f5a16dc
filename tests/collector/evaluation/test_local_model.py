"""A local model beside the collector: in a process of its own, within its share of the CPU, sampled as it keeps up."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from local_models import NEVER, tagger
from served import Served
from stored_units import T0, Units, open_store
from traffic import rag_trace, send
from waiting import eventually

from ragpulse_collector.api.health import CollectorStatus
from ragpulse_collector.api.status import render
from ragpulse_collector.app import Collector
from ragpulse_collector.catalog import Catalog, CheckLoad, CpuLoad
from ragpulse_collector.client import connect
from ragpulse_collector.refusals import Invalid
from ragpulse_collector.sampling import Pacer
from ragpulse_collector.settings import Settings
from ragpulse_collector.store.embedded import EmbeddedStore
from ragpulse_evaluators import Case
from ragpulse_evaluators.isolated import CpuPace, Isolated


@pytest.fixture
def store(tmp_path: Path) -> Iterator[EmbeddedStore]:
    """An open store."""
    opened = open_store(tmp_path)
    yield opened
    opened.close()


def configured(folder: Path, **params: Any) -> Settings:
    """Settings with one evaluator of a model."""
    spec = {"name": "grounded", "use": "groundedness_model", "model": str(folder)} | params
    return Settings.model_validate({"evaluator": [spec]})


def test_a_model_gets_a_process_with_limits_of_its_own(tmp_path: Path) -> None:
    """One process; memory for its weights; the version is that of the evaluator in this process."""
    settings = configured(tagger(tmp_path / "model"), max_cpu_share=0.25)
    placed = Catalog(settings, isolate=True).resolve("grounded")
    assert isinstance(placed, Isolated)
    assert placed.limits.processes == 1
    assert placed.limits.memory_mb > settings.evaluators.memory_limit_mb
    assert placed.max_cpu_share == 0.25
    assert placed.version == Catalog(settings).resolve("grounded").version
    assert Catalog(configured(tmp_path / "model")).resolve("grounded").version == placed.version
    assert not isinstance(Catalog(settings, isolate=True).resolve("groundedness"), Isolated)


@pytest.mark.parametrize(
    ("params", "expected"),
    [
        ({"max_cpu_share": 0}, "max_cpu_share=0: Input should be greater than 0"),
        ({"max_cpu_share": "half"}, "max_cpu_share='half'"),
        ({"max_cpu": 0.5}, "has no parameter 'max_cpu'; did you mean 'max_cpu_share'?"),
        ({"model": "org/none"}, "ragpulse models add org/none"),
    ],
)
def test_a_mistake_is_refused_at_the_start(tmp_path: Path, params: dict[str, Any], expected: str) -> None:
    """With the line to run or the nearest name."""
    with pytest.raises(Invalid) as refused:
        Catalog(configured(tagger(tmp_path / "model"), **params), isolate=True).check()
    assert expected in str(refused.value)


async def test_what_it_uses_is_measured(tmp_path: Path) -> None:
    """The process reports its CPU seconds with each result."""
    catalog = Catalog(configured(tagger(tmp_path / "model"), max_cpu_share=64), isolate=True)
    placed = catalog.resolve("grounded")
    assert isinstance(placed, Isolated)
    assert catalog.cpu_loads() == {}
    try:
        case = Case(response="Refunds take five days.", contexts=["Refunds take five days."])
        await placed(case)  # it also loads the model
        assert catalog.cpu_loads() == {}
        result = await placed(case)
        assert (result.status, result.passing, result.evaluator) == ("ok", True, "grounded"), result
        (load,) = catalog.cpu_loads().values()
        assert load.share == 64
        assert load.seconds > 0
    finally:
        await placed.aclose()


def test_a_share_of_the_cpu_is_kept_whatever_a_case_takes() -> None:
    """Cases of any length: what is used, divided by the time until the next may begin, is the share."""
    now = 100.0
    pace = CpuPace(0.5, now=lambda: now)
    used = 0.0
    for cpu_s in (0.1, 2.0, 0.0, 0.5, 0.01):
        now += pace.wait_s
        pace.used(now, cpu_s)
        now += cpu_s  # one thread: the case takes as long
        used += cpu_s
    now += pace.wait_s
    assert used / (now - 100.0) == pytest.approx(0.5)
    now += 3600
    assert pace.wait_s == 0.0  # idle time is not saved up: the next case waits again
    pace.used(now, 1.0)
    assert pace.wait_s == pytest.approx(2.0)


def test_loading_a_model_is_paid_and_no_measure_of_a_case() -> None:
    """The first case of a process keeps the next one away, and the mean is that of the others."""
    pace = CpuPace(0.5, now=lambda: 0.0)
    pace.used(0.0, 10.0, first=True)
    assert (pace.wait_s, pace.mean_s) == (20.0, None)
    pace.used(20.0, 0.5)
    assert pace.mean_s == 0.5


SLOW = """
import time
from ragpulse_evaluators import Evaluator

class Slow(Evaluator):
    name = "slow"
    needs = frozenset({"response"})
    max_cpu_share = 0.5

    def run(self, case):
        time.sleep(60)
"""


async def test_what_is_killed_is_paid_as_well(tmp_path: Path) -> None:
    """A case beyond its time: the next one waits as if all of the time had been used."""
    (tmp_path / "slow.py").write_text(SLOW)
    settings = Settings.model_validate({"evaluators": {"time_limit_s": 0.2}})
    slow = Catalog(settings, loads=[str(tmp_path / "slow.py")], isolate=True).resolve("slow")
    assert isinstance(slow, Isolated)
    result = await slow(Case(response="x"))
    assert "no result within 0.2 s" in (result.explanation or "")
    assert slow.pace.last_s >= 0.2
    assert slow.pace.wait_s > 0


def test_without_a_share_nothing_waits() -> None:
    """Users' evaluators have their limits of processes and time, as before."""
    pace = CpuPace(None, now=lambda: 5.0)
    pace.used(5.0, 100.0)
    assert (pace.wait_s, pace.mean_s) == (0.0, 100.0)


@pytest.mark.parametrize(
    ("seconds", "share", "expected"),
    [(0.1, 0.5, 1.0), (0.5, 0.5, 0.9), (1.0, 0.5, 0.45), (2.0, 0.05, 0.0225), (100.0, 0.5, 0.0045)],
)
def test_sampling_follows_what_the_model_keeps_up_with(
    store: EmbeddedStore, seconds: float, share: float, expected: float
) -> None:
    """One unit a second: nine tenths of the share are selected, the rest works off what is pending."""
    units = Units(store)
    for number in range(900):
        units.unit(number)
        units.decision(number, "grounded", pi=1.0)
    units.save()
    pacer = Pacer(store, lambda _: None, cpu_loads=lambda: {"grounded": CpuLoad(seconds, share)})
    pacer.update(T0 + timedelta(minutes=10))
    scale, reason = pacer.pi_scale("grounded")
    assert scale == pytest.approx(expected, rel=1e-3)
    assert pacer.keeps_up == {"grounded": scale}
    assert reason == "throttled"
    assert pacer.pi_scale("groundedness") == (1.0, "budget")


def test_checks_that_cannot_keep_up_are_sampled_with_a_known_probability(store: EmbeddedStore) -> None:
    """One unit a second, two seconds a case: half of what the process does is selected until its backlog is gone."""
    now, load = [T0 - timedelta(minutes=5)], CheckLoad(2.0, 8000, more=True)
    checks = {"checks": lambda: ["groundedness"], "check_load": lambda: load, "clock": lambda: now[0]}
    pacer = Pacer(store, lambda _: None, **checks)
    assert (pacer.pi_scale("groundedness"), pacer.keeps_up) == ((1.0, "throttled"), {})
    units = Units(store)
    for number in range(900):
        units.unit(number)
        units.decision(number, "groundedness", pi=1.0)
    units.save()
    now[0] = T0 + timedelta(minutes=10)
    pacer.keep_up()
    scale, reason = pacer.pi_scale("groundedness")
    assert (scale, reason) == (pytest.approx(0.25, rel=0.01), "throttled")
    assert pacer.keeps_up == {"groundedness": scale}
    now[0], load = now[0] + timedelta(minutes=30), CheckLoad(2.0, 100, more=False)
    pacer.keep_up()
    assert pacer.pi_scale("groundedness") == (scale, "throttled")  # a hundred wait, whatever the speed promised
    now[0], load = now[0] + timedelta(minutes=30), CheckLoad(2.0, 2, more=False)
    pacer.keep_up()
    assert pacer.pi_scale("groundedness") == (1.0, "throttled")
    assert pacer.keeps_up == {}


def test_status_and_metrics_say_what_share_a_model_keeps_up_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By evaluator, from the pacer of this process, and nothing before a case was scored."""
    options = {"db": str(tmp_path / "ragpulse.duckdb"), "port": 0}
    collector = Collector(Settings().with_options("collector", options))
    components = collector.components

    def status() -> CollectorStatus:
        found: CollectorStatus = asyncio.run(components.operations.call("GET status", {}))
        return found

    try:
        assert status().evaluations.keeps_up == {}
        assert "keeps_up" not in render(status(), [])
        monkeypatch.setattr(components.pacer, "cpu_loads", lambda: {"grounded": CpuLoad(2.0, 0.05)})
        assert isinstance(collector.store, EmbeddedStore)
        units = Units(collector.store)
        for number in range(900):
            units.unit(number)
            units.decision(number, "grounded", pi=1.0)
        units.save()
        components.pacer.update(T0 + timedelta(minutes=10))
        assert status().evaluations.keeps_up == {"grounded": pytest.approx(0.0225, rel=1e-3)}
        assert 'ragpulse_evaluations_keeps_up{evaluator="grounded"} 0.0225' in render(status(), [])
    finally:
        collector.stop()


def children(pid: int) -> list[int]:
    """The processes that a process started."""
    path = Path(f"/proc/{pid}/task/{pid}/children")
    own = path.read_text().split() if path.is_file() else []
    threads = Path(f"/proc/{pid}/task").glob("*/children") if path.is_file() else []
    return sorted({int(child) for child in [*own, *(c for t in threads for c in t.read_text().split())]})


def test_a_model_reads_live_traffic_and_survives_kills(tmp_path: Path) -> None:
    """Serve: trace page, sentences and spans; the model's process is killed; the collector is killed and restarted."""
    model = tagger(tmp_path / "model")
    (tmp_path / "ragpulse.toml").write_text(
        f'[collector]\nsettle_s = 0\n[[evaluator]]\nname = "grounded"\nuse = "groundedness_model"\nmodel = "{model}"\n'
        'max_cpu_share = 2\n[[rule]]\nname = "live"\nevaluators = ["grounded"]\nrate = 1.0\n'
    )
    arguments = (tmp_path / "served.duckdb", "--no-grpc", "--config", str(tmp_path / "ragpulse.toml"))
    sentence = "SELECT status, passing, pi, parts FROM scores WHERE evaluator = 'grounded' AND trace_id = ?"

    def scored(served: Served, number: int) -> tuple[Any, ...]:
        text = f"Refunds take five {NEVER} days."
        send(served.url, rag_trace(number, response=text, documents=[("a", "Refunds take five days.")]))
        query, asked = sentence.replace("?", f"'{number + 1:032x}'"), connect(served.url)
        (row,) = eventually(lambda: asked.sql(query).rows())
        return tuple(row.values())

    with Served(*arguments) as served:
        status, passing, pi, parts = scored(served, 1)
        assert (status, passing, pi) == ("ok", False, 1.0)
        assert f"“{NEVER}”" in str(parts)
        page = urlopen(f"{served.url}/traces/{2:032x}").read().decode()
        assert NEVER in page
        assert "not supported" in page
        (child,) = [pid for pid in children(served.process.pid) if "isolated_child" in command_of(pid)]
        os.kill(child, signal.SIGKILL)
        assert scored(served, 2)[0] == "ok"
        served.kill()
    with Served(*arguments) as served:
        assert scored(served, 3)[0] == "ok"
        (count,) = connect(served.url).sql("SELECT count(*) AS n FROM scores WHERE evaluator = 'grounded'").rows()
        assert count == {"n": 3}


def command_of(pid: int) -> str:
    """The command line of a process."""
    path = Path(f"/proc/{pid}/cmdline")
    return path.read_bytes().decode(errors="replace") if path.is_file() else ""
