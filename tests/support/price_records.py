"""Usage records for every entry of genai-prices, and what the package itself makes of them."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import ROUND_HALF_EVEN, Decimal
from functools import cache
from typing import NamedTuple

import genai_prices
from genai_prices.data_snapshot import get_snapshot
from genai_prices.types import (
    ModelInfo,
    ModelPrice,
    Provider,
    StartDateConstraint,
    TieredPrices,
)

from penstock.budget.pricing.price_list import PriceList, Schedule
from penstock.contract.metadata import Usage

NOON = datetime(2026, 11, 15, 12, 0, 1, tzinfo=UTC)


class Entry(NamedTuple):
    """One model of the package, and the same compiled."""

    provider: Provider
    info: ModelInfo
    schedule: Schedule

    def their_nanos(self, usage: Usage, at: datetime) -> int:
        """The package's own price, rounded once."""
        price = self.info.calc_price(theirs(usage), self.provider, genai_request_timestamp=at)
        return to_nanos(price.total_price)

    def our_nanos(self, usage: Usage, at: datetime) -> int | None:
        found = self.schedule.at(at.timestamp()).nanos(usage)
        return found and found[0]


def to_nanos(usd: Decimal) -> int:
    return int((usd * 10**9).quantize(Decimal(1), ROUND_HALF_EVEN))


def theirs(usage: Usage) -> genai_prices.Usage:
    """The same usage as the package wants it."""
    read = usage.input_tokens or 0
    audio, cached = usage.input_audio_tokens or 0, usage.cached_input_tokens or 0
    return genai_prices.Usage(
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        cache_read_tokens=cached,
        cache_write_tokens=usage.cache_write_tokens,
        output_reasoning_tokens=usage.reasoning_tokens,
        input_audio_tokens=audio,
        cache_audio_read_tokens=max(0, cached - (read - audio)),
        output_image_tokens=usage.output_image_tokens,
        audio_seconds=usage.audio_seconds,
        input_audio_seconds=usage.audio_seconds,
    )


@cache
def entries() -> tuple[Entry, ...]:
    """Every model that we can price; `unpriced` has the others."""
    found = ((provider, info, _list().schedule(provider, info)) for provider, info in _all())
    return tuple(Entry(owner, info, known) for owner, info, known in found if known is not None)


def unpriced() -> list[str]:
    """The models that cost by what no usage of ours tells: pages, letters, messages."""
    return [
        f"{provider.id}/{info.id}"
        for provider, info in _all()
        if _list().schedule(provider, info) is None
    ]


@cache
def _list() -> PriceList:
    return PriceList()


def _all() -> Iterator[tuple[Provider, ModelInfo]]:
    for provider in get_snapshot().providers:
        for info in provider.models:
            yield provider, info


def price_lists(info: ModelInfo) -> list[ModelPrice]:
    if isinstance(info.prices, ModelPrice):
        return [info.prices]
    return [each.prices for each in info.prices]


def moments(info: ModelInfo) -> list[datetime]:
    """On both sides of each moment at which the price changes."""
    found = [NOON]
    for each in [] if isinstance(info.prices, ModelPrice) else info.prices:
        rule = each.constraint
        if rule is None:
            continue
        if isinstance(rule, StartDateConstraint):
            edges = [datetime.combine(rule.start_date, datetime.min.time(), UTC)]
        else:
            edges = [
                datetime.combine(NOON.date(), clock, clock.tzinfo or UTC)
                for clock in (rule.start_time, rule.end_time)
            ]
        found += [edge + step for edge in edges for step in (timedelta(), -timedelta(seconds=1))]
    return found


def records(info: ModelInfo) -> Iterator[Usage]:
    """Plain, cached, thought, heard and pictured, on both sides of every tier."""
    keys = {key for prices in price_lists(info) for key, value in vars(prices).items() if value}
    starts = {
        tier.start
        for prices in price_lists(info)
        for value in vars(prices).values()
        if isinstance(value, TieredPrices)
        for tier in value.tiers
    }
    if keys & {"audio_hours", "input_audio_hours"}:
        yield from (Usage(audio_seconds=each) for each in (0.5, 3, 61.37, 3599.999))
    if keys and not keys & {"input_mtok", "output_mtok"}:
        return
    for read in (1, 1_237, 99_991, *starts, *(start + 1 for start in starts)):
        part, rest = read // 3, read - read // 3
        yield Usage(read, 777)
        yield Usage(read, 333, part)
        yield Usage(read, 0, 0, part)
        yield Usage(read, 41, part, rest // 2, 13)
        yield Usage(read, 40_961, 0, 0, 40_000)
        if "input_audio_mtok" in keys:
            yield Usage(read, 19, input_audio_tokens=part)
            yield Usage(read, 19, rest, input_audio_tokens=read - 1)
        if "output_image_mtok" in keys:
            yield Usage(read, 1_300, output_image_tokens=1_290)
