"""Is the answer right and to the point: marks against a reference, statements, meaning, questions made from it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import fmean
from typing import Annotated, Any, Literal, Self

from pydantic import AliasChoices, BeforeValidator, Field

from ragpulse_evaluators.case import Case
from ragpulse_evaluators.errors import ConfigurationError, JudgeError, Unreadable
from ragpulse_evaluators.evaluator import Scale
from ragpulse_evaluators.judged.base import JudgedEvaluator, PromptFile, judged_entry
from ragpulse_evaluators.judged.faithfulness import check_statements, split_statements, unsupported
from ragpulse_evaluators.judged.session import JudgeSession, Reason, Reply, YesNo, number_in, reasoning_of
from ragpulse_evaluators.judges.parsing import check_count, read_number
from ragpulse_evaluators.judges.protocol import Embedder, cosine
from ragpulse_evaluators.judges.providers import as_embedder
from ragpulse_evaluators.judges.tokens import Words
from ragpulse_evaluators.result import Outcome


class ShareReply(Reply, title="Share"):
    """`{"reason": "...", "score": 0.4}`: a number in 0..1."""

    form = '{"reason": "...", "score": 0.0..1.0}'
    reason: Reason = ""
    score: Annotated[
        float,
        number_in(0, 1),
        Field(ge=0, le=1, allow_inf_nan=False, validation_alias=AliasChoices("score", "similarity")),
    ]

    @classmethod
    def plain(cls, text: str, words: Words) -> Self:
        """After "Final answer:", or alone on the first line."""
        return cls(score=read_number(text, words, lo=0, hi=1), reason=reasoning_of(text, words))


class LLMSimilarity(JudgedEvaluator):
    """How close in meaning are response and reference, 0 to 1?"""

    name = "llm_similarity"
    needs = frozenset({"response", "reference"})
    parser = "share"

    async def assess(self, case: Case, session: JudgeSession) -> Outcome:
        """One call per reference; the closest counts."""
        prompts = [self.render("evaluate", case, left=case.response or "", right=text) for text in case.references]
        shares = [await session.reply(prompt, ShareReply) for prompt in prompts]
        best = max(shares, key=lambda share: share.score)
        parts = {"scores": [share.score for share in shares]}
        return Outcome(score=best.score, explanation=best.reason or None, parts=parts)

    def calls_for(self, case: Case) -> int:
        """One per reference."""
        return len(case.references)


Weight = Annotated[float, Field(ge=0)]
Similarity = Callable[[str, str], float]
"""A similarity of response and reference in 0..1, such as a cross-encoder."""


class Classified(Reply):
    """One statement in its class."""

    statement: str = ""
    reason: Reason = ""


def _with_statement(items: Any) -> Any:
    return [{"statement": item} if isinstance(item, str) else item for item in items or ()]


ClassOf = Annotated[list[Classified], BeforeValidator(_with_statement)]


class Classes(Reply):
    """`{"TP": [...], "FP": [...], "FN": [...]}` of statements, bare or with reasons."""

    form = '{"TP": [...], "FP": [...], "FN": [...]}'
    TP: ClassOf
    FP: ClassOf
    FN: ClassOf


def f_beta(tp: int, fp: int, fn: int, beta: float) -> float:
    """F-beta of counts; 1.0 where there is nothing to get right or wrong."""
    if not tp + fp + fn:
        return 1.0
    return (1 + beta**2) * tp / ((1 + beta**2) * tp + beta**2 * fn + fp)


class AnswerCorrectness(JudgedEvaluator):
    """Facts and meaning of the response against the reference, weighted.

    `mode="seed"`: share of the response's statements that the reference supports. `mode="fbeta"`: F-beta of statements
    in both, only in the response, only in the reference. `weights` are (facts, meaning). Meaning is `similarity` (a
    function of two texts, e.g. a cross-encoder), else the cosine by `embedder`, else the judge's estimate.
    """

    name = "answer_correctness"
    needs = frozenset({"response", "reference"})
    parser = "statements"
    cost_class = "k calls"
    reply_tokens = 400

    def __init__(
        self,
        *,
        mode: Literal["seed", "fbeta"] = "seed",
        weights: tuple[Weight, Weight] | None = None,
        beta: Annotated[float, Field(gt=0)] = 1.0,
        similarity: Similarity | None = None,
        embedder: str | Embedder | None = None,
        language: str = "en",
        prompts: str | Path | None = None,
        **options: Any,
    ) -> None:
        weights = weights or ((0.4, 0.6) if mode == "seed" else (0.75, 0.25))
        if not any(weights):
            raise ConfigurationError("answer_correctness: one of the weights is above 0")
        # The checks of statement_faithfulness serve here too; both files are part of the version.
        self._checks = PromptFile("statement_faithfulness", language, prompts)
        self._compare = PromptFile("llm_similarity", language, prompts)
        self._mode, self._weights, self._beta, self._similarity = mode, tuple(weights), beta, similarity
        self._embedder = as_embedder(embedder)
        super().__init__(
            language=language,
            prompts=prompts,
            mode=mode,
            weights=self._weights,
            beta=beta,
            similarity=similarity,
            embedder=self._embedder,
            **options,
        )

    def prompt(self) -> str:
        """All three prompt files."""
        return "\n".join((self.prompts.source, self._checks.source, self._compare.source))

    async def assess(self, case: Case, session: JudgeSession) -> Outcome:
        """Judge facts and meaning, then weigh them."""
        facts, explanation = await (self._supported if self._mode == "seed" else self._classified)(case, session)
        meaning = await self._meaning(case, session) if self._weights[1] else None
        score = (self._weights[0] * facts + self._weights[1] * (meaning or 0.0)) / sum(self._weights)
        return Outcome(score=score, explanation=explanation, parts={"facts": facts, "similarity": meaning})

    async def _statements(self, text: str, case: Case, session: JudgeSession) -> list[str]:
        return await split_statements(session, self.render("statements", case, text=text, file=self._checks))

    async def _supported(self, case: Case, session: JudgeSession) -> tuple[float, str]:
        statements = await self._statements(case.response or "", case, session)
        if not statements:
            return (0.0 if any(text.strip() for text in case.references) else 1.0), "the response states nothing"
        prompt = self.render("check", case, statements=statements, source=case.references, file=self._checks)
        checked = await check_statements(session, prompt, statements)
        return fmean(item.verdict for item in checked), unsupported(checked)

    async def _classified(self, case: Case, session: JudgeSession) -> tuple[float, str]:
        response = await self._statements(case.response or "", case, session)
        reference = await self._statements("\n".join(case.references), case, session)
        if not response and not reference:
            return 1.0, "neither text states anything"

        def classified(text: str) -> Classes:
            classes = Classes.of_json(text)
            check_count(response, [*classes.TP, *classes.FP], "statements of the response")
            return classes

        prompt = self.render("classify", case, ours=response, theirs=reference)
        classes = await session.parse(prompt, classified, form=Classes.form, schema=Classes)
        counts = len(classes.TP), len(classes.FP), len(classes.FN)
        return f_beta(*counts, self._beta), f"{counts[0]} in both, {counts[1]} only in the response, {counts[2]} missed"

    async def _meaning(self, case: Case, session: JudgeSession) -> float:
        response = case.response or ""
        if self._similarity is not None:
            similarities = [self._similarity(response, text) for text in case.references]
        elif self._embedder is not None:
            answer, *references = await self._embedder.embed([response, *case.references])
            similarities = [max(0.0, cosine(answer, vector)) for vector in references]
        else:
            prompts = [
                self.render("evaluate", case, left=response, right=text, file=self._compare) for text in case.references
            ]
            similarities = [(await session.reply(prompt, ShareReply)).score for prompt in prompts]
        if not all(0.0 <= value <= 1.0 for value in similarities):
            raise Unreadable(f"a similarity lies outside 0..1: {similarities}")
        return max(similarities)

    def calls_for(self, case: Case) -> int:
        """Take apart and check, or take both apart and classify; and compare where the judge does that too."""
        compares = self._weights[1] > 0 and self._similarity is None and self._embedder is None
        return (2 if self._mode == "seed" else 3) + (len(case.references) if compares else 0)


class QuestionReply(Reply, title="Question"):
    """`{"question": "...", "noncommittal": "YES" | "NO"}`."""

    form = '{"question": "...", "noncommittal": "YES" | "NO"}'
    question: str
    noncommittal: YesNo = False


class AnswerRelevancy(JudgedEvaluator):
    """Does the response answer the query? Questions written from the response are compared with the query.

    With an `embedder`: mean cosine over `n` questions (RAGAS, n=3), which may be negative. Without: the judge says how
    close each question is, 0 to 1 (PolyEval, n=1). 0 when every question marks the response as noncommittal.
    """

    name = "answer_relevancy"
    needs = frozenset({"query", "response"})
    scale = Scale(lo=-1, hi=1, kind="clip")
    parser = "question"
    cost_class = "k calls"
    reply_tokens = 60

    def __init__(
        self,
        *,
        n: Annotated[int, Field(ge=1)] | None = None,
        embedder: str | Embedder | None = None,
        **options: Any,
    ) -> None:
        self._embedder = as_embedder(embedder)
        self._n = n or (3 if self._embedder else 1)
        super().__init__(n=self._n, embedder=self._embedder, **options)
        self.calls = self._n if self._embedder else 2 * self._n  # as many comparisons as questions

    async def assess(self, case: Case, session: JudgeSession) -> Outcome:
        """Make up questions, compare, average."""
        questions = await session.samples(self.render("question", case), QuestionReply, n=self._n)
        if all(question.noncommittal for question in questions):
            return Outcome(score=0.0, explanation="the response is noncommittal", parts={"noncommittal": True})
        texts = [question.question for question in questions]
        scores = await self._closeness(case, texts, session)
        parts = {"questions": texts, "scores": scores, "noncommittal": False}
        return Outcome(score=fmean(scores), explanation="\n".join(texts), parts=parts)

    async def _closeness(self, case: Case, questions: Sequence[str], session: JudgeSession) -> list[float]:
        query = case.query or ""
        if self._embedder is not None:
            query_vector, *vectors = await self._embedder.embed([query, *questions])
            if len(vectors) != len(questions):
                raise JudgeError(f"{len(vectors)} embeddings for {len(questions)} questions")
            return [cosine(query_vector, vector) for vector in vectors]
        prompts = [self.render("compare", case, question=question) for question in questions]
        return [share.score for share in await session.replies(prompts, ShareReply)]


class MarkReply(Reply, title="Mark"):
    """`{"reason": "...", "score": 4.5}`."""

    form = '{"reason": "...", "score": 1..5}'
    reason: Reason = ""
    score: Annotated[
        float,
        number_in(1, 5),
        Field(
            ge=1,
            le=5,
            allow_inf_nan=False,
            validation_alias=AliasChoices("score", "rating", "grade", "mark", "correctness"),
        ),
    ]

    @classmethod
    def plain(cls, text: str, words: Words) -> Self:
        """A mark on the first line, or after a label on the last."""
        return cls(score=read_number(text, words, lo=1, hi=5), reason=reasoning_of(text, words))


class Correctness(JudgedEvaluator):
    """Relevance and correctness of the response against the reference, 1 to 5; passes where score >= threshold."""

    name = "correctness"
    needs = frozenset({"query", "response", "reference"})
    scale = Scale(lo=1, hi=5)
    parser = "mark"
    reply_tokens = 150

    def __init__(self, *, threshold: float | None = 4.0, **options: Any) -> None:
        super().__init__(threshold=threshold, **options)

    async def assess(self, case: Case, session: JudgeSession) -> Outcome:
        """One call; the mark is on the first line or in the JSON."""
        mark = await session.reply(self.render("evaluate", case), MarkReply)
        return Outcome(score=mark.score, explanation=mark.reason or None)


ENTRIES = (
    judged_entry(Correctness, "LlamaIndex", "threshold=4.0"),
    judged_entry(AnswerCorrectness, "RAGAS (arXiv:2309.15217)", 'mode="fbeta", weights=(0.75, 0.25)'),
    judged_entry(AnswerRelevancy, "RAGAS (arXiv:2309.15217), PolyEval"),
    judged_entry(LLMSimilarity, "PolyEval"),
)
