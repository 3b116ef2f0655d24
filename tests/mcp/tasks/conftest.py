"""A server in each era, by each way."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import AsyncGenerator, Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest
from mcp import Client, StdioServerParameters
from mcp.client import ClientRequestContext

from penstock.mcp.tasks import TaskClient
from tests.mcp.tasks.server import Bench
from tests.support import node
from tests.support.mcp.processes import HttpServer, http_server

ERAS = ("legacy", "auto")
WAYS = ("memory", "stdio", "http")
SERVER = Path(__file__).with_name("server.py")


def path() -> str:
    """Where the processes find us."""
    return f"{node.ROOT}{os.pathsep}{node.ROOT / 'src'}"


def over_http(store: Path) -> contextlib.AbstractContextManager[HttpServer]:
    """The server behind an address."""

    def command(port: int) -> list[str]:
        program = [sys.executable, str(SERVER), str(store), str(port)]
        return ["env", f"PYTHONPATH={path()}", *program]

    return http_server(command)


def over_stdio(store: Path) -> StdioServerParameters:
    """The server on standard input and output."""
    args = [str(SERVER), str(store), "stdio"]
    return StdioServerParameters(command=sys.executable, args=args, env={"PYTHONPATH": path()})


async def say_tide(
    context: ClientRequestContext, params: types.ElicitRequestParams
) -> types.ElicitResult:
    return types.ElicitResult(action="accept", content={"word": "tide"})


async def say_hello(
    context: ClientRequestContext, params: types.CreateMessageRequestParams
) -> types.CreateMessageResult:
    said = types.TextContent(type="text", text="hello")
    return types.CreateMessageResult(role="assistant", content=said, model="test")


def client_of(server: Any, era: str, **options: Any) -> Client:
    """A client that answers everything, unless told otherwise."""
    given: dict[str, Any] = {
        "elicitation_callback": say_tide,
        "sampling_callback": say_hello,
        "extensions": [TaskClient()],
        "mode": era,
    }
    return Client(server, **(given | options))


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncGenerator[Bench]:
    """The server in this process."""
    bench = Bench(tmp_path / "tasks.db")
    async with bench.tasks:
        yield bench


@pytest.fixture(params=ERAS)
def era(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Generator[HttpServer]:
    """One behind an address, for tests that do it no harm."""
    with over_http(tmp_path_factory.mktemp("shared") / "tasks.db") as server:
        yield server


@dataclass(frozen=True)
class Link:
    """A way to a server in one of the eras; a client begins and ends in the test itself."""

    era: str
    way: str
    store: Path
    server: HttpServer

    @contextlib.asynccontextmanager
    async def open(self, **options: Any) -> AsyncGenerator[Client]:
        async with contextlib.AsyncExitStack() as stack:
            server: Any = self.server.url
            if self.way == "stdio":
                server = over_stdio(self.store)
            elif self.way == "memory":
                bench = Bench(self.store)
                await stack.enter_async_context(bench.tasks)
                server = bench.server
            yield await stack.enter_async_context(client_of(server, self.era, **options))


@pytest.fixture(params=[(era, way) for era in ERAS for way in WAYS], ids="-".join)
def link(request: pytest.FixtureRequest, tmp_path: Path, shared: HttpServer) -> Link:
    era, way = request.param
    return Link(era, way, tmp_path / "tasks.db", shared)
