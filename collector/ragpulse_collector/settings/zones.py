"""The names of time zones, in files and requests."""

from __future__ import annotations

from datetime import tzinfo
from typing import Annotated

from pydantic import AfterValidator

from ragpulse_collector import zones
from ragpulse_collector.refusals import Invalid, nearest


def zone_of(name: str) -> tzinfo:
    """Return the zone of an IANA name; raises Invalid with the nearest name."""
    zone = zones.find(name)
    if zone is None:
        near = nearest(name, zones.names()) or ": write an IANA name such as UTC, Europe/Berlin, America/New_York"
        raise Invalid(f"no time zone {name[:80]!r}{near}")
    return zone


def _known(name: str) -> str:
    zone_of(name)
    return name


ZoneName = Annotated[str, AfterValidator(_known)]
"""The IANA name of a zone that this machine knows."""
