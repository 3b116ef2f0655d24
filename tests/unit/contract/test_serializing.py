"""Answers as JSON: `to_dict`, pydantic and msgspec, with numbers as numbers."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from pydantic import BaseModel, TypeAdapter, ValidationError

import penstock
from penstock import Metadata, Result, Usage
from penstock.testing import FakeProvider, FakeReply, engine_with

USAGE = Usage(input_tokens=7, output_tokens=2, cached_input_tokens=3)


async def answered() -> Result:
    engine = engine_with(FakeProvider([FakeReply(text="Hi", usage=USAGE)]))
    return await engine.create_message("Hello", max_tokens=9)


class Answer(BaseModel):
    """What a web application returns."""

    result: Result
    usage: Usage


async def test_a_result_is_json_with_numbers() -> None:
    result = await answered()
    written = json.loads(json.dumps(result.to_dict()))
    assert (written["text"], written["role"], written["stop_reason"]) == (
        "Hi",
        "assistant",
        "endTurn",
    )
    assert written["content"] == [{"type": "text", "text": "Hi"}]
    assert written["metadata"]["input_tokens"] == 7
    assert written["metadata"]["cost_nanos"] == 0
    assert isinstance(written["metadata"]["latency_ms"], int)


async def test_the_two_forms_of_metadata_have_the_same_facts() -> None:
    metadata = msgspec.structs.replace(
        (await answered()).metadata, cost_nanos=1_500_000_001, dropped_options=("seed", "top_k")
    )
    numbers, texts = metadata.to_dict(), metadata.as_dict()
    assert numbers["cost_usd"] == pytest.approx(1.500000001)
    assert texts["cost_usd"] == "1.500000001"
    assert (numbers["dropped_options"], texts["dropped_options"]) == (
        ["seed", "top_k"],
        "seed,top_k",
    )
    assert numbers.keys() - texts.keys() == {"cost_nanos"}
    assert all(isinstance(value, str) for value in texts.values())


def test_usage_has_what_is_known() -> None:
    assert USAGE.to_dict() == {
        "input_tokens": 7,
        "output_tokens": 2,
        "total_tokens": 9,
        "cached_input_tokens": 3,
    }
    assert Usage(output_tokens=1, estimated=True).to_dict() == {
        "output_tokens": 1,
        "total_tokens": 1,
        "estimated": True,
    }


async def test_pydantic_holds_and_writes_them() -> None:
    result = await answered()
    answer = Answer(result=result, usage=result.usage)
    assert answer.result is result
    assert json.loads(answer.model_dump_json()) == {
        "result": result.to_dict(),
        "usage": result.usage.to_dict(),
    }
    for kind in (Result, Metadata, Usage, penstock.TokenCount, penstock.EmbeddingResult):
        assert TypeAdapter(kind).json_schema(mode="serialization")["type"] == "object"
    wrong: Any = "text"
    with pytest.raises(ValidationError):
        Answer(result=wrong, usage=wrong)


async def test_the_other_answers_too() -> None:
    engine = engine_with(FakeProvider())
    vectors = await engine.embed(["a"], model="fake/any")
    assert json.loads(json.dumps(vectors.to_dict()))["metadata"]["embedding_count"] == 1
    count = await engine.count_tokens("Hello")
    assert count.to_dict()["tokens"] == count.tokens
    transcript = await engine.transcribe(b"RIFF0000WAVEfmt ", model="fake/any")
    assert transcript.to_dict()["text"] == transcript.text
