"""Which number leads: the evaluator that overview, worst answers, presets of alerts and assistants name first.

The configuration decides, never counts of results: the number changes only when somebody changes a rule.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ragpulse_collector.settings.tables import EvaluatorSpec, RuleSettings

BUILT_IN = "groundedness"
Lead = Callable[[], str]
"""Returns the evaluator that leads; rules may change it."""
INSTRUMENTS = (("faithfulness", "statement_faithfulness"), ("groundedness_model",), (BUILT_IN,))
"""What reads whether the contexts support an answer: judges, local models, the check of words; the first leads."""


def leading(rules: Iterable[RuleSettings], specs: Iterable[EvaluatorSpec], lead: str | None) -> str:
    """Return the name of the evaluator that leads: `lead`, else a judge's, else a model's, else the built-in check.

    Only rules in force that evaluate something count; of several the first. `specs` are the configured evaluators.
    """
    if lead is not None:
        return lead
    uses = {spec.name: spec.use for spec in specs}
    named = [name for rule in rules if is_active(rule) for name in rule.evaluators]
    for instruments in INSTRUMENTS:
        for name in named:
            plain = name.partition("@")[0]
            if uses.get(plain, plain).partition("@")[0] in instruments:
                return plain
    return BUILT_IN


def is_active(rule: RuleSettings) -> bool:
    """Return whether a rule evaluates anything."""
    return rule.rate > 0 or any(stratum.rate > 0 for stratum in rule.strata)
