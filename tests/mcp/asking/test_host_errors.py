"""The error that a host answers with reaches the tool with its reason and its pause."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import mcp_types
import pytest
from mcp import Client
from mcp.server.mcpserver import Context, MCPServer

from penstock import BudgetExceeded, ContextLengthExceeded, PenstockError, RateLimited
from penstock.contract.errors import ContentRejected, InvalidRequest, Problem
from penstock.mcp import Sampling, SamplingHost, SamplingPolicy, ServerRule, sample
from penstock.testing import FakeProvider, engine_with
from tests.mcp.asking.hosts import Host


def asking_server(caught: list[PenstockError]) -> MCPServer[Any]:
    """A server whose tool keeps the error that it gets."""
    server: MCPServer[Any] = MCPServer("asking", extensions=[Sampling()])

    async def work(ctx: Context, times: int = 1) -> str:
        try:
            for _ in range(times):
                await sample(ctx, "Hello", max_tokens=9)
        except PenstockError as error:
            caught.append(error)
        return ""

    server.add_tool(work)
    return server


async def error_of(code: int, data: Any) -> PenstockError:
    """What the tool gets of a host that answers so."""
    caught: list[PenstockError] = []
    host = Host([mcp_types.ErrorData(code=code, message="no", data=data)])
    async with host.client(asking_server(caught), "legacy") as client:
        await client.call_tool("work")
    (error,) = caught
    return error


@pytest.mark.parametrize(
    ("code", "reason", "kind"),
    [
        (-32000, "rate_limit_exceeded", RateLimited),
        (-32000, "insufficient_quota", BudgetExceeded),
        (-32000, "content_filter", ContentRejected),
        (-32602, "context_length_exceeded", ContextLengthExceeded),
        (-32602, "unsupported_parameter", InvalidRequest),
        (-32602, "rate_limit_exceeded", InvalidRequest),
        (-32000, "a word of its own", PenstockError),
    ],
)
async def test_a_reason_gives_the_error_its_type(
    code: int, reason: str, kind: type[PenstockError]
) -> None:
    error = await error_of(code, {"reason": reason, "retryAfter": 7, "retryable": True})
    assert isinstance(error, kind)
    assert (error.reason, error.retry_after, error.retryable) == (reason, 7.0, True)
    assert error.provider == "mcp-host"


@pytest.mark.parametrize(
    "data",
    [
        None,
        "busy",
        [1],
        {"reason": 5, "retryAfter": "soon", "retryable": "yes"},
        {"retryAfter": -1},
        {"retryAfter": 1e300},
        {"reason": {}, "problems": "x"},
    ],
)
async def test_data_of_another_shape_is_left_out(data: Any) -> None:
    error = await error_of(-32000, data)
    assert (error.reason, error.retry_after, error.retryable) == (None, None, False)


async def test_problems_keep_their_paths() -> None:
    problems = [{"path": "temperature", "message": "is too high"}, {"path": 1}, 7]
    error = await error_of(-32602, {"problems": problems})
    assert isinstance(error, InvalidRequest)
    assert error.problems == (Problem("temperature", "is too high"),)


async def test_long_words_of_a_host_are_cut() -> None:
    error = await error_of(
        -32602,
        {
            "reason": "r" * 100_000,
            "problems": [{"path": "p" * 10_000, "message": "m" * 10_000}] * 500,
        },
    )
    assert isinstance(error, InvalidRequest)
    assert error.reason is not None
    assert len(error.reason) < 1_000
    assert len(error.problems) == 100
    assert sum(len(str(each)) for each in error.problems) < 300_000


@asynccontextmanager
async def penstock_host(server: MCPServer[Any], rule: ServerRule) -> AsyncGenerator[Client]:
    """A client whose host is ours, with this rule."""
    async with engine_with(FakeProvider()) as engine:
        host = SamplingHost(engine, policy=SamplingPolicy(servers={"asking": rule}))
        async with host.client("asking", server, mode="legacy") as client:
            yield client


async def test_the_pause_of_a_penstock_host_arrives() -> None:
    caught: list[PenstockError] = []
    async with penstock_host(asking_server(caught), ServerRule(requests_per_minute=1)) as client:
        await client.call_tool("work", {"times": 2})
    (error,) = caught
    assert isinstance(error, RateLimited)
    assert error.reason == "rate_limit_exceeded"
    assert error.retry_after is not None
    assert 0 < error.retry_after <= 60
