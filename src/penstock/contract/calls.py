"""How far the calls of one attempt have come: sent, answered, or refused.

An attempt is one call as a rule, and several where a provider pauses, or takes texts in batches. An
adapter that tells of them lets an attempt that ends without an answer be billed for what it took,
and for no more: what was never sent, and what the provider said no to, costs nothing. Whoever
adapts a provider without telling is billed by how the attempt ended.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from types import TracebackType

from penstock.contract.errors import (
    MalformedResponse,
    PenstockError,
    ProviderTimeout,
    StreamInterrupted,
)
from penstock.contract.exchange import AnyRequest, Reply, Transcript, Vectors

_BROKEN = (MalformedResponse, ProviderTimeout, StreamInterrupted)
"""What ends an answer without a word of the provider's about it."""


class Call:
    """One call of a provider; `with call:` is the block in which its answer is read.

    An error that leaves the block is the provider's own report, unless it is about an answer that
    broke off or cannot be read.
    """

    __slots__ = ("answer", "has_it", "request", "said_no")

    def __init__(self, request: AnyRequest) -> None:
        """`request` is what this call alone asks for; nothing is sent yet."""
        self.request = request
        self.answer: Reply | Transcript | Vectors | None = None
        self.has_it = False
        """Whether the whole request is on its way to the provider, who may work from then on."""
        self.said_no = False
        """Whether the provider has reported an error in place of an answer."""

    def sent(self) -> None:
        """The last byte of the request is on its way."""
        self.has_it = True

    def refused(self) -> None:
        """The provider has reported an error."""
        self.said_no = True

    def answered(self, answer: Reply | Transcript | Vectors) -> None:
        """The whole answer to this call is there."""
        self.answer = answer

    def __enter__(self) -> None:
        """The answer is read from here on."""

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Take note of what the provider reports."""
        if isinstance(error, PenstockError) and not isinstance(error, _BROKEN):
            self.refused()


class Calls:
    """The calls of one attempt, in the order in which they began."""

    __slots__ = ("begun", "on_alive")

    def __init__(self) -> None:
        """None yet."""
        self.begun: list[Call] = []
        self.on_alive: Callable[[], None] | None = None
        """Called when a provider sends a sign of life that holds nothing of an answer."""

    def alive(self) -> None:
        """A sign of life has arrived, such as a keep-alive comment."""
        if self.on_alive is not None:
            self.on_alive()

    def begin(self, request: AnyRequest) -> Call:
        """A call is about to be made."""
        call = Call(request)
        self.begun.append(call)
        return call


_calls: ContextVar[Calls | None] = ContextVar("penstock_calls", default=None)


def current_calls() -> Calls:
    """Where to tell of the calls that are made now; a generator asks once, when it begins."""
    return _calls.get() or Calls()


class Telling:
    """The block in which an adapter finds these calls; entered and left by the same task."""

    # A class, because a generator in its place would cost every call more.
    __slots__ = ("_calls", "_token")

    def __init__(self, calls: Calls) -> None:
        """Nothing happens before the block."""
        self._calls = calls

    def __enter__(self) -> None:
        """`current_calls()` gives them from now on."""
        self._token = _calls.set(self._calls)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Whatever was told before is told again."""
        _calls.reset(self._token)
