"""Names of tools: legal everywhere, one for each tool, and the way back."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import (
    InvalidRequest,
    Text,
    ToolChoice,
    ToolDefinition,
    ToolEnded,
    ToolProgress,
    ToolStarted,
    ToolUse,
)
from penstock.contract.tools import Report, RunnableTool
from penstock.generators.naming import offered, offered_name
from penstock.testing import FakeProvider, FakeReply, engine_with

LEGAL = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")
LONG = "read_the_whole_of_a_very_long_document_and_" * 2


class Named:
    """A tool that answers with where it is."""

    timeout = None

    def __init__(self, name: str, server: str = "") -> None:
        self.definition = ToolDefinition(name)
        self.server = server

    def __repr__(self) -> str:
        return f"{self.server}/{self.definition.name}"

    async def run(self, arguments: Any, report: Report, /) -> str:
        report(1, 2, "halfway")
        return repr(self)


class Source:
    """The tools of a server, as they stand."""

    def __init__(self, name: str, *tools: str) -> None:
        self.name = name
        self._tools = [Named(tool, name) for tool in tools]

    async def tools(self) -> Sequence[RunnableTool]:
        return self._tools


names = st.one_of(
    st.text(max_size=80),
    st.from_regex(LEGAL, fullmatch=True),
    st.sampled_from(["search", "a b", "a_b", "a/b", "a.b", "docs_search", "", "7", LONG]),
)
servers = st.one_of(
    st.sampled_from(["docs", "wiki", "a b", "日本"]), st.text(min_size=1, max_size=70)
)
functions = st.lists(st.from_regex(LEGAL, fullmatch=True), max_size=4, unique=True)
remote = st.lists(st.tuples(names, servers), max_size=12)


def _tools(functions: list[str], remote: list[tuple[str, str]]) -> list[Named]:
    return [*map(Named, functions), *(Named(name, server) for name, server in remote)]


@given(functions, remote)
def test_every_tool_has_a_legal_name_of_its_own_that_leads_back(
    functions: list[str], remote: list[tuple[str, str]]
) -> None:
    tools = _tools(functions, remote)
    named = offered(tools)
    assert [name for name in named if not LEGAL.fullmatch(name)] == []
    assert sorted(map(id, named.values())) == sorted(map(id, tools))


@given(functions, remote)
def test_functions_keep_their_names(functions: list[str], remote: list[tuple[str, str]]) -> None:
    tools = _tools(functions, remote)
    named = offered(tools)
    assert [named[name] for name in functions] == tools[: len(functions)]


@given(functions, remote)
def test_the_same_tools_have_the_same_names_again(
    functions: list[str], remote: list[tuple[str, str]]
) -> None:
    """A model meets the names of one round in the history of the next."""
    first, second = offered(_tools(functions, remote)), offered(_tools(functions, remote))
    assert list(map(repr, first.items())) == list(map(repr, second.items()))


@given(remote)
def test_every_tool_can_be_meant_by_the_name_that_the_model_knows(
    remote: list[tuple[str, str]],
) -> None:
    named = offered(_tools([], remote))
    assert [offered_name(name, named) for name in named] == list(named)


@pytest.mark.parametrize(
    ("tools", "expected"),
    [
        ([("search", "docs")], ["search"]),
        ([("get-sum", "docs"), ("_x", "wiki")], ["get-sum", "_x"]),
        ([("search", "docs"), ("search", "wiki")], ["docs_search", "wiki_search"]),
        ([("search", "docs"), ("search", "")], ["docs_search", "search"]),
        ([("search", "my docs"), ("search", "")], [r"my_docs_search_[0-9a-f]{8}", "search"]),
        ([("a/b", "docs"), ("a.b", "docs")], [r"a_b_[0-9a-f]{8}", r"a_b_[0-9a-f]{8}"]),
        ([("7", "docs"), ("", "docs")], [r"_7_[0-9a-f]{8}", r"__[0-9a-f]{8}"]),
        ([("検索", "docs")], [r"___[0-9a-f]{8}"]),
        ([(LONG + "1", "docs"), (LONG + "2", "docs")], [LONG[:55] + r"_[0-9a-f]{8}"] * 2),
        # The same tool twice, and a function that has the name which a server's tool would get.
        ([("x", "docs"), ("x", "docs")], ["docs_x", r"docs_x_[0-9a-f]{8}"]),
        (
            [("docs_x", ""), ("x", ""), ("x", "docs")],
            ["docs_x", "x", r"docs_x_[0-9a-f]{8}"],
        ),
    ],
)
def test_what_a_tool_is_called(tools: list[tuple[str, str]], expected: list[str]) -> None:
    made = [Named(name, server) for name, server in tools]
    by_tool = {id(tool): name for name, tool in offered(made).items()}
    for tool, pattern in zip(made, expected, strict=True):
        assert re.fullmatch(pattern, by_tool[id(tool)])


async def test_events_carry_the_tools_own_name_and_its_server() -> None:
    model = FakeProvider(
        [FakeReply(tool_uses=(ToolUse("c1", "docs_search", {}), ToolUse("c2", "wiki_search", {})))]
    )
    sources = [Source("docs", "search"), Source("wiki", "search")]
    async with engine_with(model) as engine:
        generator = engine.string_generator("Go.", mcp_tools=sources)
        async with generator.stream() as stream:
            events = [event async for event in stream]
    assert [tool.name for tool in model.requests[0].tools] == ["docs_search", "wiki_search"]
    for call, server in (("c1", "docs"), ("c2", "wiki")):
        of_call = [event for event in events if getattr(event, "id", "") == call]
        started, progress, ended = (
            event for event in of_call if isinstance(event, ToolStarted | ToolProgress | ToolEnded)
        )
        assert started == ToolStarted(call, "search", {}, server)
        assert progress == ToolProgress(call, "search", 1, 2, "halfway")
        assert isinstance(ended, ToolEnded)
        assert ended.name == "search"
        assert ended.content[0] == Text(f"{server}/search")


@pytest.mark.parametrize(
    ("chosen", "forced"),
    [("open file", "docs/open file"), ("docs_search", "docs/search"), ("now", "/now")],
)
async def test_a_forced_tool_may_be_named_as_its_server_names_it(chosen: str, forced: str) -> None:
    sources = [Source("docs", "open file", "search"), Source("wiki", "search")]
    async with engine_with(FakeProvider()) as engine:
        text, _ = await engine.string_generator(
            "Go.", tools=[Named("now")], mcp_tools=sources, tool_choice=ToolChoice.tool(chosen)
        ).generate()
    assert text == forced


async def test_a_name_that_two_servers_have_forces_neither() -> None:
    sources = [Source("docs", "search"), Source("wiki", "search")]
    async with engine_with(FakeProvider()) as engine:
        generator = engine.string_generator(
            "Go.", mcp_tools=sources, tool_choice=ToolChoice.tool("search")
        )
        with pytest.raises(InvalidRequest, match="'search'"):
            await generator.generate()


def test_no_name_is_offered_that_is_taken() -> None:
    tools: Sequence[RunnableTool] = [Named("find", "docs"), Named("open", "docs")]
    assert offered(tools, ["find", "docs_open"]) == {"docs_find": tools[0], "open": tools[1]}
    again = offered([Named("find", "docs")], ["find", "docs_find"])
    (name,) = again
    assert name not in ("find", "docs_find")
    assert LEGAL.fullmatch(name)
