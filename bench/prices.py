"""Microseconds for the cost of a call: Penstock beside genai-prices, whose prices they are.

The floor is the sum by hand, with the prices as constants. All must give the same nano-dollars, or
the bench fails. The first cost of a model, which looks its price up and compiles it, is shown
apart; the package itself is loaded before. A worst case is what a request costs before it is made,
estimate of its tokens included.

Run: python bench/prices.py [--quick] [--json]
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial

import genai_prices
from _support import hand_over, median_seconds, parse_arguments, print_table

from penstock.budget.pricing.price_book import PriceBook
from penstock.budget.pricing.worst_case import worst_case
from penstock.contract.exchange import SamplingRequest
from penstock.contract.messages import user
from penstock.contract.metadata import Usage
from penstock.contract.options import Capabilities
from penstock.contract.ports import Target

AT = datetime(2026, 11, 15, 12, tzinfo=UTC)
"""Prices change, and the constants below do not."""
READ, WRITTEN, CACHED = 12_345, 678, 9_000
CASES = {
    "plain": ("anthropic", "claude-sonnet-5-5", (2_000, 100, 10_000)),
    "tiers": ("openai", "gpt-6.1-sol", (2_000, 100, 10_000)),
    "dated": ("gemini", "gemini-3.8-flash", (750, 75, 3_750)),
}
THEIR_NAMES = {"gemini": "google"}
ABLE = Capabilities()


def by_hand(prices: tuple[int, int, int], usage: Usage) -> int:
    """Nano-dollars for each token are known beforehand here."""
    fresh, cached, written = prices
    read, found = usage.input_tokens or 0, usage.cached_input_tokens or 0
    return fresh * (read - found) + cached * found + written * (usage.output_tokens or 0)


def repeated(function: Callable[[], object], times: int) -> Callable[[], None]:
    def run() -> None:
        for _ in range(times):
            function()

    return run


def measure(quick: bool) -> dict[str, dict[str, float]]:
    """Microseconds for each case and each way."""
    times, rounds = (200, 5) if quick else (2_000, 31)
    book = PriceBook({})
    usage = Usage(READ, WRITTEN, CACHED)
    theirs = genai_prices.Usage(input_tokens=READ, output_tokens=WRITTEN, cache_read_tokens=CACHED)
    taken: dict[str, dict[str, float]] = {}
    for case, (provider, model, prices) in CASES.items():
        target = Target(provider, model)
        calc = partial(
            genai_prices.calc_price,
            theirs,
            model,
            provider_id=THEIR_NAMES.get(provider, provider),
            genai_request_timestamp=AT,
        )
        cost = book.cost(target, usage, at=AT)
        their_nanos = int((calc().total_price * 10**9).to_integral_value())
        if cost is None or not cost.nanos == their_nanos == by_hand(prices, usage):
            sys.exit(f"the costs of {target} differ: {cost}, {their_nanos}")
        seconds = median_seconds(
            {
                "by_hand": repeated(partial(by_hand, prices, usage), times),
                "penstock": repeated(partial(book.cost, target, usage, at=AT), times),
                "genai_prices": repeated(calc, times),
            },
            rounds,
        )
        taken[case] = {name: value / times * 1e6 for name, value in seconds.items()}
    return taken


def measure_once(quick: bool) -> dict[str, float]:
    """Microseconds for what is not done for every cost."""
    book, luna = PriceBook({}), Target("openai", "gpt-6-luna")
    book.prepare([luna])
    line = "How deep is the river at the old mill? "
    short, long = (
        SamplingRequest(messages=(user(line * lines),), max_tokens=500) for lines in (25, 250)
    )
    models = [f"claude-sonnet-4-5-{number}" for number in range(100_000)]

    def first() -> None:
        book.knows(Target("anthropic", models.pop()))

    times, rounds = (5, 5) if quick else (50, 31)
    seconds = median_seconds(
        {
            "first cost of a model": repeated(first, times),
            "worst case of 1 kB": repeated(partial(worst_case, short, luna, ABLE, book), times),
            "worst case of 10 kB": repeated(partial(worst_case, long, luna, ABLE, book), times),
        },
        rounds,
    )
    return {name: value / times * 1e6 for name, value in seconds.items()}


def main() -> None:
    arguments = parse_arguments(__doc__)
    taken, once = measure(arguments.quick), measure_once(arguments.quick)
    ratios = {case: row["genai_prices"] / row["penstock"] for case, row in taken.items()}
    if arguments.json:
        hand_over({"microseconds": taken, "ratio": ratios, "once": once})
        return
    print(f"Microseconds for a cost; genai-prices {genai_prices.__version__}")
    print_table(
        ["price", "by hand", "penstock", "genai-prices", "x penstock"],
        [[case, *row.values(), ratios[case]] for case, row in taken.items()],
    )
    print()
    print_table(["", "microseconds"], [[name, value] for name, value in once.items()])


if __name__ == "__main__":
    main()
