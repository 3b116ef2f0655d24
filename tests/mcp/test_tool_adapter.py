"""The adapter against servers on the official SDK, in both eras, over HTTP and stdio."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncGenerator, Generator

import pytest
from mcp import StdioServerParameters

from penstock import Audio, Image, MCPTool, Text, ToolFailed
from penstock.contract.messages import JSONObject
from penstock.contract.tools import Report
from penstock.mcp import ToolAdapter
from tests.support.loops import pass_time, timeless
from tests.support.mcp.processes import HttpServer, http_server, stdio_server, up_to
from tests.support.services import free_port, wait_until

ERAS = ("auto", "legacy")
pytestmark = pytest.mark.timeout(60)


@pytest.fixture(scope="module")
def server() -> Generator[HttpServer]:
    with http_server() as running:
        yield running


@pytest.fixture
def own_server() -> Generator[HttpServer]:
    """For tests that kill it."""
    with http_server() as running:
        yield running


@pytest.fixture
def silent_server() -> Generator[HttpServer]:
    """It never says that it will tell of changes, after which a list is fetched once more."""
    with http_server(up_to("hold")) as running:
        yield running


@pytest.fixture(params=[(era, way) for era in ERAS for way in ("http", "stdio")], ids="-".join)
async def adapter(
    request: pytest.FixtureRequest, server: HttpServer
) -> AsyncGenerator[ToolAdapter]:
    era, way = request.param
    target = server.tool() if way == "http" else stdio_server()
    async with ToolAdapter(target, name="tests", era=era) as connected:
        yield connected


async def names(adapter: ToolAdapter) -> set[str]:
    return {tool.definition.name for tool in await adapter.tools()}


async def requests(adapter: ToolAdapter) -> JSONObject:
    counted = (await adapter.call("requests", {})).structured_content
    assert counted is not None
    return counted


async def test_tools_are_listed_with_what_the_server_says_of_them(adapter: ToolAdapter) -> None:
    tools = {tool.definition.name: tool for tool in await adapter.tools()}
    assert {"add", "contents", "fail", "steps", "hang"} <= tools.keys()
    add = tools["add"].definition
    assert add.description == "Add two numbers."
    assert add.input_schema["required"] == ["a", "b"]
    assert {tool.server for tool in tools.values()} == {"tests"}


async def test_a_tool_is_called(adapter: ToolAdapter) -> None:
    result = await adapter.call("add", {"a": 1, "b": 41})
    assert (result.text, result.structured_content, result.is_error) == (
        "42",
        {"result": 42},
        False,
    )


async def test_every_kind_of_content_is_taken_over(adapter: ToolAdapter) -> None:
    result = await adapter.call("contents", {})
    words, picture, sound, link, text, drawn, archive = result.content
    assert words == Text("words")
    assert isinstance(picture, Image)
    assert picture.mime_type == "image/png"
    assert sound == Audio("UklGRgAAAABXQVZF", "audio/wav")
    assert link == Text("[page: https://example.com/page]")
    assert text == Text("from a resource")
    assert drawn == picture
    assert archive == Text("[application/zip of 4 bytes at test://archive]")


async def test_a_tool_that_fails_answers_as_failed(adapter: ToolAdapter) -> None:
    result = await adapter.call("fail", {})
    assert result.is_error
    assert "no luck" in result.text


async def test_bad_arguments_and_unknown_tools_are_failures_too(adapter: ToolAdapter) -> None:
    assert (await adapter.call("add", {"a": "x"})).is_error
    assert (await adapter.call("nothing", {})).is_error


async def test_progress_is_reported_in_order(adapter: ToolAdapter) -> None:
    seen: list[tuple[float, float | None, str | None]] = []

    def note(progress: float, total: float | None, message: str | None) -> None:
        seen.append((progress, total, message))

    result = await adapter.call("steps", {"count": 3}, note)
    assert result.text == "finished"
    assert seen == [(1, 3, "step 1"), (2, 3, "step 2"), (3, 3, "step 3")]


async def test_a_cancelled_call_is_cancelled_at_the_server(adapter: ToolAdapter) -> None:
    began = asyncio.Event()
    name = f"{os.getpid()}-{id(adapter)}"
    call = asyncio.create_task(adapter.call("hang", {"name": name}, _sets(began)))
    await began.wait()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    async with asyncio.timeout(30):
        while name not in (await adapter.call("stopped", {})).text:
            pass


async def test_a_change_of_the_list_is_noticed_although_it_was_said_to_last() -> None:
    async with ToolAdapter(stdio_server(), name="tests") as adapter:
        assert "sprout" not in await names(adapter)
        await adapter.call("grow", {})
        async with asyncio.timeout(30):
            while "sprout" not in await names(adapter):
                await adapter.call("stopped", {})
        assert (await adapter.call("sprout", {})).text == "sprouted"


@pytest.mark.parametrize(("mischief", "wishes"), [("refuse", 2), ("hold", 1)])
async def test_what_changed_before_the_server_was_heard_is_noticed_too(
    mischief: str, wishes: int
) -> None:
    async with ToolAdapter(stdio_server(mischief), name="tests") as adapter:
        assert "sprout" not in await names(adapter)
        await adapter.call("grow", {})
        async with asyncio.timeout(30):
            while "sprout" not in await names(adapter):
                await adapter.call("stopped", {})
        assert (await requests(adapter))["subscriptions/listen"] == wishes


async def test_what_changes_after_an_idle_connection_was_closed_is_noticed(
    own_server: HttpServer,
) -> None:
    async with (
        ToolAdapter(own_server.tool(), idle=0.2) as idle,
        ToolAdapter(own_server.tool()) as other,
    ):
        async with asyncio.timeout(30):
            while (await requests(other)).get("listening") != 1:
                assert "sprout" not in await names(idle)
        await other.call("grow", {})
        assert "sprout" in await names(idle)


async def test_a_server_that_died_is_not_remembered() -> None:
    async with ToolAdapter(stdio_server(), name="tests") as adapter:
        await adapter.call("grow", {})
        async with asyncio.timeout(30):
            while "sprout" not in await names(adapter):
                await adapter.call("stopped", {})
        os.kill(int((await adapter.call("process", {})).text), signal.SIGKILL)
        with pytest.raises(ToolFailed):
            await adapter.call("stopped", {})
        assert "sprout" not in await names(adapter)


@timeless
async def test_a_server_that_ends_each_subscription_is_asked_ever_more_seldom() -> None:
    with http_server(up_to("end")) as server:
        async with ToolAdapter(server.tool()) as adapter:
            for wishes, pause_s in ((1, 0.5), (2, 1.0), (3, 2.0)):
                while (await requests(adapter))["subscriptions/listen"] < wishes:
                    pass
                await pass_time(pause_s - 0.01)
                assert (await requests(adapter))["subscriptions/listen"] == wishes
                await pass_time(0.02)


@pytest.mark.parametrize("era", ERAS)
async def test_a_server_that_was_started_anew_has_a_list_of_its_own(
    own_server: HttpServer, era: str
) -> None:
    async with ToolAdapter(own_server.tool(), era=era) as earlier:
        await earlier.call("grow", {})
    async with ToolAdapter(own_server.tool(), era=era) as adapter:
        assert "sprout" in await names(adapter)
        own_server.kill()
        own_server.start()
        async with asyncio.timeout(20):
            while "sprout" in await names(adapter):
                await adapter.call("process", {})
        # And of its changes we are told as before.
        await adapter.call("grow", {})
        if era == "auto":
            async with asyncio.timeout(20):
                while "sprout" not in await names(adapter):
                    await adapter.call("process", {})


async def test_the_list_is_fetched_once_for_all_who_ask_at_once(silent_server: HttpServer) -> None:
    async with ToolAdapter(silent_server.tool()) as adapter:
        await adapter.aclose()
        lists = await asyncio.gather(*(adapter.tools() for _ in range(50)))
        assert {len(each) for each in lists} == {len(lists[0])}
        assert lists[0]
        # Once for each connection.
        assert (await requests(adapter))["tools/list"] == 2


async def test_the_list_is_fetched_once_while_it_is_good(silent_server: HttpServer) -> None:
    async with ToolAdapter(silent_server.tool()) as adapter:
        assert await adapter.tools() is await adapter.tools()


async def test_a_server_that_tells_of_changes_lists_its_tools_twice_at_most(
    own_server: HttpServer,
) -> None:
    async with ToolAdapter(own_server.tool()) as adapter:
        async with asyncio.timeout(30):
            while (await requests(adapter)).get("listening") != 1:
                await adapter.tools()
        for _ in range(20):
            await adapter.tools()
        assert (await requests(adapter))["tools/list"] <= 2


@pytest.mark.parametrize("era", ERAS)
async def test_only_allowed_tools_are_offered(server: HttpServer, era: str) -> None:
    allowed = MCPTool(server.url, "tests", allowed_tools=["add", "nothing"])
    async with ToolAdapter(allowed, era=era) as adapter:
        assert [tool.definition.name for tool in await adapter.tools()] == ["add"]


@pytest.mark.parametrize("era", ERAS)
async def test_headers_go_along_with_every_call(server: HttpServer, era: str) -> None:
    headed = MCPTool(server.url, "tests", {"X-Team": "blue"})
    async with ToolAdapter(headed, era=era) as adapter:
        assert (await adapter.call("header", {"name": "x-team"})).text == "blue"


@pytest.mark.parametrize("era", ERAS)
async def test_a_server_that_was_started_anew_is_called_as_before(
    own_server: HttpServer, era: str
) -> None:
    async with ToolAdapter(own_server.tool(), era=era) as adapter:
        first = (await adapter.call("process", {})).text
        own_server.kill()
        own_server.start()
        assert (await adapter.call("process", {})).text != first


@pytest.mark.parametrize("era", ERAS)
async def test_a_server_killed_in_mid_call_fails_the_call_and_not_the_next(
    own_server: HttpServer, era: str
) -> None:
    async with ToolAdapter(own_server.tool(), era=era) as adapter:
        began = asyncio.Event()
        call = asyncio.create_task(adapter.call("hang", {"name": "x"}, _sets(began)))
        await began.wait()
        own_server.kill()
        with pytest.raises(ToolFailed, match="'tests' cannot be reached"):
            await call
        with pytest.raises(ToolFailed, match="'tests' cannot be reached"):
            await adapter.call("add", {"a": 1, "b": 2})
        own_server.start()
        assert (await adapter.call("add", {"a": 1, "b": 2})).text == "3"


async def test_a_process_that_died_is_started_again() -> None:
    async with ToolAdapter(stdio_server(), name="tests") as adapter:
        first = int((await adapter.call("process", {})).text)
        os.kill(first, signal.SIGKILL)
        async with asyncio.timeout(20):
            while True:
                try:
                    assert int((await adapter.call("process", {})).text) != first
                except ToolFailed:
                    # The first call may meet the end of the old process; it is not repeated.
                    continue
                break


async def test_an_idle_connection_is_closed_and_opened_again() -> None:
    async with ToolAdapter(stdio_server(), name="tests", idle=0.2) as adapter:
        first = int((await adapter.call("process", {})).text)
        assert await asyncio.to_thread(wait_until, lambda: not _runs(first), 20)
        assert int((await adapter.call("process", {})).text) != first


def _sets(event: asyncio.Event) -> Report:
    def report(progress: float, total: float | None, message: str | None) -> None:
        event.set()

    return report


def _runs(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.parametrize(
    ("target", "reason"),
    [
        (MCPTool(f"http://127.0.0.1:{free_port()}/mcp", "gone"), "All connection attempts failed"),
        (MCPTool("http://169.254.169.254/mcp", "gone"), "link-local address"),
        (MCPTool("http://[::ffff:169.254.169.254]/mcp", "gone"), "link-local address"),
        (StdioServerParameters(command="/no/such/command"), "No such file"),
        (StdioServerParameters(command="true"), ""),
    ],
    ids=["refused", "metadata", "mapped", "no-command", "ends-at-once"],
)
async def test_a_server_that_is_not_there_is_a_clear_failure(
    target: MCPTool | StdioServerParameters, reason: str
) -> None:
    with pytest.raises(ToolFailed, match=r"'gone' (cannot be reached|refuses): ") as caught:
        await ToolAdapter(target, name="gone", timeout=10).tools()
    assert reason in str(caught.value)


async def test_a_server_that_says_nothing_is_given_up() -> None:
    silent = StdioServerParameters(command="sleep", args=["60"])
    with pytest.raises(ToolFailed, match=r"no connection within 0\.5 s"):
        await ToolAdapter(silent, name="silent", timeout=0.5).tools()


async def test_a_name_that_leads_to_a_forbidden_address_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The name is looked up by the adapter itself, which then goes to that very address."""

    # There is no such name to be had without a name server of one's own.
    async def lead(loop: object, host: str, port: int, **options: object) -> list[object]:
        return [(2, 1, 6, "", ("169.254.169.254", port))]

    monkeypatch.setattr(asyncio.BaseEventLoop, "getaddrinfo", lead)
    with pytest.raises(ToolFailed, match=r"leads to 169\.254\.169\.254, which is a link"):
        await ToolAdapter(MCPTool("http://innocent.example/mcp", "trap")).tools()


async def test_calls_at_once_do_not_wait_for_each_other(adapter: ToolAdapter) -> None:
    began = asyncio.Event()
    hanging = asyncio.create_task(adapter.call("hang", {"name": "beside"}, _sets(began)))
    await began.wait()
    results = await asyncio.gather(*(adapter.call("add", {"a": n, "b": 1}) for n in range(10)))
    assert [result.text for result in results] == [str(n + 1) for n in range(10)]
    hanging.cancel()
    await asyncio.gather(hanging, return_exceptions=True)
