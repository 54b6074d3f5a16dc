"""Pacing: sampling slows down so that the day's judge budget lasts the whole day."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from datetime import date, datetime, timedelta

from ragpulse_collector.catalog import CheckLoad, CpuLoad
from ragpulse_collector.sampling.rules import Rule
from ragpulse_collector.store import Store
from ragpulse_collector.store.protocol import Clock, utc_now
from ragpulse_collector.store.queries.jobs import HELD_BACK, selected_units, selected_usd, spent_usd

_FIRST_WINDOW = timedelta(minutes=15)
"""How far a new process looks back."""


@dataclass(slots=True)
class Controller:
    """Chooses the scale of one evaluator so that the remaining budget (USD, or CPU seconds) lasts; pure arithmetic.

    It follows the demand at full rate, smoothed over `memory_s`, so that a second call changes nothing.
    """

    floor: float = 0.02
    memory_s: float = 600.0
    scale: float = 1.0
    demand: float | None = None
    """USD per second at scale 1."""

    def update(self, *, usd: float, seconds: float, budget_usd: float, remaining_s: float) -> float:
        """Add what the last `seconds` selected (in USD, at the present scale); returns the next scale."""
        demand = usd / self.scale / seconds
        fresh = 1.0 if self.demand is None else 1.0 - math.exp(-seconds / self.memory_s)
        self.demand = demand * fresh + (self.demand or 0.0) * (1.0 - fresh)
        affordable = budget_usd / max(1.0, remaining_s)
        scale = 1.0 if self.demand <= 0.0 else affordable / self.demand
        self.scale = min(1.0, max(self.floor, scale))
        return self.scale


_CPU_FLOOR, _CPU_MEMORY_S = 1e-4, 120.0


@dataclass(slots=True)
class Queue:
    """Chooses the scale of the checks that share a process, so that its work never waits for long; pure arithmetic.

    While more waits than `enough_s` of its work, half of what it does is selected: a backlog is gone in twice its
    length, and a burst that is worked off in a moment is not sampled.
    """

    enough_s: float = 5.0
    waiting_s: float = 0.0
    """Seconds of work that were selected and cannot be done yet."""
    scale: float = 1.0

    def update(self, *, selected_s: float, seconds: float, known_s: float = 0.0, more: bool = True) -> float:
        """Add the work that the last `seconds` selected at the present scale; returns the next scale.

        `known_s` is what waits for sure, and all of it unless there may be `more`.
        """
        self.waiting_s = max(known_s, self.waiting_s + selected_s - seconds) if more else known_s
        if self.waiting_s <= self.enough_s:
            self.scale = 1.0
        elif selected_s > 0.0:
            self.scale = min(1.0, max(_CPU_FLOOR, 0.5 * seconds * self.scale / selected_s))
        return self.scale


@dataclass(eq=False)
class Pacer:
    """Moves the inclusion probabilities so that the day's budget (None: no limit), and those of rules, last the day.

    A local model's currency is CPU seconds: its probability follows what it can read of the traffic. That of the checks
    that share a process follows at once (`keep_up`), for they see all traffic.

    `pi_scale(evaluator)` multiplies every designed pi of a costly evaluator. It follows the demand and the remaining
    budget, minus the tenth that is released over the day. It never falls below `floor`, which that tenth pays for.
    Since pi is stored with each decision, estimates stay unbiased however the scale moves.
    """

    store: Store
    usd_of_day: Callable[[date], float | None]
    """Returns the budget of a UTC day."""
    _: KW_ONLY
    rules: Callable[[], Sequence[Rule]] = tuple
    cpu_loads: Callable[[], Mapping[str, CpuLoad]] = dict
    checks: Callable[[], Collection[str]] = tuple
    """Returns those that share a process."""
    check_load: Callable[[], CheckLoad | None] = lambda: None
    """Returns the work of that process, once it was busy."""
    clock: Clock = utc_now

    def __post_init__(self) -> None:
        self._controllers: dict[str, Controller] = {}
        self._models: dict[str, Controller] = {}
        self._updated_at: datetime | None = None
        self._queue, self._kept_up_at = Queue(), self.clock()

    def pi_scale(self, evaluator: str) -> tuple[float, str]:
        """The factor on this evaluator's designed inclusion probability, in [floor, 1], and the reason for it."""
        if model := self._queue if evaluator in self.checks() else self._models.get(evaluator):
            return model.scale, "throttled"
        controller = self._controllers.get(evaluator)
        return (1.0 if controller is None else controller.scale), "budget"

    def keep_up(self) -> None:
        """Let the checks select what their process can do; call it before each decision."""
        now, load = self.clock(), self.check_load()
        seconds = (now - self._kept_up_at).total_seconds()
        if 0.0 <= seconds < 1.0:
            return
        if load and seconds > 0.0:
            units = selected_units(self.store.read, self._kept_up_at, now, list(self.checks()))
            selected_s, known_s = sum(units.values()) * load.each_s, load.waiting * load.each_s
            self._queue.update(selected_s=selected_s, seconds=seconds, known_s=known_s, more=load.more)
        self._kept_up_at = now

    def update(self, now: datetime) -> dict[str, float]:
        """Recompute the scales from the ledger and the decisions since the last time; call it about once a minute."""
        since = self._updated_at
        if since is None or since > now:  # at the start, or the clock was set back
            since = now - _FIRST_WINDOW
        seconds = (now - since).total_seconds()
        if seconds < 1.0:
            return self._scales()
        self._updated_at = now
        self._pace_models(since, now, seconds)
        midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
        remaining_s = 86_400.0 - (now - midnight).total_seconds()
        selected = selected_usd(self.store.read, since, now)
        for name in self._controllers.keys() | selected.keys():
            controller = self._controllers.setdefault(name, Controller())
            budget = self._budget(name, midnight)
            if budget is not None:
                usd = selected.get(name, 0.0)
                controller.update(usd=usd, seconds=seconds, budget_usd=budget, remaining_s=remaining_s)
        return self._scales()

    def _scales(self) -> dict[str, float]:
        return {name: controller.scale for name, controller in (self._controllers | self._models).items()}

    @property
    def keeps_up(self) -> dict[str, float]:
        """The share of the designed sample that each local model keeps up with, and each check where it is not all."""
        throttled = self.checks() if self._queue.scale < 1.0 else ()
        return {name: model.scale for name, model in self._models.items()} | dict.fromkeys(throttled, self._queue.scale)

    def _pace_models(self, since: datetime, now: datetime, seconds: float) -> None:
        """Select nine tenths of what each model can read: the last one works off what is pending."""
        loads = self.cpu_loads()
        units = selected_units(self.store.read, since, now, list(loads)) if loads else {}
        for name, load in loads.items():
            model = self._models.setdefault(name, Controller(floor=_CPU_FLOOR, memory_s=_CPU_MEMORY_S))
            affordable = load.share * (1.0 - HELD_BACK)
            used = units.get(name, 0.0) * load.seconds
            model.update(usd=used, seconds=seconds, budget_usd=affordable, remaining_s=1.0)

    def _budget(self, name: str, midnight: datetime) -> float | None:
        """Return what this evaluator may still spend today by the budgets of day and rules; None without a cap.

        A rule without a budget may spend whatever the day allows.
        """
        rules = [rule for rule in self.rules() if name in rule.evaluators]
        rule_shares = [
            self._share(name, rule.evaluators, rule.budget_usd_per_day, midnight, rule.name) for rule in rules
        ]
        day_share = self._share(name, self._controllers, self.usd_of_day(midnight.date()), midnight)
        bounds = [
            day_share,
            sum(share for share in rule_shares if share is not None) if rules and None not in rule_shares else None,
        ]
        return min((bound for bound in bounds if bound is not None), default=None)

    def _share(
        self, name: str, evaluators: Iterable[str], usd: float | None, midnight: datetime, rule: str | None = None
    ) -> float | None:
        """Return this evaluator's share, by demand, of what remains of a budget; None without a budget."""
        if usd is None:
            return None
        remaining = usd * (1.0 - HELD_BACK) - spent_usd(self.store.read, day=midnight.date(), rule=rule)
        demands = {key: self._controllers[key].demand or 0.0 for key in evaluators if key in self._controllers}
        total_demand = sum(demands.values())
        return max(0.0, remaining * demands[name] / total_demand if total_demand and demands.get(name) else remaining)
