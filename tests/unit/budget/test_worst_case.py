"""The worst case is never below what is settled, whatever kinds of tokens the usage has."""

from __future__ import annotations

import base64
from datetime import datetime
from decimal import Decimal

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from penstock.budget.pricing.price_book import OwnPrice, PriceBook
from penstock.budget.pricing.worst_case import bounds, worst_case, worst_cases
from penstock.contract.exchange import EmbeddingRequest, SamplingRequest, TranscriptionRequest
from penstock.contract.messages import Audio, Image, ToolResult, ToolUse, assistant, user
from penstock.contract.metadata import Usage
from penstock.contract.options import Capabilities, OutputSchema, ToolDefinition
from penstock.contract.ports import Target
from penstock.tokens import reserve_tokens, upper_tokens
from tests.support.price_records import Entry, entries, moments, records
from tests.support.sound import wav

ABLE = Capabilities()
LUNA = Target("openai", "gpt-6-luna")
SONNET = Target("claude", "claude-sonnet-5-5")
BOOK = PriceBook({"claude": "anthropic"})
ASKED = SamplingRequest(messages=(user("How deep is the river at the old mill?"),), max_tokens=100)


@st.composite
def used(draw: st.DrawFn, read: int, written: int) -> Usage:
    """Any usage within these bounds; every kind of token that we know may be in it."""
    total, answered = draw(st.integers(0, read)), draw(st.integers(0, written))
    cached = draw(st.integers(0, total))
    thought = draw(st.integers(0, answered))
    return Usage(
        total,
        answered,
        cached,
        draw(st.integers(0, total - cached)),
        thought,
        input_audio_tokens=draw(st.integers(0, total)),
        output_image_tokens=draw(st.integers(0, answered - thought)),
    )


@settings(max_examples=1500, deadline=None)
@given(
    st.sampled_from(entries()),
    st.integers(0, 1_100_000),
    st.integers(0, 200_000),
    st.data(),
)
def test_no_usage_within_the_bounds_costs_more(
    entry: Entry, read: int, written: int, data: st.DataObject
) -> None:
    at = data.draw(st.sampled_from(moments(entry.info)))
    usage = data.draw(used(read, written))
    seconds = data.draw(st.integers(0, 10_000))
    heard = data.draw(st.integers(0, seconds))
    tariff = entry.schedule.at(at.timestamp())
    found = tariff.nanos(msgspec.structs.replace(usage, audio_seconds=heard))
    assert found is not None
    assert found[0] <= tariff.most(read, written, sound=True, seconds=seconds)
    silent = msgspec.structs.replace(usage, input_audio_tokens=None, audio_seconds=heard)
    found = tariff.nanos(silent)
    assert found is not None
    assert found[0] <= tariff.most(read, written, seconds=seconds)


def test_it_holds_for_every_record_of_every_model() -> None:
    for entry in entries():
        for usage in records(entry.info):
            at = moments(entry.info)[-1]
            ours = entry.our_nanos(usage, at)
            most = entry.schedule.at(at.timestamp()).most(
                usage.input_tokens or 0,
                usage.output_tokens or 0,
                sound=bool(usage.input_audio_tokens),
                seconds=usage.audio_seconds or 0,
            )
            assert ours is not None
            assert ours <= most, (entry.info.id, usage)


@settings(deadline=None)
@given(
    st.lists(st.text(max_size=80), min_size=1, max_size=4),
    st.integers(1, 50_000),
    st.sampled_from([LUNA, SONNET, Target("gemini", "gemini-2.5-flash")]),
    st.data(),
)
@example(["Привет"] * 3, 1, SONNET, None)
def test_a_request_is_never_settled_above_its_worst_case(
    texts: list[str], max_tokens: int, target: Target, data: st.DataObject | None
) -> None:
    request = SamplingRequest(messages=tuple(map(user, texts)), max_tokens=max_tokens)
    most = worst_case(request, target, ABLE, BOOK)
    assert most is not None
    read = upper_tokens(request, target.model)
    usage = data.draw(used(read, max_tokens)) if data else Usage(read, max_tokens, 0, read)
    cost = BOOK.cost(target, msgspec.structs.replace(usage, input_audio_tokens=None))
    assert cost is not None
    assert cost.nanos <= most


def test_the_answer_is_as_long_as_the_model_can_make_it() -> None:
    wordy = msgspec.structs.replace(ASKED, max_tokens=10**9)
    capped = worst_case(wordy, LUNA, Capabilities(max_output=100), BOOK)
    assert capped == worst_case(ASKED, LUNA, ABLE, BOOK)
    # At 0.5 USD for a million, an answer of a hundred tokens is 50,000 nano-dollars.
    none = worst_case(msgspec.structs.replace(ASKED, max_tokens=0), LUNA, ABLE, BOOK)
    assert capped is not None
    assert none is not None
    assert capped - none == 50_000


def test_thinking_that_has_no_limit_has_an_allowance() -> None:
    for model in ("grok-4.6", "x-ai/grok-4", "sonar-deep-research", "sonar-reasoning-pro"):
        assert bounds(ASKED, model, ABLE).written >= 100 + 32_768, model
    for model in ("grok-4-fast-non-reasoning", "grok-3", "sonar-pro", "gpt-6-luna"):
        assert bounds(ASKED, model, ABLE).written == 100, model


def test_a_cache_may_have_to_be_written_first() -> None:
    read = bounds(ASKED, LUNA.model, ABLE).read
    quote = BOOK.quote(LUNA)
    assert quote is not None
    assert (quote.input, quote.cache_write, quote.output) == (
        Decimal("0.1"),
        Decimal("0.125"),
        Decimal("0.5"),
    )
    assert worst_case(ASKED, LUNA, ABLE, BOOK) == read * 125 + 100 * 500


def test_a_long_prompt_counts_at_its_tier() -> None:
    book = PriceBook({})
    tariff = book.tariff(Target("anthropic", "claude-haiku-5-5"))
    assert tariff is not None
    assert tariff.thresholds == (100_000,)
    assert tariff.most(100_001, 0) > 4 * tariff.most(100_000, 0)


def test_what_has_no_price_has_no_worst_case_and_what_is_free_costs_nothing() -> None:
    targets = [Target("openai", "no-such"), Target("ollama", "qwen3"), LUNA]
    found = worst_cases(ASKED, [(target, ABLE) for target in targets], BOOK)
    assert found == [None, 0, worst_case(ASKED, LUNA, ABLE, BOOK)]


def test_every_part_of_a_request_is_in_it() -> None:
    sound = Audio(data=base64.b64encode(wav(1.0)).decode(), mime_type="audio/wav")
    picture = Image(url="https://example.com/a.png", mime_type="image/png")
    fuller = {
        "system_prompt": "Be brief.",
        "tools": (ToolDefinition("depth", "How deep a water is."),),
        "output_schema": OutputSchema({"type": "object"}),
        "messages": (*ASKED.messages, user(picture)),
    }
    for name, value in fuller.items():
        larger = msgspec.structs.replace(ASKED, **{name: value})
        for target in (LUNA, SONNET):
            before, after = (worst_case(each, target, ABLE, BOOK) for each in (ASKED, larger))
            assert before is not None
            assert after is not None
            assert after > before, name
    heard = msgspec.structs.replace(ASKED, messages=(user("What is said?", sound),))
    assert bounds(heard, "gpt-audio", ABLE).sound
    nested = (
        assistant(ToolUse("1", "listen", {})),
        user(ToolResult("1", (sound,))),
    )
    within = bounds(msgspec.structs.replace(ASKED, messages=nested), "gpt-audio", ABLE)
    assert (within.sound, within.seconds) == (True, 2)


def test_sound_is_charged_at_its_own_price_only_where_there_is_any() -> None:
    target = Target("gemini", "gemini-2.5-flash")  # 0.30 for text, 1.00 for sound
    tariff = BOOK.tariff(target)
    assert tariff is not None
    assert tariff.most(1000, 0) == 300_000
    assert tariff.most(1000, 0, sound=True) == 1_000_000


def test_an_upper_bound_is_above_a_reservation() -> None:
    for model in ("gpt-6-luna", "claude-sonnet-5-5", "gemini-3.8-flash", "gpt-4o-mini"):
        assert upper_tokens(ASKED, model) > reserve_tokens(ASKED, model)


def test_embeddings_cost_what_they_read() -> None:
    request = EmbeddingRequest(texts=("one", "two and three"))
    target = Target("openai", "text-embedding-3-small")
    most = worst_case(request, target, ABLE, BOOK)
    cost = BOOK.cost(target, Usage(8))
    assert cost is not None
    assert most is not None
    assert cost.nanos < most < 40 * cost.nanos


@pytest.mark.parametrize(
    ("target", "usage"),
    [
        (Target("openai", "whisper-1"), Usage(audio_seconds=2.0)),
        (Target("groq", "whisper-large-v3"), Usage(audio_seconds=2.0)),
        (Target("openai", "gpt-4o-mini-transcribe"), Usage(22, 60, input_audio_tokens=20)),
        (Target("gemini", "gemini-2.5-flash"), Usage(164, 60, input_audio_tokens=64)),
    ],
    ids=str,
)
def test_a_transcription_is_bounded_by_its_length(target: Target, usage: Usage) -> None:
    sound = Audio(data=base64.b64encode(wav(2.0)).decode(), mime_type="audio/wav")
    most = worst_case(TranscriptionRequest(audio=sound), target, ABLE, BOOK)
    cost = BOOK.cost(target, usage)
    assert cost is not None
    assert most is not None
    assert 0 < cost.nanos <= most


def test_the_time_of_the_call_decides_the_price() -> None:
    target = Target("deepseek", "deepseek-chat")
    night, day = datetime(2026, 11, 15, 20, 0), datetime(2026, 11, 15, 12, 0)
    found = [worst_case(ASKED, target, ABLE, BOOK, at=at) for at in (night, day)]
    assert found[0] is not None
    assert found[1] is not None
    assert found[1] > 1.9 * found[0]


def test_a_price_of_ones_own_bounds_the_same_way() -> None:
    price = OwnPrice(input=Decimal(1), output=Decimal(2), cached_input=Decimal(3))
    book = PriceBook({}, prices={LUNA: price})
    read = bounds(ASKED, LUNA.model, ABLE).read
    assert worst_case(ASKED, LUNA, ABLE, book) == read * 3000 + 100 * 2000
