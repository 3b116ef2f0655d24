"""The price list of the package genai-prices, compiled model by model as they are asked for.

The package takes 0.3 s to import, so that waits until a price is wanted.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime, time
from typing import TYPE_CHECKING, NamedTuple

from penstock.budget.pricing.rates import Kind, Price, Tariff, compile_tariff

if TYPE_CHECKING:
    from genai_prices.data_snapshot import DataSnapshot
    from genai_prices.types import ConditionalPrice, ModelInfo, ModelPrice, Provider

_DAY = 86_400.0
_LEAST_SECONDS = {("groq", "whisper-large-v3"): 10, ("groq", "whisper-large-v3-turbo"): 10}
"""Who charges for more of a short recording than there is; the list has no place for it."""


class _Row(NamedTuple):
    """A tariff and when it holds: from a time on, or daily between two times of UTC."""

    tariff: Tariff
    start: float | None = None
    daily: tuple[float, float] | None = None

    def holds(self, moment: float) -> bool:
        if self.start is not None:
            return moment >= self.start
        if self.daily is None:
            return True
        begin, end = self.daily
        clock = moment % _DAY
        return begin <= clock < end if begin <= end else clock >= begin or clock < end


class Schedule:
    """The tariffs of a model over time."""

    __slots__ = ("_rows", "name", "only", "source")

    def __init__(self, source: str, name: str, rows: Sequence[_Row]) -> None:
        self.source = source
        self.name = name
        """The entry of the list that it came from, or nothing."""
        self.only = rows[0].tariff if len(rows) == 1 else None
        # The last one that holds is the one; the first one does when none of them does.
        self._rows = (*reversed(rows), rows[0]._replace(start=None, daily=None))

    @classmethod
    def fixed(cls, source: str, tariff: Tariff) -> Schedule:
        """One tariff at all times."""
        return cls(source, "", [_Row(tariff)])

    def at(self, moment: float) -> Tariff:
        """The tariff at a time, in seconds since 1970."""
        return self.only or next(row.tariff for row in self._rows if row.holds(moment))


class PriceList:
    """Finds models in genai-prices by the provider's name there, or by its address."""

    def __init__(self, snapshot: DataSnapshot | None = None) -> None:
        from genai_prices import __version__
        from genai_prices.data_snapshot import get_snapshot
        from genai_prices.data_units import unit_data

        self.source = f"genai-prices {__version__}"
        self.snapshot = snapshot or get_snapshot()
        self._current = get_snapshot
        self._kinds = {
            unit["price_key"]: Kind(name, unit["per"], frozenset(unit["dimensions"].items()))
            for name, unit in unit_data.items()
        }
        self._providers = {each.id: each for each in self.snapshot.providers}

    @property
    def stale(self) -> bool:
        """Whether the package has got newer prices since, which it does when told to."""
        return self._current() is not self.snapshot

    def provider_at(self, url: str) -> str | None:
        """The provider that is reached at this address."""
        found = (each.id for each in self.snapshot.providers if re.match(each.api_pattern, url))
        return next(found, None)

    def find(self, provider: str, model: str) -> Schedule | None:
        """The prices of a model; None when the list has none that we could apply."""
        owner = self._providers.get(provider)
        info = owner and owner.find_model(model, all_providers=self.snapshot.providers)
        return self.schedule(owner, info) if owner and info else None

    def schedule(self, owner: Provider, info: ModelInfo) -> Schedule | None:
        """The prices of one entry, when this provider serves it."""
        least = _LEAST_SECONDS.get((owner.id, info.id), 0)
        rows: list[_Row] = []
        for prices, start, daily in _times(info.prices):
            tariff = compile_tariff(self._prices(prices), least)
            if tariff is None:
                return None
            rows.append(_Row(tariff, start, daily))
        return Schedule(self.source, f"{owner.id}/{info.id}", rows) if rows else None

    def _prices(self, prices: ModelPrice) -> Iterator[Price]:
        from genai_prices.types import TieredPrices

        for key, value in vars(prices).items():
            # Newer data may have prices for what this version of the package has no word for.
            kind = self._kinds.get(key)
            if value is None or kind is None:
                continue
            if isinstance(value, TieredPrices):
                tiers = tuple((tier.start, tier.price) for tier in value.tiers)
                yield Price(kind, value.base, tiers)
            else:
                yield Price(kind, value)


_Times = tuple["ModelPrice", float | None, tuple[float, float] | None]


def _times(prices: ModelPrice | list[ConditionalPrice]) -> Iterator[_Times]:
    from genai_prices.types import ModelPrice, StartDateConstraint

    if isinstance(prices, ModelPrice):
        yield prices, None, None
        return
    for each in prices:
        rule = each.constraint
        if rule is None:
            yield each.prices, None, None
        elif isinstance(rule, StartDateConstraint):
            yield each.prices, _midnight(rule.start_date), None
        else:
            yield each.prices, None, (_clock(rule.start_time), _clock(rule.end_time))


def _midnight(day: date) -> float:
    return datetime.combine(day, time(), UTC).timestamp()


def _clock(moment: time) -> float:
    """Seconds since midnight UTC; a time without a zone is one of UTC."""
    whole = datetime.combine(date(1970, 1, 2), moment, moment.tzinfo or UTC)
    return whole.timestamp() % _DAY
