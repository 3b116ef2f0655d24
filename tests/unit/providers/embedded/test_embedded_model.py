"""The real model: SmolLM2 on llama.cpp, with answers of a few tokens."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

import pytest

from penstock.contract.errors import (
    ConfigurationError,
    ContextLengthExceeded,
    InvalidRequest,
    ModelNotFound,
    UnsupportedOption,
)
from penstock.contract.events import Chunk, Finished, ProviderEvent
from penstock.contract.exchange import Reply, SamplingRequest
from penstock.contract.messages import Message, Text, ToolResult, ToolUse, assistant, user
from penstock.contract.options import OutputSchema, ToolChoice, ToolDefinition
from penstock.contract.ports import Provider
from penstock.providers.embedded import weights
from penstock.providers.embedded.provider import EmbeddedProvider

T = TypeVar("T")

CITY: dict[str, Any] = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
}
WEATHER = ToolDefinition("weather", "Get the current weather of a city.", CITY)
LONG_PROMPT = "The quick brown fox jumps over the lazy dog. " * 600
PARIS = user("What is the weather in Paris?")


def ask(*messages: Message, max_tokens: int = 12, **options: Any) -> SamplingRequest:
    options = {"temperature": 0.0, **options}
    return SamplingRequest(messages=messages, max_tokens=max_tokens, **options)


def run(use: Callable[[Provider], Coroutine[Any, Any, T]]) -> T:
    """One event loop and one provider a test, as `penstock.ask` has them."""

    async def main() -> T:
        provider = EmbeddedProvider()
        try:
            async with asyncio.timeout(150):
                return await use(provider)
        finally:
            await provider.aclose()

    return asyncio.run(main())


def generate(request: SamplingRequest, model: str = "smollm2") -> Reply:
    return run(lambda provider: provider.generate(model, request))


def test_it_answers_with_text_usage_and_an_id() -> None:
    reply = generate(ask(user("Name three colours.")), "default")
    assert reply.text.strip()
    assert reply.model == "smollm2"
    assert reply.stop_reason == "maxTokens"
    assert reply.usage.output_tokens == 12
    assert reply.usage.input_tokens is not None
    assert reply.usage.input_tokens > 20
    assert not reply.usage.estimated
    assert reply.response_id is not None
    assert reply.response_id.startswith("chatcmpl-")


def test_it_ends_its_turn_when_it_has_said_everything() -> None:
    reply = generate(ask(user("Say only: yes"), assistant("Yes."), max_tokens=100))
    assert reply.stop_reason == "endTurn"


def test_a_stream_gives_the_pieces_and_then_the_whole() -> None:
    async def use(provider: Provider) -> list[ProviderEvent]:
        stream = provider.stream("smollm2", ask(user("Name three colours.")))
        return [event async for events in stream for event in events]

    *deltas, last = run(use)
    assert isinstance(last, Finished)
    assert len(deltas) > 3
    texts = [delta.text for delta in deltas if isinstance(delta, Chunk)]
    assert len(texts) == len(deltas)
    assert "".join(texts) == last.reply.text


def test_a_stop_sequence_stops_it() -> None:
    reply = generate(
        ask(user("Count to ten."), assistant("1, 2, 3,"), max_tokens=40, stop_sequences=("6",))
    )
    assert reply.stop_reason == "stopSequence"
    assert reply.text.strip() == "4, 5,"


def test_a_begun_answer_is_continued_and_not_repeated() -> None:
    reply = generate(ask(user("Count to ten."), assistant("1, 2, 3,")))
    assert reply.text.lstrip().startswith("4, 5")


def test_structured_output_fits_its_schema() -> None:
    schema = {
        "type": "object",
        "properties": {
            "name": {"type": "string", "maxLength": 20},
            "age": {"type": "integer"},
            "mood": {"enum": ["good", "bad"]},
        },
        "required": ["name", "age", "mood"],
        "additionalProperties": False,
    }
    request = ask(user("Bob is 7 and happy."), max_tokens=80, output_schema=OutputSchema(schema))
    person = json.loads(generate(request).text)
    assert set(person) == {"name", "age", "mood"}
    assert isinstance(person["name"], str)
    assert isinstance(person["age"], int)
    assert person["mood"] in ("good", "bad")


def test_an_integer_without_limits_is_one_that_javascript_has() -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    begun = '{"n": 999999999999999'
    request = ask(
        user("Write a number of only nines, as long as you can."),
        assistant(begun),
        output_schema=OutputSchema(schema),
    )
    assert json.loads(begun + generate(request).text) == {"n": 999999999999999}


def test_a_begun_structured_answer_stays_in_its_schema() -> None:
    begun = '{"city": "Par'
    request = ask(PARIS, assistant(begun), max_tokens=40, output_schema=OutputSchema(CITY))
    assert json.loads(begun + generate(request).text)["city"].startswith("Par")


def test_a_forced_tool_is_called() -> None:
    other = ToolDefinition("search", "Search the web.", CITY)
    reply = generate(
        ask(PARIS, max_tokens=80, tools=(other, WEATHER), tool_choice=ToolChoice.tool("weather"))
    )
    assert reply.stop_reason == "toolUse"
    (call,) = reply.content
    assert isinstance(call, ToolUse)
    assert (call.id, call.name, call.input) == ("call_1", "weather", {"city": "Paris"})


def test_the_model_may_choose_a_tool_and_read_its_result() -> None:
    async def use(provider: Provider) -> tuple[Reply, Reply]:
        first = await provider.generate("smollm2", ask(PARIS, max_tokens=80, tools=(WEATHER,)))
        (call,) = first.content
        assert isinstance(call, ToolUse)
        history = (
            PARIS,
            assistant(call),
            user(ToolResult(call.id, (Text("18 degrees and sunny"),))),
        )
        return first, await provider.generate(
            "smollm2", ask(*history, max_tokens=80, tools=(WEATHER,))
        )

    first, second = run(use)
    assert first.stop_reason == "toolUse"
    # Which of the two it chooses is up to the model; that it stays within the contract is not.
    assert second.stop_reason in ("endTurn", "toolUse", "maxTokens")
    assert all(not isinstance(part, ToolUse) or part.id == "call_2" for part in second.content)


def test_a_begun_reply_is_continued_among_tools() -> None:
    async def use(provider: Provider) -> list[ProviderEvent]:
        request = ask(PARIS, assistant("It is"), tools=(WEATHER,), max_tokens=6)
        return [event async for batch in provider.stream("smollm2", request) for event in batch]

    *deltas, last = run(use)
    assert len(deltas) > 2
    assert isinstance(last, Finished)
    assert last.reply.text
    assert "reply" not in last.reply.text


def test_concurrent_calls_are_served_one_after_the_other() -> None:
    async def use(provider: Provider) -> list[int]:
        seen: list[int] = []

        async def one(number: int) -> None:
            stream = provider.stream("smollm2", ask(user(f"Hi {number}"), max_tokens=4))
            async for events in stream:
                assert events
                seen.append(number)

        await asyncio.gather(*(one(number) for number in range(4)))
        return seen

    seen = run(use)
    assert seen == sorted(seen)
    assert set(seen) == {0, 1, 2, 3}


def test_closing_a_stream_stops_the_model() -> None:
    async def use(provider: Provider) -> tuple[float, Reply]:
        stream = provider.stream("smollm2", ask(user("Tell a long story."), max_tokens=2000))
        async for _ in stream:
            break
        await stream.aclose()
        # Of all threads, the model's too: on a busy machine the time on the wall says little.
        start = time.process_time()
        reply = await provider.generate("smollm2", ask(user("Hi"), max_tokens=2))
        return time.process_time() - start, reply

    seconds, reply = run(use)
    assert reply.usage.output_tokens == 2
    assert seconds < 8  # the story would have taken more than 20


def test_a_long_prompt_can_be_cancelled_while_it_is_read() -> None:
    async def use(provider: Provider) -> float:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.5):
                await provider.generate("smollm2", ask(user(LONG_PROMPT)))
        start = time.process_time()
        await provider.generate("smollm2", ask(user("Hi"), max_tokens=2))
        return time.process_time() - start

    assert run(use) < 10  # the prompt would have taken more than 30


def test_a_prompt_beyond_the_window_is_the_typed_error() -> None:
    with pytest.raises(ContextLengthExceeded, match="8192") as caught:
        generate(ask(user("hello " * 9000)))
    assert (caught.value.provider, caught.value.model) == ("embedded", "smollm2")


def test_a_schema_without_a_grammar_is_the_typed_error() -> None:
    with pytest.raises(UnsupportedOption, match="asks for the type 'bogus'"):
        generate(ask(user("Hi"), output_schema=OutputSchema({"type": "bogus"})))


def test_a_prefix_outside_the_schema_is_the_typed_error() -> None:
    request = ask(PARIS, assistant("Sure!"), output_schema=OutputSchema(CITY))
    with pytest.raises(InvalidRequest):
        generate(request)


def test_a_model_of_the_users_own_is_named_by_its_path(tmp_path: Path) -> None:
    own = tmp_path / "my model.gguf"
    own.symlink_to(weights.find("smollm2").path)
    reply = generate(ask(user("Hi"), max_tokens=2), str(own))
    assert reply.model == "my model"

    async def main() -> None:
        provider = EmbeddedProvider("local", model_path=str(own))
        reply = await provider.generate("default", ask(user("Hi"), max_tokens=2))
        assert reply.model == "my model"
        assert [model.id for model in await provider.models()] == [
            "my model",
            "smollm2",
            "wordllama",
        ]
        assert provider.capabilities("default").context_window is None
        await provider.aclose()

    asyncio.run(main())


def test_what_is_no_model_file_is_refused_with_its_path(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFound, match=r"no model file .*nothing\.gguf"):
        generate(ask(user("Hi")), str(tmp_path / "nothing.gguf"))
    (tmp_path / "folder.gguf").mkdir()
    with pytest.raises(ConfigurationError, match="is not a file"):
        generate(ask(user("Hi")), str(tmp_path / "folder.gguf"))
    text = tmp_path / "text.gguf"
    text.write_text("hello")
    with pytest.raises(ConfigurationError, match=r"text\.gguf is not a GGUF file"):
        generate(ask(user("Hi")), str(text))
    torn = tmp_path / "torn.gguf"
    torn.write_bytes(weights.find("smollm2").path.read_bytes()[:100_000])
    with pytest.raises(ConfigurationError, match=r"llama\.cpp cannot load .*torn\.gguf"):
        generate(ask(user("Hi")), str(torn))


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"system_prompt": "Be brief."},
        {"tools": (WEATHER,)},
        {"output_schema": OutputSchema(CITY)},
    ],
    ids=["bare", "system", "tools", "schema"],
)
def test_a_count_is_what_an_answer_then_reports(options: dict[str, Any]) -> None:
    async def use(provider: Provider) -> tuple[int | None, int | None]:
        request = ask(PARIS, max_tokens=1, **options)
        counted = await provider.count_tokens("smollm2", request)
        return counted, (await provider.generate("smollm2", request)).usage.input_tokens

    counted, reported = run(use)
    assert counted == reported
    assert counted is not None


def test_a_prompt_beyond_the_window_is_counted_all_the_same() -> None:
    counted = run(lambda provider: provider.count_tokens("smollm2", ask(user(LONG_PROMPT * 3))))
    assert counted is not None
    assert counted > weights.BUNDLED_CONTEXT


def test_a_count_for_an_unknown_name_is_refused() -> None:
    with pytest.raises(ModelNotFound) as caught:
        run(lambda provider: provider.count_tokens("gpt-9", ask(user("Hi"))))
    assert (caught.value.provider, caught.value.model) == ("embedded", "gpt-9")


def test_an_unknown_name_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ModelNotFound, match="no embedded model 'gpt-9'; use 'smollm2'") as caught:
        generate(ask(user("Hi")), "gpt-9")
    assert caught.value.provider == "embedded"


def test_capabilities_are_facts_that_need_no_model() -> None:
    provider: Provider = EmbeddedProvider("mine")
    chat = provider.capabilities("smollm2")
    assert provider.name == "mine"
    assert chat.context_window == 8192
    assert chat.tools
    assert chat.output_schema
    assert chat.prefill
    assert chat.embeddings
    assert not any((chat.images, chat.audio, chat.reasoning, chat.parallel_tools_switch))
    assert not provider.capabilities("wordllama").tools
    assert provider.capabilities("/models/x.gguf").context_window is None
    assert EmbeddedProvider(context=2048).capabilities("smollm2").context_window == 2048
