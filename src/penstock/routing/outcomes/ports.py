"""What is kept of requests so that routing can learn from them: the records, and the port.

The store is the source of truth. What a router has learnt is a fold over `events`: after a restart
it is made again, and workers that share a store learn from each other by reading on from where
they were. Prompts are kept only by whoever puts them into `Served.prompt`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

import msgspec

from penstock.contract.ports import Target
from penstock.routing.outcomes.outcome import Logged, Outcome, Quality

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

REPLAYED = 100_000
"""Of each model, a replay gives so many events, the newest."""
KEPT = 200_000
"""Of each model, so many outcomes are kept, the newest, ..."""
KEPT_IN_ALL = 1_000_000
"""... and of all models together so many."""


class Served(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a request at one target; one that failed over has several."""

    request_id: str
    model: str
    """The name that the caller asked for."""
    target: Target
    at: float
    """Seconds since 1970."""
    prompt_tokens: int = 0
    key: str | None = None
    features: NDArray[np.float32] | None = None
    made_by: str | None = None
    """The name of the `FeatureMaker`: features of different ones do not compare."""
    output_tokens: int | None = None
    cost_nanos: int | None = None
    latency_ms: float | None = None
    first_token_ms: float | None = None
    ok: bool = True
    error: str | None = None
    """The name of the error's class."""
    logged: Logged | None = None
    prompt: str | None = None
    """The text itself; None unless it was asked for."""


class Label(msgspec.Struct, frozen=True, kw_only=True):
    """How good an answer was; of one source, the latest counts."""

    request_id: str
    quality: Quality
    at: float
    key: str | None = None
    """Who says so."""
    target: Target | None = None
    """Whose answer; None: that of the target that has answered last."""


class Event(msgspec.Struct, frozen=True):
    """Something to learn from: an answer's time and cost, or, with a quality, a label."""

    seq: int
    """Its place among all events; they are numbered in the order in which they were committed."""
    model: str
    outcome: Outcome
    own: bool
    """Whether it was written by this very store, whose process knows it already."""


class Events(msgspec.Struct, frozen=True):
    """Some events in their order."""

    found: tuple[Event, ...]
    cursor: int
    """Where to go on."""
    more: bool
    """Whether there are more just now."""
    generation: int
    """Another number when something was forgotten: what was learnt must be learnt anew."""


class Remembered(msgspec.Struct, frozen=True):
    """One outcome as it is kept, with its labels."""

    seq: int
    served: Served
    labels: tuple[Label, ...] = ()

    def takes_label_of(self, key: str | None, *, isolated: bool) -> bool:
        """Whether this key may say how good the answer was: with isolation, whose it is."""
        return self.served.ok and (not isolated or key == self.served.key)


class Counts(msgspec.Struct, frozen=True):
    """How much there is."""

    outcomes: int = 0
    labels: int = 0
    features: int = 0
    prompts: int = 0
    """Texts of prompts."""


class Forgotten(msgspec.Struct, frozen=True):
    """What was deleted."""

    outcomes: int
    labels: int
    features: int
    prompts: int
    erased: bool
    """Whether nothing is left in the file's journal; a reader that stays can hinder that."""


class OutcomeStore(Protocol):
    """Keeps outcomes and labels; `served` and `labelled` never wait and never fail."""

    def served(self, served: Served) -> None:
        """Keep what became of a request, soon."""
        ...

    def labelled(self, label: Label, *, isolated: bool = False) -> None:
        """Keep how good an answer was, soon; `isolated`: unless the request is another key's."""
        ...

    def flush(self) -> None:
        """Return when all that was given so far is committed, or lost; blocks."""
        ...

    def events(self, after: int = 0, most: int = 1000, *, made_by: str | None = None) -> Events:
        """What there is to learn after this cursor; blocks.

        From 0 it is a replay: of each model, the newest `REPLAYED` events. Labels whose features
        are not by `made_by` are left out.
        """
        ...

    def find(self, request_id: str) -> Sequence[Remembered]:
        """The outcomes of a request in their order; blocks."""
        ...

    def forget(self, *, key: str | None = None, before: float | None = None) -> Forgotten:
        """Delete what this key has asked and said, what is older, or what is both; blocks."""
        ...

    def counts(self) -> Counts:
        """How much there is; blocks."""
        ...

    def close(self) -> None:
        """Write what is left, and take nothing more; blocks."""
        ...
