"""Which target has served a session, so that its next request goes there too, and what it repeats.

A conversation that stays with one model keeps its tone, and the provider's cache of its prompt.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from hashlib import blake2b
from typing import NamedTuple

import msgspec

from penstock.contract.exchange import SamplingRequest
from penstock.contract.ports import Target
from penstock.telemetry.records import Record, RequestIdentity, RequestRecord, identity_of

NAMES = ("session_id", "session", "user")
"""What the metadata of a request may call its session; the first that is there counts."""
MOST_SESSIONS = 10_000
"""The one that is unused for longest is forgotten."""
RETRY_WITHIN_S = 120.0
"""A session that asks the same again within this time was not content with the answer."""
_MOST_REPEATED = 20_000
_LARGEST = 1 << 64


class Session(NamedTuple):
    """A caller's session with a model; what the caller calls it is kept as a digest only."""

    model: str
    key: str | None
    digest: bytes


def session_of(request: SamplingRequest, model: str, key: str | None) -> Session | None:
    """The session that a request belongs to, if its metadata names one."""
    for name in NAMES:
        value = request.metadata.get(name)
        # A whole number of thousands of digits is no name, and could not be written as text.
        if (isinstance(value, str) and value) or (isinstance(value, int) and abs(value) < _LARGEST):
            return Session(model, key, blake2b(str(value).encode(), digest_size=16).digest())
    return None


class Sessions:
    """A subscriber that remembers who has answered last in each session."""

    def __init__(self, most: int = MOST_SESSIONS) -> None:
        """Nobody has."""
        self._most = most
        self._served: OrderedDict[Session, Target] = OrderedDict()
        self._running: OrderedDict[RequestIdentity, Session] = OrderedDict()

    def target(self, session: Session) -> Target | None:
        """Who has answered last in it."""
        return self._served.get(session)

    def begin(self, request_id: str, session: Session) -> None:
        """This request belongs to it; its record will tell who has answered."""
        self._running[session.key, request_id] = session
        if len(self._running) > self._most:
            self._running.popitem(last=False)

    def __call__(self, record: Record) -> None:
        """A request has ended."""
        if not isinstance(record, RequestRecord):
            return
        session = self._running.pop(identity_of(record), None)
        if session is None or record.outcome != "ok":
            return
        answered = [each for each in record.attempts if each.outcome == "ok"]
        if answered:
            self._served[session] = Target(answered[-1].provider, answered[-1].model)
            self._served.move_to_end(session)
            if len(self._served) > self._most:
                self._served.popitem(last=False)


class _Asked(NamedTuple):
    request_id: str
    what: int
    at: float


class Repeats:
    """Notices a session that asks the same again: it was not helped by the answer before."""

    def __init__(self) -> None:
        """Nobody has asked."""
        self._asked: OrderedDict[Session, _Asked] = OrderedDict()

    def noted(
        self, session: Session | None, request: SamplingRequest, request_id: str
    ) -> str | None:
        """Note what a session asks; the id of its earlier request, when that asked the same."""
        if session is None:
            return None
        now, what = time.monotonic(), hash(msgspec.msgpack.encode(request.messages))
        before = self._asked.pop(session, None)
        self._asked[session] = _Asked(request_id, what, now)
        if len(self._asked) > _MOST_REPEATED:
            self._asked.popitem(last=False)
        if before is None or before.what != what or now - before.at > RETRY_WITHIN_S:
            return None
        return before.request_id
