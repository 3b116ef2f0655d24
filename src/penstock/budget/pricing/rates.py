"""A price in the form in which it is fast to apply: whole numbers, and no search.

A price list names a price for each kind of token, and kinds lie within one another: cached tokens
are input tokens too, and are charged once, at the price of the innermost kind that has one. So a
cost is a sum over the counts, each times a constant: that of the cached tokens is their own price
less that of the input. `compile_tariff` works these constants out as whole numbers with a common
divisor, a set for each tier.

Rounding: everything is exact up to the last step, in which the cost of a call is rounded to the
nearest nano-dollar, a half to the even one. A worst case is rounded up.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from typing import NamedTuple

import msgspec

from penstock.contract.metadata import Usage

NANOS = 1_000_000_000

MILLION = 1_000_000
WORDS = {
    "input_tokens": "input",
    "cache_read_tokens": "cached",
    "cache_write_tokens": "cache write",
    "input_audio_tokens": "audio",
    "cache_audio_read_tokens": "cached audio",
    "output_tokens": "output",
    "output_reasoning_tokens": "reasoning",
    "output_image_tokens": "image",
    "audio_seconds": "seconds",
    "input_audio_seconds": "heard seconds",
    "requests": "request",
}
"""The kinds that a `Usage` tells apart; a price for any other kind never applies."""
INPUT = ("input_tokens", "cache_read_tokens", "cache_write_tokens")
SOUND = ("input_audio_tokens", "cache_audio_read_tokens")
OUTPUT = ("output_tokens", "output_reasoning_tokens", "output_image_tokens")
SECONDS = ("audio_seconds", "input_audio_seconds")


class Kind(NamedTuple):
    """A kind of what is charged: tokens, seconds or calls."""

    name: str
    per: int
    """How many of them the price is for."""
    traits: frozenset[tuple[str, str]]
    """Kinds with more traits lie within those that have some of them."""


class Price(NamedTuple):
    """What one kind costs in USD: up to the first tier, and from each tier on."""

    kind: Kind
    base: Decimal
    tiers: tuple[tuple[int, Decimal], ...] = ()
    """`(start, price)`, ascending: for all tokens when the prompt has more than `start`."""

    def above(self, start: int) -> Decimal:
        """The price for prompts of more tokens than this."""
        return next((each for begin, each in reversed(self.tiers) if begin <= start), self.base)


class Band(NamedTuple):
    """The constants for prompts of more than `start` tokens; all over one divisor."""

    start: int
    divisor: int
    input: int
    output: int
    cached: int
    written: int
    audio: int
    cached_audio: int
    reasoning: int
    image: int
    request: int
    second: int
    rare: bool
    """Whether sound, thinking and pictures have prices of their own."""
    most_input: int
    """The dearest kind of input without sound; prices, and not differences as above."""
    most_sound: int
    most_output: int
    text: str
    """The prices in words, for the ledger."""


class Tariff:
    """What a model costs: `nanos` for a call that was made, `most` for one that will be."""

    __slots__ = ("_bands", "_by_tokens", "_first", "_least_seconds", "free", "prices")

    def __init__(
        self, bands: Sequence[Band], prices: Sequence[Price], least_seconds: int = 0
    ) -> None:
        self._first = bands[0]
        self._bands = tuple(reversed(bands[1:]))
        self._least_seconds = least_seconds
        self.prices = tuple(prices)
        self.free = not any(price.base or price.tiers for price in prices)
        names = {price.kind.name for price in prices}
        self._by_tokens = bool(names & {*INPUT, *OUTPUT})

    @property
    def by_seconds(self) -> bool:
        """Whether sound is charged by its length."""
        return bool(self._first.second)

    @property
    def thresholds(self) -> tuple[int, ...]:
        """The sizes of a prompt above which all of it has another price."""
        return tuple(band.start for band in reversed(self._bands))

    def band(self, tokens: int) -> Band:
        """The constants for a prompt of so many tokens."""
        for band in self._bands:
            if tokens > band.start:
                return band
        return self._first

    def nanos(self, usage: Usage, requests: int = 1) -> tuple[int, str] | None:
        """The cost in nano-dollars and the prices it was made with; None when nothing was counted.

        Counts that contradict one another are read so that the whole is at least its parts.
        """
        read, written = usage.input_tokens, usage.output_tokens
        counted = self._by_tokens and (read is not None or written is not None)
        if not counted and not (self.by_seconds and usage.audio_seconds is not None):
            return (0, self._first.text) if self.free else None
        read, written = read or 0, written or 0
        cached, stored = usage.cached_input_tokens or 0, usage.cache_write_tokens or 0
        if read < 0 or written < 0 or cached < 0 or stored < 0:
            return self.nanos(_without_negatives(usage), requests)
        read = max(read, cached + stored)
        band = self.band(read) if self._bands else self._first
        total = (
            band.input * read
            + band.output * written
            + band.cached * cached
            + band.written * stored
            + band.request * requests
        )
        if band.rare:
            total += _rare(band, usage, read, written, cached)
        if band.second and usage.audio_seconds:
            return self._with_seconds(band, total, usage.audio_seconds), band.text
        return (total if band.divisor == 1 else _nearest(total, band.divisor)), band.text

    def most(
        self, read: int, written: int, *, sound: bool = False, seconds: float = 0, requests: int = 1
    ) -> int:
        """The most that a call costs which reads and writes no more tokens than these.

        That is at the dearest tier that a prompt up to this length can be in, with every token of
        the dearest kind. Sound counts when the call holds any.
        """
        dearest = 0
        for band in (self._first, *self._bands):
            if band.start >= read and band is not self._first:
                continue
            total = (
                (max(band.most_input, band.most_sound) if sound else band.most_input) * read
                + band.most_output * written
                + band.request * requests
            )
            if band.second and seconds:
                exact = Fraction(total + band.second * Fraction(self._billed(seconds)))
                dearest = max(dearest, math.ceil(exact / band.divisor))
            else:
                dearest = max(dearest, -(-total // band.divisor))
        return dearest

    def _billed(self, seconds: float) -> Decimal:
        # A server may say anything, infinity too.
        if not 0 < seconds < math.inf:
            return Decimal(0)
        return Decimal(repr(max(seconds, self._least_seconds)))

    def _with_seconds(self, band: Band, total: int, seconds: float) -> int:
        exact = Fraction(total + band.second * Fraction(self._billed(seconds)), band.divisor)
        return round(exact)


def compile_tariff(prices: Iterable[Price], least_seconds: int = 0) -> Tariff | None:
    """The tariff of a price list; None when it has prices only for what we cannot count."""
    prices = tuple(prices)
    counted = [price for price in prices if price.kind.name in WORDS]
    return None if prices and not counted else compiled(counted, least_seconds)


def compiled(prices: Sequence[Price], least_seconds: int = 0) -> Tariff:
    """The tariff of prices for kinds that are all counted; without any it is free."""
    starts = sorted({start for price in prices for start, _ in price.tiers})
    shares = _shares([price.kind for price in prices])
    return Tariff([_band(prices, shares, start) for start in (-1, *starts)], prices, least_seconds)


def _shares(kinds: Sequence[Kind]) -> dict[str, dict[str, int]]:
    """How many of a kind are of no narrower one, as a sum over the counts of the kinds."""
    shares: dict[str, dict[str, int]] = {}
    for kind in sorted(kinds, key=lambda each: -len(each.traits)):
        own = {kind.name: 1}
        for inner in kinds:
            if inner is not kind and kind.traits < inner.traits:
                for name, times in shares[inner.name].items():
                    own[name] = own.get(name, 0) - times
        shares[kind.name] = own
    return shares


def _band(prices: Sequence[Price], shares: Mapping[str, Mapping[str, int]], start: int) -> Band:
    charged = {
        price.kind.name: Fraction(price.above(start)) * NANOS / price.kind.per for price in prices
    }
    constants: dict[str, Fraction] = {}
    for name, each in charged.items():
        for counted, times in shares[name].items():
            constants[counted] = constants.get(counted, Fraction(0)) + each * times
    divisor = math.lcm(*(value.denominator for value in (*constants.values(), *charged.values())))

    def whole(name: str) -> int:
        return int(constants.get(name, Fraction(0)) * divisor)

    def dearest(names: Iterable[str]) -> int:
        return max(int(charged.get(name, Fraction(0)) * divisor) for name in names)

    return Band(
        start=start,
        divisor=divisor,
        input=whole("input_tokens"),
        output=whole("output_tokens"),
        cached=whole("cache_read_tokens"),
        written=whole("cache_write_tokens"),
        audio=whole("input_audio_tokens"),
        cached_audio=whole("cache_audio_read_tokens"),
        reasoning=whole("output_reasoning_tokens"),
        image=whole("output_image_tokens"),
        request=whole("requests"),
        second=sum(map(whole, SECONDS)),
        rare=any(map(whole, (*SOUND, *OUTPUT[1:]))),
        most_input=dearest(INPUT),
        most_sound=dearest(SOUND),
        most_output=dearest(OUTPUT),
        text=in_words(prices, start),
    )


def in_words(prices: Iterable[Price], start: int = -1) -> str:
    """The prices as the ledger keeps them: `input 3, cached 0.3, output 15`, USD per million.

    What is not counted in millions says by how many it is: `seconds 0.36/3600`.
    """
    found = {price.kind.name: price for price in prices}
    return ", ".join(_in_words(WORDS[name], found[name], start) for name in WORDS if name in found)


def _in_words(word: str, price: Price, start: int) -> str:
    per = "" if price.kind.per == MILLION else f"/{price.kind.per}"
    return f"{word} {_plain(price.above(start))}{per}"


def _plain(price: Decimal) -> str:
    return f"{price.normalize():f}"


def _rare(band: Band, usage: Usage, read: int, written: int, cached: int) -> int:
    audio = min(max(usage.input_audio_tokens or 0, 0), read)
    # What is cached beyond all text must be sound; nobody tells it more exactly.
    cached_audio = max(0, cached - (read - audio))
    thought = min(max(usage.reasoning_tokens or 0, 0), written)
    pictured = min(max(usage.output_image_tokens or 0, 0), written - thought)
    return (
        band.audio * audio
        + band.cached_audio * cached_audio
        + band.reasoning * thought
        + band.image * pictured
    )


def _without_negatives(usage: Usage) -> Usage:
    """What a server that counts below zero can have meant; a call never earns money."""
    counts = msgspec.structs.asdict(usage)
    return Usage(**{name: count and max(count, 0) for name, count in counts.items()})


def _nearest(number: int, divisor: int) -> int:
    """The quotient, rounded to the nearest whole number, and a half to the even one."""
    quotient, rest = divmod(number, divisor)
    rest *= 2
    return quotient + (rest > divisor or (rest == divisor and quotient & 1))
