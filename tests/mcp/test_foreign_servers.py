"""The adapter against servers that others wrote, through the tool loop and a model that calls.

The model is `fake`, which calls what it is told to with the arguments of a table, and `embedded`,
which writes the arguments itself, under the grammar of the tool's schema.
"""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncGenerator, Generator, Mapping
from pathlib import Path
from typing import Any

import pytest
from mcp import StdioServerParameters

import penstock
from penstock import (
    Complete,
    Config,
    Image,
    MCPTool,
    Text,
    ToolChoice,
    ToolEnded,
    ToolProgress,
    ToolResult,
    ToolStarted,
    ToolUse,
)
from penstock.config.settings import ModelConfig, ProviderConfig
from penstock.contract.events import GeneratorEvent
from penstock.mcp import ToolAdapter
from penstock.testing import FakeProvider, FakeReply, engine_with
from tests.support.mcp import foreign
from tests.support.mcp.processes import stdio_server
from tests.support.mcp.server import PIXEL
from tests.support.sound import wav

# `func_only`: the first test of a process may have to install the packages.
pytestmark = pytest.mark.timeout(60, func_only=True)

HELLO = base64.b64encode(b"hello").decode()
CALLS: Mapping[str, tuple[dict[str, Any], list[str]]] = {
    "echo": ({"message": "Grüße 🌊"}, ["Echo: Grüße 🌊"]),
    "get-annotated-message": (
        {"messageType": "success", "includeImage": True},
        ["Operation completed successfully", "image/png"],
    ),
    "get-env": ({}, ["GZIP_ALLOWED_DOMAINS"]),
    "get-resource-links": (
        {"count": 2},
        ["Here are 2", "demo://resource/dynamic/blob/1", "demo://resource/dynamic/text/2"],
    ),
    "get-resource-reference": (
        {"resourceType": "Text", "resourceId": 3},
        ["Resource 3:", "This is a plaintext resource", "demo://resource/dynamic/text/3"],
    ),
    "get-structured-content": ({"location": "Chicago"}, ["temperature"]),
    "get-sum": ({"a": 40, "b": 2}, ["The sum of 40 and 2 is 42."]),
    "get-tiny-image": ({}, ["Here's the image", "image/png", "MCP logo"]),
    "gzip-file-as-resource": (
        {"name": "x.gz", "data": f"data:text/plain;base64,{HELLO}", "outputType": "resource"},
        ["[application/gzip of 25 bytes at "],
    ),
    "toggle-simulated-logging": ({}, ["Started simulated"]),
    "toggle-subscriber-updates": ({}, ["Started simulated"]),
    "trigger-long-running-operation": (
        {"duration": 0.2, "steps": 4},
        ["Long running operation completed"],
    ),
    # It can only be called as a task, and says so.
    "simulate-research-query": ({"topic": "tides"}, ["requires task augmentation"]),
}
"""Every tool that server-everything offers us, what it is called with, and what it then says."""
FAILS = frozenset({"simulate-research-query"})
WITHHELD = (
    "get-roots-list",
    "trigger-elicitation-request",
    "trigger-sampling-request",
    "trigger-url-elicitation",
)
"""Those that need what our client does not declare; the server offers them to others only."""


@pytest.fixture(scope="module", autouse=True)
def packages() -> None:
    foreign.everything()


@pytest.fixture(scope="module")
def over_http() -> Generator[MCPTool]:
    with foreign.everything_over_http() as server:
        yield server.tool()


@pytest.fixture(params=["stdio", "http"])
async def everything(request: pytest.FixtureRequest) -> AsyncGenerator[ToolAdapter]:
    http = request.param == "http"
    target = request.getfixturevalue("over_http") if http else foreign.everything()
    async with ToolAdapter(target, name="everything") as adapter:
        yield adapter


def told(result: ToolResult | ToolEnded) -> str:
    """All of the content in words, a picture by its type."""
    parts = result.content
    return "\n".join(part.text if isinstance(part, Text) else part.mime_type for part in parts)


async def called(
    adapter: ToolAdapter, name: str, arguments: dict[str, Any]
) -> tuple[ToolResult, list[GeneratorEvent]]:
    """What reaches a model that calls this tool, and what happens meanwhile."""
    call = FakeReply(tool_uses=(ToolUse("call_1", name, arguments),))
    model = FakeProvider([call, "Done."])
    async with engine_with(model) as engine:
        generator = engine.string_generator("Go.", mcp_tools=[adapter], tool_timeout=20.0)
        async with generator.stream() as stream:
            events = [event async for event in stream]
            text, metadata = await stream.result()
    assert (text, metadata.tool_rounds, metadata.dropped_options) == ("Done.", 1, ())
    (result,) = model.requests[1].messages[-1].content
    assert isinstance(result, ToolResult)
    return result, events


async def test_every_tool_is_listed(everything: ToolAdapter) -> None:
    tools = {tool.definition.name: tool.definition for tool in await everything.tools()}
    assert tools.keys() == CALLS.keys()
    assert tools["get-sum"].input_schema["required"] == ["a", "b"]
    assert tools["echo"].description == "Echoes back the input string"


@pytest.mark.parametrize("name", CALLS)
async def test_every_tool_is_called(everything: ToolAdapter, name: str) -> None:
    arguments, expected = CALLS[name]
    result, events = await called(everything, name, arguments)
    assert [words for words in expected if words not in told(result)] == []
    assert result.is_error is (name in FAILS)
    happened = [event for event in events if isinstance(event, ToolStarted | ToolEnded)]
    assert happened == [
        ToolStarted("call_1", name, arguments, "everything"),
        ToolEnded("call_1", name, result.is_error, result.content),
    ]


async def test_structured_content_is_kept(everything: ToolAdapter) -> None:
    result, _ = await called(everything, "get-structured-content", {"location": "Chicago"})
    assert result.structured_content is not None
    assert result.structured_content.keys() == {"temperature", "conditions", "humidity"}
    assert json.loads(told(result)) == result.structured_content


async def test_a_picture_is_a_picture(everything: ToolAdapter) -> None:
    result, _ = await called(everything, "get-tiny-image", {})
    (picture,) = [part for part in result.content if isinstance(part, Image)]
    assert penstock.image(base64.b64decode(picture.data)) == picture


async def test_progress_becomes_events(everything: ToolAdapter) -> None:
    arguments = {"duration": 0.2, "steps": 4}
    _, events = await called(everything, "trigger-long-running-operation", arguments)
    progress = [event for event in events if isinstance(event, ToolProgress)]
    assert [(event.progress, event.total) for event in progress] == [(n, 4) for n in (1, 2, 3, 4)]
    assert {event.name for event in progress} == {"trigger-long-running-operation"}
    started = next(at for at, event in enumerate(events) if isinstance(event, ToolStarted))
    ended = next(at for at, event in enumerate(events) if isinstance(event, ToolEnded))
    assert all(started < events.index(event) < ended for event in progress)


@pytest.mark.parametrize("name", WITHHELD)
async def test_a_tool_that_needs_what_we_lack_is_a_clean_failure(
    everything: ToolAdapter, name: str
) -> None:
    """A model that calls it all the same is told; so is a caller of the adapter itself."""
    result, _ = await called(everything, name, {})
    assert result.is_error
    assert f"there is no tool {name!r}" in told(result)
    answer = await everything.call(name, {})
    assert answer.is_error
    assert name in told(answer)


@pytest.mark.parametrize("era", ["auto", "legacy"])
@pytest.mark.parametrize("name", ["ask_model", "ask_user", "ask_roots", "insist"])
async def test_a_server_that_asks_the_client_back_is_a_clean_failure(era: str, name: str) -> None:
    async with ToolAdapter(stdio_server(), name="tests", era=era) as adapter:
        process = (await adapter.call("process", {})).text
        result, _ = await called(adapter, name, {})
        assert result.is_error
        assert "the MCP server 'tests' refuses: " in told(result)
        assert (await adapter.call("process", {})).text == process
        sound, _ = await called(adapter, "add", {"a": 1, "b": 2})
        assert sound.text == "3"


@pytest.mark.parametrize("era", ["auto", "legacy"])
async def test_a_server_on_the_sdk_is_called_through_the_loop(era: str) -> None:
    async with ToolAdapter(stdio_server(), name="tests", era=era) as adapter:
        result, events = await called(adapter, "steps", {"count": 2})
    assert (told(result), result.is_error) == ("finished", False)
    steps = [event.message for event in events if isinstance(event, ToolProgress)]
    assert steps == ["step 1", "step 2"]


async def test_wrong_arguments_are_told_to_the_model(everything: ToolAdapter) -> None:
    result, _ = await called(everything, "get-sum", {"a": "x"})
    assert result.is_error
    assert "get-sum" in told(result)


async def test_a_server_that_was_started_anew_is_called_as_before() -> None:
    """It answers an unknown session with status 400, where the specification says 404."""
    with foreign.everything_over_http() as server:
        async with ToolAdapter(server.tool(), name="everything") as adapter:
            await called(adapter, "get-sum", {"a": 1, "b": 1})
            server.kill()
            server.start()
            result, _ = await called(adapter, "get-sum", {"a": 40, "b": 2})
    assert told(result) == "The sum of 40 and 2 is 42."


@pytest.mark.timeout(180, func_only=True)
@pytest.mark.parametrize("name", CALLS)
async def test_the_embedded_model_calls_every_tool(name: str) -> None:
    """It writes arguments of its own, which fit the schema; what they lead to is up to the tool."""
    config = Config(
        providers={"embedded": ProviderConfig()},
        models={"default": ModelConfig(targets=("embedded/smollm2",))},
    )
    server = foreign.everything()
    async with (
        penstock.open(config) as engine,
        ToolAdapter(server, name="everything", allowed_tools=[name]) as adapter,
    ):
        generator = engine.string_generator(
            "Use the tool.",
            mcp_tools=[adapter],
            tool_choice=ToolChoice.tool(name),
            max_tool_rounds=1,
            max_tokens=120,
            temperature=0.0,
            tool_timeout=1.0,
        )
        async with generator.stream() as stream:
            events = [event async for event in stream]
    (started,) = [event for event in events if isinstance(event, ToolStarted)]
    (ended,) = [event for event in events if isinstance(event, ToolEnded)]
    assert (started.name, started.server, ended.name) == (name, "everything", name)
    assert "Invalid arguments" not in told(ended)
    assert ended.is_error is (name in FAILS | {"gzip-file-as-resource"} or "longer" in told(ended))
    end = events[-1]
    assert isinstance(end, Complete), f"the stream ended with {end!r}"
    assert end.result.metadata.tool_rounds == 1


async def test_files_are_written_read_and_listed_and_no_others(tmp_path: Path) -> None:
    allowed, secret = tmp_path / "allowed", tmp_path / "secret.txt"
    allowed.mkdir()
    secret.write_text("hidden")
    file = str(allowed / "note.txt")
    async with ToolAdapter(foreign.filesystem(allowed), name="files") as adapter:
        names = {tool.definition.name for tool in await adapter.tools()}
        assert {"read_text_file", "write_file", "list_directory", "read_media_file"} <= names
        written, _ = await called(adapter, "write_file", {"path": file, "content": "Ebb and flow."})
        assert not written.is_error
        assert Path(file).read_text() == "Ebb and flow."
        read, _ = await called(adapter, "read_text_file", {"path": file})
        assert told(read) == "Ebb and flow."
        listed, _ = await called(adapter, "list_directory", {"path": str(allowed)})
        assert told(listed) == "[FILE] note.txt"
        for outside in (str(secret), str(allowed / ".." / "secret.txt")):
            refused, _ = await called(adapter, "read_text_file", {"path": outside})
            assert refused.is_error
            assert "hidden" not in told(refused)
            assert "outside allowed directories" in told(refused)


async def test_media_files_are_pictures_and_sounds(tmp_path: Path) -> None:
    pixel = penstock.image(base64.b64decode(PIXEL))
    (tmp_path / "dot.png").write_bytes(base64.b64decode(PIXEL))
    (tmp_path / "beep.wav").write_bytes(wav())
    async with ToolAdapter(foreign.filesystem(tmp_path), name="files") as adapter:
        path = str(tmp_path / "dot.png")
        seen, _ = await called(adapter, "read_media_file", {"path": path})
        assert pixel in seen.content
        path = str(tmp_path / "beep.wav")
        heard, _ = await called(adapter, "read_media_file", {"path": path})
        assert penstock.audio(wav()) in heard.content


async def test_what_was_remembered_is_found_again(tmp_path: Path) -> None:
    tide = {"name": "tide", "entityType": "motion", "observations": ["comes twice a day"]}
    moon: dict[str, Any] = {"name": "moon", "entityType": "body", "observations": []}
    pull = {"from": "moon", "to": "tide", "relationType": "causes"}
    target: StdioServerParameters = foreign.memory(tmp_path / "memory.jsonl")
    async with ToolAdapter(target, name="memory") as adapter:
        await called(adapter, "create_entities", {"entities": [tide, moon]})
        await called(adapter, "create_relations", {"relations": [pull]})
    # The file outlives the process that wrote it.
    async with ToolAdapter(target, name="memory") as adapter:
        found, _ = await called(adapter, "search_nodes", {"query": "twice"})
        assert json.loads(told(found))["entities"] == [tide]
        graph, _ = await called(adapter, "read_graph", {})
        assert graph.structured_content == {"entities": [tide, moon], "relations": [pull]}
