"""A connected client for each way and era."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import pytest
from mcp import Client

from tests.mcp.streaming.connections import ERAS, WAYS, Heard, connected, held_open


@pytest.fixture
def heard() -> Heard:
    """What the client of this test hears."""
    return Heard()


@pytest.fixture(params=[(way, era) for way in WAYS for era in ERAS], ids="-".join)
async def client(request: pytest.FixtureRequest, heard: Heard) -> AsyncGenerator[Client]:
    """By every way, in both eras."""
    way, era = request.param
    async with held_open(connected(way, era, heard)) as running:
        yield running
