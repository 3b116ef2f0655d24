"""How the public surface is used, for the type checker: pyright reads this, nobody runs it."""

from collections.abc import Sequence
from pathlib import Path
from typing import assert_never, assert_type

import penstock
from penstock import testing


def in_one_line() -> None:
    assert_type(penstock.ask("Why is the sky blue?"), str)
    assert_type(
        penstock.ask("Why?", model="groq/llama", system_prompt="Be brief.", max_tokens=9), str
    )


async def whole_answers() -> None:
    async with penstock.open() as engine:
        assert_type(engine, penstock.Engine)
        result = await engine.create_message(
            [penstock.user("Hello"), penstock.assistant("Hi"), penstock.user("Bye")],
            max_tokens=200,
            model="assistant",
            system_prompt="Be brief.",
            temperature=0.2,
            stop_sequences=["END"],
            model_preferences=penstock.ModelPreferences(("claude",), cost=0.2, intelligence=0.9),
            tools=[penstock.ToolDefinition("now", "The time.")],
            mcp_tools=[
                penstock.MCPTool(
                    url="https://host/mcp",
                    name="docs",
                    http_headers={"Authorization": "Bearer x"},
                    allowed_tools=["search"],
                    mode="native",
                )
            ],
            tool_choice="auto",
            parallel_tools=False,
            output_schema={"type": "object"},
            reasoning_level="low",
            metadata={"user": "u1"},
            timeout=60,
            ignore_invalid_options=True,
        )
        assert_type(result, penstock.Result)
        assert_type(result.text, str)
        assert_type(result.usage.total_tokens, int | None)
        assert_type(result.cost_usd, float | None)
        assert_type(result.metadata.as_dict(), dict[str, str])
        assert_type(result.message, penstock.Message)
        assert_type(result.tool_uses, tuple[penstock.ToolUse, ...])
        assert_type(result.mcp_calls, tuple[penstock.MCPCall, ...])
        await engine.create_message(
            "Hello", max_tokens=9, tool_choice=penstock.ToolChoice.tool("now")
        )
        await engine.create_message(
            penstock.user("What is this?", penstock.image("cat.png")), max_tokens=9
        )
        request = penstock.SamplingRequest(messages=(penstock.user("Hello"),), max_tokens=9)
        assert_type(await engine.create_message(request), penstock.Result)


async def mistakes_are_found_by_the_type_checker(engine: penstock.Engine) -> None:
    await engine.create_message("Hello")  # pyright: ignore[reportArgumentType]
    await engine.create_message("Hello", max_tokens="9")  # pyright: ignore[reportArgumentType]
    await engine.create_message("Hello", max_tokens=9, temprature=1)  # pyright: ignore[reportCallIssue]
    await engine.create_message("Hello", max_tokens=9, tool_choice="maybe")  # pyright: ignore[reportArgumentType]
    await engine.count_tokens("Hello", max_tokens="9")  # pyright: ignore[reportArgumentType]
    penstock.user(3)  # pyright: ignore[reportArgumentType]


async def streams(engine: penstock.Engine) -> None:
    stream = await engine.create_message_stream("Hello", max_tokens=200)
    assert_type(stream, penstock.StreamHandle)
    async for event in stream:
        assert_type(event, penstock.StreamEvent)
        match event:
            case penstock.Chunk(text) | penstock.ReasoningDelta(text):
                assert_type(text, str)
            case penstock.ToolUseDelta():
                assert_type(event.arguments, str)
            case penstock.ToolStarted() | penstock.ToolEnded():
                assert_type(event.name, str)
            case penstock.Complete(result):
                assert_type(result, penstock.Result)
            case penstock.Error(error):
                assert_type(error, penstock.PenstockError)
            case penstock.Cancelled():
                pass
            case _:
                assert_never(event)
    async with stream:
        async for text in stream.texts():
            assert_type(text, str)
        async for batch in stream.batches():
            assert_type(batch, Sequence[penstock.StreamEvent])
    assert_type(await stream.result(), penstock.Result)
    assert_type(await stream.cancel(), bool)
    assert_type(await engine.cancel_request(stream.request_id), bool)


async def other_calls(engine: penstock.Engine) -> None:
    vectors = await engine.embed(["a", "b"], model="embedded/wordllama", dimensions=64)
    assert_type(vectors, penstock.EmbeddingResult)
    assert_type(vectors.vectors, tuple[tuple[float, ...], ...])
    counted = await engine.count_tokens("Hello", system_prompt="Be brief.")
    assert_type(counted, penstock.TokenCount)
    assert_type((counted.tokens, counted.estimated), tuple[int, bool])
    await engine.count_tokens([penstock.user("Hello")], max_tokens=9, model="assistant")
    words = await engine.transcribe(
        "note.wav", model="openai/whisper-1", language="en", prompt="Zoë"
    )
    assert_type(words, penstock.TranscriptionResult)
    assert_type(words.segments, tuple[penstock.TranscriptSegment, ...])
    listener = penstock.transcription_generator(provider="openai", url=None, max_parallel=2)
    assert_type(await listener.generate(penstock.audio(b"...")), tuple[str, penstock.Metadata])
    assert_type(
        await engine.transcription_generator().generate_batch([Path("a.mp3"), b"..."]),
        list[tuple[str, penstock.Metadata]],
    )
    await engine.transcribe("note.wav", voice="x")  # pyright: ignore[reportCallIssue]
    health = await engine.provider_health()
    assert_type(health, list[penstock.ProviderHealth])


def errors() -> None:
    try:
        penstock.ask("Hello")
    except penstock.RateLimited as error:
        assert_type(error.retry_after, float | None)
    except penstock.AllTargetsFailed as error:
        assert_type(error.attempts, tuple[penstock.PenstockError, ...])
    except penstock.InvalidRequest as error:
        assert_type(error.problems, tuple[penstock.Problem, ...])
    except penstock.PenstockError as error:
        assert_type(error.retryable, bool)
        assert_type(error.provider, str | None)


async def tests_of_ones_own() -> None:
    fake = testing.FakeProvider(
        ["Hello!", penstock.RateLimited("slow down"), lambda request: "Bye"]
    )
    async with testing.engine_with(fake) as engine:
        assert_type(engine, penstock.Engine)
    assert_type(fake.requests, list[penstock.SamplingRequest])


def configurations(path: Path) -> None:
    assert_type(penstock.open(path), penstock.Engine)
    assert_type(penstock.open("penstock.toml"), penstock.Engine)
    assert_type(penstock.open(penstock.Config()), penstock.Engine)
