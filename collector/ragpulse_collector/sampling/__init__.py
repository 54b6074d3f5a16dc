"""The sampler: every unit gets a known probability to be evaluated, and the probability is stored.

rules ─▶ Sampler.decide(now) ─ one transaction ─▶ trace_facts (one row a trace), decisions, eval_jobs
"""

from ragpulse_collector.sampling.decision import Sampler
from ragpulse_collector.sampling.pacing import Pacer
from ragpulse_collector.sampling.rules import OFFLINE, Rule, Rules

__all__ = ["OFFLINE", "Pacer", "Rule", "Rules", "Sampler"]
