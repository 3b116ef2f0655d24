"""What a row of the matrix is made of; the rows are in `behaviours.py`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from tests.conformance.case import Case

Check: TypeAlias = Callable[[Case], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Behaviour:
    """One row of the matrix."""

    id: str
    title: str
    check: Check
    """On a scripted upstream: exactly this goes out, and exactly that comes back."""
    live: Check | None = None
    """On a real model, by properties of its answer; without it, live subjects give a reason."""
    asking: Check | None = None
    """A request that needs it; a subject that cannot do it must refuse this one."""
    pool: Mapping[str, float] = field(default_factory=dict[str, float])
    """Settings of `[pool]` that the check needs, such as a short timeout."""
