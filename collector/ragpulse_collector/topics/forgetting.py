"""A person who is forgotten leaves no text in topics: neither a question nor a word that few others used."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace

from ragpulse_collector.store import Transaction
from ragpulse_collector.store import topics as stored
from ragpulse_collector.topics.fitting import free_name, name_of, same
from ragpulse_collector.topics.terms import words_of


@dataclass(frozen=True, slots=True)
class _Lost:
    """The users that each question and each word loses, and how many users a shown text needs."""

    questions: Mapping[str, Set[str]]
    words: Mapping[str, Set[str]]
    least_users: int


def forget_texts(transaction: Transaction, traces: Sequence[str]) -> int:
    """Remove what identifies the people of the temporary table `forgotten`; returns the number of changed topics.

    A text loses their users, and goes when fewer than `least_users` are left. It counts people of any time, of whom the
    fit may have read none: rather too much goes than too little, and the next fit finds what is common. A topic of no
    other trace goes, with its centre. A name that a person chose stays.
    """
    del traces
    fit, said = stored.last_fit(transaction.execute), stored.said_by_forgotten(transaction)
    if fit is None or not said:
        return 0
    lost, alone = _lost(said, fit.least_users), stored.only_of_forgotten(transaction)
    topics = stored.stored_topics(transaction.execute)
    gone = [topic for topic in topics if topic.name in alone]
    taken = {stored.OTHER_TOPIC, *(topic.name.casefold() for topic in topics)}
    pairs = [(topic, _without(topic, lost, taken)) for topic in topics if topic.name not in alone]
    changed = [(old, new) for old, new in pairs if old != new]
    stored.remove_topics(transaction, [topic.topic_id for topic in gone])
    stored.put_topics(transaction, [new for _, new in changed])
    for old, new in changed:
        stored.rename_traces(transaction, old.name, new.name)
    return len(gone) + len(changed)


def _lost(said: Iterable[stored.Saying], least_users: int) -> _Lost:
    questions: defaultdict[str, set[str]] = defaultdict(set)
    words: defaultdict[str, set[str]] = defaultdict(set)
    for text, user in said:
        questions[same(text)].add(user)
        for word in words_of(text):
            words[word].add(user)
    return _Lost(questions, words, least_users)


def _without(topic: stored.StoredTopic, lost: _Lost, taken: Collection[str]) -> stored.StoredTopic:
    """Return a topic with the users that are left, and the texts that enough of them share."""
    askers = topic.question_users - len(lost.questions.get(same(topic.question or ""), ()))
    counts = zip(topic.terms, topic.term_users, strict=True)
    left = {term: count - len(lost.words.get(term, ())) for term, count in counts}
    shown = {term: count for term, count in left.items() if count >= lost.least_users}
    # A name goes on from fit to fit; of its words that are no terms any more nobody knows how many used them.
    stays = topic.named_by is not None or all(word in shown or word not in lost.words for word in words_of(topic.name))
    return replace(
        topic,
        question=topic.question if askers >= lost.least_users else None,
        question_users=askers,
        terms=list(shown),
        term_users=list(shown.values()),
        name=topic.name if stays else free_name(name_of(list(shown), topic.topic_id), topic.topic_id, taken),
    )
