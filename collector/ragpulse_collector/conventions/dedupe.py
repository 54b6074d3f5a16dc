"""Which spans of one trace count: tokens are paid once and contexts are shown once, however many spans repeat them.

Two instrumentations on one call, wrappers around wrappers and retrievers inside retrievers are normal in real traces.
Pure functions over light nodes, so that the sampler's roll-up and the case builder agree.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

MODEL_KINDS = frozenset({"llm", "embedding", "reranker"})
"""Kinds that pay for tokens themselves; usage on any other kind is a sum over spans below it."""


class Node(NamedTuple):
    """What de-duplication needs to know of a span."""

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
    nodes = sorted(spans, key=_by_start)
    tree = _Tree(nodes)
    counted: dict[str, Node] = {}
    seen_ids: set[str] = set()
    for node in tree.outermost_first():
        if node.has_usage and node.kind in MODEL_KINDS and not _repeats(node, tree, counted, seen_ids):
            counted[node.span_id] = node
            if node.response_id:
                seen_ids.add(node.response_id)
    covered = {above.span_id for node in counted.values() for above in tree.above(node)}
    for node in tree.outermost_first():
        if not node.has_usage or node.kind in MODEL_KINDS or node.span_id in covered:
            continue
        if not any(above.span_id in counted for above in tree.above(node)):
            counted[node.span_id] = node
    return [node.span_id for node in nodes if node.span_id in counted]


def silent_spans(spans: Iterable[Node], calls: Container[str]) -> list[str]:
    """Return those of the `calls` (span ids) that neither contain nor lie in a span that states its usage.

    What they cost nobody knows, so nobody knows what their trace cost.
    """
    nodes = list(spans)
    tree = _Tree(nodes)
    told = {above.span_id for node in nodes if node.has_usage for above in tree.above(node)}
    return [
        node.span_id
        for node in nodes
        if node.span_id in calls and node.span_id not in told and not any(above.has_usage for above in tree.above(node))
    ]


def context_spans(spans: Iterable[Node]) -> list[str]:
    """Return the ids of the spans whose contexts, in this order, are what the answer was made from.

    Give the spans of one unit, the unit's own span included. Of spans with contexts inside one another the outermost
    counts; a reranker replaces what was retrieved before it.
    """
    nodes = sorted(spans, key=_by_start)
    tree = _Tree(nodes)
    outermost = [n for n in nodes if n.has_contexts and not any(above.has_contexts for above in tree.above(n))]
    last_rerank = max((n.start for n in outermost if n.kind == "reranker"), default=None)
    if last_rerank is None:
        return [node.span_id for node in outermost]
    return [n.span_id for n in outermost if n.kind != "retriever" or n.start > last_rerank]


class _Tree:
    """Parents and children among the nodes; cycles and repeated ids, which a wire can carry, end every walk."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        self._nodes = nodes
        self._by_id = {node.span_id: node for node in nodes}

    def above(self, node: Node) -> Iterator[Node]:
        seen = {node.span_id}
        parent = self._by_id.get(node.parent_span_id or "")
        while parent is not None and parent.span_id not in seen:
            seen.add(parent.span_id)
            yield parent
            parent = self._by_id.get(parent.parent_span_id or "")

    def outermost_first(self) -> list[Node]:
        depths = {node.span_id: sum(1 for _ in self.above(node)) for node in self._nodes}
        return sorted(self._nodes, key=lambda node: depths[node.span_id])


def _by_start(node: Node) -> tuple[Any, str]:
    return (node.start, node.span_id)


def _repeats(node: Node, tree: _Tree, counted: dict[str, Node], seen_ids: set[str]) -> bool:
    """Tell whether a model call was counted already: by response id, or by a wrapper where one of the two has none."""
    if node.response_id in seen_ids:
        return True
    above = next((a for a in tree.above(node) if a.span_id in counted), None)
    return above is not None and not (above.response_id and node.response_id)
