"""The callback by itself: what a client gets, and what it brings into a process."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest
from mcp import Client

import penstock.mcp
from penstock.mcp import sampling_callback
from penstock.testing import FakeProvider, engine_with
from tests.mcp.host.connections import MODES, Connected, Era, RefusedError
from tests.mcp.sampling.checks.support import WEATHER
from tests.support.mcp.asking import asking_server


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_a_client_that_gets_the_callback_alone_takes_no_tools(era: Era) -> None:
    """It declares none, so whoever sends some all the same must hear of it."""
    async with engine_with(FakeProvider()) as engine:
        callback = sampling_callback(engine, approval="always")
        async with Client(asking_server(), sampling_callback=callback, mode=MODES[era]) as client:
            server = Connected(client)
            assert json.loads(await server.text("declared"))["sampling"] == {}
            assert (await server.ask())["role"] == "assistant"
            with pytest.raises(RefusedError, match=r"sampling\.tools"):
                await server.ask(tools=[WEATHER])


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_options_declare_what_is_answered(era: Era) -> None:
    async with engine_with(FakeProvider()) as engine:
        callback = sampling_callback(engine, approval="always", tools=True)
        async with Client(asking_server(), mode=MODES[era], **callback.options) as client:
            server = Connected(client)
            assert json.loads(await server.text("declared"))["sampling"] == {"tools": {}}
            assert (await server.ask(tools=[WEATHER]))["role"] == "assistant"


async def test_without_any_rule_a_server_is_told_no() -> None:
    async with engine_with(FakeProvider()) as engine:
        callback = sampling_callback(engine)
        async with Client(asking_server(), sampling_callback=callback, mode="legacy") as client:
            with pytest.raises(RefusedError, match="given no name") as caught:
                await Connected(client).ask()
    assert caught.value.code == -1


async def test_the_hosts_own_model_answers() -> None:
    async with engine_with(FakeProvider()) as engine:
        callback = sampling_callback(engine, approval="always", model="fake/chosen")
        async with Client(asking_server(), sampling_callback=callback, mode="legacy") as client:
            assert (await Connected(client).ask())["model"] == "chosen"


def test_every_name_is_there_and_no_other() -> None:
    assert penstock.mcp.__all__ == sorted(penstock.mcp.__all__)
    for name in penstock.mcp.__all__:
        assert getattr(penstock.mcp, name) is not None
    missing: Any = penstock.mcp
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = missing.no_such_name


def test_a_gateway_needs_no_mcp() -> None:
    code = (
        "import sys, penstock\n"
        "import penstock.server.app\n"
        "penstock.open(penstock.Config.embedded()).sampling_policy\n"
        "print([name for name in sys.modules if name.split('.')[0] in ('mcp', 'mcp_types')])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "[]"
