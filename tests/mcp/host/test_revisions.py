"""Peers of older revisions, by a server that speaks whichever it is told to."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from mcp import StdioServerParameters
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, LATEST_HANDSHAKE_VERSION

from penstock import ToolUse
from penstock.mcp import SamplingHost
from penstock.testing import FakeProvider, FakeReply, engine_with
from tests.mcp.host.connections import Connected, RefusedError
from tests.mcp.sampling.checks.support import WEATHER

SCRIPT = Path(__file__).parents[2] / "support" / "mcp" / "byhand.py"
OLDER = [each for each in HANDSHAKE_PROTOCOL_VERSIONS if each != LATEST_HANDSHAKE_VERSION]


def by_hand(revision: str = LATEST_HANDSHAKE_VERSION) -> StdioServerParameters:
    """The command that starts it."""
    return StdioServerParameters(command=sys.executable, args=[str(SCRIPT), revision])


@pytest.mark.parametrize("revision", OLDER)
async def test_a_peer_of_an_older_revision_gets_one_block(revision: str) -> None:
    model = FakeProvider([FakeReply(text="So.", reasoning="Well."), "Never."])
    async with engine_with(model) as engine:
        host = SamplingHost(engine, approval="always")
        async with host.client("old", by_hand(revision), mode="legacy") as client:
            assert client.protocol_version == revision
            server = Connected(client)
            result = await server.ask()
            if revision == OLDER[-1]:
                # It does not know tools; whoever sends them all the same is told.
                with pytest.raises(RefusedError, match=r"sampling\.tools") as caught:
                    await server.ask(tools=[WEATHER])
                assert caught.value.code == -32602
    assert result["content"] == {"type": "text", "text": "So."}
    assert len(model.requests) == 1


async def test_a_peer_of_the_revision_with_tools_gets_lists() -> None:
    uses = (ToolUse("1", "weather", {}), ToolUse("2", "weather", {}))
    async with engine_with(FakeProvider([FakeReply(tool_uses=uses)])) as engine:
        host = SamplingHost(engine, approval="always")
        async with host.client("new", by_hand(), mode="legacy") as client:
            result = await Connected(client).ask(tools=[WEATHER])
    assert [block["id"] for block in result["content"]] == ["1", "2"]
