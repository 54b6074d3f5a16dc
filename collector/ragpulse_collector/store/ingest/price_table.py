"""The table of model prices: that of the installed genai-prices, or the newer one that `ragpulse prices update` wrote.

genai-prices is imported with the first call to be priced: 5 MB that an idle collector does without, and 0.05 s (0.3 s
where Python may not keep bytecode).
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from decimal import Decimal
from functools import cached_property
from importlib.metadata import distribution, version
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from ragpulse_collector.store.protocol import StoreError


class _File(BaseModel):
    fetched_at: datetime
    source: str
    providers: list[dict[str, Any]]


class PriceTable:
    """Prices by model. A `path` that exists replaces the installed table; raises StoreError if it holds none."""

    def __init__(self, path: Path | None = None) -> None:
        self._path = path if path is not None and path.is_file() else None
        if self._path is not None:
            self._file = _read(self._path)
            self._snapshot = _snapshot(self._file.providers, self._path)

    @cached_property
    def name(self) -> str:
        """The table and its version, or the day it was fetched."""
        if self._path is not None:
            return f"genai-prices {self._file.fetched_at.date().isoformat()}"
        return f"genai-prices {version('genai-prices')}"

    def about(self) -> dict[str, str | None]:
        """Return its name, when it was installed or fetched, and from where; the installed one has no own date."""
        if self._path is not None:
            day = self._file.fetched_at.date().isoformat()
            return {"table": self.name, "installed": None, "updated": day, "source": self._file.source}
        package = distribution("genai-prices")
        data = Path(str(package.locate_file("genai_prices/data.py")))
        installed = datetime.fromtimestamp(data.stat().st_mtime, UTC).date().isoformat() if data.exists() else None
        return {"table": self.name, "installed": installed, "updated": None, "source": None}

    def calculated(self, model: str, provider: str | None, tier: str | None, **usage: int) -> Any:
        """Return the table's price calculation, None for unknown models.

        A provider that the table does not know (a proxy's name) is no reason to give up.
        """
        from genai_prices import Usage, calc_price

        context = {"processing": tier, "service_tier": tier} if tier else None
        for known in dict.fromkeys((provider, None)):
            try:
                if self._path is not None:
                    return self._snapshot.calc(Usage(**usage), model, known, None, None, context)
                return calc_price(Usage(**usage), model_ref=model, provider_id=known, price_context=context)
            except LookupError:
                continue
        return None


def written(path: Path, source: str, body: bytes, at: datetime) -> tuple[int, int]:
    """Check a fetched table and put it in place of the file; returns how many providers and models it has."""
    try:
        file = _File(fetched_at=at, source=source, providers=json.loads(body))
    except ValueError as error:
        raise StoreError(f"{source} sent no price table: {str(error).splitlines()[0]}") from error
    snapshot = _snapshot(file.providers, source)
    models = sum(len(provider.models) for provider in snapshot.providers)
    if not models:
        raise StoreError(f"{source} sent a price table without models")
    part = path.with_name(f"{path.name}.part")
    part.write_text(file.model_dump_json(), encoding="utf-8")
    part.replace(path)
    return len(file.providers), models


def _read(path: Path) -> _File:
    try:
        return _File.model_validate_json(path.read_bytes())
    except (OSError, ValueError) as error:
        raise StoreError(_unusable(path, error)) from error


def _unusable(path: Path | str, error: Exception) -> str:
    reason = str(error).splitlines()[0]
    return f"{path} is no price table ({reason}): write it again with `ragpulse prices update`, or delete it"


def _snapshot(providers: list[dict[str, Any]], named: Path | str) -> Any:
    """Make the library's table of its published data; how usage is read from responses is left out."""
    from genai_prices.data_snapshot import DataSnapshot
    from genai_prices.types import ModelPrice, Provider, TieredPrices

    prices = TypeAdapter(dict[str, Decimal | TieredPrices | None])
    listed = TypeAdapter(list[Provider], config=ConfigDict(arbitrary_types_allowed=True))

    def read(value: Any) -> Any:
        if isinstance(value, list):
            return [read(one) for one in value]
        if not isinstance(value, dict):
            return value
        return {
            key: ModelPrice(**prices.validate_python(one)) if key == "prices" and isinstance(one, dict) else read(one)
            for key, one in value.items()
            if key != "extractors"
        }

    try:
        return DataSnapshot(listed.validate_python(read(providers)), from_auto_update=False)
    except (ValidationError, TypeError, ValueError) as error:
        raise StoreError(_unusable(named, error)) from error
