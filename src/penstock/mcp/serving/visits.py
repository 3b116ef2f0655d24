"""Who calls the tools, and on which engine: set where a request comes in, found where it is served.

It is kept beside the request and not in it, since the SDK tells resources nothing of theirs.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import Any, Protocol

from mcp.server.mcpserver.exceptions import ResourceError, ToolError

from penstock.contract.adaptation import AdaptMode
from penstock.contract.errors import PenstockError
from penstock.contract.exchange import EmbeddingResult, SamplingRequest, TokenCount
from penstock.contract.ports import RouteDecision
from penstock.contract.requests import Caller
from penstock.streaming.handle import StreamHandle


class ServedEngine(Protocol):
    """What the tools need of an engine."""

    async def create_message_stream(
        self, messages: SamplingRequest, *, caller: Caller | None = None
    ) -> StreamHandle:
        """The answer while it is made."""
        ...

    def adapt_mode(self, model: str | None = None) -> AdaptMode:
        """What becomes of advisory options that this model lacks."""
        ...

    async def embed(
        self,
        texts: Sequence[str],
        *,
        model: str | None = None,
        dimensions: int | None = None,
        caller: Caller | None = None,
    ) -> EmbeddingResult:
        """A vector for each text."""
        ...

    async def count_tokens(self, messages: SamplingRequest, /) -> TokenCount:
        """How many tokens the model would read."""
        ...

    async def route(
        self, messages: SamplingRequest, *, caller: Caller | None = None
    ) -> RouteDecision:
        """Which targets would be tried in which order, and why."""
        ...

    def in_use(self) -> AbstractContextManager[None]:
        """While somebody asks here, it stays open."""
        ...


class Visit(Protocol):
    """One caller at the door, as far as the tools care."""

    @property
    def engine(self) -> ServedEngine:
        """Who answers now; another one after a change of the configuration."""
        ...

    @property
    def caller(self) -> Caller | None:
        """On whose behalf the engine works."""
        ...

    @property
    def owner(self) -> str:
        """Whose tasks the caller sees: its own, and nobody else's."""
        ...

    @property
    def streams(self) -> bool:
        """Whether the client's session declared the streaming extension in an earlier message."""
        ...

    def room(self, model: str | None, /) -> int:
        """How many tokens an answer may have when the caller does not say."""
        ...

    def require(self, model: str | None, /) -> None:
        """Raise ModelNotFound where the caller may not know of this model, or of none by name."""
        ...

    def told(self, error: PenstockError, /) -> Exception:
        """What the caller is told of an error."""
        ...

    async def models(self) -> dict[str, Any]:
        """The models that the caller may use."""
        ...

    async def providers(self) -> dict[str, Any]:
        """The configured providers and how their targets are; raises PenstockError."""
        ...

    async def budgets(self) -> dict[str, Any]:
        """The budgets that concern the caller."""
        ...

    async def own_budgets(self) -> frozenset[str] | None:
        """The names of the budgets whose amounts the caller may see; None: all."""
        ...

    async def usage(self) -> dict[str, Any]:
        """What the caller has used."""
        ...


_visit: ContextVar[Visit] = ContextVar("visit")


@contextmanager
def visiting(visit: Visit) -> Generator[None, None, None]:
    """Whatever is served inside, tasks that begin there included, is served to this caller."""
    before = _visit.set(visit)
    try:
        yield
    finally:
        _visit.reset(before)


def present() -> Visit:
    """Whom this code serves."""
    return _visit.get()


@contextmanager
def at_a_tool() -> Generator[Visit, None, None]:
    """The present caller; what goes wrong is the tool's failure, in words for the caller."""
    visit = present()
    try:
        with visit.engine.in_use():
            yield visit
    except PenstockError as error:
        raise ToolError(_message(visit.told(error))) from error


@contextmanager
def at_a_resource() -> Generator[Visit, None, None]:
    """The same for resources."""
    visit = present()
    try:
        with visit.engine.in_use():
            yield visit
    except PenstockError as error:
        raise ResourceError(_message(visit.told(error))) from error


def _message(error: Exception) -> str:
    """Without advice for callers of the Python API."""
    return error.message if isinstance(error, PenstockError) else str(error)
