"""Which target has served a session, so that its next request goes there too.

A conversation that stays with one model keeps its tone, and the provider's cache of its prompt.
"""

from __future__ import annotations

from collections import OrderedDict
from hashlib import blake2b
from typing import NamedTuple

from penstock.contract.exchange import SamplingRequest
from penstock.contract.ports import Target
from penstock.telemetry.records import Record, RequestRecord

NAMES = ("session_id", "session", "user")
"""What the metadata of a request may call its session; the first that is there counts."""
MOST_SESSIONS = 10_000
"""The one that is unused for longest is forgotten."""


class Session(NamedTuple):
    """A caller's session with a model; what the caller calls it is kept as a digest only."""

    model: str
    key: str | None
    digest: bytes


def session_of(request: SamplingRequest, model: str, key: str | None) -> Session | None:
    """The session that a request belongs to, if its metadata names one."""
    for name in NAMES:
        value = request.metadata.get(name)
        if isinstance(value, str | int) and value != "":
            return Session(model, key, blake2b(str(value).encode(), digest_size=16).digest())
    return None


class Sessions:
    """A subscriber that remembers who has answered last in each session."""

    def __init__(self, most: int = MOST_SESSIONS) -> None:
        """Nobody has."""
        self._most = most
        self._served: OrderedDict[Session, Target] = OrderedDict()
        self._running: OrderedDict[str, Session] = OrderedDict()

    def target(self, session: Session) -> Target | None:
        """Who has answered last in it."""
        return self._served.get(session)

    def begin(self, request_id: str, session: Session) -> None:
        """This request belongs to it; its record will tell who has answered."""
        self._running[request_id] = session
        if len(self._running) > self._most:
            self._running.popitem(last=False)

    def __call__(self, record: Record) -> None:
        """A request has ended."""
        if not isinstance(record, RequestRecord):
            return
        session = self._running.pop(record.request_id, None)
        if session is None or record.outcome != "ok":
            return
        answered = [each for each in record.attempts if each.outcome == "ok"]
        if answered:
            self._served[session] = Target(answered[-1].provider, answered[-1].model)
            self._served.move_to_end(session)
            if len(self._served) > self._most:
                self._served.popitem(last=False)
