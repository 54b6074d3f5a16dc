"""Attributes of a request (session, user, prompt, variant) that reach every span below, in and across processes.

They are kept in the OpenTelemetry context, and travel with it through tasks, `to_thread` and instrumented executors.
Session, user, prompt and variant are put in W3C baggage for one request at a time, by `inject` or to a listed host.
Tags and metadata never leave the process that way.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from opentelemetry import baggage
from opentelemetry.context import Context

from ragpulse import _names as names
from ragpulse._export.encoder import SPAN_ATTRIBUTES, key_values
from ragpulse._reading.usage import Facts
from ragpulse._reading.values import JsonText, to_json

from .otel import BAGGAGE_KEY, SCOPE_KEY
from .redaction import Redaction

_BAGGAGE_MARKER = "ragpulse.travels"
"""The baggage of another process that has this entry holds identities from `with_baggage`."""
_IDENTITY_NAMES = (names.SESSION_ID, names.USER_ID, names.PROMPT_NAME, names.PROMPT_VERSION, names.VARIANT)


class RequestScope:
    """An immutable set of attributes, encoded once for all the spans that share it."""

    __slots__ = ("_merged", "_shown", "attributes", "encoded", "metadata")

    def __init__(self, attributes: Facts, metadata: Mapping[str, Any] | None = None) -> None:
        self.metadata = dict(metadata or {})
        """The application's own facts; rendered per span under the content policy."""
        self.attributes = attributes
        self.encoded = key_values(SPAN_ATTRIBUTES, attributes.items())
        self._merged: dict[int, tuple[object, RequestScope]] = {}
        self._shown: tuple[object, RequestScope] | None = None

    def with_attributes(self, more: Facts, metadata: Mapping[str, Any] | None = None) -> "RequestScope":
        """This scope and `more`, which wins; tags are joined."""
        merged = {**self.attributes, **more}
        if names.TAGS in self.attributes and names.TAGS in more:
            merged[names.TAGS] = tuple(dict.fromkeys([*self.attributes[names.TAGS], *more[names.TAGS]]))
        return RequestScope(merged, {**self.metadata, **(metadata or {})})

    def joined(self, more: Facts) -> "RequestScope":
        """As `with_attributes`, remembering the answer for the same `more` object (a plan's, which lives on)."""
        entry = self._merged.get(id(more))
        if entry is None or entry[0] is not more:
            entry = (more, self.with_attributes(more))
            self._merged[id(more)] = entry
        return entry[1]

    def shown(self, redact: Redaction) -> "RequestScope":
        """This scope after redaction, cached for the same rules."""
        if self._shown is None or self._shown[0] is not redact:
            clean = redact.value("", self.attributes, [])
            self._shown = redact, self if clean == self.attributes else RequestScope(clean, self.metadata)
        return self._shown[1]

    def metadata_json(self) -> JsonText:
        """The application's own facts as one JSON object."""
        return to_json(self.metadata)


EMPTY = RequestScope({})


def current_scope(context: Context) -> RequestScope:
    """The scope that holds in `context`: set in this process, else from the baggage that came with the request."""
    scope = context.get(SCOPE_KEY)
    if scope is not None:
        return scope  # type: ignore[return-value]
    if BAGGAGE_KEY not in context:
        return EMPTY
    entries = baggage.get_all(context)
    return RequestScope({key: str(entries[key]) for key in _IDENTITY_NAMES if key in entries})


def scope_of(context: Context, more: Facts) -> RequestScope:
    """The scope of a span in `context` whose function adds `more` to it."""
    scope = current_scope(context)
    return scope.joined(more) if more else scope


def with_scope(context: Context, scope: RequestScope) -> Context:
    """`context` with `scope` in it."""
    return Context({**without_identities(context), SCOPE_KEY: scope})


def without_identities(context: Context) -> Context:
    """`context` without the identities that came in baggage: an HTTP client would send them to every host."""
    if BAGGAGE_KEY not in context or _BAGGAGE_MARKER not in baggage.get_all(context):
        return context
    entries = {
        key: value for key, value in baggage.get_all(context).items() if key not in (*_IDENTITY_NAMES, _BAGGAGE_MARKER)
    }
    return Context({**context, SCOPE_KEY: current_scope(context), BAGGAGE_KEY: entries})


def with_baggage(context: Context) -> Context:
    """`context` with the identities of its scope in the baggage, for one request to another service."""
    scope = current_scope(context).attributes
    identities = {key: scope[key] for key in _IDENTITY_NAMES if key in scope}
    for key, value in {**identities, _BAGGAGE_MARKER: "1"}.items() if identities else ():
        context = baggage.set_baggage(key, value, context)
    return context


def scope_attributes(
    *,
    session_id: str | None = None,
    user_id: str | None = None,
    tags: Sequence[str] = (),
    prompt_name: str | None = None,
    prompt_version: str | None = None,
    variant: str | None = None,
    index_version: str | None = None,
) -> Facts:
    """The arguments of `attributes()` as attributes, without those that are None."""
    attributes = {
        names.SESSION_ID: session_id,
        names.CONVERSATION_ID: session_id,
        names.USER_ID: user_id,
        names.PROMPT_NAME: prompt_name,
        names.PROMPT_VERSION: prompt_version,
        names.VARIANT: variant,
        names.INDEX_VERSION: index_version,
    }
    present: Facts = {key: str(value) for key, value in attributes.items() if value is not None}
    if tags:
        present[names.TAGS] = (tags,) if isinstance(tags, str) else tuple(str(tag) for tag in tags)
    return present
