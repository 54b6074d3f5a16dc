"""Topics of a running collector: found in traffic, shown with their figures, named, forgotten; one store for all."""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from collections.abc import Callable
from contextlib import redirect_stdout
from io import StringIO
from typing import TYPE_CHECKING, Any

import pytest
from traffic import rag_trace, send
from waiting import until

from ragpulse_collector.cli import run
from ragpulse_collector.cli.look import diagnose
from ragpulse_collector.cli.options import Source
from ragpulse_collector.client import Client, ClientError, connect

pytest.importorskip("wordllama", reason="the extra [topics] is not installed")
pytest.importorskip("sklearn", reason="the extra [topics] is not installed")

if TYPE_CHECKING:
    from ragpulse_collector.app import Collector

PLANTED = {
    "password": ("reset", "change", "recover"), "parcel": ("track", "locate", "follow"),
    "invoice": ("download", "print", "find"), "vacation": ("request", "book", "cancel"),
    "refund": ("get", "claim", "request"), "webhook": ("register", "debug", "retry"),
}  # fmt: skip
FRAMES = ("How do I {} my {}?", "I want to {} a {}", "Where can I {} the {} please?", "Help me {} this {} today")
HOSTILE = ("", "?", "word", "x" * 20_000, "SELECT * FROM t; -- {0} %s $1", "Пароль パスワード कूटशब्द", "<b>" * 50)
GAP, EACH = "webhook", 100


def asked(seed: int = 1) -> list[tuple[str, str]]:
    """Return (question, planted topic), shuffled."""
    rng = random.Random(seed)
    made = [(rng.choice(FRAMES).format(rng.choice(PLANTED[name]), name), name) for name in PLANTED for _ in range(EACH)]
    rng.shuffle(made)
    return made


@pytest.fixture(scope="module")
def collector(shared_collector: Callable[..., Collector]) -> Collector:
    """A collector that got 600 questions, refuses those about webhooks, and found topics; then 60 more came."""
    running = shared_collector()
    client, made = connect(running.url), [*asked(), *((text, "") for text in HOSTILE)]
    _ask(client, made)
    until(client, "SELECT * FROM traces WHERE decided", len(made))
    assert rows(client, "SELECT * FROM traces WHERE topic IS NOT NULL") == []
    assert client.call("GET topics")["problem"] is None
    with redirect_stdout(StringIO()) as printed:
        assert run(["topics", "--url", running.url]) == 0
    assert "within a minute" in printed.getvalue()
    client.call("POST topics/fit")
    until(client, "SELECT * FROM traces WHERE topic IS NOT NULL", len(made) - 1)
    _ask(client, asked(2)[:60], first=len(made))
    until(client, "SELECT * FROM traces WHERE decided", len(made) + 60)
    return running


def test_doctor_tells_the_fit(collector: Collector, client: Client) -> None:
    """How many topics, of how many questions, when."""
    report = client.call("GET topics")
    told = [one.text for one in diagnose(Source(collector.url, None, None)) if "topics of" in one.text]
    assert len(told) == 1
    found = re.fullmatch(r"(\d+) topics of ([\d,]+) questions, fitted \d+ (second|minute)s? ago", told[0])
    assert found, told
    assert int(found[1]) == len([one for one in report["topics"] if one["topic_id"] is not None])
    assert int(found[2].replace(",", "")) == report["fit"]["questions"]


def _ask(client: Client, made: list[tuple[str, str]], first: int = 0) -> None:
    for start in range(0, len(made), 100):
        spans = [
            span
            for number, (text, name) in enumerate(made[start : start + 100], first + start)
            for span in rag_trace(number, query=text, response=_answer(name), session=f"s-{number}",
                                  **{"user.id": f"user {number % 40}", "planted": name})
        ]  # fmt: skip
        send(client.url, spans)


def _answer(name: str) -> str:
    return "I'm sorry, but I cannot answer that question." if name == GAP else "The Eiffel Tower is 330 metres tall."


@pytest.fixture(scope="module")
def client(collector: Collector) -> Client:
    """Its client."""
    return connect(collector.url)


def rows(client: Client, sql: str) -> list[list[Any]]:
    """The rows of a SELECT."""
    return list(client.call("POST sql", {"query": sql})["rows"])


def found(client: Client) -> dict[str, dict[str, Any]]:
    """The topics by their names."""
    return {topic["name"]: topic for topic in client.call("GET topics", {"from": "-1h"})["topics"]}


def of_planted(client: Client) -> dict[str, str]:
    """The topic that most questions of a planted one have."""
    pairs = _pairs(client)
    return {name: max((n, topic) for (topic, of), n in pairs.items() if of == name)[1] for name in PLANTED}


def _pairs(client: Client) -> Counter[tuple[str, str]]:
    pairs = rows(client, "SELECT query, topic FROM traces WHERE query IS NOT NULL")
    planted = {text: name for text, name in (*asked(), *asked(2))}
    return Counter((topic, planted[text]) for text, topic in pairs if text in planted)


def test_planted_topics_are_found_in_traffic(client: Client) -> None:
    """Precision and recall of each, of questions before the fit and after it."""
    pairs, best = _pairs(client), of_planted(client)
    assert len(set(best.values())) == len(PLANTED)
    for name, topic in best.items():
        inside = pairs[topic, name]
        assert inside / sum(n for (_, of), n in pairs.items() if of == name) >= 0.9, name
        assert inside / sum(n for (own, _), n in pairs.items() if own == topic) >= 0.9, name


def test_each_question_after_the_fit_has_its_topic_from_its_decision(client: Client) -> None:
    """No question waits for a batch; a trace without a question has no topic."""
    lacking = rows(client, "SELECT query FROM traces WHERE topic IS NULL")
    assert [text for (text,) in lacking if text] == []


def test_bad_questions_are_other(client: Client) -> None:
    """Empty, one-word, long, code, and of mixed scripts."""
    texts = dict(rows(client, "SELECT query, topic FROM traces WHERE topic = 'other'"))
    assert {"x" * 20_000, "?"} <= texts.keys()


def test_the_gap_is_the_first_topic(client: Client) -> None:
    """Ordered by the answers lost, with intervals, the worst answers and a joint test."""
    report = client.call("GET topics", {"from": "-1h"})
    first, *others = report["topics"]
    assert first["name"] == of_planted(client)[GAP]
    assert (first["worse"], first["unanswered"]["value"]) == (True, 1.0)
    assert not any(topic["worse"] for topic in others)
    assert first["lost"] == max(topic["lost"] for topic in report["topics"])
    assert first["share"]["lo"] < 1 / 6 < first["share"]["hi"]
    assert first["unanswered"]["users"] > 20
    assert len(first["worst"]) == 3
    assert {row["topic"] for row in first["worst"]} == {first["name"]}
    assert sum(topic["share"]["value"] for topic in report["topics"]) == pytest.approx(1.0)
    assert (report["topics"][-1]["name"], report["topics"][-1]["topic_id"]) == ("other", None)
    assert report["fit"]["questions"] == 600 + len(HOSTILE) - 1
    assert report["n"] + report["unassigned"] == rows(client, "SELECT count(query) FROM traces")[0][0]


def test_a_topic_is_a_filter_a_group_and_an_attribute(client: Client) -> None:
    """In lists, series, explain, rules and datasets."""
    topic = of_planted(client)[GAP]
    traces = client.call("GET traces", {"topic": topic, "limit": 500, "facets": True})["traces"]
    assert {trace["topic"] for trace in traces} == {topic}
    lines = client.call("GET metrics", {"name": "unanswered_rate", "group_by": "topic", "step": "all"})["series"]
    by_topic = {line["group"]["topic"]: line["points"][0]["value"] for line in lines}
    assert by_topic[topic] == 1.0
    attributes = client.call("GET explain", {"name": "unanswered_rate", "bad": True})["attributes"]
    assert (attributes[0]["attribute"], attributes[0]["value"]) in {("topic", topic), ("answer", "refused")}
    assert ("topic", topic) in {(one["attribute"], one["value"]) for one in attributes}
    limited = client.call("GET topics", {"where": f"topic = '{topic}'", "from": "-1h"})["topics"]
    assert [one["name"] for one in limited] == [topic]
    assert client.call("POST datasets/gap", {"topic": topic, "limit": 5})["added"] >= 1
    preview = client.call("GET rules/preview", {"name": "r", "evaluators": "refusal", "rate": 1.0,
                                                "where": "topic = '" + topic + "'"})  # fmt: skip
    assert preview["selected_per_day"] == pytest.approx(len(traces) / 7, rel=0.2)


def test_the_shares_are_metrics(client: Client) -> None:
    """`topic_share:NAME` and `other_share` count requests; an unknown topic is refused by name."""
    topic = of_planted(client)[GAP]
    shown = found(client)

    def share(metric: str) -> float:
        (line,) = client.call("GET metrics", {"name": metric, "step": "all", "from": "-1h"})["series"]
        return float(line["points"][0]["value"])

    assert share(f"topic_share:{topic}") == pytest.approx(shown[topic]["share"]["value"], abs=0.01)
    assert share("other_share") == pytest.approx(shown["other"]["share"]["value"], abs=0.01)
    with pytest.raises(ClientError, match="no topic 'nothing'"):
        share("topic_share:nothing")
    assert client.call("GET exemplars", {"name": f"topic_share:{topic}", "from": "-1h"})["worst"]


def test_a_name_is_the_same_everywhere(client: Client) -> None:
    """In the topics, their traces and metrics; names that break a page or are taken are refused."""
    topic = found(client)[of_planted(client)["parcel"]]
    path, chosen = f"PUT topics/{topic['topic_id']}", "Where is my <parcel>?"
    assert client.call(path, {"name": "  Where is\n my <parcel>? "})["name"] == chosen
    assert found(client)[chosen]["named_by"] == "api"
    assert client.call("GET metrics", {"name": f"topic_share:{chosen}", "step": "all"})["series"]
    monitor = {"name": "parcels", "metric": f"topic_share:{chosen}", "condition": "> 0.9", "window": "1h"}
    client.call("POST monitors", monitor)
    client.call("POST rules", {"name": "some", "evaluators": ["refusal"], "rate": 0.1,
                               "where": f"topic = '{chosen}'"})  # fmt: skip
    assert client.call(path, {"name": chosen})["note"] is None
    assert client.call(path, {"name": "Parcels"})["note"] == (
        "The name before is still in: rule 'some', monitor 'parcels'."
    )
    assert client.call(path, {"name": chosen})["note"] is None
    for name in ("", " ", "other", of_planted(client)[GAP].upper(), "a\x00b", "x" * 81):
        with pytest.raises(ClientError):
            client.call(path, {"name": name})
    with pytest.raises(ClientError, match="no topic 999"):
        client.call("PUT topics/999", {"name": "x"})


def test_the_command_line_lists_and_names_topics(client: Client, capsys: pytest.CaptureFixture[str]) -> None:
    """With the mark of those that fail, and as JSON."""
    worst, url = found(client)[of_planted(client)[GAP]], ["--url", client.url, "--since", "1h"]
    assert run(["topics", *url, "--rename", str(worst["topic_id"]), "Web hooks"]) == 0
    first = capsys.readouterr().out.splitlines()[2].split()
    assert (first[:3], str(worst["topic_id"]) in first) == (["Web", "hooks", "worse"], True)
    assert run(["topics", *url, "--json", "--limit", "2"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["topics"][0]["name"] == "Web hooks"
    assert (len(answer["topics"]), answer["more"]) == (2, len(found(client)) - 2)
    assert run(["topics", *url, "--rename", "999", "x"]) == 1


def test_a_forgotten_person_leaves_the_topics(client: Client) -> None:
    """Through the API: what one person said alone is nowhere."""
    client.call("POST prune", {"user": "user 7"})
    assert rows(client, "SELECT * FROM traces WHERE user_id = 'user 7'") == []
    assert all(len(topic["terms"]) for name, topic in found(client).items() if name != "other")
