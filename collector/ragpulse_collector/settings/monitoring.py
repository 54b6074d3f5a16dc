"""The tables about monitors, where their messages go, targets and judge drift."""

from __future__ import annotations

import re
from typing import Self

from pydantic import Field, field_validator, model_validator

from ragpulse_collector.settings.collector import Section


class DestinationSettings(Section):
    """One `[[destination]]`: where messages go, by the name that monitors use in `notify`."""

    name: str
    """Used in `notify`."""
    webhook: str | None = None
    """Address that receives JSON."""
    secret: str | None = None
    """Key of the HMAC signature sent with the webhook."""
    slack: str | None = None
    """Address of an incoming webhook."""
    pagerduty: str | None = None
    """The routing key of an Events API v2 integration."""
    pagerduty_url: str | None = None
    """Another address than PagerDuty's own, for a relay."""
    email: tuple[str, ...] = ()
    """Addresses; needs `[smtp]`."""

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        if sum(map(bool, (self.webhook, self.slack, self.pagerduty, self.email))) != 1:
            raise ValueError("a destination has exactly one of webhook, slack, pagerduty, email")
        return self


class SmtpSettings(Section):
    """The `[smtp]` table: the mail server for destinations with `email`."""

    host: str = "localhost"
    """The mail server."""
    port: int = Field(587, ge=1, le=65535)
    """Its port."""
    sender: str = "ragpulse@localhost"
    """The From address."""
    user: str | None = None
    """None: no login."""
    password: str | None = None
    """For the login."""
    starttls: bool = True
    """Encrypt the connection."""


class MonitorSettings(Section):
    """One `[[monitor]]`: when to alert, and whom."""

    name: str = Field(min_length=1)
    """Shown in messages."""
    metric: str
    """As in `GET metrics`."""
    condition: str
    """`< 0.85`, `> 3000`, `change` (a shift either way from the baseline), or `no data`."""
    notify: tuple[str, ...] = ()
    """Names of destinations."""
    min_n: int = Field(0, ge=0)
    """With fewer answers or requests in the window the monitor is undecided."""
    group_by: tuple[str, ...] = ()
    """One alert for each value."""
    where: str | None = None
    """SQL condition over the columns of `traces`."""
    window: str = "1h"
    """The time that a look covers."""
    baseline: str = "7d"
    """What `change` compares with: the same hours of these days. Counts (requests, errors) need 4d or more."""
    false_alarms_per_year: float = Field(4, gt=0)
    """How many are acceptable."""
    webhook: str | None = None
    """A destination of this monitor alone."""
    slack: str | None = None
    """A destination of this monitor alone."""
    secret: str | None = None
    """Key of the HMAC signature sent with the webhook."""


class TargetSettings(Section):
    """One `[[target]]` (SLO): where a metric should be; the overview says whether it surely is."""

    metric: str
    """As in `GET metrics`."""
    min: float | None = None
    """The least acceptable value."""
    max: float | None = None
    """Exactly one of the two."""
    where: str | None = None
    """SQL condition over the columns of `traces`."""

    @model_validator(mode="after")
    def _one_limit(self) -> Self:
        if (self.min is None) == (self.max is None):
            raise ValueError("a target has either min or max")
        return self


class DriftSettings(Section):
    """The `[drift]` table: how often frozen answers are judged again, and whom to tell that a judge moved."""

    every: str = "7d"
    """`12h`, `7d`, or `never`: only when somebody asks."""
    webhook: str | None = None
    """Who receives the message."""
    slack: str | None = None
    """Who receives the message."""
    secret: str | None = None
    """Key of the HMAC signature sent with the webhook."""

    @field_validator("every")
    @classmethod
    def _interval(cls, every: str) -> str:
        if not re.fullmatch(r"never|(?=.*[1-9])\d+(\.\d+)?\s*[smhdw]", every):
            raise ValueError('write how often, as in "12h" or "7d", or "never"')
        return every
