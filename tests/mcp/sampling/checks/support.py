"""A scripted model behind a host, and whoever approves."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field
from typing import Any, Unpack

from penstock import PenstockError, SamplingRequest
from penstock.mcp import Decision, Review, SamplingHost
from penstock.mcp.host.options import HostOptions
from penstock.testing import FakeProvider, FakeReply, engine_with
from tests.mcp.host.connections import Connected, connected
from tests.mcp.sampling.requirement import Way

WEATHER: dict[str, Any] = {
    "name": "weather",
    "description": "The weather of a city.",
    "inputSchema": {"type": "object", "properties": {"city": {"type": "string"}}},
}


def call(*ids: str) -> dict[str, Any]:
    """An assistant's turn that calls the weather once for each id."""
    uses: list[dict[str, Any]] = [
        {"type": "tool_use", "id": each, "name": "weather", "input": {}} for each in ids
    ]
    return {"role": "assistant", "content": uses}


def results(*ids: str, beside: Sequence[dict[str, Any]] = ()) -> dict[str, Any]:
    """A user's turn that answers these calls."""
    given: list[dict[str, Any]] = [
        {
            "type": "tool_result",
            "toolUseId": each,
            "content": [{"type": "text", "text": "sunny"}],
        }
        for each in ids
    ]
    return {"role": "user", "content": [*given, *beside]}


@dataclass
class Asked:
    """An approver that remembers what it was shown, and says what it is told to."""

    says: Sequence[Decision | bool] = (True,)
    shown: list[Review] = field(default_factory=list[Review])

    async def __call__(self, review: Review) -> Decision | bool:
        """The next of what it says; the last again and again."""
        self.shown.append(review)
        return self.says[min(len(self.shown), len(self.says)) - 1]


@dataclass
class Scene:
    """A server that asks, a host that answers, and the model behind it."""

    server: Connected
    model: FakeProvider
    host: SamplingHost

    @property
    def seen(self) -> SamplingRequest:
        """What the model was last asked."""
        return self.model.requests[-1]


@contextlib.asynccontextmanager
async def scene(
    way: Way, *replies: str | FakeReply | PenstockError, **options: Unpack[HostOptions]
) -> AsyncGenerator[Scene]:
    """Connected; everything is approved unless told otherwise."""
    model = FakeProvider(list(replies) or ["Hi there."])
    if options.get("approval") is None and options.get("policy") is None:
        options["approval"] = "always"
    async with engine_with(model) as engine:
        host = SamplingHost(engine, **options)
        async with connected(host, way) as server:
            yield Scene(server, model, host)
