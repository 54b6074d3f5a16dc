"""Messages: at least once, per destination, in order; a destination that fails or hangs disturbs no other."""

from __future__ import annotations

import email
import html
import json
import re
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest
from receivers import MailServer, Receiver
from stored_units import T0, Units, open_store
from traffic import rag_trace, send
from waiting import eventually

from ragpulse_collector.cli import run
from ragpulse_collector.client import ClientError, connect
from ragpulse_collector.monitoring import Monitors
from ragpulse_collector.monitoring.delivery import Undelivered
from ragpulse_collector.monitoring.delivery import send as send_message
from ragpulse_collector.monitoring.messages import Alert
from ragpulse_collector.settings import DestinationSettings, MonitorSettings, Settings, SmtpSettings
from ragpulse_collector.store.embedded import EmbeddedStore

if TYPE_CHECKING:
    from ragpulse_collector.app import Collector

Start = Callable[..., "Collector"]
SLOWED = Alert(monitor="slow", metric="latency_p95", state="firing", text="slow")
SLOW = {"name": "slow", "metric": "latency_p95", "condition": "> 500"}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[EmbeddedStore]:
    """An open store with a hundred requests of a second each."""
    opened = open_store(tmp_path)
    units = Units(opened)
    for number in range(100):
        units.unit(number, at=T0 + timedelta(minutes=30))
    units.save()
    yield opened
    opened.close()


@pytest.fixture
def receivers() -> Iterator[Callable[[], Receiver]]:
    """Start loopback receivers."""
    started: list[Receiver] = []

    def start() -> Receiver:
        started.append(Receiver())
        return started[-1]

    yield start
    for one in started:
        one.close()


class Clock:
    """A time that stands still until it is moved."""

    def __init__(self) -> None:
        self.now = T0 + timedelta(hours=1)

    def __call__(self) -> datetime:
        return self.now


def alerting(store: EmbeddedStore, clock: Clock, **settings: Any) -> Monitors:
    """The monitors of a configuration at a time."""
    return Monitors(store, Settings.model_validate(settings), clock=clock)


def test_a_failing_receiver_is_retried_and_no_other_hears_twice(
    store: EmbeddedStore, receivers: Callable[[], Receiver]
) -> None:
    """HTTP 500 and a redirect are retried after 5 and 10 s, with the same event; the other gets one message."""
    failing, good = receivers(), receivers()
    failing.code = 500
    destinations = [{"name": "down", "webhook": failing.url}, {"name": "up", "slack": good.url}]
    clock = Clock()
    monitors = alerting(store, clock, monitor=[{**SLOW, "notify": ["down", "up"]}], destination=destinations)
    monitors.check(clock.now)
    assert [monitors.outbox.deliver(name) for name in ("down", "up")] == [5.0, 300.0]
    assert "down: pending (HTTP 500), up: sent" in str(monitors.list().monitors[0].history[0].delivery)
    failing.code = 302
    clock.now += timedelta(seconds=6)
    assert monitors.outbox.deliver("down") == 10.0
    failing.code = 200
    clock.now += timedelta(seconds=11)
    assert [monitors.outbox.deliver(name) for name in ("down", "up")] == [300.0, 300.0]
    bodies = [json.loads(body) for _, body in failing.taken]
    assert len({(UUID(body["event_id"]), body["since"]) for body in bodies}) == 1
    assert (len(bodies), len(good.taken)) == (3, 1)
    assert monitors.list().monitors[0].history[0].delivery == "down: sent, up: sent"


def test_a_process_that_ends_before_it_sends_leaves_the_message(
    store: EmbeddedStore, receivers: Callable[[], Receiver]
) -> None:
    """The message is stored with the change of state: the next process sends it."""
    receiver, clock = receivers(), Clock()
    settings = {"monitor": [{**SLOW, "notify": ["ops"]}], "destination": [{"name": "ops", "webhook": receiver.url}]}
    alerting(store, clock, **settings).check(clock.now)
    after = alerting(store, clock, **settings)
    assert after.check(clock.now) == 0
    after.outbox.deliver("ops")
    assert json.loads(receiver.taken[0][1])["state"] == "firing"


def test_a_receiver_that_hangs_delays_no_other(store: EmbeddedStore, receivers: Callable[[], Receiver]) -> None:
    """Each destination has a thread: the other is served while one waits, and `check` returns at once."""
    hanging, good, clock = receivers(), receivers(), Clock()
    hanging.hold = threading.Event()
    destinations = [{"name": "hangs", "webhook": hanging.url}, {"name": "good", "webhook": good.url}]
    monitors = alerting(store, clock, monitor=[{**SLOW, "notify": ["hangs", "good"]}], destination=destinations)
    monitors.outbox.start()
    monitors.check(clock.now)
    eventually(lambda: bool(good.taken))
    assert hanging.taken == []
    hanging.hold.set()
    eventually(lambda: bool(hanging.taken))
    monitors.outbox.stop()


def test_pagerduty_and_mail(store: EmbeddedStore, receivers: Callable[[], Receiver]) -> None:
    """PagerDuty gets an event with one key per monitor and group; a mail has text, link and worst traces."""
    pagerduty, mails, clock = receivers(), MailServer(), Clock()
    destinations = [
        {"name": "duty", "pagerduty": "routing", "pagerduty_url": pagerduty.url},
        {"name": "mail", "email": ["ops@example.org"]},
    ]
    smtp = {"host": "127.0.0.1", "port": mails.port, "starttls": False, "sender": "rag@example.org"}
    monitors = alerting(
        store,
        clock,
        monitor=[{**SLOW, "notify": ["duty", "mail"]}],
        destination=destinations,
        smtp=smtp,
        collector={"public_url": "https://rag.example.org"},
    )
    monitors.check(clock.now)
    for name in ("duty", "mail"):
        monitors.outbox.deliver(name)
    event = json.loads(pagerduty.taken[0][1])
    assert (event["routing_key"], event["event_action"], event["dedup_key"]) == (
        "routing",
        "trigger",
        "ragpulse slow {}",
    )
    mail = email.message_from_bytes(mails.taken[0])
    text = str(mail.get_payload())
    assert (mail["To"], " ".join(mail["Subject"].split())[:31]) == (
        "ops@example.org",
        "ALERT slow: latency_p95 = 1,000",
    )
    assert "https://rag.example.org/figures?metric=latency_p95" in text.replace("=\n", "").replace("=3D", "=")
    assert text.count("https://rag.example.org/traces/") == 3
    mails.close()


def test_a_muted_monitor_sends_nothing(store: EmbeddedStore, receivers: Callable[[], Receiver]) -> None:
    """The state is stored; no message is."""
    receiver, clock = receivers(), Clock()
    monitors = alerting(store, clock, monitor=[{**SLOW, "webhook": receiver.url}])
    monitors.mute("slow", 3600, actor="me")
    monitors.check(clock.now)
    monitors.outbox.deliver("slow webhook")
    assert (monitors.list().monitors[0].state, receiver.taken) == ("firing", [])


def test_nothing_is_zero_for_counts_and_no_data_for_the_rest(tmp_path: Path) -> None:
    """Traffic that dies fires `requests < 5` and `no data`; a latency says that there is no data."""
    opened = open_store(tmp_path)
    clock = Clock()
    names = {"requests": "< 5", "latency_p95": "> 100", "quality:judge": "< 0.9"}
    monitors = alerting(
        opened,
        clock,
        monitor=[
            *({"name": metric, "metric": metric, "condition": condition} for metric, condition in names.items()),
            {"name": "silence", "metric": "quality:judge", "condition": "no data"},
        ],
    )
    monitors.check(clock.now)
    states = {one.name: (one.state, one.text) for one in monitors.list().monitors}
    assert states["requests"][0] == "firing"
    assert states["latency_p95"] == ("no data", "no requests in the last hour")
    assert states["quality:judge"] == ("no data", "no evaluations by judge in the last hour")
    assert states["silence"] == ("firing", "no evaluations by judge in the last hour")
    opened.close()


def test_monitors_are_made_changed_and_deleted_over_the_api(
    collector: Start, receivers: Callable[[], Receiver]
) -> None:
    """Made, previewed, changed, muted, deleted; a name of the file, an unknown destination and a slip are refused."""
    receiver = receivers()
    running = collector(
        settings={
            "monitor": [{"name": "fixed", "metric": "requests", "condition": "no data"}],
            "destination": [{"name": "ops", "webhook": receiver.url}],
        }
    )
    send(running.url, rag_trace(0))
    client = connect(running.url)
    draft = {"name": "mine", "metric": "quality:groundedness", "condition": "< 0.9", "notify": ["ops"]}
    made = client.call("POST monitors", draft)
    assert (made["name"], made["condition"]) == ("mine", "< 0.9")
    preview = client.call("GET monitors/preview", {"metric": "requests", "condition": "no data"})
    assert preview["days"] == 1
    assert preview["would_have_fired"] >= 1
    client.call("PUT monitors/mine", {**draft, "condition": "< 0.8"})
    client.call("POST monitors/mine/mute", {"for": "6h"})
    shown = {one["name"]: one for one in client.call("GET monitors", {})["monitors"]}
    assert (shown["mine"]["condition"], shown["mine"]["source"], shown["fixed"]["source"]) == ("< 0.8", "api", "file")
    assert shown["mine"]["mute_until"] is not None
    assert client.call("POST monitors/mine/test", {})["delivery"] == "sent"
    refused = {
        "POST monitors": [
            ({**draft, "name": "fixed"}, "is written in"),
            (draft, "exists"),
            ({**draft, "name": "a", "notify": ["opps"]}, "did you mean 'ops'"),
            ({**draft, "name": "a", "metric": "quality:groundednes"}, "did you mean 'groundedness'"),
            ({**draft, "name": "a", "where": "nope = 1"}, "nope"),
        ],
        "DELETE monitors/fixed": [({}, "is written in")],
    }
    for operation, cases in refused.items():
        for params, words in cases:
            with pytest.raises(ClientError, match=words):
                client.call(operation, params)
    client.call("DELETE monitors/mine", {})
    assert [one["name"] for one in client.call("GET monitors", {})["monitors"]] == ["fixed"]
    actions = client.sql("select action from raw.audit where action like 'monitor%' order by created_at").rows()
    assert [row["action"] for row in actions] == [f"monitor {verb}" for verb in ("create", "change", "mute", "delete")]


def test_a_stored_monitor_that_lost_its_metric_is_broken_and_alerts_nobody(
    store: EmbeddedStore, receivers: Callable[[], Receiver]
) -> None:
    """Its evaluator or its destination is gone: the list says so, and looking sends nothing."""
    receiver, clock = receivers(), Clock()
    ops = {"name": "ops", "webhook": receiver.url}
    first = Monitors(store, Settings.model_validate({"destination": [ops]}), clock=clock, evaluators=lambda: ("tone",))
    silence = {"metric": "quality:tone", "condition": "no data", "notify": ("ops",)}
    for name, change in (("evaluator", {}), ("fine", {"metric": "requests", "condition": "> 1"})):
        first.definitions.save(MonitorSettings(name=name, **{**silence, **change}), actor="a", replace=False)
    later = Monitors(store, Settings.model_validate({"destination": [ops]}), clock=clock, evaluators=lambda: ("ton",))
    later.check(clock.now)
    later.outbox.deliver("ops")
    shown = {one.name: (one.state, one.text) for one in later.list().monitors}
    assert shown["evaluator"][0] == "broken"
    assert "tone" in shown["evaluator"][1]
    assert shown["fine"][0] == "firing"
    assert {json.loads(body)["monitor"] for _, body in receiver.taken} == {"fine"}


@pytest.mark.parametrize("code", [301, 302, 303, 307, 308])
@pytest.mark.parametrize("kind", ["webhook", "slack"])
def test_a_redirect_leads_nowhere(receivers: Callable[[], Receiver], kind: str, code: int) -> None:
    """Whoever runs the receiver must not choose an address in the collector's network."""
    receiver, within = receivers(), receivers()
    receiver.code, receiver.location = code, within.url
    place = DestinationSettings.model_validate({"name": "ops", kind: receiver.url})
    with pytest.raises(Undelivered, match=rf"HTTP {code} \(redirects are not followed\)"):
        send_message(SLOWED, place, SmtpSettings(), time=T0)
    assert (len(receiver.taken), within.taken) == (1, [])


def test_a_name_in_a_message_commands_nothing(receivers: Callable[[], Receiver]) -> None:
    """A sender of spans chooses names: they mention nobody in Slack, link nowhere, and add no header to a mail."""
    text = "down: <!channel> <https://evil.test|log in> R&D\rBcc: all@example.org"
    alert = replace(SLOWED, text=text)
    receiver, mails = receivers(), MailServer()
    send_message(alert, DestinationSettings(name="team", slack=receiver.url), SmtpSettings(), time=T0)
    sent = json.loads(receiver.taken[0][1])["text"]
    assert (set(sent) & set("<>"), html.unescape(sent)) == (set(), text)
    smtp = SmtpSettings(host="127.0.0.1", port=mails.port, starttls=False, sender="rag@example.org")
    send_message(alert, DestinationSettings(name="mail", email=("ops@example.org",)), smtp, time=T0)
    mail = email.message_from_bytes(mails.taken[0])
    assert (mail["Bcc"], "R&D" in mail["Subject"]) == (None, True)
    mails.close()


def test_messages_go_through_the_proxy_of_the_environment(
    receivers: Callable[[], Receiver], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The host of the webhook is never asked: the proxy is."""
    proxy = receivers()
    monkeypatch.setenv("HTTP_PROXY", proxy.url)
    monkeypatch.setenv("NO_PROXY", "")
    hook = DestinationSettings(name="ops", webhook="http://alerts.example.invalid/hook")
    send_message(SLOWED, hook, SmtpSettings(), time=T0)
    assert len(proxy.taken) == 1


def test_a_monitor_from_the_terminal(collector: Start, capsys: pytest.CaptureFixture[str]) -> None:
    """It is shown before it is kept, and listed afterwards."""
    where = ["--url", collector().url]
    assert run(["monitor", "silence", "--metric", "requests", "--condition", "no data", "--save", *where]) == 0
    assert run(["monitors", *where]) == 0
    out = capsys.readouterr().out
    assert re.search(r"would have fired .*\nstored: silence", out, re.DOTALL)
    assert "no data" in out
