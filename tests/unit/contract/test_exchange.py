"""Usage, metadata and results: unknown is not zero, and money is exact."""

from decimal import Decimal
from fractions import Fraction

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.contract.exchange import (
    Metadata,
    Reply,
    Result,
    SamplingRequest,
    Usage,
)
from penstock.contract.messages import MCPCall, Message, Reasoning, Text, ToolUse, user
from penstock.contract.metadata import nanos_to_text

FULL = Metadata(
    provider="openai",
    model="gpt",
    request_id="req_1",
    latency_ms=120,
    first_token_ms=30,
    usage=Usage(10, 5, 4, 3, 2),
    api_calls=2,
    tool_rounds=1,
    attempts=2,
    response_id="resp_1",
    response_status="completed",
    embedding_count=1,
    embedding_dims=256,
    cost_nanos=1_500_000,
    dropped_options=("temperature", "tools"),
)
STABLE_KEYS = {
    "provider",
    "model",
    "latency_ms",
    "input_tokens",
    "output_tokens",
    "total_tokens",
    "cached_input_tokens",
    "reasoning_tokens",
    "api_calls",
    "tool_rounds",
    "response_id",
    "response_status",
    "embedding_count",
    "embedding_dims",
    "request_id",
    "cost_usd",
    "attempts",
    "first_token_ms",
    "dropped_options",
}

counts = st.none() | st.integers(0, 10**9)
usages = st.builds(
    Usage, counts, counts, counts, counts, counts, st.booleans(), counts, counts, counts
)


def test_what_was_not_counted_is_unknown_and_not_zero() -> None:
    assert Usage().total_tokens is None
    assert Usage(0, 0).total_tokens == 0
    assert Usage(input_tokens=3).total_tokens == 3
    assert Usage(3, 4).total_tokens == 7


def test_the_sum_of_two_calls_keeps_the_unknown_apart_from_zero() -> None:
    total = Usage(1, None, 2, None, 0) + Usage(10, None, None, 5, 0)
    assert total == Usage(11, None, 2, 5, 0)


def test_an_estimate_makes_the_sum_an_estimate() -> None:
    assert (Usage(1, estimated=True) + Usage(2)).estimated
    assert (Usage(1) + Usage(2, estimated=True)).estimated
    assert not (Usage(1) + Usage(2)).estimated


@given(usages, usages, usages)
def test_the_order_of_addition_does_not_matter(first: Usage, second: Usage, third: Usage) -> None:
    assert first + second == second + first
    assert (first + second) + third == first + (second + third)
    assert first + Usage() == first


def test_the_stable_keys_are_all_there_as_text() -> None:
    facts = FULL.as_dict()
    assert set(facts) == STABLE_KEYS
    assert facts == {
        "provider": "openai",
        "model": "gpt",
        "latency_ms": "120",
        "input_tokens": "10",
        "output_tokens": "5",
        "total_tokens": "15",
        "cached_input_tokens": "4",
        "reasoning_tokens": "2",
        "api_calls": "2",
        "tool_rounds": "1",
        "response_id": "resp_1",
        "response_status": "completed",
        "embedding_count": "1",
        "embedding_dims": "256",
        "request_id": "req_1",
        "cost_usd": "0.0015",
        "attempts": "2",
        "first_token_ms": "30",
        "dropped_options": "temperature,tools",
    }


def test_what_is_unknown_is_absent() -> None:
    facts = Metadata(provider="p", model="m", request_id="r", latency_ms=0).as_dict()
    assert facts == {
        "provider": "p",
        "model": "m",
        "request_id": "r",
        "latency_ms": "0",
        "api_calls": "1",
        "tool_rounds": "0",
        "attempts": "1",
    }


def test_a_cost_of_nothing_is_known_and_an_unknown_cost_is_not_nothing() -> None:
    free = msgspec.structs.replace(FULL, cost_nanos=0)
    assert free.as_dict()["cost_usd"] == "0"
    assert free.cost_usd == 0.0
    assert msgspec.structs.replace(FULL, cost_nanos=None).cost_usd is None


@pytest.mark.parametrize(
    ("nanos", "text"),
    [
        (0, "0"),
        (1, "0.000000001"),
        (1_500_000, "0.0015"),
        (1_000_000_000, "1"),
        (-2_500_000_000, "-2.5"),
        (123_456_789_123_456_789, "123456789.123456789"),
    ],
)
def test_nano_dollars_as_text(nanos: int, text: str) -> None:
    assert nanos_to_text(nanos) == text


@given(st.integers(-(10**30), 10**30))
def test_nano_dollars_lose_nothing_as_text(nanos: int) -> None:
    text = nanos_to_text(nanos)
    assert Decimal(text).as_integer_ratio() == Fraction(nanos, 10**9).as_integer_ratio()
    assert "." not in text or not text.endswith("0")


def test_a_result_offers_its_parts() -> None:
    use = ToolUse("c1", "now", {})
    content = (Reasoning("hm"), Text("It "), use, Text("is noon."), Reasoning("."))
    result = Result(content, "gpt", "toolUse", FULL)
    assert result.text == "It is noon."
    assert result.reasoning == "hm."
    assert result.tool_uses == (use,)
    assert result.mcp_calls == ()
    made = MCPCall("m1", "docs", "search", {})
    assert Result((made, use), "gpt", "toolUse", FULL).mcp_calls == (made,)
    assert Result((made, use), "gpt", "toolUse", FULL).tool_uses == (use,)
    assert result.usage == FULL.usage
    assert result.request_id == "req_1"
    assert result.cost_usd == 0.0015
    assert result.message == Message("assistant", content)
    assert result.role == "assistant"
    assert Reply(content, "gpt", "toolUse", Usage()).text == result.text


def test_a_request_is_frozen_and_its_metadata_is_its_own() -> None:
    first = SamplingRequest(messages=(user("hi"),), max_tokens=1)
    second = SamplingRequest(messages=(user("hi"),), max_tokens=1)
    assert first.metadata is not second.metadata
    with pytest.raises(AttributeError):
        first.max_tokens = 2  # pyright: ignore[reportAttributeAccessIssue]
