"""What calls cost, in whole nano-dollars.

    book = PriceBook({"claude": "anthropic"})
    cost = book.cost(Target("claude", "claude-sonnet-5-5"), usage)     # None: no price is known

Prices come, in this order, from the configuration, from the package genai-prices, and from the
default price, if there is one. A server at a local address has the default price, and without one
costs nothing; what runs in this process costs nothing. A model is
looked up once; its price is kept in the compiled form of `tariffs`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from decimal import Decimal

import msgspec

from penstock.budget.pricing.price_list import PriceList, Schedule
from penstock.budget.pricing.price_sources import SOURCES, Source
from penstock.budget.pricing.rates import MILLION, Kind, Price, Tariff, compiled
from penstock.contract.checks.addresses import is_private
from penstock.contract.metadata import Usage
from penstock.contract.ports import Target

CONFIGURED, DEFAULT, LOCAL = "configuration", "default", "local"
_MOST_KEPT = 10_000
"""Callers may name models as they like; more than this many are not remembered."""


class Cost(msgspec.Struct, frozen=True, gc=False):
    """What a call cost, and by which price."""

    nanos: int
    source: str
    """Where the price is from: `configuration`, `local`, `default` or `genai-prices VERSION`."""
    price: str
    """The price itself, in words."""
    estimated: bool = False
    """Whether the usage was an estimate."""


class OwnPrice(msgspec.Struct, frozen=True, kw_only=True):
    """A price that the user gives: USD per million tokens.

    Cached and cached-anew tokens, and those of sound, cost as much as other input unless they have
    prices of their own. `audio_minute` is for models that charge for sound by its length.
    """

    input: Decimal
    output: Decimal
    cached_input: Decimal | None = None
    cache_write: Decimal | None = None
    input_audio: Decimal | None = None
    audio_minute: Decimal | None = None


class Quote(msgspec.Struct, frozen=True, omit_defaults=True):
    """A price as people read it: USD per million tokens, for prompts below the first threshold."""

    source: str
    entry: str = ""
    """What the list calls the model."""
    input: Decimal | None = None
    output: Decimal | None = None
    cached_input: Decimal | None = None
    cache_write: Decimal | None = None
    input_audio: Decimal | None = None
    audio_minute: Decimal | None = None
    request: Decimal | None = None
    """For each call, whatever it holds."""
    thresholds: tuple[int, ...] = ()
    """Prompts of more tokens than these have another price."""


class PriceBook:
    """The prices of all targets that one configuration can name."""

    def __init__(
        self,
        kinds: Mapping[str, str],
        *,
        prices: Mapping[Target, OwnPrice] | None = None,
        default: OwnPrice | None = None,
        address: Callable[[str], str] = lambda name: "",
    ) -> None:
        """`kinds` says of which kind each configured provider is; others are named as their kind.

        `address` tells where a provider is reached, or nothing for where its kind usually is.
        """
        self._kinds = dict(kinds)
        self._address = address
        self._own = {
            target: Schedule.fixed(CONFIGURED, _tariff(price))
            for target, price in (prices or {}).items()
        }
        self._default = None if default is None else Schedule.fixed(DEFAULT, _tariff(default))
        self._local = Schedule.fixed(LOCAL, _FREE)
        self._list: PriceList | None = None
        self._found: dict[Target, Schedule | None] = {}

    def cost(
        self, target: Target, usage: Usage, *, at: datetime | None = None, requests: int = 1
    ) -> Cost | None:
        """What a call of this target costs that used so much; None when that is not known.

        It is not when no price is (see `knows`), or when the usage counts nothing that the price is
        for. `at` is when the call was made, for prices change: now, if left out. `requests` is how
        many calls the usage is the sum of, for the few models that cost something for each.
        """
        schedule = self._schedule(target)
        if schedule is None:
            return None
        found = (schedule.only or schedule.at(_moment(at))).nanos(usage, requests)
        if found is None:
            return None
        return Cost(found[0], schedule.source, found[1], usage.estimated)

    def knows(self, target: Target) -> bool:
        """Whether this target has a price, if only the default one."""
        return self._schedule(target) is not None

    def why_free(self, target: Target) -> str | None:
        """Why calls of this target cost nothing; None when they cost something, or nobody knows."""
        tariff = self.tariff(target)
        if tariff is None or not tariff.free:
            return None
        schedule = self._schedule(target)
        if schedule is None or schedule.source != LOCAL:
            source = "" if schedule is None else schedule.source
            return {
                CONFIGURED: "its price in the configuration is 0",
                DEFAULT: "[prices] default is 0",
            }.get(source, f"{source} says that it costs nothing")
        if self._source(target).in_process:
            return "it runs in this process"
        where = self._address(target.provider) or "its usual address"
        what = "a local address" if is_private(where) else f"kind {self._kind(target)!r} is free"
        return f"{what} ({where}), and it has no price in the configuration"

    def _kind(self, target: Target) -> str:
        return self._kinds.get(target.provider, target.provider)

    def tariff(self, target: Target, at: datetime | None = None) -> Tariff | None:
        """The price of this target at a time, in the form that computes; None when unknown."""
        schedule = self._schedule(target)
        return schedule and (schedule.only or schedule.at(_moment(at)))

    def quote(self, target: Target, at: datetime | None = None) -> Quote | None:
        """The price of this target as people read it; None when unknown."""
        schedule = self._schedule(target)
        return schedule and _quote(schedule, schedule.at(_moment(at)))

    def prepared(self, targets: Iterable[Target]) -> bool:
        """Whether these targets were looked up already."""
        return all(map(self._found.__contains__, targets))

    def prepare(self, targets: Iterable[Target]) -> None:
        """Look these targets up now, so that no request waits for the list to be loaded."""
        for target in targets:
            self._schedule(target)

    def _schedule(self, target: Target) -> Schedule | None:
        prices = self._list
        if prices is not None and prices.stale:
            self._list = None
            self._found.clear()
        try:
            return self._found[target]
        except KeyError:
            pass
        if len(self._found) >= _MOST_KEPT:
            self._found.clear()
        found = self._found[target] = self._look_up(target)
        return found

    def _look_up(self, target: Target) -> Schedule | None:
        if (own := self._own.get(target)) is not None:
            return own
        if self._runs_here(target):
            # A server at an address may pass requests on to one that charges for them.
            in_process = self._source(target).in_process
            return self._local if in_process else (self._default or self._local)
        source, address = self._source(target), self._address(target.provider)
        return self._listed(source, address, target.model) or self._default

    def _source(self, target: Target) -> Source:
        return SOURCES.get(self._kind(target), Source())

    def _runs_here(self, target: Target) -> bool:
        """Whether it runs on machines of one's own, as far as its kind and address tell."""
        source = self._source(target)
        return source.local or (source.anywhere and is_private(self._address(target.provider)))

    def _listed(self, source: Source, address: str, model: str) -> Schedule | None:
        named = source.read(model)
        if named is None or not (source.provider or address):
            return None
        prices = self._list = self._list or PriceList()
        # A server elsewhere that speaks the dialect has prices of its own.
        provider = prices.provider_at(address) or named[0]
        return prices.find(provider, named[1])


def _moment(at: datetime | None) -> float:
    if at is None:
        return time.time()
    return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()


def _traits(*more: tuple[str, str], direction: str = "input") -> frozenset[tuple[str, str]]:
    return frozenset({("family", "tokens"), ("direction", direction), *more})


_KINDS = {
    "input": Kind("input_tokens", MILLION, _traits()),
    "output": Kind("output_tokens", MILLION, _traits(direction="output")),
    "cached_input": Kind("cache_read_tokens", MILLION, _traits(("token_type", "cache_read"))),
    "cache_write": Kind("cache_write_tokens", MILLION, _traits(("token_type", "cache_write"))),
    "input_audio": Kind("input_audio_tokens", MILLION, _traits(("modality", "audio"))),
    "audio_minute": Kind("audio_seconds", 60, frozenset({("family", "durations")})),
}
_CACHED_AUDIO = Kind(
    "cache_audio_read_tokens",
    MILLION,
    _KINDS["cached_input"].traits | _KINDS["input_audio"].traits,
)


def _tariff(price: OwnPrice) -> Tariff:
    given = {name: getattr(price, name) for name in price.__struct_fields__}
    prices = [Price(_KINDS[name], value) for name, value in given.items() if value is not None]
    if price.cached_input is not None and price.input_audio is not None:
        # A token of both kinds needs a price too; the cache is what lowers it.
        prices.append(Price(_CACHED_AUDIO, price.cached_input))
    return compiled(prices)


_FREE = _tariff(OwnPrice(input=Decimal(0), output=Decimal(0)))


def _quote(schedule: Schedule, tariff: Tariff) -> Quote:
    found = {price.kind.name: price for price in tariff.prices}

    def shown(name: str, number: int) -> Decimal | None:
        price = found.get(name)
        return None if price is None else price.base * number / price.kind.per

    seconds = "audio_seconds" if "audio_seconds" in found else "input_audio_seconds"
    return Quote(
        schedule.source,
        schedule.name,
        **{name: shown(kind.name, MILLION) for name, kind in _KINDS.items() if kind.per == MILLION},
        audio_minute=shown(seconds, 60),
        request=shown("requests", 1),
        thresholds=tariff.thresholds,
    )
