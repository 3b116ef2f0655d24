"""What a streamed tool's result is, from its annotation, and that a decorated one stays usable."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Iterable, Iterator
from typing import Annotated, Any

import pydantic
import pytest
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError

from penstock.mcp import Chunks, streamed


class Row(pydantic.BaseModel):
    """A value with a schema."""

    name: str


async def words() -> AsyncIterator[str]:
    yield "a"
    yield "b"


async def noted_words() -> AsyncGenerator[Annotated[str, "of a song"]]:
    yield "a"


async def rows() -> AsyncGenerator[Row, None]:
    yield Row(name="x")


def numbers() -> Iterator[int]:
    yield 1


def countable() -> Iterable[int]:
    return iter([1, 2])


def returning() -> Generator[str, None, Row]:
    yield "a"
    return Row(name="end")


def returning_nothing() -> Generator[str, None, None]:
    yield "a"


async def unsaid():
    yield "a"
    yield "b"


async def anything() -> AsyncIterator[Any]:
    yield 1
    yield "b"


async def in_chunks() -> Chunks[int]:
    return Chunks([1, 2])


async def listed() -> list[str]:
    return ["a"]


def one() -> str:
    return "whole"


STRING, INTEGER = {"type": "string"}, {"type": "integer"}


@pytest.mark.parametrize(
    ("function", "kind", "value"),
    [
        (words, STRING, "ab"),
        (noted_words, STRING, "a"),
        (rows, {"type": "array", "items": {"$ref": "#/$defs/Row"}}, [{"name": "x"}]),
        (numbers, {"type": "array", "items": INTEGER}, [1]),
        (countable, {"type": "array", "items": INTEGER}, [1, 2]),
        (returning_nothing, STRING, "a"),
        (in_chunks, {"type": "array", "items": INTEGER}, [1, 2]),
        (listed, {"type": "array", "items": STRING}, ["a"]),
        (one, STRING, "whole"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
async def test_the_annotation_gives_the_output_schema(
    function: Callable[[], object], kind: dict[str, Any], value: object
) -> None:
    server = MCPServer("test")
    server.add_tool(streamed(function))
    (tool,) = await server.list_tools()
    assert tool.output_schema is not None
    found = tool.output_schema["properties"]["result"]
    assert {key: item for key, item in found.items() if key != "title"} == kind
    result = await server.call_tool(function.__name__, {})
    assert getattr(result, "structured_content", None) == {"result": value}


async def test_what_a_generator_returns_gives_the_schema() -> None:
    server = MCPServer("test")
    server.add_tool(streamed(returning))
    (tool,) = await server.list_tools()
    assert tool.output_schema is not None
    assert tool.output_schema["properties"].keys() == {"name"}
    assert getattr(await server.call_tool("returning", {}), "structured_content", 0) == {
        "name": "end"
    }


@pytest.mark.parametrize(("function", "texts"), [(unsaid, ["ab"]), (anything, ["1", "b"])])
async def test_without_a_type_there_is_no_schema(
    function: Callable[[], object], texts: list[str]
) -> None:
    server = MCPServer("test")
    server.add_tool(streamed(function))
    (tool,) = await server.list_tools()
    assert tool.output_schema is None
    result = await server.call_tool(function.__name__, {})
    assert [block.text for block in getattr(result, "content", [])] == texts


async def test_collect_makes_something_else_of_the_pieces() -> None:
    def longest(pieces: list[str]) -> int:
        return max(map(len, pieces))

    server = MCPServer("test")
    server.add_tool(streamed(collect=longest)(words))
    (tool,) = await server.list_tools()
    assert tool.output_schema is not None
    assert tool.output_schema["properties"]["result"]["type"] == "integer"
    assert getattr(await server.call_tool("words", {}), "structured_content", 0) == {"result": 1}


async def test_collect_may_be_written_in_c() -> None:
    server = MCPServer("test")
    server.add_tool(streamed(collect=max)(words))
    result = await server.call_tool("words", {})
    assert [block.text for block in getattr(result, "content", [])] == ["b"]


async def test_arguments_and_their_texts_are_kept() -> None:
    server = MCPServer("test")

    @server.tool()
    @streamed
    async def tell(
        count: Annotated[int, pydantic.Field(description="How many.")], ctx: Context, last: str = ""
    ) -> AsyncIterator[str]:
        """Tell it."""
        for at in range(count):
            yield str(at)
        yield last

    (tool,) = await server.list_tools()
    assert (tool.name, tool.description) == ("tell", "Tell it.")
    properties = tool.input_schema["properties"]
    assert properties.keys() == {"count", "last"}
    assert properties["count"]["description"] == "How many."
    with pytest.raises(ToolError, match="count"):
        await server.call_tool("tell", {"count": "many"})


async def test_a_decorated_function_can_be_awaited() -> None:
    assert await streamed(words)() == "ab"
    assert await streamed(numbers)() == [1]
