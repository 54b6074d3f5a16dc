"""Evaluators that ask an LLM: each is a prompt folder, a reply shape and a formula."""

from ragpulse_evaluators.entry import Entry
from ragpulse_evaluators.judged.base import JudgedEvaluator
from ragpulse_evaluators.judged.correctness import Correctness
from ragpulse_evaluators.judged.support import Faithfulness, Relevancy

__all__ = ("ENTRIES",)


def _entry(made: type[JudgedEvaluator], source: str, description: str, options: str = "") -> Entry:
    more = f", {options}" if options else ""
    return Entry(
        name=made.name,
        factory=made,
        needs=tuple(sorted(made.needs)),
        scale=made.scale,
        cost_class=made.cost_class,
        source=source,
        description=description,
        example=f'get_evaluator("{made.name}", judge="openai/gpt-5-mini"{more})',
    )


ENTRIES: tuple[Entry, ...] = (
    _entry(Faithfulness, "LlamaIndex", "Is every claim of the response supported by the contexts? Refined over calls."),
    _entry(Relevancy, "LlamaIndex", "Is the response in line with query and contexts? Refined over calls."),
    _entry(Correctness, "LlamaIndex", "Relevance and correctness against the reference, 1 to 5.", "threshold=4.0"),
)
