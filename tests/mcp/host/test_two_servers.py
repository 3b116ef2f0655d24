"""One host, two servers: rules, limits, budgets and resources stay apart."""

from __future__ import annotations

from typing import Any

import pytest

import penstock
from penstock.config.load import parse
from penstock.mcp import ContextLimits, SamplingHost, SamplingPolicy, ServerRule
from penstock.testing import FakeProvider, engine_with
from tests.mcp.host.connections import MODES, Connected, Era, RefusedError
from tests.support.mcp.asking import asking_server

ERAS: tuple[Era, ...] = ("legacy", "modern")
SECRET = {"secret://plans": "We attack at dawn."}


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("shares", [False, True])
async def test_nothing_of_one_server_reaches_the_other(era: Era, shares: bool) -> None:
    policy = SamplingPolicy(
        servers={
            "open": ServerRule(context="allServers"),
            "closed": ServerRule(context="thisServer", share=shares),
        }
    )
    model = FakeProvider()
    async with engine_with(model) as engine:
        host = SamplingHost(engine, policy=policy)
        async with (
            host.client("open", asking_server("one"), mode=MODES[era]) as one,
            host.client("closed", asking_server("two", SECRET), mode=MODES[era]) as two,
        ):
            await Connected(one).ask(includeContext="thisServer")
            await Connected(one).ask(includeContext="allServers")
            await Connected(two).ask(includeContext="allServers")
    this, every, other = ["\n".join(each.text for each in r.messages) for r in model.requests]
    assert "Tides" in this
    assert "dawn" not in this
    assert "Tides" in every
    assert ("dawn" in every) is shares
    # It may have its own, and was asked for more.
    assert "dawn" in other
    assert "Tides" not in other


async def test_a_server_that_is_gone_is_missed_and_no_more() -> None:
    rule = ServerRule(context="allServers", share=True)
    model = FakeProvider()
    async with engine_with(model) as engine:
        host = SamplingHost(engine, policy=SamplingPolicy(servers={"*": rule}))
        async with host.client("gone", asking_server("two", SECRET), mode="legacy"):
            pass
        async with host.client("here", asking_server("one"), mode="legacy") as client:
            await Connected(client).ask(includeContext="allServers")
    assert "Tides" in model.requests[0].messages[0].text
    assert "dawn" not in model.requests[0].messages[0].text


async def test_context_has_limits() -> None:
    notes = {f"note://{number}": "z" * 510 for number in range(50)}
    rule = ServerRule(context="thisServer")
    model = FakeProvider()
    async with engine_with(model) as engine:
        host = SamplingHost(
            engine,
            policy=SamplingPolicy(servers={"many": rule}),
            context_limits=ContextLimits(resources=5, characters=2000),
        )
        async with host.client("many", asking_server("many", notes), mode="legacy") as client:
            await Connected(client).ask(includeContext="thisServer")
    text = model.requests[0].messages[0].text
    assert text.count("<resource ") == 4
    assert text.count("z") == 2000


async def test_a_limit_of_one_is_none_of_the_other() -> None:
    policy = SamplingPolicy(servers={"*": ServerRule(requests_per_minute=1)})
    async with engine_with(FakeProvider()) as engine:
        host = SamplingHost(engine, policy=policy)
        async with (
            host.client("one", asking_server("same"), mode="legacy") as one,
            host.client("two", asking_server("same"), mode="legacy") as two,
            host.client("two", asking_server("same"), mode="legacy") as again,
        ):
            await Connected(one).ask()
            await Connected(two).ask()
            # A second connection of a server is no second server.
            for client in (one, two, again):
                with pytest.raises(RefusedError, match="1 times a minute"):
                    await Connected(client).ask()


async def test_each_server_spends_its_own_budget() -> None:
    config = parse(
        """
        [providers.fake]
        [models.default]
        targets = ["fake/echo"]
        [models.default.prices."fake/echo"]
        input = 1000.0
        output = 1000.0
        [sampling.servers.poor]
        budget = { limit_usd = 0.2, period = "day" }
        max_tokens = 10
        requests_per_minute = 1000
        [sampling.servers.rich]
        max_tokens = 10
        """
    )
    async with penstock.open(config) as engine:
        engine.use(FakeProvider())
        host = SamplingHost(engine)
        async with (
            host.client("poor", asking_server("same"), mode="legacy") as poor,
            host.client("rich", asking_server("same"), mode="legacy") as rich,
        ):
            await Connected(poor).ask()
            with pytest.raises(RefusedError) as caught:
                # What it says of itself changes nothing: the host knows who asks.
                await _until_refused(Connected(poor), metadata={"mcp_server": "rich"})
            for _ in range(6):
                await Connected(rich).ask()
        (balance,) = await engine.budgets()
    assert caught.value.data["reason"] == "insufficient_quota"
    assert "0.05" not in str(caught.value)
    assert balance.budget.name == "mcp:poor"
    assert 0 < balance.used_nanos <= balance.budget.limit_nanos


async def _until_refused(server: Connected, **fields: Any) -> None:
    for _ in range(100):
        await server.ask(**fields)
