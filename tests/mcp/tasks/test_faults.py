"""Servers that are killed, clients that are many, and clients that must not see one another."""

from __future__ import annotations

import asyncio
import socket
import sqlite3
import sys
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import mcp_types as types
import pytest
import uvicorn
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client
from mcp.server.auth.provider import AccessToken
from mcp.server.auth.settings import AuthSettings
from mcp.shared.exceptions import MCPError
from pydantic import AnyHttpUrl

from penstock.mcp.tasks import (
    SqliteTasks,
    TaskHandle,
    TaskLimits,
    TaskRecord,
    resume_task,
    run_task,
    start_task,
)
from penstock.mcp.tasks.records import STOPPED
from penstock.mcp.tasks.wire import TASK_LIMIT
from tests.mcp.tasks.conftest import client_of, over_http, over_stdio
from tests.mcp.tasks.server import Bench
from tests.mcp.tasks.test_legacy import sent
from tests.mcp.tasks.test_tasks import started, text_of, until
from tests.support.services import HOST


async def test_a_killed_server_leaves_failures_that_say_so(tmp_path: Path) -> None:
    store = tmp_path / "tasks.db"
    with over_http(store) as server:
        async with client_of(server.url, "auto") as client:
            running = [await started(client, "hang", label=str(each)) for each in range(3)]
            done = await started(client, "add", a=1, b=2)
            asking = await started(client, "ask_word")
            await until(done, "completed")
            await until(asking, "input_required")
            server.kill()
            server.start()
        async with client_of(server.url, "auto") as client:
            for each in (*running, asking):
                state = await resume_task(client, each.id).state()
                assert (state.status, state.status_message) == ("failed", STOPPED)
                with pytest.raises(MCPError, match="the server stopped"):
                    await resume_task(client, each.id).result()
            assert text_of(await resume_task(client, done.id).result()) == "3"


async def test_a_legacy_client_finds_its_tasks_failed_after_a_kill(tmp_path: Path) -> None:
    store = tmp_path / "tasks.db"
    async with client_of(over_stdio(store), "legacy") as client:
        task = await started(client, "hang", label="one")
        # The client ends the process, as hosts do.
    async with client_of(over_stdio(store), "legacy") as client:
        again = resume_task(client, task.id)
        assert (await again.state()).status == "failed"
        with pytest.raises(MCPError, match="the server stopped"):
            await again.result()
        listed = await sent(client, "tasks/list")
        assert [each["taskId"] for each in listed["tasks"]] == [task.id]


async def test_sessions_do_not_see_one_another(tmp_path: Path) -> None:
    with over_http(tmp_path / "tasks.db") as server:
        async with (
            client_of(server.url, "legacy") as one,
            client_of(server.url, "legacy") as two,
        ):
            task = await started(one, "hang", label="one")
            await _cannot_see(two, task.id, legacy=True)
            assert (await task.state()).status == "working"


async def test_without_sessions_nobody_is_told_the_ids_of_others(era: str, tmp_path: Path) -> None:
    async with (
        served(Bench(tmp_path / "tasks.db"), stateless_http=True) as url,
        client_of(url, era) as one,
        client_of(url, "legacy") as two,
    ):
        task = await started(one, "hang", label="one")
        with pytest.raises(MCPError, match="nothing tells apart") as refused:
            await sent(two, "tasks/list")
        assert refused.value.code == types.METHOD_NOT_FOUND
        # The id is the key.
        assert (await resume_task(two, task.id).state()).status == "working"


class Verifier:
    """Whoever has a token is the one that it names."""

    async def verify_token(self, token: str) -> AccessToken | None:
        return AccessToken(token=token, client_id="app", scopes=[], subject=token)


@asynccontextmanager
async def authorised(tmp_path: Path) -> AsyncGenerator[str]:
    """The server in this process, for those who have a token."""
    issuer = AnyHttpUrl(f"http://{HOST}")
    auth = AuthSettings(issuer_url=issuer, resource_server_url=None)
    bench = Bench(tmp_path / "tasks.db", auth=auth, token_verifier=Verifier())
    async with served(bench) as url:
        yield url


@asynccontextmanager
async def served(bench: Bench, **options: Any) -> AsyncGenerator[str]:
    """The server in this process, behind an address."""
    listener = socket.create_server((HOST, 0))
    app = bench.server.streamable_http_app(**options)
    server = uvicorn.Server(uvicorn.Config(app, log_level="error"))
    async with bench.tasks:
        serving = asyncio.create_task(server.serve([listener]))
        while True:
            if server.started:
                break
            await asyncio.sleep(0.01)
        try:
            yield f"http://{HOST}:{listener.getsockname()[1]}/mcp"
        finally:
            server.should_exit = True
            await serving


@asynccontextmanager
async def signed_in(url: str, who: str, era: str) -> AsyncGenerator[Client]:
    headers = {"authorization": f"Bearer {who}"}
    async with (
        httpx2.AsyncClient(headers=headers, timeout=30) as http,
        client_of(streamable_http_client(url, http_client=http), era) as client,
    ):
        yield client


async def test_principals_do_not_see_one_another(era: str, tmp_path: Path) -> None:
    async with authorised(tmp_path) as url:
        async with signed_in(url, "ann", era) as ann, signed_in(url, "bob", era) as bob:
            task = await started(ann, "hang", label="one")
            await _cannot_see(bob, task.id, legacy=era == "legacy")
            assert (await task.state()).status == "working"
        # Ann's next session is still Ann.
        async with signed_in(url, "ann", era) as ann:
            assert (await resume_task(ann, task.id).state()).status == "working"


async def _cannot_see(client: Client, id: str, *, legacy: bool) -> None:
    theirs: TaskHandle = resume_task(client, id)
    asks: list[Any] = [theirs.state, theirs.cancel, theirs.result]
    for ask in asks:
        with pytest.raises(MCPError, match="is unknown here") as raised:
            await ask()
        assert raised.value.code == types.INVALID_PARAMS
    if legacy:
        assert (await sent(client, "tasks/list"))["tasks"] == []


async def test_a_client_at_its_limit_hinders_no_other(era: str, tmp_path: Path) -> None:
    async with (
        authorised(tmp_path) as url,
        signed_in(url, "ann", era) as ann,
        signed_in(url, "bob", era) as bob,
    ):
        for number in range(TaskLimits().running):
            await started(ann, "hang", label=str(number))
        with pytest.raises(MCPError, match="32 tasks that have not ended is the most") as told:
            await started(ann, "hang", label="one too many")
        assert told.value.code == TASK_LIMIT
        assert told.value.data == {"limit": "running", "maximum": 32}
        assert text_of(await run_task(bob, "add", {"a": 1, "b": 2})) == "3"


async def test_a_thousand_tasks_of_one_client(tmp_path: Path) -> None:
    limits = TaskLimits(running=2000, kept=1000)
    bench = Bench(tmp_path / "tasks.db", limits)
    async with bench.tasks, client_of(bench.server, "auto") as client:
        calls = [started(client, "held") for _ in range(limits.kept)]
        tasks = await asyncio.gather(*calls)
        with pytest.raises(MCPError, match="1000 tasks that are kept is the most"):
            await started(client, "only_task")
        # Where the server need not make a task of it, it makes none.
        answer = await start_task(client, "add", {"a": 1, "b": 2})
        assert isinstance(answer, types.CallToolResult)
        assert answer.structured_content == {"result": 3}
        bench.release.set()
        for task in tasks[:: len(tasks) // 10]:
            await until(task, "completed")


async def test_a_result_that_is_too_large_fails_the_task(era: str, tmp_path: Path) -> None:
    bench = Bench(tmp_path / "tasks.db", TaskLimits(result_bytes=1000))
    async with bench.tasks, client_of(bench.server, era) as client:
        with pytest.raises(MCPError, match="1,000 is the most that is kept"):
            await run_task(client, "much", {"size": 2000})
        assert text_of(await run_task(client, "much", {"size": 10})) == "x" * 10


async def test_a_task_whose_time_is_over_is_stopped(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "tasks.db", TaskLimits(ttl_ms=200))
    async with bench.tasks, client_of(bench.server, "auto") as client:
        task = await started(client, "hang", label="one")
        while True:
            if bench.stopped == ["one"]:
                break
            await asyncio.sleep(0.01)
        with pytest.raises(MCPError, match="is unknown here"):
            await task.state()


async def test_a_result_that_cannot_be_kept_is_a_failure_that_says_so(
    era: str, bench: Bench, tmp_path: Path
) -> None:
    async with client_of(bench.server, era) as client:
        task = await started(client, "held")
        await until(task, "working")
        with sqlite3.connect(tmp_path / "tasks.db") as connection:
            connection.execute("ALTER TABLE mcp_tasks RENAME TO elsewhere")
        connection.close()
        bench.release.set()
        while True:
            with pytest.raises(MCPError) as raised:
                await task.result()
            if "could not be kept" in raised.value.message:
                break
            # Before it has ended, nobody can say how it is.
            assert "the task store cannot be used" in raised.value.message
        state = await task.state()
        assert state.status == "failed"


async def test_a_store_that_cannot_be_opened_is_an_error_of_the_call(
    era: str, tmp_path: Path
) -> None:
    (tmp_path / "tasks.db").write_bytes(b"no database at all" * 1000)
    bench = Bench(tmp_path / "tasks.db")
    async with bench.tasks, client_of(bench.server, era) as client:
        with pytest.raises(MCPError) as raised:
            await started(client, "add", a=1, b=2)
        assert raised.value.code == types.INTERNAL_ERROR
        assert "the task store cannot be used" in raised.value.message
        assert text_of(await client.call_tool("plain", {"word": "still here"})) == "still here"


class SlowTasks(SqliteTasks):
    """A store that keeps nothing before it is told to."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.asked = asyncio.Event()
        self.go_on = asyncio.Event()

    async def create(self, task: TaskRecord, limits: TaskLimits) -> None:
        self.asked.set()
        await self.go_on.wait()
        await super().create(task, limits)


async def test_a_client_that_goes_before_it_is_told_leaves_nothing_running(
    era: str, tmp_path: Path
) -> None:
    store = SlowTasks(tmp_path / "tasks.db")
    bench = Bench(store)
    async with bench.tasks:
        async with client_of(bench.server, era) as client:
            calling = asyncio.create_task(start_task(client, "hang", {"label": "one"}))
            await store.asked.wait()
            calling.cancel()
            await asyncio.gather(calling, return_exceptions=True)
        store.go_on.set()
        while True:
            kept = await store.page("anyone", None, 9)
            if kept and not kept[0].is_open:
                break
            await asyncio.sleep(0.01)
    assert (kept[0].status, bench.stopped) == ("cancelled", [])


async def test_closing_stops_everything_and_says_so(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "tasks.db")
    async with client_of(bench.server, "auto") as client:
        task = await started(client, "hang", label="one")
        began = time.monotonic()
        await bench.tasks.aclose()
        assert time.monotonic() - began < 30
        assert bench.stopped == ["one"]
    again = Bench(tmp_path / "tasks.db")
    async with again.tasks, client_of(again.server, "auto") as client:
        state = await resume_task(client, task.id).state()
        assert (state.status, state.status_message) == ("failed", STOPPED)


async def test_processes_on_one_store_know_of_one_another(era: str, tmp_path: Path) -> None:
    one, two = Bench(tmp_path / "tasks.db"), Bench(tmp_path / "tasks.db")
    async with (
        one.tasks,
        two.tasks,
        client_of(one.server, era) as here,
        client_of(two.server, era) as there,
    ):
        asking = await started(here, "ask_word")
        await until(asking, "input_required")
        # Answered by the other, and done by the one that asked.
        assert text_of(await resume_task(there, asking.id).result()) == "tide"
        hanging = await started(here, "hang", label="one")
        await resume_task(there, hanging.id).cancel()
        assert (await hanging.state()).status == "cancelled"
        # The work is stopped where it is done.
        while True:
            if one.stopped == ["one"]:
                break
            await asyncio.sleep(0.01)


async def test_a_tool_is_not_looked_for_without_end() -> None:
    script = Path(__file__).parents[2] / "support" / "mcp" / "misbehaving.py"
    server = StdioServerParameters(command=sys.executable, args=[str(script), "endless-pages"])
    async with client_of(server, "legacy") as client:
        result = await run_task(client, "nowhere")
    assert text_of(result) == "fine"
