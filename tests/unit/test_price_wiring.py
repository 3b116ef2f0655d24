"""The prices that a configuration means: kinds, addresses, and the numbers as they are written."""

import pytest

from penstock.config.load import parse
from penstock.contract.metadata import Usage
from penstock.contract.ports import Target
from penstock.engine.build.budget import price_book

TOKEN = Usage(1_000_000, 0)


def test_names_kinds_and_addresses_lead_to_the_prices() -> None:
    book = price_book(
        parse(
            """
            [providers.claude]
            kind = "anthropic"
            [providers.here]
            kind = "openai-chat"
            url = "http://127.0.0.1:8000/v1"
            [providers.azure]
            kind = "openai"
            url = "https://mine.openai.azure.com/openai/v1"
            [models.m]
            targets = ["claude/claude-sonnet-5-5"]
            """
        )
    )
    for target, source in {
        "claude/claude-sonnet-5-5": "anthropic/claude-sonnet-5-5",
        "azure/gpt-4o": "azure/gpt-4o",
        "openai/gpt-4o": "openai/gpt-4o",
        "openai-chat/gpt-4o": "openai/gpt-4o",
        "bedrock/amazon.nova-micro-v1:0": "aws/amazon.nova-micro-v1:0",
        "gemini/gemini-3.8-flash": "google/gemini-3.8-flash",
    }.items():
        quote = book.quote(Target(*target.split("/", 1)))
        assert (target, quote and quote.entry) == (target, source)
    for name in ("here", "ollama", "embedded", "vllm", "lmstudio"):
        cost = book.cost(Target(name, "qwen3"), TOKEN)
        assert cost is not None
        assert (cost.nanos, cost.source) == (0, "local")


def test_an_address_from_the_environment_counts_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
    assert price_book(parse("")).quote(Target("openai-chat", "gpt-4o")) is not None
    cost = price_book(parse("")).cost(Target("openai-chat", "gpt-4o"), TOKEN)
    assert cost is not None
    assert cost.source == "local"


def test_prices_are_the_decimal_numbers_that_were_written() -> None:
    text = '[models.m]\ntargets = ["groq/a"]\nprices."groq/a" = { input = 0.1, output = 0 }\n'
    book = price_book(parse(text + "[prices]\ndefault = { input = 0.3, output = 1 }\n"))
    # As binary fractions they would be a little more than that.
    mine, other = (book.cost(Target("groq", name), Usage(3 * 10**15, 0)) for name in "ab")
    assert mine is not None
    assert other is not None
    assert (mine.nanos, mine.source) == (3 * 10**17, "configuration")
    assert (other.nanos, other.source) == (9 * 10**17, "default")
