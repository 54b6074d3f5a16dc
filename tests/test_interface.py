"""The public names, all in one place: what users call is there, under the name they know."""

from __future__ import annotations

import importlib
import inspect
import json
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest
from interface_names import LIST, names

import ragpulse
import ragpulse_evaluators
from ragpulse_collector.cli import cli
from ragpulse_collector.client import connect
from ragpulse_evaluators import Case, EvaluationResult, JudgeCall, list_evaluators, statistics

if TYPE_CHECKING:
    from ragpulse_collector.app import Collector

EVALUATORS = [
    "relevancy",
    "faithfulness",
    "correctness",
    "guideline",
    "pairwise",
    "context_precision",
    "context_recall",
    "context_relevancy",
    "statement_faithfulness",
    "answer_correctness",
    "answer_relevancy",
    "llm_similarity",
    "judge",
    "geval",
    "rubric",
    "conciseness",
    "helpfulness",
    "harmfulness",
    "bias",
    "toxicity",
    "grouse",
    "grouse_answer_relevancy",
    "grouse_completeness",
    "grouse_faithfulness",
    "grouse_usefulness",
    "grouse_positive_acceptance",
    "grouse_negative_rejection",
    "exact_match",
    "fuzzy_match",
    "match",
    "token_f1",
    "accuracy",
    "precision",
    "recall",
    "roc_auc",
    "perplexity",
    "bleu",
    "rouge",
    "meteor",
    "chrf",
    "bertscore",
    "semscore",
    "string_distance",
    "embedding_similarity",
    "embedding_distance",
    "is_json",
    "json_match",
    "json_schema",
    "format_adherence",
    "regex",
    "retriever_recall",
    "retriever_relevance",
    "recall_at_k",
    "precision_at_k",
    "mrr",
    "hit_rate",
    "ndcg",
    "map",
    "latency",
    "cost",
    "throughput",
    "pass_rate",
    "composite",
    "custom_yaml",
    "groundedness",
    "context_utilization",
    "citation_check",
    "refusal",
]

VIEWS = {
    "traces": """trace_id start_time latency_ms ttft_ms service environment name query response session_id user_id
        prompt_name prompt_version variant model input_tokens output_tokens cached_tokens cost_usd cost_unknown_reason
        error top_score n_spans n_units""",
    "spans": """trace_id span_id parent_span_id start_time latency_ms name kind service status error_type query response
        model provider input_tokens output_tokens cached_tokens reasoning_tokens cost_usd session_id user_id prompt_name
        prompt_version attributes mapped_from""",
    "contexts": "trace_id span_id rank id score text metadata hash",
    "scores": """trace_id span_id request_time evaluator version judge source status score normalized passing label
        explanation pi label_pi reason cost_usd created_at run_id""",
    "decisions": "trace_id span_id evaluator rule policy pi sampled reason decided_at",
    "quality_daily": "evaluator version judge estimate lo hi n n_eff",
}

OPTIONS = {
    "demo": "--serve",
    "serve": "--db --host --port --grpc-port --config --load --judge --roles",
    "evaluators": "--json",
    "evaluate": "-e --judge --load --out",
    "replay": "-e --judge --prompts --load --since --where --limit --max-usd --dry-run --yes",
    "compare": "",
    "calibrate": "-e --labels",
    "meta-evaluate": "",
    "align": "",
    "perturb": "--since",
    "generate-questions": "--judge --since --where --count --per-context --seed --max-usd --dry-run --yes --out",
    "check": "-e --min --since",
    "plan": "-e --half-width",
    "metrics": "",
    "traces": "",
    "show": "--html",
    "tail": "",
    "sql": "",
    "export": "--format",
    "snapshot": "",
    "prune": "--older-than",
    "remap": "",
    "doctor": "",
    "key": "--scope",
    "freeze": "--since --where --limit --out",
    "regress": "--app --since --where --min-jaccard --max-drop --format",
}


def test_the_sdk_surface_is_there() -> None:
    """Every function, decorator and argument of the SDK has its name."""
    decorators = ["rag", "retriever", "reranker", "embedding", "llm", "tool", "agent", "span"]
    functions = [
        "attributes",
        "current_span",
        "traced_executor",
        "inject",
        "extract",
        "feedback",
        "variant",
        "flush",
        "shutdown",
        "stats",
    ]
    for name in (*decorators, *functions, "Usage", "configure"):
        assert callable(getattr(ragpulse, name)), name
    arguments = [
        "service_name",
        "service_version",
        "environment",
        "endpoint",
        "headers",
        "api_key",
        "capture_content",
        "redact",
        "tracer_provider",
        "isolated",
        "set_global",
        "spool_dir",
        "enabled",
        "strict",
    ]
    assert set(arguments) <= set(inspect.signature(ragpulse.configure).parameters)
    assert importlib.import_module("ragpulse.testing")


def test_every_evaluator_is_registered() -> None:
    """Each name of the registry is there."""
    assert sorted(set(EVALUATORS) - set(list_evaluators())) == []


def test_the_evaluator_surface_is_there() -> None:
    """Functions, models and the seeds' alias names are there."""
    for name in [
        "evaluate",
        "evaluate_sync",
        "evaluator",
        "get_evaluator",
        "list_evaluators",
        "evaluate_response",
        "evaluate_queries",
        "meta_evaluate",
        "calibrate",
        "align",
        "summarize",
        "ScriptedJudge",
        "Context",
    ]:
        assert callable(getattr(ragpulse_evaluators, name)), name
    for alias in ["feedback", "reasoning", "grade", "pass_eval", "responses", "query", "response", "contexts", "unit"]:
        assert isinstance(getattr(EvaluationResult, alias), property), alias
    assert isinstance(JudgeCall.elapsed_time, property)
    fields = """query response second_response contexts history trace reference retrieved_ids relevant_ids latency_s
        input_tokens output_tokens cost_usd trace_id metadata"""
    assert set(Case.model_fields) == set(fields.split())


def test_the_statistics_are_there() -> None:
    """Every estimator and test of the statistics module is there."""
    for name in [
        "wilson",
        "mean_ci",
        "bootstrap_ci",
        "hajek",
        "effective_n",
        "ppi_mean",
        "rogan_gladen",
        "pearson",
        "spearman",
        "kendall",
        "cohen_kappa",
        "fleiss_kappa",
        "krippendorff_alpha",
        "two_proportion",
        "mcnemar",
        "wilcoxon",
        "msprt",
        "cusum",
        "change_points",
        "benjamini_hochberg",
    ]:
        assert callable(getattr(statistics, name)), name


@pytest.mark.parametrize(("command", "options"), OPTIONS.items())
def test_every_command_has_its_options(command: str, options: str) -> None:
    """Each command of the command line takes its options."""
    known = {name for parameter in cli.commands[command].params for name in parameter.opts}
    assert set(options.split()) <= known


def test_the_views_have_their_columns(collector: Callable[..., Collector]) -> None:
    """The documented columns of each view are selectable, and the macros answer."""
    client = connect(collector().url)
    for view, columns in VIEWS.items():
        client.sql(f"select {', '.join(columns.split())} from {view}").rows()
    client.sql("select * from quality('groundedness', timestamp '2026-01-01', timestamp '2027-01-01')").rows()
    client.sql(f"select * from trace('{1:032x}')").rows()


def test_every_listed_name_is_there(collector: Callable[..., Collector]) -> None:
    """Exports, commands, options, settings, columns, operations, parameters and pages of `interface.json` all exist."""
    found = names(collector().url)
    listed = {f"{kind}: {name}" for kind, some in json.loads(LIST.read_text()).items() for name in some}
    assert sorted(listed - {f"{kind}: {name}" for kind, some in found.items() for name in some}) == []
