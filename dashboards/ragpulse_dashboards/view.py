"""The view of a page: time range, filters and grouping, all of it in the URL."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import urlencode

from starlette.requests import Request

__all__ = ["FILTERS", "GROUPS", "METADATA", "RANGES", "SELECTORS", "View", "link", "read_view"]

FILTERS: Final = (
    "q", "service", "environment", "model", "prompt_name", "prompt_version", "variant",
    "session_id", "user_id", "name", "retriever", "release", "tag", "error", "dataset", "where",
)  # fmt: skip
GROUPS: Final = ("service", "model", "prompt_version", "variant", "environment", "name", "retriever", "release", "tag")
SELECTORS: Final = {"prompt_version": "prompt", "model": "model", "variant": "variant", "service": "service"}
"""Dimensions that `/compare` accepts, and their name in a selector such as `prompt:v7`."""
METADATA: Final = "metadata."
"""Prefix of a filter or a group by a key of the metadata."""
RANGES: Final = (("-1h", "1 h"), ("-6h", "6 h"), ("-12h", "12 h"), ("-24h", "24 h"), ("-7d", "7 d"), ("-30d", "30 d"))
DEFAULT_RANGE: Final = "-24h"


@dataclass(frozen=True, kw_only=True)
class View:
    """The part of the URL that every page shares, so that links keep range and filters."""

    start: str = DEFAULT_RANGE
    """`from`: ISO time or relative such as -24h."""
    explicit: bool = True
    """Whether the URL names the start; if not, a page may choose a fitting one."""
    end: str = ""
    """`to`: empty means now."""
    back: str = ""
    """The relative range to return to after zooming in on a chart."""
    filters: Mapping[str, str] = field(default_factory=dict)
    group_by: tuple[str, ...] = ()

    @property
    def relative(self) -> bool:
        """Whether the range ends now and moves with the clock."""
        return not self.end and self.start.startswith("-")

    def params(self) -> dict[str, Any]:
        """Return range and filters as parameters of the JSON function."""
        return {"from": self.start, **({"to": self.end} if self.end else {}), **self.filters}

    def query(self) -> list[tuple[str, str]]:
        """Return the view as query pairs, without defaults."""
        pairs = [("from", self.start)] if self.explicit else []
        pairs += [(name, value) for name, value in (("to", self.end), ("back", self.back)) if value]
        pairs += self.filters.items()
        return pairs + [("group_by", name) for name in self.group_by]

    def url(self, path: str, /, **changes: Any) -> str:
        """Return a link to `path` under this view; a change to None or '' removes a pair. `from_` stands for `from`."""
        changes = {"from" if name == "from_" else name: value for name, value in changes.items()}
        return link(path, [*(pair for pair in self.query() if pair[0] not in changes), *changes.items()])

    def json_url(self, operation: str, /, **changes: Any) -> str:
        """Return a link to an operation of the API under this view, ungrouped unless `group_by` is named."""
        return self.url(f"/api/v1/{operation}", **{"back": None, "group_by": None, **changes})


def link(path: str, params: Mapping[str, Any] | Iterable[tuple[str, Any]]) -> str:
    """Return a URL with its query; empty values are left out, each item of a list becomes a pair."""
    pairs = []
    for name, value in params.items() if isinstance(params, Mapping) else params:
        values = value if isinstance(value, list | tuple) else [value]
        pairs += [(name, str(item)) for item in values if item is not None and str(item)]
    return f"{path}?{urlencode(pairs, errors='replace')}" if pairs else path


def read_view(request: Request) -> View:
    """Return the view of one request; a page reads its own parameters itself."""
    query = request.query_params
    groups = query.getlist("group_by")
    return View(
        start=query.get("from") or DEFAULT_RANGE,
        explicit=bool(query.get("from")),
        end=query.get("to", ""),
        back=query.get("back", ""),
        filters={name: query[name] for name in (*FILTERS, *_metadata(query)) if query.get(name)},
        group_by=tuple(dict.fromkeys(name for name in groups if name in (*GROUPS, *_metadata(groups)))),
    )


def _metadata(names: Iterable[str]) -> tuple[str, ...]:
    """Return those names that are a key of the metadata."""
    return tuple(dict.fromkeys(name for name in names if name.startswith(METADATA) and name != METADATA))
