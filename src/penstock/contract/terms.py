"""What a caller may do beside spending money, as the pipeline asks for it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from penstock.contract.exchange import AnyRequest
from penstock.contract.metadata import Usage
from penstock.contract.ports import Target


class Admission(Protocol):
    """A request that is let through."""

    @property
    def targets(self) -> Sequence[Target]:
        """Those of the ranked targets that the caller may use."""
        ...

    def settle(self, usage: Usage | None) -> None:
        """The request is over, and took this; None: nothing."""
        ...


class Terms(Protocol):
    """What a caller may use, and how much of it."""

    def allowed(self, request: AnyRequest, ranked: Sequence[Target]) -> Sequence[Target]:
        """Return those of the targets that the caller may use; raises ModelNotFound for none."""
        ...

    def count(self, request: AnyRequest, ranked: Sequence[Target]) -> int | None:
        """Return the tokens that the request may take; None where none are counted. Thread-safe."""
        ...

    def admit(
        self, request: AnyRequest, ranked: Sequence[Target], tokens: int | None = None
    ) -> Admission:
        """Let a request through; raises ModelNotFound, or RateLimited with the time to wait.

        `tokens` is the result of `count`, if it is known.
        """
        ...
