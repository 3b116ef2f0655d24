"""Prices from the configuration, of local models, of the list and by default."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal

import pytest
from genai_prices import data_snapshot
from genai_prices.types import ClauseEquals, ModelInfo, ModelPrice, Provider
from hypothesis import given
from hypothesis import strategies as st

from penstock.budget.pricing import price_book as module
from penstock.budget.pricing.price_book import Cost, OwnPrice, PriceBook
from penstock.contract.metadata import Usage
from penstock.contract.ports import Target

SONNET = Target("claude", "claude-sonnet-5-5")  # 2 USD in, 0.1 cached, 2.5 written, 10 out
NOBODY = Target("claude", "claude-nobody-9")
BOOK = PriceBook({"claude": "anthropic"})


def own(**more: str) -> OwnPrice:
    given = {"input": "1", "output": "2", **more}
    return OwnPrice(**{name: Decimal(value) for name, value in given.items()})


def nanos(book: PriceBook, usage: Usage, target: Target = SONNET) -> int | None:
    cost = book.cost(target, usage)
    return cost and cost.nanos


def test_a_cost_says_by_which_price_it_was_made() -> None:
    cost = BOOK.cost(SONNET, Usage(1000, 100, 600, 300))
    assert cost is not None
    assert cost.nanos == 100 * 2000 + 600 * 100 + 300 * 2500 + 100 * 10_000
    assert cost.source.startswith("genai-prices ")
    assert cost.price == "input 2, cached 0.1, cache write 2.5, output 10"
    assert not cost.estimated


def test_a_bill_of_xai_s_own() -> None:
    # A call for which the API itself said 232856000 ticks, of which a dollar has 10**10.
    usage = Usage(10_120, 1499 + 2809, 128, None, 2809)
    cost = BOOK.cost(Target("xai", "grok-4.20"), usage, at=datetime(2026, 8, 18, tzinfo=UTC))
    assert cost is not None
    assert cost.nanos == 23_285_600


def test_the_cost_of_an_estimate_is_one() -> None:
    cost = BOOK.cost(SONNET, Usage(10, 10, estimated=True))
    assert cost is not None
    assert cost.estimated


def test_a_model_that_nobody_knows_has_no_cost() -> None:
    assert BOOK.cost(NOBODY, Usage(1, 1)) is None
    assert not BOOK.knows(NOBODY)
    assert BOOK.tariff(NOBODY) is None
    assert BOOK.quote(NOBODY) is None
    assert BOOK.cost(Target("no-such-kind", "x"), Usage(1, 1)) is None


def test_a_default_price_is_for_those_only_and_says_so() -> None:
    book = PriceBook({"claude": "anthropic"}, default=own())
    assert book.cost(NOBODY, Usage(10, 10)) == Cost(30_000, "default", "input 1, output 2")
    known = book.cost(SONNET, Usage(10, 10))
    assert known is not None
    assert known.source != "default"


def test_a_price_of_the_configuration_goes_before_all_others() -> None:
    local = Target("ollama", "qwen3")
    book = PriceBook({"claude": "anthropic"}, prices={SONNET: own(), local: own(input="0.15")})
    assert book.cost(SONNET, Usage(10, 10)) == Cost(30_000, "configuration", "input 1, output 2")
    assert nanos(book, Usage(1), local) == 150


def test_prices_of_ones_own_know_caches_and_sound() -> None:
    price = own(cached_input="0.1", cache_write="1.25", input_audio="4", audio_minute="0.006")
    book = PriceBook({}, prices={SONNET: price})
    assert nanos(book, Usage(1000, 0, 600, 300)) == 100_000 + 60_000 + 375_000
    assert nanos(book, Usage(1000, 0, input_audio_tokens=900)) == 100_000 + 3_600_000
    # All text is cached, and 500 tokens of sound as well, which cost what cached text does.
    assert nanos(book, Usage(1000, 0, 600, input_audio_tokens=900)) == 60_000 + 400 * 4000
    assert nanos(book, Usage(audio_seconds=30.0)) == 3_000_000


@pytest.mark.parametrize(
    ("kind", "url", "local"),
    [
        ("ollama", "", True),
        ("embedded", "", True),
        ("fake", "", True),
        ("openai-chat", "http://127.0.0.1:8000/v1", True),
        ("openai-chat", "http://gpu.lan:8000/v1", True),
        ("vllm", "http://10.0.0.7:8000/v1", True),
        ("openai-chat", "https://api.openai.com/v1", False),
        ("anthropic", "http://127.0.0.1:8000", False),
    ],
)
def test_local_models_cost_nothing(kind: str, url: str, local: bool) -> None:
    book = PriceBook({"here": kind}, address=lambda name: url)
    for usage in (Usage(10, 10), Usage()):
        cost = book.cost(Target("here", "qwen3"), usage)
        assert (cost == Cost(0, "local", "input 0, output 0")) is local


def test_what_was_not_counted_is_not_free() -> None:
    assert BOOK.cost(SONNET, Usage()) is None
    assert nanos(BOOK, Usage(output_tokens=1)) == 10_000
    whisper = Target("openai", "whisper-1")
    assert BOOK.cost(whisper, Usage(100, 100)) is None
    assert nanos(BOOK, Usage(audio_seconds=60.0), whisper) == 6_000_000


def test_short_recordings_cost_groq_s_ten_seconds() -> None:
    turbo = Target("groq", "whisper-large-v3-turbo")
    ten = nanos(BOOK, Usage(audio_seconds=10.0), turbo)
    assert nanos(BOOK, Usage(audio_seconds=1.5), turbo) == ten
    assert nanos(BOOK, Usage(audio_seconds=0.0), turbo) == 0


def test_calls_that_cost_something_each_are_counted() -> None:
    sonar = Target("perplexity", "sonar")
    once, twice = (BOOK.cost(sonar, Usage(0, 0), requests=number) for number in (1, 2))
    assert once is not None
    assert twice is not None
    assert twice.nanos == 2 * once.nanos > 0


@given(st.integers(-5, 5), st.integers(-5, 5), st.integers(-9, 9), st.integers(-9, 9))
def test_counts_that_make_no_sense_earn_no_money(
    read: int, written: int, cached: int, stored: int
) -> None:
    gemini = [Target("gemini", f"gemini-2.5-flash{kind}") for kind in ("", "-image")]
    for target in (SONNET, Target("perplexity", "sonar-deep-research"), *gemini):
        for odd in (99, -99):
            usage = Usage(read, written, cached, stored, odd, False, odd, odd)
            cost = BOOK.cost(target, usage)
            assert cost is not None
            assert cost.nanos >= 0


def test_no_length_is_too_strange() -> None:
    whisper = Target("openai", "whisper-1")
    for seconds in (float("inf"), float("nan"), -3.0):
        assert nanos(BOOK, Usage(audio_seconds=seconds), whisper) == 0


@pytest.mark.parametrize(
    ("tokens", "cost"), [(1, 0), (2, 1), (3, 2), (5, 2), (6, 3), (7, 4), (2_000_001, 1_000_000)]
)
def test_a_half_is_rounded_to_the_even_number(tokens: int, cost: int) -> None:
    # Half a nano-dollar for each token.
    book = PriceBook({}, prices={SONNET: own(input="0.0005")})
    assert nanos(book, Usage(tokens, 0)) == cost


def test_prices_are_those_of_the_time_of_the_call() -> None:
    target, usage = Target("deepseek", "deepseek-chat"), Usage(1_000_000, 0)
    night, day = (
        datetime(2026, 11, 15, 16, 30, tzinfo=UTC),
        datetime(2026, 11, 15, 16, 29, tzinfo=UTC),
    )
    ours = [BOOK.cost(target, usage, at=at) for at in (night, day)]
    assert [cost and cost.nanos for cost in ours] == [135_000_000, 270_000_000]
    # The same moment in another zone.
    there = night.astimezone(timezone(timedelta(hours=9)))
    assert BOOK.cost(target, usage, at=there) == ours[0]
    assert BOOK.cost(target, usage, at=night.replace(tzinfo=None)) == ours[0]


def test_newer_prices_hold_as_soon_as_the_package_has_them() -> None:
    book = PriceBook({"claude": "anthropic"})
    before = nanos(book, Usage(1, 0))
    info = ModelInfo("new", ClauseEquals(SONNET.model), prices=ModelPrice(input_mtok=Decimal(7)))
    newer = Provider("anthropic", "Anthropic", "https://api", models=[info])
    data_snapshot.set_custom_snapshot(data_snapshot.DataSnapshot([newer], from_auto_update=True))
    try:
        assert nanos(book, Usage(1, 0)) == 7000
    finally:
        data_snapshot.set_custom_snapshot(None)
    assert nanos(book, Usage(1, 0)) == before == 2000


def test_a_model_is_looked_up_once_and_callers_cannot_fill_the_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[str] = []

    def address(name: str) -> str:
        asked.append(name)
        return ""

    book = PriceBook({"claude": "anthropic"}, address=address)
    book.prepare([SONNET, NOBODY])
    for _ in range(3):
        book.cost(SONNET, Usage(1, 1))
        book.knows(NOBODY)
    assert asked == ["claude", "claude"]
    monkeypatch.setattr(module, "_MOST_KEPT", 5)
    for number in range(20):
        book.knows(Target("claude", f"invented-{number}"))
    asked.clear()
    book.knows(Target("claude", "invented-0"))
    book.knows(Target("claude", "invented-0"))
    assert asked == ["claude"]


def test_the_list_is_loaded_when_a_price_of_it_is_wanted() -> None:
    code = """
import sys
import penstock
from penstock.budget.pricing.price_book import PriceBook
from penstock.contract.metadata import Usage
from penstock.contract.ports import Target
import penstock.budget.pricing.worst_case
book = PriceBook({})
assert book.cost(Target("ollama", "qwen3"), Usage(1, 1)).nanos == 0
assert "genai_prices" not in sys.modules
assert book.knows(Target("openai", "gpt-6-luna"))
assert "genai_prices" in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_quote_is_per_million_and_per_minute() -> None:
    quote = BOOK.quote(SONNET)
    assert quote is not None
    assert (quote.entry, quote.input, quote.output) == (
        "anthropic/claude-sonnet-5-5",
        Decimal(2),
        Decimal(10),
    )
    assert (quote.cached_input, quote.cache_write) == (Decimal("0.1"), Decimal("2.5"))
    whisper = BOOK.quote(Target("openai", "whisper-1"))
    assert whisper is not None
    assert (whisper.input, whisper.audio_minute) == (None, Decimal("0.006"))
    haiku = BOOK.quote(Target("claude", "claude-haiku-5-5"))
    assert haiku is not None
    assert haiku.thresholds == (100_000,)
    sonar = BOOK.quote(Target("perplexity", "sonar"))
    assert sonar is not None
    assert sonar.request == Decimal("0.012")
