"""The round trips of the modern era, and what a client has to do between them."""

from __future__ import annotations

import json

import pytest
from mcp.shared.exceptions import MCPError

from penstock.mcp import Decision
from tests.mcp.sampling.checks.support import Asked, scene
from tests.mcp.sampling.requirement import Way
from tests.support.mcp.asking import STATE


async def answered_before_the_retry(way: Way) -> None:
    async with scene(way, "One.", "Two.") as there:
        came = json.loads(await there.server.text("ask_two"))
        assert len(there.model.requests) == 2
    assert {key: each["content"]["text"] for key, each in came["answers"].items()} in (
        {"first": "One.", "second": "Two."},
        {"first": "Two.", "second": "One."},
    )


async def state_is_echoed(way: Way) -> None:
    async with scene(way) as there:
        came = json.loads(await there.server.text("ask_two"))
    assert came["state"] == STATE


async def no_state_is_made_up(way: Way) -> None:
    async with scene(way) as there:
        came = json.loads(await there.server.text("ask_two", state=False))
    assert came["state"] is None


async def ids_differ(way: Way) -> None:
    async with scene(way) as there:
        came = json.loads(await there.server.text("ask_two"))
    first, second = came["ids"]
    assert first != second


async def prompts_ask_too(way: Way) -> None:
    async with scene(way, "Once upon a time.") as there:
        got = await there.server.client.get_prompt("asked")
    assert "Once upon a time." in got.messages[0].model_dump_json()


async def refusal_sends_nothing(way: Way) -> None:
    async with scene(way, approval=Asked([Decision.deny()])) as there:
        with pytest.raises(MCPError) as caught:
            await there.server.client.call_tool("ask_two", {})
        counted = json.loads(await there.server.text("retries"))
    assert caught.value.code == -1
    assert counted == 0
