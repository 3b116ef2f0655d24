"""What a host is made of: an engine, and how it answers with it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol, TypedDict

from mcp.client.session import SamplingFnT
from mcp_types import SamplingCapability

from penstock.contract.adaptation import AdaptMode
from penstock.contract.approval import ApprovalMode, Approver
from penstock.contract.exchange import Result, SamplingRequest
from penstock.contract.ports import Target
from penstock.contract.requests import Caller
from penstock.mcp.host.context import ContextLimits
from penstock.mcp.host.policy import SamplingPolicy


class Answering(Protocol):
    """What a host needs of an engine; `penstock.open()` gives one."""

    async def create_message(
        self, messages: SamplingRequest, *, caller: Caller | None = None
    ) -> Result:
        """The whole answer."""
        ...

    def targets(self, model: str | None = None) -> Sequence[Target]:
        """What serves this model."""
        ...

    def adapt_mode(self, model: str | None = None) -> AdaptMode:
        """What becomes of advisory options that this model lacks."""
        ...

    @property
    def sampling_policy(self) -> SamplingPolicy:
        """The rules of the engine's configuration."""
        ...


class ClientOptions(TypedDict):
    """For the official client: `Client(server, **options)`."""

    sampling_callback: SamplingFnT
    sampling_capabilities: SamplingCapability


class FastMCPOptions(TypedDict):
    """For fastmcp's client: `fastmcp.Client(server, **options)`."""

    sampling_handler: Callable[..., Awaitable[Any]]
    sampling_capabilities: SamplingCapability


class HostOptions(TypedDict, total=False):
    """How a host answers; every one may be left out."""

    approval: ApprovalMode | Approver | None
    """A function that decides, or who decides; the policy's own when left out."""
    policy: SamplingPolicy | None
    """The rules for each server; those of the engine's configuration when left out."""
    model: str | None
    """What answers servers whose rule names no models; the engine's default when left out."""
    context_limits: ContextLimits
    """How much `includeContext` may attach, where a rule allows it."""
