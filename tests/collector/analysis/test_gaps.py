"""Content gaps: planted ones are found with their shares, others are not, and no text of few users is shown."""

from __future__ import annotations

import csv
import io
import json
import random
import sys
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from asking import ask, query_of
from stored_units import T0, Units, open_store, uniform

from ragpulse_collector.analysis.gaps.groups import GapKind, Groups, SampledQuestion
from ragpulse_collector.analysis.topics import TopicFigures, topic_report
from ragpulse_collector.cli import run
from ragpulse_collector.refusals import Conflict
from ragpulse_collector.store.embedded import EmbeddedStore
from ragpulse_collector.topics import vectors
from ragpulse_collector.topics.vectors import static_vectors

pytest.importorskip("wordllama", reason="the extra [topics] is not installed")
pytest.importorskip("sklearn", reason="the extra [topics] is not installed")

SUBJECTS = {
    "password": ("reset", "change", "recover"), "parcel": ("track", "locate", "follow"),
    "invoice": ("download", "print", "find"), "printer": ("install", "repair", "connect"),
    "vacation": ("request", "book", "cancel"), "webhook": ("register", "debug", "retry"),
}  # fmt: skip
FRAMES = ("How do I {} my {}?", "I want to {} a {}", "Where can I {} the {} please?", "Help me {} this {} today")
EACH = 60


def fill(
    store: EmbeddedStore,
    *,
    refused: dict[str, float],
    wrong: dict[str, float],
    users: Callable[[str, int], str],
    end: datetime = T0,
) -> None:
    """Store sixty questions of each subject; some are declined, some answers have no support."""
    units, rng, number = Units(store), random.Random(1), 0
    for subject, verbs in SUBJECTS.items():
        for turn in range(EACH):
            number += 1
            query = rng.choice(FRAMES).format(rng.choice(verbs), subject)
            declined = uniform(number) < refused.get(subject, 0.02)
            at = end - timedelta(minutes=number)
            answer = "refused" if declined else "answered"
            units.unit(number, at=at, query=query, user_id=users(subject, turn), answer=answer, top_score=0.8)
            units.contexts(number, [f"About {subject}.", "Welcome."], at=at, ids=[f"kb/{subject}.md", "kb/home.md"])
            units.decision(number, "groundedness", at=at)
            supported = uniform(number, "wrong") >= wrong.get(subject, 0.02)
            units.score(number, "groundedness", None if declined else float(supported), at=at,
                        status="skipped" if declined else "ok")  # fmt: skip
    units.save()


def rate(start: int, share: float, salt: str = "") -> float:
    """The share that fails of the sixty questions from a number on."""
    return sum(uniform(number, salt) < share for number in range(start, start + EACH)) / EACH


def many(subject: str, turn: int) -> str:
    """Twenty users of every subject."""
    return f"user-{turn % 20}"


def topics(store: EmbeddedStore) -> Sequence[TopicFigures]:
    """The topics of the last day."""
    return topic_report(store, query_of({"from": "-1d"}, T0), "groundedness", limit=9).topics


def gaps(store: EmbeddedStore, **params: Any) -> Any:
    """The content of `GET gaps`."""
    return ask(store, "gaps", params, clock=lambda: T0, lead="groundedness")


def test_planted_gaps_are_found_and_nothing_else(store: EmbeddedStore) -> None:
    """One that is declined, one without support: each with its words, share, interval and nearest document."""
    fill(store, refused={"webhook": 0.6}, wrong={"printer": 0.5}, users=many)
    answer = gaps(store)
    assert [(gap["kind"], gap["nearest"]["id"]) for gap in answer["gaps"]] == [
        ("unanswered", "kb/webhook.md"), ("ungrounded", "kb/printer.md"),
    ]  # fmt: skip
    drawn = [rate(301, 0.6), rate(181, 0.5, "wrong")]
    for gap, word, planted in zip(answer["gaps"], ("webhook", "printer"), drawn, strict=True):
        assert word in gap["question"]
        assert word in gap["terms"][:3]
        assert gap["share"]["lo"] < 1 / len(SUBJECTS) < gap["share"]["hi"]
        assert gap["failing"]["lo"] < gap["failing"]["value"] == pytest.approx(planted, abs=0.02)
        assert 15 <= gap["users"] <= 20
        assert len(set(gap["trace_ids"])) >= 20
        assert f"### Missing content: {', '.join(gap['terms'])}\n\n{gap['text']}." in gap["issue"]
    assert "% unanswered; nearest document kb/webhook.md" in answer["gaps"][0]["text"]
    (said,) = store.read(
        "SELECT count(DISTINCT (user_id, lower(rtrim(query, '?')), answer, passing)) FROM traces t"
        " LEFT JOIN scores s ON s.trace_id = t.trace_id AND status = 'ok' WHERE query IS NOT NULL"
    ).rows
    assert len(SUBJECTS) * EACH > answer["questions"] == said[0]


@pytest.mark.parametrize("user", ["bot", "user-1"], ids=["a user of its own", "a user like others"])
def test_what_one_user_repeats_is_one_question(store: EmbeddedStore, user: str) -> None:
    """Hundreds of failed repeats, in any case: neither a gap nor its share, nor the share of a topic."""
    fill(store, refused={"webhook": 0.6}, wrong={}, users=many)
    store.write(lambda tx: tx.execute("UPDATE raw.trace_facts SET topic = regexp_extract(query, 'webhook|parcel')"))
    (before,), shares = gaps(store)["gaps"], {t.name: t.share.value for t in topics(store)}
    units = Units(store)
    for number in range(1000, 1400):
        query = "How do I retry my webhook" + ("?", " ", "!")[number % 3]
        units.unit(number, at=T0 - timedelta(seconds=number), query=query if number % 2 else query.upper(),
                   user_id=user, answer="refused", topic="webhook")  # fmt: skip
    units.save()
    (gap,), after = gaps(store)["gaps"], {t.name: t.share.value for t in topics(store)}
    assert gap["share"]["value"] == pytest.approx(before["share"]["value"], abs=0.01)
    assert gap["failing"]["value"] == pytest.approx(before["failing"]["value"], abs=0.03)
    assert after == pytest.approx(shares, abs=0.01)


@pytest.mark.parametrize(
    ("rates", "found"),
    [({}, 0), (dict.fromkeys(SUBJECTS, 0.5), 0), ({"webhook": 0.9, "vacation": 0.9}, 2)],
    ids=["nothing fails", "everything fails alike", "two gaps"],
)
def test_a_gap_fails_more_often_than_the_rest(store: EmbeddedStore, rates: dict[str, float], found: int) -> None:
    """What fails everywhere is no gap of the content."""
    fill(store, refused=rates, wrong={}, users=many)
    assert len(gaps(store)["gaps"]) == found


@pytest.mark.parametrize(("gap", "found"), [(0.02, 0), (0.6, 1)], ids=["an outage", "an outage and a gap"])
def test_an_outage_is_no_missing_content(store: EmbeddedStore, gap: float, found: int) -> None:
    """On one day of seven nearly everything is declined, and most of its questions are about webhooks."""
    units, rng, number = Units(store), random.Random(1), 0
    for day in range(7):
        for turn in range(90):
            number += 1
            subject = "webhook" if day == 4 and turn % 3 else rng.choice(list(SUBJECTS))
            query = rng.choice(FRAMES).format(rng.choice(SUBJECTS[subject]), subject)
            share = 0.9 if day == 4 else gap if subject == "invoice" else 0.02
            at = T0 - timedelta(days=7 - day) + timedelta(minutes=15 * turn)
            answer = "refused" if uniform(number) < share else "answered"
            units.unit(number, at=at, query=query, user_id=f"user-{number % 40}", answer=answer)
    units.save()
    answer = gaps(store, **{"from": "-7d"})
    assert bool(answer["gaps"]) == bool(found)
    assert all("invoice" in one["text"] for one in answer["gaps"])


@pytest.mark.parametrize(("answer", "found"), [("answered", 0), (None, 1)])
def test_an_answer_with_a_low_score_is_answered(store: EmbeddedStore, answer: str | None, found: int) -> None:
    """Only where nobody knows whether it was answered the score of its contexts tells."""
    units, rng, number = Units(store), random.Random(1), 0
    for subject, verbs in SUBJECTS.items():
        for turn in range(EACH):
            number += 1
            query = rng.choice(FRAMES).format(rng.choice(verbs), subject)
            low = subject == "webhook" and uniform(number) < 0.7
            score = 0.1 if low else 0.8 + 0.05 * uniform(number, "score")
            units.unit(number, at=T0 - timedelta(minutes=7 * number), query=query, user_id=many(subject, turn),
                       answer=answer, top_score=score)  # fmt: skip
    units.save()
    assert len(gaps(store, **{"from": "-7d"})["gaps"]) == found


LANGUAGES = {
    "en": (("How do I {}?", "Please help me to {}", "I want to {}"), ("set up single sign-on", "enable SSO"),
           "{} on the {}", "Team plan", ("Business plan", "Free plan", "Azure tenant", "trial")),
    "de": (("Wie kann ich {}?", "Bitte helfen Sie mir, {}", "Ich möchte {}"), ("SSO aktivieren", "SAML einrichten"),
           "im {1} {0}", "Team-Tarif", ("Business-Tarif", "kostenlosen Tarif", "Azure-Konto", "Testzeitraum")),
    "fr": (("Comment puis-je {} ?", "Je voudrais {}", "Est-il possible de {} ?"), ("activer le SSO", "connecter SAML"),
           "{} avec le {}", "forfait équipe", ("forfait entreprise", "forfait gratuit", "compte Azure", "essai")),
    "ru": (("Как {}?", "Помогите {}", "Можно ли {}?"), ("включить вход через SSO", "настроить SAML"),
           "{} на {}", "командном тарифе", ("бизнес-тарифе", "бесплатном тарифе", "Azure", "пробном периоде")),
    "ja": (("どうすれば{}か", "{}方法を教えて", "{}ことはできますか"), ("SSOを有効にする", "SAMLを接続する"),
           "{1}で{0}", "チームプラン", ("ビジネスプラン", "無料プラン", "アズール", "試用版")),
}  # fmt: skip
"""Frames, what is asked for, how a plan is added, the plan of the gap, and plans that are answered."""
QUESTIONS, SIGN_ON = 1_500, 0.25
_FACTS = """
    INSERT INTO raw.trace_facts BY NAME
    SELECT unnest($ids::UUID[]) AS trace_id, unnest($queries::VARCHAR[]) AS query, unnest($users::VARCHAR[]) AS user_id,
           unnest($topics::VARCHAR[]) AS topic, unnest($answers::VARCHAR[]) AS answer, 0 AS revision, true AS latest,
           $at::TIMESTAMP AS start_time, 1.0 AS upstream_pi"""


def planted(
    store: EmbeddedStore, *, language: str = "en", share: float = 0.04, gaps: int = 1, rate: float = 0.62,
    others: float = 0.05, one_user: bool = False, topic: str | None = "sign-on", seed: int = 0,
) -> dict[str, str]:  # fmt: skip
    """Store a topic "sign-on" of a quarter of the questions, some plans unanswered; returns the plan of each trace."""
    frames, verbs, joined, plan, plans = LANGUAGES[language]
    rng, rows, plan_of, failing = random.Random(seed), list[tuple[Any, ...]](), dict[str, str](), (plan, *plans)[:gaps]
    for number in range(QUESTIONS):
        user, place = f"user-{rng.randrange(80)}", rng.random()
        if place < SIGN_ON:
            gap = place < share * gaps
            own = rng.choice(failing if gap else [one for one in (plan, *plans) if one not in failing])
            query = rng.choice(frames).format(joined.format(rng.choice(verbs), own))
        else:
            gap, own, subject = False, "", rng.choice(list(SUBJECTS))
            query = rng.choice(FRAMES).format(rng.choice(SUBJECTS[subject]), subject)
        if gap and one_user:
            user = "user-1" if rng.random() < 0.7 else user
        fails = rng.random() < (rate if gap and (not one_user or user == "user-1") else others)
        rows.append((f"{number + 1:032x}", query, user, topic if own else topic and subject, fails))
        plan_of[rows[-1][0]] = own
    ids, queries, users, topics, refused = zip(*rows, strict=True)
    parameters = {"ids": list(ids), "queries": list(queries), "users": list(users), "topics": list(topics), "at": T0,
                  "answers": ["refused" if one else "answered" for one in refused]}  # fmt: skip
    store.write(lambda tx: tx.execute(_FACTS, {**parameters, "at": T0 - timedelta(hours=1)})).result()
    return plan_of


ROWS: dict[str, tuple[dict[str, Any], int]] = {
    "4 % of the questions": ({}, 1),
    "2 %": ({"share": 0.02}, 1),
    "two in one topic": ({"gaps": 2}, 2),
    "two of 2 %": ({"gaps": 2, "share": 0.02}, 2),
    "nothing was fitted yet": ({"topic": None}, 1),
    "all are of no topic": ({"topic": "other"}, 1),
    "none": ({"gaps": 0}, 0),
    "failures spread evenly": ({"gaps": 0, "others": 0.4}, 0),
    "failures spread evenly over a large gap": ({"rate": 0.3, "others": 0.3, "share": 0.1}, 0),
    "one user's failures": ({"one_user": True, "rate": 0.9}, 0),
    **{language: ({"language": language}, 1) for language in LANGUAGES},
}


@pytest.mark.parametrize("row", ROWS)
def test_a_gap_inside_a_larger_topic(store: EmbeddedStore, row: str) -> None:
    """Each planted one is found with its share and little else; nothing is found where nothing is planted."""
    planting, count = ROWS[row]
    plan_of = planted(store, **planting)
    found = gaps(store)["gaps"]
    assert len(found) == count, [gap["text"] for gap in found]
    plans = set()
    for gap in found:
        own = [plan_of[trace] for trace in gap["trace_ids"]]
        plan = max(set(own), key=own.count)
        assert own.count(plan) >= 0.8 * len(own)
        assert gap["share"]["lo"] < planting.get("share", 0.04) < gap["share"]["hi"]
        assert gap["failing"]["lo"] < 0.62 < gap["failing"]["hi"]
        plans.add(plan)
    _, _, _, plan, others = LANGUAGES[planting.get("language", "en")]
    assert plans == set((plan, *others)[:count])


@pytest.mark.parametrize("others", [0.05, 0.3])
def test_no_gap_is_invented(store: EmbeddedStore, others: float) -> None:
    """Twenty services whose failures are spread evenly: at most one in twenty may have a gap by chance."""
    invented = 0
    for seed in range(20):
        store.write(lambda tx: tx.execute("DELETE FROM raw.trace_facts")).result()
        planted(store, gaps=0, others=others, seed=seed)
        invented += bool(gaps(store)["gaps"])
    assert invented <= 1


@pytest.mark.parametrize("seed", [3, 7, 17])
def test_some_questions_that_fail_are_no_broad_gap(seed: int) -> None:
    """A third of 72 texts fail every second time: at most a few texts are one group, never all that share a word."""
    rng = random.Random(seed)
    texts = [frame.format(verb, subject) for frame in FRAMES for subject, verbs in SUBJECTS.items() for verb in verbs]
    failing = set(rng.sample(texts, len(texts) // 3))
    asked = []
    for number in range(12 * len(texts)):
        turn, place = divmod(number, len(texts))
        fails: list[GapKind] = ["unanswered"] if texts[place] in failing and turn % 2 else []
        asked.append(SampledQuestion(str(number), texts[place], None, rng.randrange(40), fails, 1.0))
    groups = Groups(asked, static_vectors([one.query for one in asked]), 5).failing("unanswered")
    assert all(len({asked[row].query for row in rows}) <= 4 for rows in groups)


def test_unclear_answers_are_apart(store: EmbeddedStore) -> None:
    """Neither with support nor without: of sixty questions about webhooks 44 are unclear, 11 of the others fail."""
    fill(store, refused={}, wrong={"webhook": 0.3}, users=many)
    store.write(
        lambda tx: tx.execute(
            "UPDATE raw.scores SET passing = NULL, label = 'unclear' WHERE normalized = 1.0 AND trace_id IN"
            " (SELECT trace_id FROM raw.trace_facts WHERE contains(query, 'webhook'))"
        )
    ).result()
    (gap,) = gaps(store)["gaps"]
    assert (gap["kind"], "webhook" in gap["terms"], gap["failing"]["value"]) == ("ungrounded", True, 10 / 15)


def test_words_of_few_users_are_not_shown(store: EmbeddedStore) -> None:
    """Four users who ask sixty times about one thing: no text of theirs."""
    fill(store, refused={"webhook": 0.9}, wrong={}, users=lambda subject, turn: f"{subject}-{turn % 4}")
    assert gaps(store)["gaps"] == []


def test_an_empty_store_and_few_failures_have_no_gap(store: EmbeddedStore) -> None:
    """Nothing to group: no error, and no model is loaded."""
    assert gaps(store) == {
        "gaps": [], "questions": 0, "collection": {"unretrieved": [], "competing": []},
    }  # fmt: skip


def test_hostile_questions_stay_text(store: EmbeddedStore) -> None:
    """A question cannot leave its quotation in Markdown."""
    units = Units(store)
    for number in range(40):
        query = "`](http://evil) webhook\n\n# secret `" if number < 20 else f"How do I track my parcel {number % 3}?"
        answer = "refused" if number < 20 else "answered"
        units.unit(number, query=query, user_id=f"user-{number % 10}", answer=answer, at=T0 - timedelta(hours=1))
    units.save()
    (gap,) = gaps(store)["gaps"]
    assert "`'](http://evil) webhook # secret '`" in gap["issue"]


def test_the_commands_print_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As sentences, CSV, Markdown or JSON; the digest counts them in a quiet week; a closed file is not written."""
    opened = open_store(tmp_path)
    fill(opened, refused={"webhook": 0.6}, wrong={}, users=many, end=datetime.now(UTC).replace(tzinfo=None))
    opened.close()
    file = ["--db", str(tmp_path / "test.duckdb")]
    printed = {}
    for form in ("text", "csv", "markdown"):
        assert run(["gaps", *file, "--format", form]) == 0
        printed[form] = capsys.readouterr().out
    assert "unanswered; nearest document kb/webhook.md" in printed["text"]
    (row,) = csv.DictReader(io.StringIO(printed["csv"]))
    assert (row["kind"], row["users"]) == ("unanswered", "20")
    assert printed["markdown"].startswith("### Missing content: ")
    assert run(["gaps", *file, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["gaps"][0]["kind"] == "unanswered"
    assert run(["digest", *file]) == 0
    assert "1 content gap: ragpulse gaps." in capsys.readouterr().out
    assert run(["gaps", *file, "--dataset", "missing"]) != 0


def test_the_collection_as_requests_show_it(store: EmbeddedStore) -> None:
    """Documents that only earlier requests found, and pairs that different questions mostly find together."""
    units = Units(store)
    for number in range(60):
        at = T0 - (timedelta(days=20) if number < 15 else timedelta(hours=1))
        names = ["kb/old.md", "kb/faq.md"] if number < 15 else ["kb/a.md", "kb/b.md"] if number < 40 else ["kb/faq.md"]
        units.unit(number, query=f"Question {number}?", at=at)
        units.contexts(number, names, ids=names, at=at)
    units.save()
    found = gaps(store)["collection"]
    assert [(one["id"], one["retrieved"]) for one in found["unretrieved"]] == [("kb/old.md", 15)]
    assert [(sorted(one["ids"]), one["questions"], one["share"]) for one in found["competing"]] == [
        (["kb/a.md", "kb/b.md"], 25, 1.0)
    ]


@pytest.mark.parametrize(
    ("of_a", "of_b", "share"),
    [
        (range(20), range(20), 1.0),
        (range(10), range(20), 0.5),
        (range(11), range(9, 20), None),  # each is found for every question, but together for two of twenty requests
        (range(8), range(20), None),  # one is found whenever the other is, the other mostly alone
    ],
)
@pytest.mark.parametrize("query", [True, False])
def test_documents_compete_in_their_own_retrievals(
    store: EmbeddedStore, of_a: range, of_b: range, share: float | None, query: bool
) -> None:
    """Of the twenty requests with each question; requests without a question are none."""
    units = Units(store)
    for number in range(20 * 12):
        names = [name for name, own in (("a", of_a), ("b", of_b)) if number % 20 in own]
        units.unit(number, query=f"Question {number // 20}?" if query else None, at=T0 - timedelta(hours=1))
        units.contexts(number, names, ids=names, at=T0 - timedelta(hours=1))
    units.save()
    found = gaps(store)["collection"]["competing"]
    assert [(one["questions"], one["share"]) for one in found] == ([(12, share)] if share and query else [])


def test_without_the_extra_it_is_a_refusal(store: EmbeddedStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the line to install, numpy being absent too."""
    fill(store, refused={"webhook": 0.9}, wrong={}, users=many)
    vectors._model.cache_clear()
    for name in ("wordllama", "numpy"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(Conflict, match=r"pip install 'ragpulse\[topics\]'"):
        gaps(store)
