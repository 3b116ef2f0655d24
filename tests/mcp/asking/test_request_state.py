"""What comes back from a client as `requestState` is not to be trusted."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import mcp_types
import pytest
from mcp import Client
from mcp.server.request_state import RequestStateSecurity
from mcp.shared.exceptions import MCPError

from penstock.contract.options import MCPTool
from penstock.mcp import Sampling, SpentInFile
from penstock.mcp.asking.state import SpentHere, State, restore
from penstock.mcp.http import over_http
from tests.mcp.asking.hosts import ERAS, Host, said
from tests.mcp.asking.server import build
from tests.support.mcp.processes import HttpServer, http_server

SCRIPT = Path(__file__).with_name("server.py")
MODERN = ERAS[1]
REFUSED = "Invalid or expired requestState"
ARGUMENTS = {"text": "long"}


async def ask(
    client: Client,
    state: str | None = None,
    answers: mcp_types.InputResponses | None = None,
    *,
    tool: str = "summarise",
    arguments: dict[str, Any] | None = None,
) -> mcp_types.CallToolResult | mcp_types.InputRequiredResult:
    """One round, as a client that drives the rounds itself sends it."""
    return await client.session.call_tool(
        tool,
        ARGUMENTS if arguments is None else arguments,
        request_state=state,
        input_responses=answers,
        allow_input_required=True,
    )


async def first_round(
    client: Client, tool: str = "summarise"
) -> tuple[str, mcp_types.InputResponses]:
    """The state and an answer to what was asked."""
    result = await ask(client, tool=tool)
    assert isinstance(result, mcp_types.InputRequiredResult)
    assert result.request_state is not None
    assert result.input_requests is not None
    return result.request_state, dict.fromkeys(result.input_requests, answer("fine"))


def answer(text: str) -> mcp_types.CreateMessageResult:
    return mcp_types.CreateMessageResult(
        role="assistant",
        content=mcp_types.TextContent(type="text", text=text),
        model="host-model",
    )


def is_refused(error: MCPError) -> bool:
    return error.code == mcp_types.INVALID_PARAMS and error.message == REFUSED


async def refused(client: Client, *given: Any, **named: Any) -> bool:
    with pytest.raises(MCPError) as raised:
        await ask(client, *given, **named)
    return is_refused(raised.value)


async def test_a_state_is_sealed_and_says_nothing() -> None:
    server, _ = build()
    async with Host().client(server, MODERN) as client:
        state, answers = await first_round(client)
        assert "penstock" not in state
        result = await ask(client, state, answers)
    assert isinstance(result, mcp_types.CallToolResult)
    assert said(result) == "mcp-host: fine"


@pytest.mark.parametrize("place", [5, 40, -2])
async def test_a_tampered_state_is_refused(place: int) -> None:
    server, runs = build()
    async with Host().client(server, MODERN) as client:
        state, answers = await first_round(client)
        letters = list(state)
        letters[place] = "A" if letters[place] != "A" else "B"
        assert await refused(client, "".join(letters), answers)
        assert await refused(client, "x" * 5_000_000, answers)
    assert runs["summarise"] == 1


async def test_a_state_is_good_once() -> None:
    server, runs = build()
    async with Host().client(server, MODERN) as client:
        state, answers = await first_round(client)
        await ask(client, state, answers)
        assert await refused(client, state, answers)
    assert runs["summarise"] == 2


async def test_of_two_who_come_with_one_state_at_once_one_is_refused() -> None:
    server, runs = build()
    async with Host().client(server, MODERN) as client:
        state, answers = await first_round(client)
        found = await asyncio.gather(
            *(ask(client, state, answers) for _ in range(5)), return_exceptions=True
        )
    errors = [each for each in found if isinstance(each, MCPError)]
    assert len(errors) == 4
    assert all(map(is_refused, errors))
    assert runs["summarise"] == 2


async def test_a_state_ends() -> None:
    server, runs = build(sampling=Sampling(ttl=1e-9))
    async with Host().client(server, MODERN) as client:
        state, answers = await first_round(client)
        assert await refused(client, state, answers)
    assert runs["summarise"] == 1


async def test_a_state_belongs_to_its_tool_and_its_arguments() -> None:
    server, runs = build()
    async with Host().client(server, MODERN) as client:
        state, answers = await first_round(client)
        assert await refused(client, state, answers, arguments={"text": "other"})
        assert await refused(client, state, answers, tool="twice", arguments={})
    assert runs.total() == 1


async def test_a_state_belongs_to_its_client() -> None:
    server, _ = build()
    async with Host().client(server, MODERN, client_info=named("mallory")) as other:
        async with Host().client(server, MODERN, client_info=named("alice")) as client:
            state, answers = await first_round(client)
        assert await refused(other, state, answers)


def named(name: str) -> mcp_types.Implementation:
    return mcp_types.Implementation(name=name, version="1")


@pytest.fixture(scope="module")
def over_wire() -> Generator[HttpServer]:
    with http_server(lambda port: [sys.executable, str(SCRIPT), str(port)]) as running:
        yield running


@asynccontextmanager
async def with_key(server: HttpServer, key: str) -> AsyncGenerator[Client]:
    tool = MCPTool(server.url, "asking", {"Authorization": f"Bearer {key}"})
    async with Host().client(over_http(tool), MODERN) as client:
        yield client


async def test_a_state_belongs_to_the_key_that_was_shown(over_wire: HttpServer) -> None:
    async with with_key(over_wire, "alice") as client, with_key(over_wire, "mallory") as other:
        state, answers = await first_round(client)
        assert await refused(other, state, answers)
        result = await ask(client, state, answers)
    assert isinstance(result, mcp_types.CallToolResult)


async def test_a_state_of_another_process_is_refused() -> None:
    (server, _), (other, runs) = build(), build()
    async with Host().client(server, MODERN) as client:
        state, answers = await first_round(client)
    async with Host().client(other, MODERN) as client:
        assert await refused(client, state, answers)
    assert not runs


async def test_processes_that_share_keys_go_on_with_each_others_calls_once(tmp_path: Path) -> None:
    def replica() -> Any:
        spent = SpentInFile(tmp_path / "spent.db")
        security = RequestStateSecurity(keys=["a secret of thirty-two bytes at least"])
        return build(sampling=Sampling(spent=spent), security=security)[0], spent

    (one, spent), (two, spent_too) = replica(), replica()
    async with Host().client(one, MODERN) as client:
        state, answers = await first_round(client)
    async with Host().client(two, MODERN) as client:
        result = await ask(client, state, answers)
        assert isinstance(result, mcp_types.CallToolResult)
    async with Host().client(one, MODERN) as client:
        assert await refused(client, state, answers)
    spent.close()
    spent_too.close()


async def test_answers_that_nobody_asked_for_are_passed_over() -> None:
    server, runs = build()
    async with Host().client(server, MODERN) as client:
        state, _ = await first_round(client)
        again = await ask(client, state, {"made.up": answer("no")})
        assert isinstance(again, mcp_types.InputRequiredResult)
        forged = await ask(client, None, dict.fromkeys(again.input_requests or {}, answer("no")))
    assert isinstance(forged, mcp_types.InputRequiredResult)
    assert runs["summarise"] == 3


async def test_an_answer_of_another_kind_is_an_error() -> None:
    server, _ = build()
    async with Host().client(server, MODERN) as client:
        state, answers = await first_round(client)
        odd: mcp_types.InputResponses = {
            key: mcp_types.ElicitResult(action="decline") for key in answers
        }
        result = await ask(client, state, odd)
    assert isinstance(result, mcp_types.CallToolResult)
    assert result.is_error


def test_what_was_spent_is_forgotten_when_it_has_ended_anyway() -> None:
    spent = SpentHere()
    now = time.time()
    assert spent.spend("old", now - 1)
    assert spent.spend("new", now + 600)
    assert not spent.spend("new", now + 600)
    assert spent.spend("old", now + 600)


def test_a_shared_memory_forgets_too(tmp_path: Path) -> None:
    spent = SpentInFile(tmp_path / "spent.db")
    now = time.time()
    assert spent.spend("old", now - 1)
    assert spent.spend("new", now + 600)
    assert not spent.spend("new", now + 600)
    assert spent.spend("old", now + 600)
    spent.close()


def test_a_state_that_says_nothing_sensible_is_refused() -> None:
    good = State(nonce="n", expires=time.time() + 60, caller="c", rounds=1).encode()
    assert restore(good, "c", SpentHere(), "tools/call") is not None
    assert restore(None, "c", SpentHere(), "tools/call") is None
    assert restore("somebody else's", "c", SpentHere(), "tools/call") is None
    for wrong in (good[:-1], good.replace('"rounds":1', '"rounds":"many"')):
        with pytest.raises(MCPError):
            restore(wrong, "c", SpentHere(), "tools/call")


@pytest.mark.parametrize("option", ["ttl", "max_rounds", "max_state_bytes"])
def test_limits_are_positive(option: str) -> None:
    with pytest.raises(ValueError, match=option):
        Sampling(**cast(Any, {option: 0}))
