"""Judge-free evaluators: cases a second of CPU time, beside the library (or loop) that sets the floor.

    python benchmarks/evaluators_deterministic.py [--cases 2000] [--short]

Each row is one evaluator with its whole call (fields checked, scored, result built). Where a library does the work, the
row has that library alone on the same texts in the same run; `ratio` is library time over our time (1.0: no overhead).
The last column shows whether 5,000 cases a second are reached, or that the library alone is hardly faster.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import time
from collections.abc import Callable, Sequence
from typing import Any

from ragpulse_evaluators import Case, get_evaluator

FLOOR = 5000.0
TEXT = "the tower was built in Paris by a company of engineers and opened in 1889 for the world fair"
PARAMS: dict[str, dict[str, Any]] = {
    "regex": {"pattern": r"\b\d{4}\b"},
    "json_schema": {"schema": {"type": "object", "required": ["answer"]}},
    "ndcg": {"k": 10},
    "composite": {"weights": {"token_f1": 0.5, "exact_match": 0.5}},
    "latency": {"target": 2.0},
}
NAMES = (
    "exact_match",
    "fuzzy_match",
    "match",
    "token_f1",
    "rouge",
    "bleu",
    "chrf",
    "meteor",
    "string_distance",
    "perplexity",
    "is_json",
    "json_match",
    "json_schema",
    "format_adherence",
    "regex",
    "recall_at_k",
    "precision_at_k",
    "mrr",
    "hit_rate",
    "ndcg",
    "map",
    "retriever_recall",
    "latency",
    "cost",
    "composite",
)


def sentence(rng: random.Random) -> str:
    return " ".join(rng.choices(TEXT.split(), k=20))


def cases(count: int, name: str) -> list[Case]:
    rng = random.Random(7)
    json_like = "json" in name or name == "format_adherence"
    result = []
    for number in range(count):
        text, reference = sentence(rng), sentence(rng)
        if json_like:
            text = reference = f'{{"answer": "{text}", "n": {number}}}'
        ids = rng.sample(range(100), 10)
        result.append(
            Case(
                response=text,
                reference=reference,
                contexts=[f"{reference} {number}"],
                retrieved_ids=ids,
                relevant_ids={str(i): i % 3 + 1 for i in ids[::2]},
                latency_s=1.0 + number % 3,
                cost_usd=0.001,
                metadata={"logprobs": [-0.1, -0.5, -1.0]},
            )
        )
    return result


def library_alone(name: str, inputs: Sequence[Case]) -> Callable[[], object] | None:
    """The same work by the library itself."""
    pairs = [(case.response or "", str(case.reference)) for case in inputs]
    if name == "bleu":
        from sacrebleu.metrics.bleu import BLEU

        bleu = BLEU(effective_order=True)
        return lambda: [bleu.sentence_score(a, [b]) for a, b in pairs]
    if name == "chrf":
        from sacrebleu.metrics.chrf import CHRF

        chrf = CHRF()
        return lambda: [chrf.sentence_score(a, [b]) for a, b in pairs]
    if name == "rouge":
        from rouge_score.rouge_scorer import RougeScorer

        scorer = RougeScorer(["rougeL"])
        return lambda: [scorer.score(b, a) for a, b in pairs]
    if name == "meteor":
        from nltk.stem.porter import PorterStemmer
        from nltk.translate.meteor_score import single_meteor_score

        from ragpulse_evaluators.text.overlap import NoSynonyms

        stemmer, wordnet = PorterStemmer(), NoSynonyms()
        split = [(a.split(), b.split()) for a, b in pairs]
        return lambda: [single_meteor_score(b, a, stemmer=stemmer, wordnet=wordnet) for a, b in split]
    if name == "ndcg":
        import pytrec_eval

        def evaluate_all() -> None:
            for case in inputs:
                grades = {key: int(grade) for key, grade in (case.relevant_ids or {}).items()}
                run = {key: float(-rank) for rank, key in enumerate(case.retrieved_ids or ())}
                pytrec_eval.RelevanceEvaluator({"q": grades}, {"ndcg_cut_10"}).evaluate({"q": run})

        return evaluate_all
    return None


async def score(name: str, inputs: Sequence[Case]) -> None:
    evaluator = get_evaluator(name, **PARAMS.get(name, {}))
    for case in inputs:
        result = await evaluator(case)
        if result.status != "ok":
            raise SystemExit(f"{name}: {result.status}: {result.explanation}")


def seconds(work: Callable[[], object]) -> float:
    """CPU seconds, the best of three runs, so that other work on the machine hardly counts."""
    times = []
    for _ in range(3):
        begun = time.process_time()
        work()
        times.append(time.process_time() - begun)
    return min(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=2000)
    parser.add_argument("--short", action="store_true", help="300 cases")
    options = parser.parse_args()
    count = 300 if options.short else options.cases
    print(f"{'evaluator':18}{'cases/s':>10}{'library/s':>11}{'ratio':>7}  floor {FLOOR:,.0f}/s")
    for name in NAMES:
        inputs = cases(count, name)
        asyncio.run(score(name, inputs[:5]))
        ours = count / seconds(lambda name=name, inputs=inputs: asyncio.run(score(name, inputs)))  # type: ignore[misc]
        alone = library_alone(name, inputs)
        library = count / seconds(alone) if alone else None
        limited = library is not None and library < 1.25 * FLOOR
        verdict = "reached" if ours >= FLOOR else "limited by the library" if limited else "MISSED"
        cells = f"{library:>11,.0f}{ours / library:>7.2f}" if library else f"{'–':>11}{'–':>7}"
        print(f"{name:18}{ours:>10,.0f}{cells}  {verdict}", flush=True)


if __name__ == "__main__":
    main()
