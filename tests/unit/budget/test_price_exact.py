"""To the nano-dollar: our costs are those of genai-prices, for every model that it has."""

from __future__ import annotations

import genai_prices
import pytest

from penstock.budget.pricing.price_book import PriceBook
from penstock.budget.pricing.price_sources import SOURCES
from penstock.contract.metadata import Usage
from penstock.contract.ports import Target
from tests.support.price_records import (
    NOON,
    entries,
    moments,
    records,
    theirs,
    to_nanos,
    unpriced,
)

PROVIDERS = sorted({entry.provider.id for entry in entries()})


@pytest.mark.parametrize("provider", PROVIDERS)
def test_every_record_costs_what_the_package_says(provider: str) -> None:
    wrong: list[str] = []
    for entry in entries():
        if entry.provider.id != provider:
            continue
        for at in moments(entry.info):
            for usage in records(entry.info):
                ours, right = entry.our_nanos(usage, at), entry.their_nanos(usage, at)
                if ours != right:
                    wrong.append(f"{entry.info.id} at {at}: {ours}, not {right}, for {usage}")
    assert not wrong, f"{len(wrong)} records differ, such as {wrong[0]}"


def test_the_table_covers_every_model_and_every_kind_of_price() -> None:
    table = [(entry, usage) for entry in entries() for usage in records(entry.info)]
    assert len(table) >= 500
    assert len({(entry.provider.id, entry.info.id) for entry, _ in table}) == len(entries()) > 2000
    priced = {price.kind.name for e in entries() for price in e.schedule.at(0).prices}
    assert {"cache_read_tokens", "cache_write_tokens", "output_reasoning_tokens"} <= priced
    assert {"input_audio_tokens", "output_image_tokens", "audio_seconds", "requests"} <= priced
    assert sum(bool(entry.schedule.at(0).thresholds) for entry in entries()) > 100
    assert sum(len(moments(entry.info)) > 1 for entry in entries()) > 100


def test_only_what_no_usage_of_ours_can_tell_has_no_price() -> None:
    # Letters that are spoken, and pages that are read.
    assert all("orpheus" in name or "ocr" in name or "/tts-" in name for name in unpriced())
    assert 0 < len(unpriced()) < 25


@pytest.mark.parametrize(
    ("kind", "provider"),
    [(k, row.provider) for k, row in SOURCES.items() if "{" not in row.provider],
)
def test_the_book_finds_the_model_that_the_package_finds(kind: str, provider: str) -> None:
    book = PriceBook({"mine": kind})
    usage = Usage(1_234, 567, 89)
    for entry in entries():
        if entry.provider.id != provider:
            continue
        cost = book.cost(Target("mine", entry.info.id), usage, at=NOON)
        try:
            right = genai_prices.calc_price(
                theirs(usage),
                entry.info.id,
                provider_id=provider,
                genai_request_timestamp=NOON,
            )
        except LookupError:
            assert cost is None
            continue
        if cost is not None:
            assert (entry.info.id, cost.nanos) == (entry.info.id, to_nanos(right.total_price))
            assert cost.source == f"genai-prices {genai_prices.__version__}"
        else:
            assert right.total_price == 0, "a price that does not apply to tokens"
