"""How the public surface is used, for the type checker: pyright reads this, nobody runs it."""

from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict, assert_never, assert_type

import pydantic

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
    await engine.create_message("Hello")
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


class Shown(penstock.StreamCallbacks):
    """Callbacks may wait or not, and need not be all there."""

    async def chunk(self, chunk: penstock.Chunk, /) -> None:
        assert_type(chunk.text, str)

    def complete(self, result: penstock.Result, /) -> None:
        assert_type(result.text, str)

    def error(self, error: penstock.PenstockError, /) -> None:
        assert_type(error.retryable, bool)

    async def cancelled(self) -> None: ...


class Mistaken(penstock.StreamCallbacks):
    def chunk(self, chunk: str, /) -> None: ...  # pyright: ignore[reportIncompatibleMethodOverride]


async def streams_that_drive(engine: penstock.Engine) -> None:
    stream = await engine.create_message_stream("Hello", max_tokens=9, request_id="mine")
    end = await stream.drive(Shown())
    assert_type(end, penstock.Complete | penstock.Error | penstock.Cancelled)
    assert_type(stream.ended, bool)
    assert_type(engine.cancel_request_threadsafe("mine"), Future[bool])


async def mcp_sampling(engine: penstock.Engine) -> None:
    params: dict[str, Any] = {"messages": [], "maxTokens": 9}
    request = penstock.SamplingRequest.from_mcp(params)
    assert_type(request, penstock.SamplingRequest)
    assert_type(request.meta, dict[str, Any] | None)
    result = await engine.create_message(request, request_id="mine")
    assert_type(result.to_mcp(extras=True, single=True), dict[str, Any])
    assert_type(await engine.sample(b"{}", model="assistant", timeout=9), penstock.Result)
    assert_type(await engine.sample_stream("{}", request_id="mine"), penstock.StreamHandle)
    await engine.sample([])  # pyright: ignore[reportArgumentType]


async def routes_and_usage(engine: penstock.Engine) -> None:
    decision = await engine.route("Hello", model="assistant")
    assert_type(decision, penstock.RouteDecision)
    assert_type(decision.targets, tuple[penstock.Target, ...])
    assert_type(decision.ranked[0], penstock.RankedTarget)
    assert_type(decision.ranked[0].reasons, tuple[str, ...])
    stats = await engine.usage_stats()
    assert_type(stats, penstock.UsageStats)
    assert_type(stats.total, penstock.ModelUsage)
    assert_type(stats.models[0].usage.input_tokens, int | None)
    assert_type(stats.total.latency, penstock.Latency | None)
    assert_type(stats.providers + stats.keys, tuple[penstock.ModelUsage, ...])
    assert_type(stats.remaining, dict[str, int] | None)


class Recipe(pydantic.BaseModel):
    name: str


class Review(TypedDict):
    stars: int


@dataclass
class Point:
    x: int


class Notes:
    """A provider of contexts."""

    async def generate_context(self) -> list[penstock.PromptContext]:
        return [penstock.PromptContext(penstock.MessageType.SYSTEM, "Be brief.")]


@penstock.tool
async def weather(city: str, days: int = 1) -> str:
    """The weather."""
    return city * days


@penstock.tool(name="add", timeout=3)
def plus(a: int, b: int) -> int:
    """The sum."""
    return a + b


async def tools_keep_their_signatures() -> None:
    assert_type(await weather("Rome", days=2), str)
    assert_type(plus(1, b=2), int)
    assert_type(penstock.tool(len, name="length")("abc"), int)
    assert_type(plus.definition, penstock.ToolDefinition)
    weather(3)  # pyright: ignore[reportArgumentType, reportUnusedCoroutine]
    plus(1)  # pyright: ignore[reportCallIssue]
    penstock.tool(plus, nmae="x")  # pyright: ignore[reportCallIssue]


async def generators(engine: penstock.Engine) -> None:
    text = penstock.string_generator(
        ["What is this?", penstock.image("cat.png")],
        provider="openai",
        model="gpt-6-luna",
        url="http://localhost",
        auth_token="sk",
        headers={"x-team": "blue"},
        temperature=0.2,
        max_tokens=500,
        reasoning_level="low",
        tools=[weather, plus, len],
        tool_choice="required",
        max_tool_rounds=3,
        tool_errors="raise",
        ignore_invalid_options=True,
    )
    assert_type(text, penstock.StringGenerator)
    assert_type(await text.generate(), tuple[str, penstock.Metadata])
    text.add_prompt_context(penstock.MessageType.SYSTEM, "Be brief.")
    text.add_prompt_context("human", "Hello")
    text.add_prompt_context_provider(Notes())

    recipe, metadata = await penstock.structured_generator(Recipe, "Cook.").generate()
    assert_type(recipe, Recipe)
    assert_type(metadata, penstock.Metadata)
    assert_type((await engine.structured_generator(Point, "Where?").generate())[0], Point)
    assert_type((await engine.structured_generator(Review, "Good?").generate())[0], Review)
    assert_type((await engine.structured_generator(list[int], "Count.").generate())[0], list[int])
    # What is no class, a checker cannot follow.
    assert_type((await engine.structured_generator(int | str, "Say.").generate())[0], Any)

    embedder = penstock.embedding_generator(provider="ollama", embedding_dimensions=256)
    assert_type((await embedder.generate("text"))[0], tuple[float, ...])
    assert_type((await embedder.generate_batch(["a", "b"]))[0], tuple[tuple[float, ...], ...])


async def streams_of_generators(engine: penstock.Engine) -> None:
    async with engine.structured_generator(Recipe, "Cook.").stream() as stream:
        assert_type(stream, penstock.GeneratorStream[Recipe])
        async for event in stream:
            assert_type(event, penstock.GeneratorEvent)
            match event:
                case penstock.Chunk(text) | penstock.ReasoningDelta(text):
                    assert_type(text, str)
                case penstock.ToolStarted():
                    assert_type(event.name, str)
                case penstock.ToolProgress():
                    assert_type(event.total, float | None)
                case penstock.ToolEnded():
                    assert_type(event.is_error, bool)
                case penstock.AnswerRejected(problems):
                    assert_type(problems, tuple[penstock.Problem, ...])
                case penstock.Complete(result):
                    assert_type(result, penstock.Result)
                case penstock.Error(error):
                    assert_type(error, penstock.PenstockError)
                case penstock.ToolUseDelta():
                    pass
                case _:
                    assert_never(event)
        async for text in stream.texts():
            assert_type(text, str)
        assert_type(await stream.result(), tuple[Recipe, penstock.Metadata])


def mistakes_with_generators(engine: penstock.Engine) -> None:
    engine.string_generator(3)  # pyright: ignore[reportArgumentType]
    engine.string_generator("Hi", temprature=1)  # pyright: ignore[reportCallIssue]
    engine.string_generator("Hi", url="http://localhost")  # pyright: ignore[reportCallIssue]
    engine.string_generator("Hi", tools=[3])  # pyright: ignore[reportArgumentType]
    engine.string_generator("Hi", tool_errors="ignore")  # pyright: ignore[reportArgumentType]
    generator = penstock.string_generator("Hi", provider="openai")
    generator.add_prompt_context("user", "Hello")  # pyright: ignore[reportArgumentType]
    generator.add_prompt_context_provider(Point(1))  # pyright: ignore[reportArgumentType]
    penstock.embedding_generator(dimensions=3)  # pyright: ignore[reportCallIssue]


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
