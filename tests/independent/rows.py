"""What a column of the page is made of: one dialect on one server that somebody else wrote."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Generic, Literal, TypeVar

from tests.conformance.behaviour import Behaviour, Check
from tests.conformance.subjects import Subject

ServerT = TypeVar("ServerT")
Verdict = Literal["passes", "not applicable", "not expressible", "wrong"]


@dataclass(frozen=True, slots=True)
class Wrong(Generic[ServerT]):
    """What a server does that the API does not."""

    fault: str
    """A sentence for the page."""
    proof: Callable[[ServerT], Awaitable[None]]
    """Shows it without a line of ours, by the official client or by the bytes; it fails the day
    the server is mended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row(Generic[ServerT]):
    """One dialect on one server."""

    server: str
    """The fixture that starts it."""
    subject: Subject
    """The provider's column of the support matrix."""
    connect: Callable[[ServerT], Subject]
    """The same provider on this server."""
    inexpressible: Mapping[str, str] = field(default_factory=dict[str, str])
    """Behaviours that it cannot be brought to show, with the reason."""
    wrong: Mapping[str, Wrong[ServerT]] = field(default_factory=dict[str, Wrong[ServerT]])
    """Behaviours that fail on it because it is wrong."""
    tolerated: tuple[Wrong[ServerT], ...] = ()
    """What else is wrong and fails nothing here."""

    @property
    def name(self) -> str:
        """What its tests are called."""
        return f"{self.server}-{self.subject.name}"

    def check(self, behaviour: Behaviour) -> Check | None:
        """What is run of this behaviour, if the server can show it."""
        return behaviour.live if self.subject.live else behaviour.check

    def verdict(self, behaviour: Behaviour) -> Verdict:
        """What the page says, and the tests hold it to."""
        if behaviour.id in self.wrong:
            return "wrong"
        if behaviour.id in self.inexpressible:
            return "not expressible"
        if behaviour.id in self.subject.not_applicable:
            return "not applicable"
        return "passes"


def because(reason: str, *behaviours: str) -> dict[str, str]:
    """The same reason for several behaviours."""
    return dict.fromkeys(behaviours, reason)


def fails(wrong: Wrong[ServerT], *behaviours: str) -> dict[str, Wrong[ServerT]]:
    """The same fault behind several behaviours."""
    return dict.fromkeys(behaviours, wrong)
