"""What a provider may count for a request, and what becomes of counts that are impossible."""

from __future__ import annotations

import base64
import math
from typing import Any

import msgspec
import pytest

from penstock.contract.exchange import (
    EmbeddingRequest,
    Reply,
    SamplingRequest,
    Transcript,
    TranscriptionRequest,
    Usage,
    Vectors,
)
from penstock.contract.messages import Audio, Text, user
from penstock.contract.options import Extra, MCPTool
from penstock.pool.attempt_usage import counted
from penstock.pool.usage_check import HIDDEN_INPUT, HIDDEN_OUTPUT, check, is_possible_count
from penstock.tokens.media import seconds
from tests.support.sound import wav

ASKED = SamplingRequest(messages=(user("Hello"),), max_tokens=20)
SAID = Reply((Text("Hello there"),), "m", "endTurn", Usage())
SOUND = Audio(base64.b64encode(wav(1.0)).decode(), "audio/wav")


def bill(usage: Usage, request: SamplingRequest = ASKED) -> Usage:
    return counted(msgspec.structs.replace(SAID, usage=usage), request, "m")


@pytest.mark.parametrize(
    "usage",
    [
        Usage(),
        Usage(7, 3),
        Usage(0, 0),
        Usage(7, 3, 7, 0, 3),
        Usage(HIDDEN_INPUT, HIDDEN_OUTPUT),
        Usage(7, 3, audio_seconds=0.0),
        Usage(7, 3, 2, 5, 1, input_audio_tokens=7, output_image_tokens=2),
    ],
)
def test_what_is_possible_is_taken_as_it_is(usage: Usage) -> None:
    assert check(usage, ASKED, "m").usage is usage


@pytest.mark.parametrize(
    "usage",
    [
        Usage(-1, 3),
        Usage(10**400, 3),
        Usage(HIDDEN_INPUT + 1000, 3),
        Usage(7, -1),
        Usage(7, HIDDEN_OUTPUT + 21),
        Usage(7, 3, 8),
        Usage(7, 3, 4, 4),
        Usage(7, 3, -1),
        Usage(7, 3, None, None, 4),
        Usage(7, 3, None, None, 2, output_image_tokens=2),
        Usage(7, 3, input_audio_tokens=8),
        Usage(7, 3, audio_seconds=math.nan),
        Usage(7, 3, audio_seconds=math.inf),
        Usage(7, 3, audio_seconds=-1.0),
        Usage(7, 3, audio_seconds=1e9),
        Usage(implausible=True),
    ],
)
def test_what_is_impossible_is_estimated_and_marked(usage: Usage) -> None:
    found = bill(usage)
    assert found.implausible
    assert found.estimated
    assert found.input_tokens is not None
    assert 0 < found.input_tokens <= 20
    assert found.output_tokens is not None
    assert 0 < found.output_tokens <= 20
    assert found.audio_seconds in (None, 0.0)


@pytest.mark.parametrize("value", [True, 1.0, "7", math.nan, [], object()])
@pytest.mark.parametrize("field", [*Usage.__struct_fields__[:5], "audio_seconds"])
def test_an_adapter_that_gives_other_types(field: str, value: Any) -> None:
    fields: dict[str, Any] = {"input_tokens": 7, "output_tokens": 3, field: value}
    found = bill(Usage(**fields))
    if not (field == "audio_seconds" and value == 1.0):
        assert found.implausible
    for count in (found.input_tokens, found.output_tokens):
        assert type(count) is int


def test_only_the_impossible_side_is_estimated() -> None:
    assert bill(Usage(1234, -5)).input_tokens == 1234
    assert bill(Usage(-5, 17)).output_tokens == 17


def test_parts_above_their_whole_are_billed_at_least_as_the_largest_count() -> None:
    found = bill(Usage(10, 3, 500, None, 900))
    assert (found.input_tokens, found.output_tokens) == (500, 900)
    assert found.cached_input_tokens is found.reasoning_tokens is None


def test_tools_of_the_provider_read_everything_again() -> None:
    server = MCPTool(url="https://tools.example/mcp", name="tools")
    with_server = msgspec.structs.replace(ASKED, mcp_tools=(server,))
    with_plugin = msgspec.structs.replace(ASKED, extra=Extra("openai-chat", {"plugins": []}))
    for request in (with_server, with_plugin):
        assert not check(Usage(2_000_000, 90_000), request, "m").usage.implausible
    assert check(Usage(2_000_000, 3), ASKED, "m").usage.implausible


def test_the_bounds_grow_with_the_request() -> None:
    long = msgspec.structs.replace(ASKED, messages=(user("word " * 200_000),), max_tokens=100_000)
    assert not check(Usage(600_000, 150_000), long, "m").usage.implausible
    assert is_possible_count(600_000, long, "m")
    assert not is_possible_count(600_000, ASKED, "m")
    assert not is_possible_count(-1, ASKED, "m")


def test_embeddings_and_transcripts_are_checked_too() -> None:
    texts = EmbeddingRequest(texts=("one", "two"))
    vectors = Vectors(((1.0,), (2.0,)), "m", Usage(-1))
    found = counted(vectors, texts, "m")
    assert found.implausible
    assert found.input_tokens is not None
    assert found.input_tokens > 0
    assert found.output_tokens is None
    recording = TranscriptionRequest(audio=SOUND)
    heard = counted(Transcript(text="Hi", usage=Usage(audio_seconds=1e8)), recording, "m")
    assert heard.implausible
    assert heard.audio_seconds == seconds(SOUND)
    assert counted(Transcript(text="Hi", usage=Usage(audio_seconds=60.0)), recording, "m") == Usage(
        audio_seconds=60.0
    )
    # A length beside the counts is no better known.
    guessed = counted(Transcript(text="Hi", duration_s=1e8), recording, "m")
    assert guessed.audio_seconds == seconds(SOUND)
