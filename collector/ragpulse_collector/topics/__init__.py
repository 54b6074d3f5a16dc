"""Topics: what people ask, found without a model that costs money. Pure functions: no store, no clock.

`fit` finds the topics of up to 20,000 questions, `assign` gives a question to one of them or to none ("other"), and
`match` carries identities and names from one fit to the next. They need the extra `[topics]`. docs/benchmarks.md has
the experiment that chose the method.
"""

from ragpulse_collector.store.topics import Topic
from ragpulse_collector.topics.clusters import SMALLEST
from ragpulse_collector.topics.fitting import LEAST_QUESTIONS, LEAST_USERS, MOST_QUESTIONS, fit
from ragpulse_collector.topics.matching import Matching, match
from ragpulse_collector.topics.model import Assigned, Topics, assign, assign_all

__all__ = [
    "LEAST_QUESTIONS",
    "LEAST_USERS",
    "MOST_QUESTIONS",
    "SMALLEST",
    "Assigned",
    "Matching",
    "Topic",
    "Topics",
    "assign",
    "assign_all",
    "fit",
    "match",
]
