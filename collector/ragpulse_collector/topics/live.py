"""The topics of the fit in force, for the sampler and for traces that were decided before the fit."""

from __future__ import annotations

import importlib
import importlib.util
import logging
import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, cast

from ragpulse_collector.configuration import source_line
from ragpulse_collector.refusals import Invalid
from ragpulse_collector.settings import STATIC, Settings, SettingsError, TopicSettings
from ragpulse_collector.store import Store
from ragpulse_collector.store import topics as stored
from ragpulse_collector.topics.model import Topics, assign_all
from ragpulse_collector.topics.vectors import static_vectors

if TYPE_CHECKING:
    from ragpulse_collector.topics.vectors import Embed

    FindTopics = Callable[[Sequence[str]], list[stored.PlacedQuestion]]

_log = logging.getLogger(__name__)
INSTALL = "topics need word vectors and scikit-learn: pip install 'ragpulse[topics]'"
_NEEDED = ("wordllama", "sklearn")


def is_installed() -> bool:
    """Whether the extra is there; imports nothing."""
    return all(importlib.util.find_spec(name) for name in _NEEDED)


def problem_of(options: TopicSettings) -> str | None:
    """Return why there are no topics here, or None."""
    if options.enabled is False:
        return "topics are off: [topics] enabled = false"
    return None if is_installed() else INSTALL


def check_topics(settings: Settings) -> None:
    """Raise SettingsError for topics that the settings ask for and that cannot be found here."""
    options = settings.topics
    try:
        if options.enabled and not is_installed():
            raise Invalid(INSTALL)
        if options.enabled is not False:
            embedder_of(options.embedder)
    except Invalid as error:
        raise SettingsError(f"{source_line(settings, 'topics') or '[topics]'}: {error}") from error


def embedder_of(name: str) -> Embed:
    """Return the function that makes vectors of questions: the static ones, or `module:function`; raises Invalid."""
    if name == STATIC:
        return static_vectors
    module, _, function = name.partition(":")
    try:
        return cast("Embed", getattr(importlib.import_module(module), function))
    except (ImportError, AttributeError) as error:
        raise Invalid(f"embedder {name!r}: {error}") from error


class Assigner:
    """Gives the function that finds topics, None without a fit: until then, no model and no library is loaded."""

    def __init__(self, store: Store, options: TopicSettings) -> None:
        self._store, self._options = store, options
        self._known: tuple[int, int] = (0, 0)
        self._find: FindTopics | None = None

    def __call__(self) -> FindTopics | None:
        """Return the function of the fit in force; its topics are identities, 0 for other."""
        known = stored.in_force(self._store.read)
        if known != self._known:
            self._known, self._find = known, self._loaded()
        return self._find

    def _loaded(self) -> FindTopics | None:
        """Return the function; None where topics cannot be used: decisions never wait for topics."""
        fit = stored.last_fit(self._store.read)
        if fit is None or fit.embedder != self._options.embedder or problem_of(self._options):
            return None
        os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # one core at most, beside requests
        found = [one for one in stored.stored_topics(self._store.read) if one.fit_id == fit.fit_id]
        try:
            find = partial(_placed, Topics(found, fit.other, fit.last_id), embedder_of(fit.embedder))
            find(["?"])
        except Exception:  # noqa: BLE001 - a broken model must not stop the sampler
            _log.exception("no topics are assigned: the model of questions cannot be used")
            return None
        return find


def _placed(topics: Topics, embed: Embed, questions: Sequence[str]) -> list[stored.PlacedQuestion]:
    found = assign_all(topics, questions, embed)
    return [stored.PlacedQuestion(topic.topic_id if topic else 0, distance) for topic, distance in found]
