"""The verdicts of budgets in the answer of the `route` tool."""

from __future__ import annotations

from typing import Any

import pytest
from mcp import Client
from mcp_types.version import LATEST_MODERN_VERSION

from penstock.contract.options import MCPTool
from penstock.mcp.http import over_http
from tests.support.keyed import bearer, keyed_engine
from tests.unit.server.gateway_support import Gateway, running_gateway

ERAS = ("legacy", LATEST_MODERN_VERSION)


async def verdicts(gateway: Gateway, era: str, key: str | None) -> dict[str, dict[str, Any]]:
    """By the name of the budget, for the first target."""
    server = MCPTool(f"{gateway.url}/mcp", "penstock", {} if key is None else bearer(key))
    async with Client(over_http(server), mode=era) as client:
        result = await client.call_tool("route", {"prompt": "x", "model": "default"})
    assert result.structured_content is not None, result
    found = result.structured_content["ranked"][0]["budgets"]
    return {each["budget"].rpartition(":")[2]: each for each in found}


@pytest.mark.parametrize("era", ERAS)
async def test_a_key_sees_the_amounts_of_its_own_budgets_alone(era: str) -> None:
    engine, texts = keyed_engine(
        alice={"budget": {"limit_usd": 5.0, "period": "day"}},
        bob={"budget": {"limit_usd": 7.0, "period": "day"}},
    )
    async with running_gateway(engine) as gateway:
        await engine.set_budget(0.000_001)
        found = await verdicts(gateway, era, texts["alice"])
    own = [each for each in found.values() if each["limit_nanos"] is not None]
    assert [(each["limit_nanos"], each["fits"]) for each in own] == [(5_000_000_000, True)]
    (other,) = [each for each in found.values() if each["limit_nanos"] is None]
    assert (other["fits"], other["hard"], other["remaining_nanos"]) == (False, True, None)
    assert other["reason"] == f"the budget {other['budget']!r} has no room for it"
    assert other["asked_nanos"] > 0


@pytest.mark.parametrize("era", ERAS)
async def test_without_keys_all_amounts_are_shown(era: str) -> None:
    engine, _ = keyed_engine()
    async with running_gateway(engine) as gateway:
        await engine.set_budget(3.0)
        (found,) = (await verdicts(gateway, era, None)).values()
    assert (found["limit_nanos"], found["fits"], found["reason"]) == (3_000_000_000, True, "")
