"""The sampler: every unit gets a known chance to be evaluated, and the chance is kept.

rules ─▶ Sampler.decide(now) ─ one transaction ─▶ trace_facts (one row a trace), decisions, eval_jobs
"""

from ragpulse_collector.sampler.decide import Sampler, draw
from ragpulse_collector.sampler.rule import OFFLINE, Rule, RuleError, Stratum, check_where

__all__ = ["OFFLINE", "Rule", "RuleError", "Sampler", "Stratum", "check_where", "draw"]
