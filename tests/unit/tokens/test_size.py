"""Every text and file that is measured counts for whether measuring takes long."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from penstock.contract.exchange import (
    AnyRequest,
    EmbeddingRequest,
    SamplingRequest,
    TranscriptionRequest,
)
from penstock.contract.messages import (
    Audio,
    Content,
    Image,
    MCPCall,
    Message,
    Reasoning,
    Text,
    ToolResult,
    ToolUse,
)
from penstock.contract.options import Extra, MCPTool, OutputSchema, ToolDefinition
from penstock.pool.attempt import uncancelled
from penstock.tokens import Estimates
from penstock.tokens.size import LONG, is_long, measured


def asked(*parts: Content, **options: Any) -> SamplingRequest:
    message = Message("user", (Text(text="Hi"), *parts))
    return SamplingRequest(messages=(message,), max_tokens=5, **options)


def schema(text: str) -> dict[str, Any]:
    return {"type": "object", "properties": {"a": {"description": text}}}


def tool(text: str, description: str = "") -> ToolDefinition:
    return ToolDefinition(name="f", description=description, input_schema=schema(text))


PLACES: dict[str, Callable[[str], AnyRequest]] = {
    "text": lambda text: asked(Text(text=text)),
    "text with _meta": lambda text: asked(Text(text="a", meta={"a": text})),
    "system": lambda text: asked(system_prompt=text),
    "description": lambda text: asked(tools=(tool("", text),)),
    "input schema": lambda text: asked(tools=(tool(text),)),
    "output schema": lambda text: asked(output_schema=OutputSchema(schema(text))),
    "unknown field": lambda text: asked(extra=Extra("openai-chat", {"x": [text]})),
    "name of a field": lambda text: asked(extra=Extra("openai-chat", {text: 1})),
    "arguments": lambda text: asked(ToolUse(id="c", name="f", input={"a": [{"b": text}]})),
    "result": lambda text: asked(ToolResult(tool_use_id="c", content=(Text(text=text),))),
    "structured result": lambda text: asked(
        ToolResult(tool_use_id="c", structured_content={"a": text})
    ),
    "picture in a result": lambda text: asked(
        ToolResult(tool_use_id="c", content=(Image(data=text),))
    ),
    "thought": lambda text: asked(Reasoning(text=text)),
    "signature": lambda text: asked(Reasoning(signature=text)),
    "call of a server": lambda text: asked(
        MCPCall(id="c", server="s", name="f", input={"a": text})
    ),
    "answer of a server": lambda text: asked(
        MCPCall(id="c", server="s", name="f", input={}, content=(Text(text=text),))
    ),
    "tools of a server": lambda text: asked(
        mcp_tools=(MCPTool(url="https://a", name="s", allowed_tools=(text,)),)
    ),
    "picture": lambda text: asked(Image(data=text)),
    "sound": lambda text: asked(Audio(data=text, mime_type="audio/wav")),
    "texts": lambda text: EmbeddingRequest(texts=("a", text)),
    "recording": lambda text: TranscriptionRequest(audio=Audio(data=text, mime_type="audio/wav")),
    "prompt": lambda text: TranscriptionRequest(audio=Audio(data="", mime_type="a/b"), prompt=text),
}


@pytest.mark.parametrize("place", PLACES)
def test_a_long_text_is_seen_in_every_place(place: str) -> None:
    assert not is_long(PLACES[place]("a" * 1000))
    assert is_long(PLACES[place]("a" * LONG + "a"))


def test_many_short_ones_are_long_together() -> None:
    values: list[Any] = [None] * (LONG // 16)
    assert is_long(asked(extra=Extra("openai-chat", {"x": values})))
    assert is_long(asked(extra=Extra("openai-chat", {"x": [{}] * (LONG // 16)})))
    assert is_long(asked(extra=Extra("openai-chat", {"x": [10**4000] * 100})))
    assert is_long(asked(*[Text(text="a")] * (LONG // 100)))
    assert is_long(asked(*[Image(data="")] * (LONG // 100)))
    assert is_long(asked(tools=(tool(""),) * 256))
    assert is_long(EmbeddingRequest(texts=("a",) * (LONG // 100)))
    half = asked(Text(text="a" * (LONG // 2)))
    assert not is_long(half)
    assert is_long(half, half)


def test_a_picture_counts_for_more_than_a_text_of_its_length() -> None:
    # A step of the walk through it may have two bytes.
    assert is_long(asked(Image(data="a" * (LONG // 4))))


async def test_what_is_long_is_measured_in_a_thread() -> None:
    short, long = asked(), asked(tools=(tool("", "word " * LONG),))
    here = threading.get_ident()
    assert await measured(short, threading.get_ident) == here
    assert await measured(long, threading.get_ident) != here


async def test_estimates_are_prepared_for_all_models_at_once() -> None:
    request = asked(tools=(tool("", "word " * LONG),))
    prepared = Estimates(request)
    models = ("claude-sonnet-5", "gpt-5", "gemini-3-pro", "llama-3")
    await prepared.prepare(models)
    assert [prepared.of(model) for model in models] == [
        Estimates(request).of(model) for model in models
    ]


async def test_a_cancellation_waits_for_what_is_counted() -> None:
    started, counted = asyncio.Event(), asyncio.Event()
    found: list[str] = []

    async def work() -> str:
        started.set()
        await counted.wait()
        return "counted"

    async def counting() -> None:
        found.append(await uncancelled(work()))
        await asyncio.sleep(60)
        found.append("went on")

    task = asyncio.create_task(counting())
    await started.wait()
    task.cancel()
    await asyncio.sleep(0)
    assert not task.done()
    counted.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert found == ["counted"]


async def test_a_timeout_that_ends_meanwhile_stays_a_timeout() -> None:
    async def work() -> str:
        await asyncio.sleep(0.05)
        return "counted"

    found: list[str] = []

    async def counting() -> None:
        async with asyncio.timeout(0.01):
            found.append(await uncancelled(work()))
            await asyncio.sleep(60)

    with pytest.raises(TimeoutError):
        await counting()
    assert found == ["counted"]
