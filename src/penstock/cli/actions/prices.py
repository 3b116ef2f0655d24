"""The prices behind `penstock models --prices`, and what `penstock doctor` says about them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from decimal import Decimal
from typing import Any

from penstock.budget.pricing.price_book import PriceBook, Quote
from penstock.cli.ui import terminal
from penstock.cli.ui.terminal import Cell
from penstock.config.settings import Config
from penstock.contract.ports import Target
from penstock.engine.build.budget import price_book
from penstock.routing.router import parse_target

_COLUMNS = ("target", "input", "cached", "output", "price from")


def show_prices(config: Config, targets: Iterable[Target], *, as_json: bool) -> None:
    """A row for each target: USD per million tokens, and who says so."""
    book = price_book(config)
    quotes = [(target, book.quote(target)) for target in dict.fromkeys(targets)]
    if as_json:
        terminal.print_json({"prices": [_document(*each) for each in quotes]})
        return
    terminal.print_table(_COLUMNS, [_cells(*each) for each in quotes])
    terminal.note("\nUSD per million tokens; `penstock doctor` says what to do without a price.")


def configured_targets(config: Config) -> Iterator[tuple[str, Target]]:
    """Every target of every model, with the model's name."""
    for name, model in config.models.items():
        for target in model.targets:
            yield name, parse_target(target)


def without_price(config: Config) -> list[tuple[str, Target]]:
    """The configured targets that a hard budget would refuse."""
    book: PriceBook = price_book(config)
    return [(name, target) for name, target in configured_targets(config) if not book.knows(target)]


def counted_as_free(config: Config) -> dict[str, list[Target]]:
    """The configured targets whose calls cost nothing, by the reason."""
    book, found = price_book(config), dict[str, list[Target]]()
    for target in dict.fromkeys(target for _, target in configured_targets(config)):
        if (why := book.why_free(target)) is not None:
            found.setdefault(why, []).append(target)
    return found


def remedy(name: str, target: Target) -> str:
    """What to write into the file for a target without a price."""
    return (
        f'write into penstock.toml: [models.{name}.prices."{target}"] with input = ... and '
        "output = ... (USD per million tokens), or for all such targets: [prices] "
        "default = { input = ..., output = ... }"
    )


def _document(target: Target, quote: Quote | None) -> dict[str, Any]:
    document: dict[str, Any] = {"target": str(target), "known": quote is not None}
    for name in Quote.__struct_fields__ if quote is not None else ():
        value = getattr(quote, name)
        if value not in (None, "", ()):
            document[name] = float(value) if isinstance(value, Decimal) else value
    return document


def _cells(target: Target, quote: Quote | None) -> list[Cell]:
    if quote is None:
        return [(str(target), "bold"), "", "", "", ("no price is known", "yellow")]
    prices = (quote.input, quote.cached_input, quote.output)
    return [(str(target), "bold"), *map(_usd, prices), "; ".join([quote.source, *_notes(quote)])]


def _notes(quote: Quote) -> Iterator[str]:
    for price, what in ((quote.audio_minute, "a minute of sound"), (quote.request, "a call")):
        if price is not None:
            yield f"{_usd(price)} for {what}"
    if quote.input_audio is not None:
        yield f"sound {_usd(quote.input_audio)}"
    if quote.thresholds:
        above = " and ".join(f"{tokens:,}" for tokens in quote.thresholds)
        yield f"other prices above {above} tokens"


def _usd(price: Decimal | None) -> str:
    return "" if price is None else f"{price.normalize():f}"
