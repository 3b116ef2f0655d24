"""What travels through the client between two rounds, and how it is known to be ours.

The SDK seals it (AES-256-GCM) and binds it to the method, the tool, its arguments, the server and
the signed-in user. What it leaves open is added here: it is good once, it ends, it stays with the
caller who got it, and it has a size.
"""

from __future__ import annotations

import hashlib
import json
import logging
import secrets
import sqlite3
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn, Protocol, cast

import msgspec
from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS

_PREFIX = "penstock.sampling/1:"
"""Tells our state from that of others, such as the SDK's resolvers."""
_logger = logging.getLogger(__name__)


class Entry(msgspec.Struct, frozen=True, array_like=True):
    """Something that is not to be done again: a value, and the round that it was asked for in."""

    round: int
    value: Any


class State(msgspec.Struct, frozen=True, kw_only=True):
    """The memory of one call between its rounds."""

    nonce: str
    expires: float
    caller: str
    rounds: int
    """How often the client was asked so far."""
    asked: tuple[str, ...] = ()
    """The questions whose answers are expected now."""
    memory: dict[str, Entry] = {}

    def encode(self) -> str:
        """In ASCII, so that whatever a client says can be carried."""
        return _PREFIX + json.dumps(msgspec.to_builtins(self), separators=(",", ":"))


class Spent(Protocol):
    """Remembers which states have come back, so that each is taken once."""

    def spend(self, nonce: str, expires: float) -> bool:
        """Whether this is the first time; it need not be remembered after `expires`."""
        ...


class SpentHere:
    """The memory of one process, which is all that a server of one process needs."""

    def __init__(self) -> None:
        """Nothing has come back yet."""
        self._expiry: dict[str, float] = {}

    def spend(self, nonce: str, expires: float) -> bool:
        """Whether this is the first time."""
        now = time.time()
        # The oldest stand first, for all of one server live equally long.
        while self._expiry and next(iter(self._expiry.values())) <= now:
            del self._expiry[next(iter(self._expiry))]
        if nonce in self._expiry:
            return False
        self._expiry[nonce] = expires
        return True


class SpentInFile:
    """A memory that all processes of a machine share, in an SQLite file."""

    def __init__(self, path: str | Path) -> None:
        """The file is made where there is none."""
        self._database = sqlite3.connect(path, timeout=5.0, isolation_level=None)
        self._database.execute("PRAGMA journal_mode=WAL")
        self._database.execute(
            "CREATE TABLE IF NOT EXISTS spent (nonce TEXT PRIMARY KEY, expires REAL NOT NULL)"
        )

    def spend(self, nonce: str, expires: float) -> bool:
        """Whether this is the first time, in any of the processes."""
        self._database.execute("DELETE FROM spent WHERE expires <= ?", (time.time(),))
        done = self._database.execute(
            "INSERT OR IGNORE INTO spent VALUES (?, ?)", (nonce, expires)
        ).rowcount
        return done == 1

    def close(self) -> None:
        """Give the file back."""
        self._database.close()


def begin(caller: str, ttl: float) -> State:
    """The state of a call that was not made before."""
    return State(nonce=new_nonce(), expires=time.time() + ttl, caller=caller, rounds=0)


def new_nonce() -> str:
    """What no other state has."""
    return secrets.token_urlsafe(16)


def restore(text: str | None, caller: str, spent: Spent, method: str) -> State | None:
    """The state that came back; None where there is none of ours.

    Raises MCPError -32602 when it must not be used. Like the SDK, it tells the client the same
    thing in all cases, and the log why.
    """
    if text is None or not text.startswith(_PREFIX):
        return None
    try:
        state = msgspec.convert(json.loads(text[len(_PREFIX) :]), State)
    except (ValueError, msgspec.ValidationError):
        refuse(method, "malformed")
    if not time.time() < state.expires:
        refuse(method, "expired")
    if not secrets.compare_digest(state.caller, caller):
        refuse(method, "another caller's")
    if not spent.spend(state.nonce, state.expires):
        refuse(method, "replayed")
    return state


def refuse(method: str, reason: str) -> NoReturn:
    """Let the client know no more than that it must begin anew."""
    _logger.warning("requestState rejected on %s: %s", method, reason)
    raise MCPError(
        code=INVALID_PARAMS,
        message="Invalid or expired requestState",
        data={"reason": "invalid_request_state"},
    )


def fingerprint(headers: Mapping[str, str] | None, client: object) -> str:
    """Who calls, as far as a request says: the credentials that it shows, and its program's name.

    The SDK binds the user that its own sign-in knows; this covers servers that check keys in a way
    of their own.
    """
    shown = "" if headers is None else headers.get("authorization", "")
    return digest([shown, client])


def digest(value: object) -> str:
    """A short name for a value of JSON that another value does not have."""
    text = json.dumps(cast(Any, value), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:32]
