"""Who may ask for what: keys with their scopes, and what they are bound to."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Sequence
from typing import Literal, NamedTuple, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

Scope = Literal["ingest", "read", "admin"]


class SettingsError(ValueError):
    """The configuration cannot be used; the message names the place and the fix."""


class Section(BaseModel):
    """A table of `ragpulse.toml`: its keys are known."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=False)


class Binding(NamedTuple):
    """The services and environments that a key is bound to; an empty tuple allows all."""

    services: tuple[str, ...] = ()
    environments: tuple[str, ...] = ()

    def allows(self, service: str | None, environment: str | None) -> bool:
        """Return whether data of this service and environment belongs to the key."""
        return (not self.services or service in self.services) and (
            not self.environments or environment in self.environments
        )


EVERYTHING = Binding()


class ApiKey(Section):
    """One key; only its hash is kept."""

    name: str
    """Written into the audit log."""
    scopes: tuple[Scope, ...] = ("ingest",)
    """`admin` allows everything."""
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    """Hash of the key, in hex."""
    services: tuple[str, ...] = ()
    """Sends and reads only these services; all where empty."""
    environments: tuple[str, ...] = ()
    """Sends and reads only these environments; all where empty."""

    @model_validator(mode="after")
    def _not_bound_admin(self) -> Self:
        if self.binding and "admin" in self.scopes:
            raise ValueError(
                f"the key {self.name!r} has the scope admin: it cannot be bound to services or environments"
            )
        return self

    @property
    def binding(self) -> Binding | None:
        """What the key is bound to; None for a key of everything."""
        return Binding(self.services, self.environments) if self.services or self.environments else None

    @classmethod
    def generated(cls, name: str, scopes: Sequence[Scope], binding: Binding = EVERYTHING) -> tuple[str, ApiKey]:
        """Return a new secret, to be shown once, and the key that holds its hash."""
        secret = "rp_" + secrets.token_urlsafe(32)
        digest = hashlib.sha256(secret.encode()).hexdigest()
        return secret, cls(name=name, scopes=tuple(scopes), sha256=digest, **binding._asdict())
