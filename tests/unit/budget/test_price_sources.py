"""Whose price list holds for whom: every row of the registry, and the spellings of models."""

from __future__ import annotations

from decimal import Decimal

import pytest
from genai_prices.data_snapshot import get_snapshot

from penstock.budget.pricing.price_book import OwnPrice, PriceBook
from penstock.budget.pricing.price_list import PriceList
from penstock.budget.pricing.price_sources import SOURCES
from penstock.contract.checks.addresses import is_private
from penstock.contract.metadata import Usage
from penstock.contract.ports import Target
from penstock.providers.registry import BUILT_IN

THEIRS = {provider.id for provider in get_snapshot().providers}


def test_every_kind_of_provider_has_a_row_and_every_row_a_kind() -> None:
    assert set(SOURCES) == set(BUILT_IN)


@pytest.mark.parametrize("kind", sorted(BUILT_IN))
def test_a_row_names_the_list_of_the_service_that_it_reaches(kind: str) -> None:
    row, url = SOURCES[kind], BUILT_IN[kind].url
    if row.local:
        assert not row.provider
        return
    if "{" in row.provider:
        hosts = [name for name in THEIRS if name.startswith(row.provider.format(host=""))]
        assert len(hosts) > 5
        return
    assert row.provider in THEIRS | {""}
    if row.anywhere:
        assert not row.provider
        assert is_private(url) or PriceList().provider_at(url) == "openai"
    elif url:
        # What the address says and what the row says is the same, unless nobody has its prices.
        assert (PriceList().provider_at(url) or "") == row.provider


@pytest.mark.parametrize("kind", [name for name, kind in BUILT_IN.items() if kind.model])
def test_the_models_that_a_kind_uses_unasked_have_a_price(kind: str) -> None:
    book = PriceBook({}, address=lambda name: BUILT_IN[name].url)
    row = BUILT_IN[kind]
    for model in filter(None, (row.model, row.embedding_model, row.transcription_model)):
        assert book.knows(Target(kind, model)), model


LOCAL_URL = "http://127.0.0.1:4000/v1"
ONE = OwnPrice(input=Decimal(1), output=Decimal(1))
LOCAL_KINDS = sorted(name for name, row in SOURCES.items() if row.anywhere or row.local)


@pytest.mark.parametrize("kind", LOCAL_KINDS)
def test_the_default_price_and_own_prices_hold_at_local_addresses(kind: str) -> None:
    target, usage = Target("here", "m"), Usage(1000, 0)
    in_process = SOURCES[kind].in_process

    def book(own: OwnPrice | None = None, default: OwnPrice | None = None) -> PriceBook:
        prices = {} if own is None else {target: own}
        return PriceBook(
            {"here": kind}, prices=prices, default=default, address=lambda _: LOCAL_URL
        )

    free = book()
    cost = free.cost(target, usage)
    assert cost is not None
    assert (cost.nanos, cost.source) == (0, "local")
    why = free.why_free(target)
    assert why is not None
    assert ("runs in this process" if in_process else LOCAL_URL) in why
    cost = book(default=ONE).cost(target, usage)
    assert cost is not None
    assert (cost.nanos, cost.source) == ((0, "local") if in_process else (1_000_000, "default"))
    assert (book(default=ONE).why_free(target) is None) == (not in_process)
    priced = book(own=ONE)
    cost = priced.cost(target, usage)
    assert cost is not None
    assert (cost.nanos, cost.source) == (1_000_000, "configuration")
    assert priced.why_free(target) is None
    zero = book(own=OwnPrice(input=Decimal(0), output=Decimal(0)), default=ONE)
    assert zero.why_free(target) == "its price in the configuration is 0"


@pytest.mark.parametrize(
    ("target", "entry"),
    [
        ("anthropic/claude-sonnet-5-5", "anthropic/claude-sonnet-5-5"),
        ("gemini/models/gemini-3.8-flash", "google/gemini-3.8-flash"),
        ("gemini/gemini-embedding-2", "google/gemini-embedding-2"),
        ("bedrock/global.anthropic.claude-opus-5-5", "aws/global.anthropic.claude-opus-5-5"),
        ("bedrock/eu.anthropic.claude-sonnet-5-5", "aws/regional.anthropic.claude-sonnet-5-5"),
        ("bedrock/us.amazon.nova-micro-v1:0", "aws/amazon.nova-micro-v1:0"),
        ("bedrock/amazon.titan-embed-text-v2:0", "aws/amazon.titan-embed-text-v2:0"),
        (
            "bedrock/arn:aws:bedrock:us-east-1:123456789012:inference-profile/"
            "us.anthropic.claude-sonnet-5-5",
            "aws/regional.anthropic.claude-sonnet-5-5",
        ),
        (
            "bedrock/arn:aws-us-gov:bedrock:us-gov-west-1::foundation-model/amazon.nova-micro-v1:0",
            "aws/amazon.nova-micro-v1:0",
        ),
        ("bedrock/arn:aws:bedrock:us-east-1:1:application-inference-profile/a1b2c3", None),
        ("groq/whisper-large-v3-turbo", "groq/whisper-large-v3-turbo"),
        ("xai/grok-4", "x-ai/grok-4-0709"),
        ("moonshot/kimi-k2-0905-preview", "moonshotai/kimi-k2-0905-preview"),
        ("together/openai/gpt-oss-120b", "together/openai/gpt-oss-120b"),
        ("openrouter/openai/gpt-oss-20b:free", "openrouter/openai/gpt-oss-20b:free"),
        ("fireworks/accounts/fireworks/models/kimi-k2p6", "fireworks/kimi-k2p6"),
        ("huggingface/openai/gpt-oss-120b:groq", "huggingface_groq/openai/gpt-oss-120b"),
        ("huggingface/openai/gpt-oss-120b", None),
        ("huggingface/openai/gpt-oss-120b:fastest", None),
        ("deepinfra/openai/gpt-oss-120b", None),
        ("openai/gpt-6-luna-2026-01-01", "openai/gpt-6-luna"),
        ("anthropic/gpt-6-luna", None),
    ],
)
def test_a_model_is_found_by_the_name_that_the_list_has_for_it(
    target: str, entry: str | None
) -> None:
    provider, _, model = target.partition("/")
    quote = PriceBook({}).quote(Target(provider, model))
    assert (quote and quote.entry) == entry


@pytest.mark.parametrize(
    ("kind", "url", "model", "entry"),
    [
        ("openai", "https://mine.openai.azure.com/openai/v1", "gpt-4o", "azure/gpt-4o"),
        ("openai-chat", "https://api.openai.com/v1", "gpt-4o", "openai/gpt-4o"),
        ("openai-chat", "https://api.groq.com/openai/v1", "qwen/qwen3-32b", "groq/qwen/qwen3-32b"),
        ("anthropic", "https://api.deepseek.com/a", "deepseek-chat", "deepseek/deepseek-chat"),
        # A proxy of one's own passes the vendor's prices on.
        ("openai", "http://proxy.internal/v1", "gpt-4o", "openai/gpt-4o"),
        ("openai-chat", "https://llm.example.com/v1", "gpt-4o", None),
        ("vllm", "https://llm.example.com/v1", "qwen3", None),
        ("deepinfra", "https://api.deepinfra.com/v1/openai", "qwen3", None),
    ],
)
def test_the_address_decides_where_the_kind_does_not(
    kind: str, url: str, model: str, entry: str | None
) -> None:
    quote = PriceBook({"mine": kind}, address=lambda name: url).quote(Target("mine", model))
    assert (quote and quote.entry) == entry
