"""Topics of questions: planted ones are found, refits keep their identities, and no text of few users is shown."""

from __future__ import annotations

import random
import time
from collections import Counter
from dataclasses import replace

import pytest

from ragpulse_collector.refusals import Conflict
from ragpulse_collector.topics import Topic, Topics, assign, assign_all, fit, fitting, match, vectors
from ragpulse_collector.topics.terms import terms_by_topic

pytest.importorskip("wordllama", reason="the extra [topics] is not installed")
pytest.importorskip("sklearn", reason="the extra [topics] is not installed")

PLANTED = {
    "password": ("reset", "change", "recover"), "parcel": ("track", "locate", "follow"),
    "invoice": ("download", "print", "find"), "printer": ("install", "repair", "connect"),
    "vacation": ("request", "book", "cancel"), "refund": ("get", "claim", "request"),
    "wifi": ("join", "reach", "use"), "webhook": ("register", "debug", "retry"),
}  # fmt: skip
FRAMES = ("How do I {} my {}?", "I want to {} a {}", "Where can I {} the {} please?", "Help me {} this {} today")
GERMAN = ("Wie kann ich mein Kennwort ändern?", "Kennwort vergessen, was tun?", "Mein Kennwort ist abgelaufen")


def planted(seed: int, each: int = 80, names: tuple[str, ...] = tuple(PLANTED)) -> list[tuple[str, str]]:
    """Return (question, topic), shuffled."""
    rng = random.Random(seed)
    made = [(rng.choice(FRAMES).format(rng.choice(PLANTED[name]), name), name) for name in names for _ in range(each)]
    rng.shuffle(made)
    return made


def users_of(count: int, different: int = 40) -> list[str]:
    """Return a user for each question, in turn."""
    return [f"user {number % different}" for number in range(count)]


def fitted(questions: list[str], different: int = 40) -> Topics:
    """Return the topics of questions of some users."""
    return fit(questions, users_of(len(questions), different))


def test_planted_topics_are_found() -> None:
    """Each topic is one topic of the fit: precision and recall."""
    made = planted(1)
    topics = fitted([question for question, _ in made])
    pairs = Counter(
        (topic and topic.topic_id, name) for topic, (_, name) in zip(_topics_of(made, topics), made, strict=True)
    )
    for name in PLANTED:
        best, inside = max(((key, n) for (key, of), n in pairs.items() if of == name), key=lambda pair: pair[1])
        assert best is not None
        assert inside / 80 >= 0.9, name
        assert inside / sum(n for (key, _), n in pairs.items() if key == best) >= 0.9, name
    assert len(topics.topics) <= 1.5 * len(PLANTED)


def _topics_of(made: list[tuple[str, str]], topics: Topics) -> list[Topic | None]:
    return [found.topic for found in assign_all(topics, [question for question, _ in made])]


def test_a_topic_tells_what_it_is() -> None:
    """Its terms, name and central question speak of the planted word; sizes and "other" sum to the questions."""
    made = planted(1)
    topics = fitted([question for question, _ in made])
    for name in PLANTED:
        topic = assign(topics, f"How do I {PLANTED[name][0]} my {name}?")
        assert topic is not None
        assert topic.terms[0] == name
        assert topic.name.startswith(name)
        assert topic.question is not None
        assert name in topic.question
    assert sum(topic.size for topic in topics.topics) + topics.other == len(made)
    assert [topic.topic_id for topic in topics.topics] == list(range(1, len(topics.topics) + 1))
    assert sorted((topic.size for topic in topics.topics), reverse=True) == [topic.size for topic in topics.topics]


@pytest.mark.parametrize(
    ("frame", "others"),
    [
        ("From where to import {}?", "Export every monthly report now, {}"),
        ("Who will be the judge of {}?", "Ask {} again about yesterday's open ticket"),
        ("Wie kann ich {} mit dem Kennwort öffnen?", "Zeige {} jede neue Rechnung dieses Jahres gleich"),
        ("¿Cómo puedo ver los {} de la cuenta?", "Abre {} cada factura nueva hoy mismo gracias amigo"),
    ],
)  # fmt: skip
def test_function_words_are_no_terms(frame: str, others: str) -> None:
    """Though a topic alone has them: "from", "be", "wie", "los" tell nothing."""
    asked = [[(text.format(word), f"u{n}") for n in range(9)] for text, word in ((frame, "x"), (others, "y"))]
    terms = terms_by_topic(asked, 5)[0]
    assert terms
    assert not {"from", "where", "to", "who", "be", "the", "of", "wie", "kann", "ich", "mit", "dem", "los", "de",
                "la"} & set(terms)  # fmt: skip


def test_the_same_questions_give_the_same_topics() -> None:
    """In any order, and when more are given than a fit reads."""
    rows = list(zip([question for question, _ in planted(2)], users_of(640), strict=True))
    first = fit([q for q, _ in rows], [u for _, u in rows])
    rows.reverse()
    assert fit([q for q, _ in rows], [u for _, u in rows]) == first


def test_of_many_questions_a_part_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fit has a bound on what it reads."""
    monkeypatch.setattr(fitting, "MOST_QUESTIONS", 600)
    questions = [question for question, _ in planted(2)]
    topics = fitted(questions)
    assert sum(topic.size for topic in topics.topics) + topics.other == 600
    assert fitted(questions) == topics


def test_groups_are_found_in_a_part_of_very_many_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    """The time of a fit has a bound; every question is given to a group all the same."""
    questions = [question for question, _ in planted(2)]
    monkeypatch.setattr(fitting, "MOST_TEXTS", 80)
    seen = list[int]()
    clustered = fitting.clustered
    monkeypatch.setattr(fitting, "clustered", lambda *given: (seen.append(len(given[0])), clustered(*given))[1])
    topics = fitted(questions)
    assert seen == [80]
    assert sum(topic.size for topic in topics.topics) > 0.9 * len(questions)
    assert fitted(questions) == topics


def test_identities_go_on_over_ten_refits() -> None:
    """Each week has other questions of the same topics; one appears in week 4, one vanishes in week 7."""
    names = tuple(PLANTED)
    now = fitted([question for question, _ in planted(0, 90, names[:-1])])
    was = assign(now, "How do I reset my password?")
    assert was is not None
    now = replace(now, topics=tuple(replace(t, name="Logins") if t.topic_id == was.topic_id else t for t in now.topics))
    seen: dict[str, set[int]] = {name: set() for name in PLANTED}
    for week in range(1, 11):
        asked = names[:-1] if week < 4 else names if week < 7 else tuple(n for n in names if n != "parcel")
        matched = match(now, fitted([question for question, _ in planted(week, 90, asked)]))
        now = matched.topics
        for name in asked:
            topic = assign(now, f"How do I {PLANTED[name][0]} my {name}?")
            seen[name].add(0 if topic is None else topic.topic_id)
        said = [assign(Topics((topic,), 0, 0), "How do I register my webhook?") for topic in matched.appeared]
        assert any(said) == (week == 4)
        assert any("parcel" in topic.terms for topic in matched.vanished) == (week == 7)
        renamed = assign(now, "How do I reset my password?")
        assert renamed is not None
        assert renamed.name == "Logins"
    assert all(len(ids) == 1 for ids in seen.values()), seen


def _topic(number: int, *centre: float, name: str = "") -> Topic:
    return Topic(number, name or f"Topic {number}", None, 0, (), (), 10, centre)


@pytest.mark.parametrize(
    ("old", "new", "ids", "appeared", "vanished"),
    [
        ((), (), [], [], []),
        ((), (_topic(1, 1, 0),), [8], [8], []),
        ((_topic(3, 1, 0),), (), [], [], [3]),
        ((_topic(3, 1, 0), _topic(5, 0, 1)), (_topic(1, 0, 1), _topic(2, 1, 0)), [5, 3], [], []),
        ((_topic(3, 1, 0),), (_topic(1, 0.6, 0.8),), [8], [8], [3]),
        ((_topic(3, 1, 0),), (_topic(1, 0.96, 0.28), _topic(2, 1, 0)), [8, 3], [8], []),
        ((_topic(3, 1, 0), _topic(5, 0.96, 0.28)), (_topic(1, 1, 0),), [3], [], [5]),
    ],
    ids=["nothing", "first", "all gone", "crossed", "not the same", "split", "joined"],
)
def test_matching(
    old: tuple[Topic, ...], new: tuple[Topic, ...], ids: list[int], appeared: list[int], vanished: list[int]
) -> None:
    """One to one, the nearest; an identity is never used again, and a name that is a number follows it."""
    matched = match(Topics(old, 0, 7), Topics(new, 1, len(new)))
    assert [topic.topic_id for topic in matched.topics.topics] == ids
    assert [topic.topic_id for topic in matched.appeared] == appeared
    assert [topic.topic_id for topic in matched.vanished] == vanished
    assert all(topic.name == f"Topic {topic.topic_id}" for topic in matched.topics.topics)
    assert (matched.topics.last_id, matched.topics.other) == (7 + len(appeared), 1)


@pytest.mark.parametrize(
    ("question", "found"),
    [
        ("", False), ("   ", False), ("?!", False), ("🤷🤷", False), ("ꙮꙮ ꙮ", False),
        ("password", True), ("How do I reset my password? " * 4000, True),
        ("for (int i = 0; i < n; i++) { sum += a[i]; }", False), ("Пожалуйста, какая погода завтра?", False),
        ("reset my password, пожалуйста", True), ("Who won the football match in Brazil?", False),
        ("\x00\ud83d".encode("utf-8", "surrogatepass").decode("utf-8", "replace"), False),
    ],
)  # fmt: skip
def test_hard_questions_are_assigned(question: str, found: bool) -> None:
    """Nothing readable, or nothing near: other. Long and mixed texts are read."""
    topics = fitted([text for text, _ in planted(1)])
    topic = assign(topics, question)
    assert (topic is not None) == found
    assert topic is None or "password" in topic.terms


@pytest.mark.parametrize(
    ("questions", "sizes"),
    [
        (["Where is my parcel?"] * 600, [600]),
        ([""] * 600, []),
        (["?"] * 300 + ["🤷"] * 300, []),
        ([f"{'word ' * 20_000}{number}" for number in range(20)] * 30, [600]),
        (["Where is my parcel?"] * 595 + ["Reset the password"] * 5, [595]),
        ([f"Help me {PLANTED[name][0]} this {name}" for name in PLANTED] * 80, [80] * 8),
        ([" ".join(random.Random(n).sample(list("abcdefgh"), 8)) for n in range(600)], [600]),
    ],
    ids=["identical", "empty", "no word", "20,000 words", "a group too small", "buttons", "same words"],
)
def test_hard_data_is_fitted(questions: list[str], sizes: list[int]) -> None:
    """Few or no topics, and no error."""
    topics = fitted(questions)
    assert [topic.size for topic in topics.topics] == sizes
    assert topics.other == len(questions) - sum(sizes)


def test_languages_mix() -> None:
    """A second language has topics of its own; neither breaks the other."""
    topics = fitted([question for question, _ in planted(1)] + [*GERMAN] * 40)
    german, english = assign(topics, GERMAN[0]), assign(topics, "How do I reset my password?")
    assert german is not None
    assert english is not None
    assert german.topic_id != english.topic_id
    assert "kennwort" in german.terms
    assert "password" in english.terms


def test_too_few_questions_are_refused() -> None:
    """With the number that is needed."""
    with pytest.raises(Conflict, match="need 500 questions; there are 499"):
        fitted(["Where is my parcel?"] * 499)


@pytest.mark.parametrize("different", [1, 4])
def test_no_text_of_few_users_is_shown(different: int) -> None:
    """Topics of fewer than five users have a number for a name; a smaller setting shows them."""
    questions = [question for question, _ in planted(1)]
    topics = fitted(questions, different)
    assert [(topic.name, topic.question, topic.terms) for topic in topics.topics] == [
        (f"Topic {topic.topic_id}", None, ()) for topic in topics.topics
    ]
    shown = fit(questions, users_of(len(questions), different), least_users=different)
    assert all(topic.terms and topic.question for topic in shown.topics)


def test_a_person_is_never_in_a_topic() -> None:
    """A word and a question that one user asked a hundred times stay hidden, others of the topic are shown."""
    questions = [question for question, _ in planted(1)]
    personal = ["How do I reset my password? I am Jane Roe, jane@roe.example"] * 100
    topics = fit(questions + personal, users_of(len(questions)) + ["jane"] * 100)
    shown = " ".join(f"{topic.name} {topic.question} {topic.terms}" for topic in topics.topics).casefold()
    assert "password" in shown
    assert "jane" not in shown
    assert "roe" not in shown


def test_long_texts_are_not_shown() -> None:
    """What is shown is a question, not a document that all users pasted."""
    assert [topic.question for topic in fitted([f"{'long text ' * 40}"] * 600).topics] == [None]


def test_without_the_extra_the_refusal_has_the_line_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both packages are named; nothing is imported before a fit."""
    monkeypatch.setitem(__import__("sys").modules, "sklearn.cluster", None)
    with pytest.raises(Conflict, match=r"scikit-learn: pip install 'ragpulse\[topics\]'"):
        fitted(["Where is my parcel?"] * 500)
    vectors._model.cache_clear()
    monkeypatch.setitem(__import__("sys").modules, "wordllama", None)
    with pytest.raises(Conflict, match=r"word vectors: pip install 'ragpulse\[topics\]'"):
        fitted(["Where is my parcel?"] * 500)


def test_assigning_a_question_is_cheap() -> None:
    """Less CPU than a millisecond each; the bound is generous for a busy machine."""
    topics = fitted([question for question, _ in planted(1)])
    began = time.thread_time()
    for _ in range(200):
        assign(topics, "How do I reset my password on the phone?")
    assert (time.thread_time() - began) / 200 < 0.005
