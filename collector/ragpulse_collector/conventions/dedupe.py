"""Which spans of one trace count: tokens are paid once and contexts are shown once, however many spans repeat them.

Two instrumentations on one call, wrappers around wrappers and retrievers inside retrievers are normal in real traces.
Pure functions over light nodes, so that the sampler's roll-up and the case builder agree.

`token_spans` is the rule that a call in a call is paid once. Two places have it in a form of their own, and
`tests/test_paid_once.py` holds them equal: the SQL of traces without a decision (`store/views.py`), for model calls and
their direct parents, and the SDK's figures of instrumented clients (`ragpulse._reading.usage.instrumented_facts`),
which have no response ids.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Sequence
from typing import Any, NamedTuple

from ragpulse_collector.records import MODEL_KINDS


class Node(NamedTuple):
    """The fields of a span that de-duplication reads."""

    span_id: str
    parent_span_id: str | None
    start: Any
    """Anything that sorts in time order (nanoseconds, datetime)."""
    kind: str = "other"
    response_id: str | None = None
    has_usage: bool = False
    """True where the span states input or output tokens, or a cost."""
    has_contexts: bool = False
    """True where the span carries retrieved documents, be it an empty list."""


def token_spans(spans: Iterable[Node]) -> list[str]:
    """Return the ids of the spans whose tokens and cost add up to the trace's, in time order.

    A model call is counted once: the outermost span that states its usage wins over spans below it, and of two spans
    with one response id only the first counts. Nested calls with response ids of their own are calls of their own.
    Usage on other kinds (an agent's sum) counts only where no model call below or above it states any.
    """
    tree = _Tree(spans)
    counted = _model_calls(tree)
    covered = tree.ids_above(counted)
    inside = set(counted)
    """Ids of counted spans and of the spans below them."""
    for node in tree.outermost_first:
        if tree.parent_id(node) in inside:
            inside.add(node.span_id)
        elif node.has_usage and node.kind not in MODEL_KINDS and node.span_id not in covered:
            counted[node.span_id] = node
            inside.add(node.span_id)
    return [node.span_id for node in tree.nodes if node.span_id in counted]


def silent_spans(spans: Iterable[Node], calls: Container[str]) -> list[str]:
    """Return those of the `calls` (span ids) that neither contain nor lie in a span that states its usage.

    Their cost is unknown, and so is that of their trace.
    """
    tree = _Tree(spans)
    stating = [node.span_id for node in tree.nodes if node.has_usage]
    covered = tree.ids_above(stating) | tree.ids_within(stating)
    return [node.span_id for node in tree.nodes if node.span_id in calls and node.span_id not in covered]


def context_spans(spans: Iterable[Node]) -> list[str]:
    """Return the ids of the spans whose contexts, in this order, the answer was made from.

    Give the spans of one unit, the unit's own span included. Of spans with contexts inside one another the outermost
    counts; a reranker replaces what was retrieved before it.
    """
    tree = _Tree(spans)
    inside = tree.ids_within(node.span_id for node in tree.nodes if node.has_contexts)
    outermost = [node for node in tree.nodes if node.has_contexts and tree.parent_id(node) not in inside]
    last_rerank = max((n.start for n in outermost if n.kind == "reranker"), default=None)
    if last_rerank is None:
        return [node.span_id for node in outermost]
    return [n.span_id for n in outermost if n.kind != "retriever" or n.start > last_rerank]


def within(span_id: str, spans: Iterable[Node]) -> list[Node]:
    """Return the span of this id and all spans below it, in time order; none if it is not among them."""
    return subtrees([span_id], spans)[span_id]


def subtrees(span_ids: Collection[str], spans: Iterable[Node]) -> dict[str, list[Node]]:
    """Return for each of these ids its span and all spans below it, in time order."""
    tree = _Tree(spans)
    roots: dict[str | None, list[str]] = {None: []}
    """Span id → those of `span_ids` that are the span or contain it."""
    for node in tree.outermost_first:
        above = roots[tree.parent_id(node)]
        roots[node.span_id] = [*above, node.span_id] if node.span_id in span_ids else above
    members: dict[str, list[Node]] = {span_id: [] for span_id in span_ids}
    for node in tree.nodes:
        for span_id in roots[node.span_id]:
            members[span_id].append(node)
    return members


class _Tree:
    """The spans of one trace in time order and from the outermost inwards; every step is linear in their number.

    Of several spans with one id the last counts; a cycle of parents is cut.
    """

    def __init__(self, spans: Iterable[Node]) -> None:
        by_id = {node.span_id: node for node in sorted(spans, key=_by_start)}
        self.nodes: Sequence[Node] = sorted(by_id.values(), key=_by_start)
        self._parents = {
            node.span_id: node.parent_span_id if node.parent_span_id in by_id else None for node in self.nodes
        }
        depths = self._depths()
        self.outermost_first = sorted(self.nodes, key=lambda node: depths[node.span_id])

    def parent_id(self, node: Node) -> str | None:
        """Return the id of the span that contains this one, None for a root."""
        return self._parents[node.span_id]

    def ids_above(self, span_ids: Iterable[str]) -> set[str]:
        """Return the ids of all spans that contain one of these."""
        above: set[str] = set()
        for span_id in span_ids:
            parent = self._parents[span_id]
            while parent is not None and parent not in above:
                above.add(parent)
                parent = self._parents[parent]
        return above

    def ids_within(self, span_ids: Iterable[str]) -> set[str]:
        """Return these ids and those of all spans below them."""
        within = set(span_ids)
        for node in self.outermost_first:
            if self._parents[node.span_id] in within:
                within.add(node.span_id)
        return within

    def _depths(self) -> dict[str, int]:
        depths: dict[str, int] = {}
        for node in self.nodes:
            path = self._path_to_root(node.span_id, depths)
            while path is None:
                path = self._path_to_root(node.span_id, depths)
            for span_id in reversed(path):
                parent = self._parents[span_id]
                depths[span_id] = 0 if parent is None else depths[parent] + 1
        return depths

    def _path_to_root(self, span_id: str, ends: Container[str]) -> list[str] | None:
        """Return the ids from this span up to a root or to one of `ends`; None where a cycle had to be cut."""
        path: dict[str, None] = {}
        current: str | None = span_id
        while current is not None and current not in ends:
            if current in path:
                self._parents[current] = None
                return None
            path[current] = None
            current = self._parents[current]
        return list(path)


def _model_calls(tree: _Tree) -> dict[str, Node]:
    """Return the model calls that count, by id: outermost first, each response id once."""
    counted: dict[str, Node] = {}
    nearest: dict[str | None, Node | None] = {None: None}
    """Span id → the innermost counted call that it is, that it repeats or that contains it."""
    by_response: dict[str | None, Node] = {}
    for node in tree.outermost_first:
        above = by_response.get(node.response_id) or nearest[tree.parent_id(node)]
        if node.has_usage and node.kind in MODEL_KINDS and not _repeats(node, above):
            counted[node.span_id] = above = node
            if node.response_id:
                by_response[node.response_id] = node
        nearest[node.span_id] = above
    return counted


def _by_start(node: Node) -> tuple[Any, str]:
    return (node.start, node.span_id)


def _repeats(node: Node, above: Node | None) -> bool:
    """Whether a model call is counted already: two calls of one branch are different if both have ids of their own."""
    return above is not None and not (above.response_id and node.response_id and above.response_id != node.response_id)
