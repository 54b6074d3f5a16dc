"""Evaluators that ask an LLM: each is a prompt folder, a reply shape and a formula."""

from ragpulse_evaluators.entry import Entry
from ragpulse_evaluators.judged import grouse, rubric
from ragpulse_evaluators.judged.answer import AnswerCorrectness, AnswerRelevancy, LLMSimilarity
from ragpulse_evaluators.judged.base import JudgedEvaluator
from ragpulse_evaluators.judged.correctness import Correctness
from ragpulse_evaluators.judged.custom_yaml import CustomYaml
from ragpulse_evaluators.judged.geval import GEval
from ragpulse_evaluators.judged.guideline import Guideline
from ragpulse_evaluators.judged.judgement import Judgement
from ragpulse_evaluators.judged.pairwise import Pairwise
from ragpulse_evaluators.judged.retrieval import ContextPrecision, ContextRecall, ContextRelevancy, RetrieverRelevance
from ragpulse_evaluators.judged.statements import StatementFaithfulness
from ragpulse_evaluators.judged.support import Faithfulness, Relevancy

__all__ = ("ENTRIES",)


def _entry(made: type[JudgedEvaluator], source: str, options: str = "") -> Entry:
    """An entry whose description is the first line of the evaluator's docstring."""
    more = f", {options}" if options else ""
    return Entry(
        name=made.name,
        factory=made,
        needs=tuple(sorted(made.needs)),
        scale=made.scale,
        cost_class=made.cost_class,
        source=source,
        description=(made.__doc__ or "").strip().partition("\n")[0],
        example=f'get_evaluator("{made.name}", judge="openai/gpt-5-mini"{more})',
    )


_LLAMA_INDEX = "LlamaIndex"
_RAGAS = "RAGAS (arXiv:2309.15217)"
_ADALFLOW = "AdalFlow"
_GEVAL = "G-Eval (arXiv:2303.16634)"
_GROUSE = "GroUSE (arXiv:2409.06595)"
_POLYEVAL = "PolyEval"
_RUBRIC = "criteria evaluators"

ENTRIES: tuple[Entry, ...] = (
    _entry(Faithfulness, _LLAMA_INDEX),
    _entry(Relevancy, _LLAMA_INDEX),
    _entry(Correctness, _LLAMA_INDEX, "threshold=4.0"),
    _entry(Guideline, _LLAMA_INDEX, 'guidelines="Polite, no promises about dates."'),
    _entry(Pairwise, _LLAMA_INDEX, "consensus=True"),
    _entry(ContextPrecision, _RAGAS),
    _entry(ContextRecall, _RAGAS),
    _entry(ContextRelevancy, _RAGAS, 'mode="sentence"'),
    _entry(StatementFaithfulness, _RAGAS),
    _entry(AnswerCorrectness, _RAGAS, 'mode="fbeta", weights=(0.75, 0.25)'),
    _entry(AnswerRelevancy, f"{_RAGAS}, {_POLYEVAL}"),
    _entry(LLMSimilarity, _POLYEVAL),
    _entry(RetrieverRelevance, _ADALFLOW),
    _entry(Judgement, _ADALFLOW, 'question="Is the answer polite?"'),
    _entry(GEval, _GEVAL, 'task="summarization", n=20'),
    _entry(rubric.Rubric, _RUBRIC, 'criterion="Cites a source for every number."'),
    _entry(rubric.Conciseness, _RUBRIC),
    _entry(rubric.Helpfulness, _RUBRIC),
    _entry(rubric.Harmfulness, _RUBRIC),
    _entry(rubric.Bias, _RUBRIC),
    _entry(rubric.Toxicity, _RUBRIC),
    _entry(grouse.Grouse, _GROUSE),
    _entry(grouse.GrouseAnswerRelevancy, _GROUSE),
    _entry(grouse.GrouseCompleteness, _GROUSE),
    _entry(grouse.GrouseFaithfulness, _GROUSE),
    _entry(grouse.GrouseUsefulness, _GROUSE),
    _entry(grouse.GrousePositiveAcceptance, _GROUSE),
    _entry(grouse.GrouseNegativeRejection, _GROUSE),
    _entry(CustomYaml, _POLYEVAL, 'spec="tone.yaml"'),
)
