"""The words that distinguish each topic from the others (c-TF-IDF). Words of few users are never shown."""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence

from ragpulse_collector.topics.vectors import MOST_CHARACTERS

WORD = re.compile(r"[^\W_](?:[\w'’-]*[^\W_])?")
MOST_TERMS = 6
LONGEST_TERM = 40
MORE_OFTEN = 2.0
"""A term is at least so many times as frequent in its topic as in all questions."""


def words_of(text: str) -> list[str]:
    """Return the words of a question in lower case."""
    return WORD.findall(text[:MOST_CHARACTERS].casefold())


def terms_by_topic(topics: Sequence[Sequence[tuple[str, str]]], least_users: int) -> list[dict[str, int]]:
    """Return the terms of each topic with their numbers of users, the best first, from its (question, user)."""
    counts = [Counter(word for question, _ in topic for word in words_of(question)) for topic in topics]
    overall = sum(counts, Counter[str]())
    return [
        _best(count, overall, len(topics), _shared(topic, least_users))
        for topic, count in zip(topics, counts, strict=True)
    ]


def _shared(topic: Iterable[tuple[str, str]], least_users: int) -> dict[str, int]:
    """Return the words that enough users used, and how many did; function words ("how", "to") tell nothing."""
    from ragpulse_evaluators.grounding.lexicon import FUNCTION_WORDS  # its package is large, and idling needs none

    users: defaultdict[str, set[str]] = defaultdict(set)
    for question, user in topic:
        for word in words_of(question):
            users[word].add(user)
    enough = {word: len(known) for word, known in users.items() if len(known) >= least_users}
    return {word: n for word, n in enough.items() if len(word) <= LONGEST_TERM and word not in FUNCTION_WORDS}


def _best(inside: Counter[str], overall: Counter[str], topics: int, shown: Mapping[str, int]) -> dict[str, int]:
    """Return the words with the largest c-TF-IDF: frequency in the topic, times rarity over a topic's mean length."""
    length, total = inside.total(), overall.total()
    weights = {
        word: inside[word] / length * math.log1p(total / topics / overall[word])
        for word in shown
        if topics == 1 or inside[word] / length >= MORE_OFTEN * overall[word] / total
    }
    best = sorted(weights, key=lambda word: (-weights[word], word))[:MOST_TERMS]
    return {word: shown[word] for word in best}
