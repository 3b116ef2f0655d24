"""Who is at the door: asks for keys, lets in or refuses, and tells what is left of a key's limits.

| path | without any key | once there is a key |
|---|---|---|
| `/health` | open | open |
| `/ready` | open | open; its details for operators |
| `/metrics` | open | operators, and keys with the scope `metrics` |
| `/admin/...` | the admin key | the admin key |
| all others | open, to this machine | any key |

An operator is whoever shows the admin key, or a key that is not limited to some models. The admin
key opens no other door: what it asked for would be counted for nobody.
"""

from __future__ import annotations

import contextlib
import hmac
import logging
import math
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from typing import Literal, Protocol, TypeAlias

import msgspec

from penstock.contract.errors import (
    ModelNotFound,
    PenstockError,
    RateLimited,
    StorageUnavailable,
)
from penstock.keys.keyring import Keyring, Verdict
from penstock.keys.policy import KeyTerms, MessageKind, not_for_this_key
from penstock.keys.rate_limit import AnyWindow
from penstock.keys.records import LONGEST, digest_of, without_keys
from penstock.runtime.background import Supervisor
from penstock.server.auth.cors import Cors
from penstock.server.auth.limit_headers import limit_headers
from penstock.server.auth.local_guard import LocalGuard
from penstock.server.errors import STORE_UNAVAILABLE, Failure, HttpProblem, failure_of
from penstock.server.exchange import Header
from penstock.telemetry.records import CallRefused

Needs: TypeAlias = Literal["nothing", "optional", "key", "metrics", "operator", "admin"]
"""What a route asks of its caller; `optional`: a key that is shown must be good."""

logger = logging.getLogger("penstock.server")
_ADMIN = "/admin"
_LONGEST_SAID = 200
_HEADERS = (b"x-api-key", b"api-key")
_CHALLENGE: tuple[Header, ...] = ((b"www-authenticate", b"Bearer"),)
_COUNTED = "POST"
"""What counts as a request to a key's limits; looking at lists does not."""

_NO_ADMIN = (
    "the admin API is disabled, because this gateway has no admin key: write admin_key = "
    '"${PENSTOCK_ADMIN_KEY}" below [server] in penstock.toml, set that variable to 16 or more '
    "characters, and restart the gateway"
)
_ONLY_METRICS = Failure(
    403, "this key is for /metrics alone; use another one here", "permission_error", "metrics_key"
)
_NO_STORE = (
    "this gateway cannot check keys now, because its store is unavailable: try again later; the "
    "reason is in its log"
)
_WHY: Mapping[Verdict, str] = {
    "unknown": "this gateway does not know that key",
    "expired": "this key has expired; ask for another",
    "revoked": "this key was revoked; ask for another",
    "rotated": "this key was replaced by a new one, and its time is over; use the new one",
}


class Access:
    """What one caller may do, as far as its key says."""

    __slots__ = ("admin", "asked", "terms")

    def __init__(
        self,
        *,
        asked: bool,
        terms: KeyTerms | None = None,
        admin: bool = False,
    ) -> None:
        """`asked`: keys are asked for here, so that without one nothing may be done."""
        self.asked = asked
        self.terms = terms
        self.admin = admin

    @property
    def operator(self) -> bool:
        """Whether the caller may see what all others do."""
        if not self.asked or self.admin:
            return True
        if self.terms is None or self.terms.key.scope == "metrics":
            return False
        return not self.terms.key.models

    def may_use(self, model: str) -> bool:
        """Whether the caller may ask for this model, and so know of it."""
        return self.terms is None or self.terms.may_use(model)

    @property
    def sees(self) -> str | None:
        """The key whose requests the caller sees; None: it sees those of all."""
        if self.admin or not self.asked:
            return None
        return "" if self.terms is None else self.terms.key.id

    def headers(self) -> Iterator[Header]:
        """The limits of the key and what is left of them, in OpenAI's form."""
        if self.terms is not None:
            yield from limit_headers(self.terms)


EVERYBODY = Access(asked=False)


class Visitor(Protocol):
    """Whoever stands at a door: one request, or a connection that brings many."""

    access: Access | None

    @property
    def method(self) -> str:
        """Of the request that it came with."""
        ...

    @property
    def path(self) -> str:
        """Where it wants to go."""
        ...

    @property
    def headers(self) -> Mapping[bytes, bytes]:
        """What it shows."""
        ...

    @property
    def peer(self) -> str:
        """The address of whoever is connected."""
        ...


class Gate:
    """Stands before every door of one gateway."""

    def __init__(
        self, keys: Keyring, admin_key: str | None = None, cors: Cors | None = None
    ) -> None:
        """`async with` begins to look after changes of the keys."""
        self.keys = keys
        self.configure(admin_key, cors)
        self._watching = Supervisor()
        self._watching.add("keys", keys.watch)
        self.on_refusal: Callable[[CallRefused], None] | None = None
        """Told of everybody who was not let in."""

    def configure(self, admin_key: str | None, cors: Cors | None = None) -> None:
        """Another admin key, and pages of other sites."""
        self._admin = digest_of(admin_key.encode()) if admin_key else None
        self._guard = LocalGuard(cors)

    async def __aenter__(self) -> Gate:
        """Read the keys; raises what is wrong with their file.

        While it is not the expected one, callers are refused.
        """
        with contextlib.suppress(StorageUnavailable):
            await self.keys.refresh()
        await self._watching.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._watching.aclose()

    def admit(self, visitor: Visitor, needs: Needs, *, counted: bool | None = None) -> None:
        """Let the visitor in, or raise HttpProblem; every refusal is logged.

        `counted`: whether a request of its key begins; by default a POST is one. What is not
        counted here is counted by `count`, once it is known what it is.
        """
        with self._logging(visitor):
            access = self.access(visitor.headers, visitor.path, needs)
            # From here on its answers carry the key's limits, also when these refuse it.
            visitor.access = access
            if access.terms is not None and (
                visitor.method == _COUNTED if counted is None else counted
            ):
                _count(access.terms)

    def count(self, visitor: Visitor, message: MessageKind | None = None) -> None:
        """Count a request of the visitor's key, or an MCP message; raises HttpProblem."""
        access = visitor.access
        if access is not None and access.terms is not None:
            with self._logging(visitor):
                if message is None:
                    _count(access.terms)
                else:
                    _count_message(access.terms, message)

    @contextlib.contextmanager
    def _logging(self, visitor: Visitor) -> Generator[None]:
        try:
            yield
        except HttpProblem as problem:
            refused = isinstance(problem, _Refused)
            reason = problem.reason if refused else problem.failure.message
            self._log(visitor, problem.failure.status, reason, problem.terms if refused else None)
            raise

    def access(self, headers: Mapping[bytes, bytes], path: str, needs: Needs) -> Access:
        """What the caller with these headers may do; raises HttpProblem when it is not enough."""
        if path == _ADMIN or path.startswith(f"{_ADMIN}/"):
            needs = "admin"
        if self.keys.problem is not None and needs != "nothing":
            return self._without_store(headers, needs, self.keys.problem)
        if not self.keys.asks:
            self._guard.check(headers)
            if needs != "admin":
                return EVERYBODY
        if needs == "admin" and self._admin is None:
            raise _Refused("no admin key is set", _unauthorized(_NO_ADMIN, "admin_key_not_set"))
        if needs == "nothing":
            return EVERYBODY
        shown = _shown(headers)
        if shown is None:
            if needs == "optional":
                return Access(asked=True)
            raise _Refused("no key", _unauthorized(_missing(needs)))
        if self._is_admin(shown):
            if needs == "key":
                raise _Refused(
                    "the admin key at another endpoint",
                    Failure(
                        403,
                        "the admin key is for /admin, /metrics and /ready; use a key here",
                        "permission_error",
                        "admin_key_not_allowed",
                    ),
                )
            return Access(asked=True, admin=True)
        found = self.keys.find(shown)
        if found.terms is None or found.verdict != "good":
            raise _Refused(
                found.verdict if found.terms else "wrong key",
                _unauthorized(_WHY[found.verdict]),
                found.terms,
            )
        if found.terms.key.scope == "metrics" and needs != "metrics":
            if needs == "optional":
                return Access(asked=True)
            raise _Refused("a key for /metrics elsewhere", _ONLY_METRICS, found.terms)
        access = Access(asked=True, terms=found.terms)
        if needs == "metrics" and found.terms.key.scope != "metrics":
            needs = "operator"
        if needs == "admin" or (needs == "operator" and not access.operator):
            what = "the admin key" if needs == "admin" else "the admin key, or one for all models"
            raise _Refused(
                f"it takes {what}",
                Failure(403, f"this takes {what}", "permission_error", "admin_key_required"),
                found.terms,
            )
        return access

    def _without_store(
        self, headers: Mapping[bytes, bytes], needs: Needs, problem: StorageUnavailable
    ) -> Access:
        """What a caller may do while it is not known which keys there are."""
        shown = None if self._admin is None else _shown(headers)
        if shown is not None and needs != "key" and self._is_admin(shown):
            return Access(asked=True, admin=True)
        if needs == "optional":
            return Access(asked=True)
        failure = msgspec.structs.replace(failure_of(problem), message=_NO_STORE)
        raise _Refused("the keys cannot be read", failure)

    def failed(self, visitor: Visitor, error: Exception) -> Exception:
        """What the caller is told of an error.

        Nothing about models that are not for its key, nor about files of the server.
        """
        if isinstance(error, StorageUnavailable):
            logger.warning("a request is refused: %s", error)
            unavailable = StorageUnavailable(STORE_UNAVAILABLE, retry_after=error.retry_after)
            unavailable.located(request_id=error.request_id)
            return unavailable
        access = visitor.access
        terms = None if access is None else access.terms
        if terms is None or not isinstance(error, PenstockError) or error.provider is not None:
            return error
        if isinstance(error, RateLimited):
            self._log(visitor, 429, "its tokens of this minute are used up", terms)
        elif isinstance(error, ModelNotFound) and terms.key.models:
            reason = f"no model {_loggable(error.model or '')} for this key"
            self._log(visitor, 404, reason, terms)
            discreet = not_for_this_key(error.model)
            discreet.located(request_id=error.request_id, metadata=error.metadata)
            return discreet
        return error

    def _is_admin(self, shown: bytes) -> bool:
        return self._admin is not None and hmac.compare_digest(self._admin, digest_of(shown))

    def _log(
        self, visitor: Visitor, status: int, reason: str, terms: KeyTerms | None = None
    ) -> None:
        if terms is None and visitor.access is not None:
            terms = visitor.access.terms
        if self.on_refusal is not None:
            self.on_refusal(
                CallRefused(
                    status=status,
                    method=visitor.method,
                    path=_loggable(visitor.path),
                    peer=visitor.peer,
                    key=None if terms is None else terms.key.id,
                    reason=reason,
                    at=time.time(),
                )
            )
        logger.log(
            logging.INFO if status == 429 else logging.WARNING,
            "refused with %d: %s %s from %s, key %s: %s",
            status,
            visitor.method,
            _loggable(visitor.path),
            visitor.peer,
            terms.key.id if terms is not None else "unknown",
            reason,
        )


class _Refused(HttpProblem):
    """Somebody was not let in; what the log says of it is not what the caller is told."""

    def __init__(self, reason: str, failure: Failure, terms: KeyTerms | None = None) -> None:
        super().__init__(failure)
        self.reason = reason
        self.terms = terms


def _shown(headers: Mapping[bytes, bytes]) -> bytes | None:
    """The key that these headers carry: of several, the first that is here."""
    authorization = headers.get(b"authorization")
    if authorization is not None:
        scheme, _, text = authorization.partition(b" ")
        if scheme.lower() != b"bearer":
            raise _Refused(
                "another scheme than Bearer", _unauthorized("write `Authorization: Bearer KEY`")
            )
        shown: bytes | None = text.strip()
    else:
        shown = next((headers[name] for name in _HEADERS if name in headers), None)
    if shown is not None and len(shown) > LONGEST:
        raise _Refused(f"{len(shown)} bytes in the place of a key", _unauthorized(_WHY["unknown"]))
    return shown or None


def _loggable(said: str) -> str:
    """What a caller has chosen, short, on one line, and without a key that stands in it."""
    return ascii(without_keys(said[:_LONGEST_SAID]))


def _missing(needs: Needs) -> str:
    what = "the admin key" if needs == "admin" else "a key"
    return f"this takes {what}: send it as `Authorization: Bearer KEY` or `x-api-key: KEY`"


def _unauthorized(message: str, code: str = "invalid_api_key") -> Failure:
    return Failure(401, message, code=code, headers=_CHALLENGE)


def _count(terms: KeyTerms) -> None:
    window = terms.requests
    if window is not None:
        _take(terms, window, f"make {window.limit} requests a minute")


def _count_message(terms: KeyTerms, kind: MessageKind) -> None:
    window = terms.messages(kind)
    if window is not None:
        what = "cancellations" if kind == "cancels" else "messages"
        _take(terms, window, f"send {window.limit} MCP {what} a minute besides its requests")


def _take(terms: KeyTerms, window: AnyWindow, limit: str) -> None:
    if window.take(1) is not None:
        return
    wait = window.wait_s(1)
    raise _Refused(
        f"it may {limit}, which are used up",
        Failure(
            429,
            f"the key {terms.key.name!r} may {limit}: try again in {math.ceil(wait)} s",
            "rate_limit_error",
            "rate_limit_exceeded",
            retry_after=wait,
            retryable=True,
        ),
        terms,
    )
