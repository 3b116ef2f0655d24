"""A gateway in front of the fake provider."""

from collections.abc import AsyncGenerator

import pytest

from penstock.testing import FakeProvider, engine_with
from tests.unit.server.gateway_support import Gateway, running_gateway


@pytest.fixture
def fake() -> FakeProvider:
    """Echoes; its script may be filled by the test."""
    return FakeProvider()


@pytest.fixture
async def gateway(fake: FakeProvider) -> AsyncGenerator[Gateway]:
    """A gateway whose model `default` is the fake."""
    async with running_gateway(engine_with(fake)) as running:
        yield running
