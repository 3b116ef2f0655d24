"""`once`: effects happen exactly once in a call, in both eras, for plain and async functions."""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from mcp import Client
from mcp.server.mcpserver import Context, MCPServer

from penstock.mcp import Sampling, once, sample
from tests.mcp.asking.hosts import ERAS, Host, said

era = pytest.mark.parametrize("era", ERAS)
Tool = Callable[[Context], Any]


class Charge:
    """An effect that counts how often it ran."""

    def __init__(self) -> None:
        self.runs = 0

    def plain(self) -> int:
        self.runs += 1
        return self.runs

    async def awaited(self) -> int:
        await asyncio.sleep(0)
        return self.plain()


@asynccontextmanager
async def client_of(
    tool: Tool, era: str, host: Host | None = None, sampling: Sampling | None = None
) -> AsyncGenerator[Client]:
    """A client of a server with this one tool."""
    server: MCPServer[Any] = MCPServer("once", extensions=[sampling or Sampling()])
    server.add_tool(tool, name="work")
    async with (host or Host()).client(server, era) as client:
        yield client


@era
@pytest.mark.parametrize("kind", ["plain", "lambda", "async", "awaitable", "partial"])
async def test_every_kind_of_function_runs_once(era: str, kind: str) -> None:
    charge = Charge()
    make: Any = {
        "plain": charge.plain,
        "lambda": lambda: charge.plain(),
        "async": charge.awaited,
        "awaitable": lambda: charge.awaited(),
        "partial": functools.partial(charge.plain),
    }[kind]

    async def work(ctx: Context) -> str:
        await sample(ctx, "first", max_tokens=9)
        number = await once(ctx, "charge", make)
        await sample(ctx, "second", max_tokens=9)
        return f"charge {number}"

    async with client_of(work, era) as client:
        result = await client.call_tool("work")
    assert said(result) == "charge 1"
    assert charge.runs == 1


@era
async def test_a_retry_loop_in_the_tool_gets_the_first_value(era: str) -> None:
    charge = Charge()

    async def work(ctx: Context) -> str:
        numbers = [await once(ctx, "charge", charge.plain) for _ in range(3)]
        await sample(ctx, "sure?", max_tokens=9)
        return f"{numbers}"

    async with client_of(work, era) as client:
        assert said(await client.call_tool("work")) == "[1, 1, 1]"
    assert charge.runs == 1


@era
async def test_two_at_the_same_time_share_one_run(era: str) -> None:
    charge, together = Charge(), asyncio.Barrier(2)

    async def slowly() -> int:
        await asyncio.sleep(0)
        return charge.plain()

    async def work(ctx: Context) -> str:
        async def one() -> int:
            await together.wait()
            return await once(ctx, "charge", slowly)

        return f"{await asyncio.gather(one(), one())}"

    async with client_of(work, era) as client:
        assert said(await client.call_tool("work")) == "[1, 1]"
    assert charge.runs == 1


@era
@pytest.mark.parametrize("grouped", [True, False])
async def test_an_effect_beside_a_question_is_not_repeated(era: str, grouped: bool) -> None:
    """The question ends the round while the effect is under way."""
    charge, asked = Charge(), asyncio.Event()

    async def slowly() -> int:
        number = charge.plain()
        # In the modern era the tool has left by now to ask the client.
        await asked.wait()
        return number

    async def work(ctx: Context) -> str:
        async def question() -> str:
            asyncio.get_running_loop().call_later(0, asked.set)
            return (await sample(ctx, "sure?", max_tokens=9)).text

        if grouped:
            async with asyncio.TaskGroup() as group:
                paid = group.create_task(once(ctx, "charge", slowly))
                await asyncio.sleep(0)
                await asyncio.sleep(0)
                answer = group.create_task(question())
            return f"{answer.result()} {paid.result()}"
        number, text = await asyncio.gather(once(ctx, "charge", slowly), question())
        return f"{text} {number}"

    async with client_of(work, era) as client:
        assert said(await client.call_tool("work")) == "[sure?] 1"
    assert charge.runs == 1


async def test_a_thread_that_outlives_its_time_limit_is_waited_for() -> None:
    charge, release = Charge(), threading.Event()

    def slowly() -> int:
        release.wait(30)
        return charge.plain()

    async def work(ctx: Context) -> str:
        waiting = asyncio.create_task(once(ctx, "charge", slowly))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        again = asyncio.create_task(once(ctx, "charge", slowly))
        await asyncio.sleep(0)
        release.set()
        return f"{await again}"

    async with client_of(work, ERAS[0]) as client:
        assert said(await client.call_tool("work")) == "1"
    assert charge.runs == 1


@era
async def test_a_function_that_raises_runs_again(era: str) -> None:
    charge = Charge()

    def fails_first() -> int:
        if charge.plain() == 1:
            raise OSError("no connection")
        return charge.runs

    async def work(ctx: Context) -> str:
        try:
            await once(ctx, "charge", fails_first)
        except OSError:
            return f"{await once(ctx, 'charge', fails_first)}"
        return "did not fail"

    async with client_of(work, era) as client:
        assert said(await client.call_tool("work")) == "2"


@era
async def test_a_value_without_a_json_form_is_named(era: str) -> None:
    errors: list[str] = []

    async def work(ctx: Context) -> str:
        with pytest.raises(TypeError) as caught:
            await once(ctx, "order", object)
        errors.append(str(caught.value))
        return ""

    async with client_of(work, era) as client:
        assert not (await client.call_tool("work")).is_error
    assert errors == [
        "once('order') gave a object without a JSON form: return text, numbers, lists, dicts, "
        "dataclasses or models of them"
    ]


async def test_a_call_that_ends_stops_what_it_started() -> None:
    stopped = asyncio.Event()

    async def endless() -> int:
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()
        return 0

    tasks: list[asyncio.Task[int]] = []

    async def work(ctx: Context) -> str:
        tasks.append(asyncio.create_task(once(ctx, "charge", endless)))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        return "left"

    async with client_of(work, ERAS[1]) as client:
        assert said(await client.call_tool("work")) == "left"
        await asyncio.wait_for(stopped.wait(), 30)
    await asyncio.gather(*tasks, return_exceptions=True)
