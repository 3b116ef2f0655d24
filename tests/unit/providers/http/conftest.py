"""Both event loops: commands and the gateway run on uvloop, most programs on asyncio's own."""

import asyncio
from collections.abc import Callable, Mapping

import pytest
import uvloop

from tests.support.loops import SteadyLoop


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    return {"asyncio": SteadyLoop, "uvloop": uvloop.new_event_loop}
