"""`Idempotency-Key`: a repeated request gets the stored answer instead of a second call.

The first request with a key claims it, runs in a task of its own, and stores its answer before the
last byte is sent. It goes on when its client goes away, for that client repeats it. What fails is
not stored: the next request makes a new call. The exception is a rejected answer, which is billed
and would be rejected again.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import re
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

from penstock.contract.errors import ContentRejected, InvalidRequest, PenstockError, Problem
from penstock.engine.engine import Engine
from penstock.server.auth.gate import Access
from penstock.server.dispatch import Handler, Route, Routes, tell_error
from penstock.server.doors.adapting import HEADER as ADAPT
from penstock.server.errors import ErrorShape, Failure, HttpProblem
from penstock.server.exchange import Event, Exchange
from penstock.server.idempotency.stored_answers import (
    AnswerLimits,
    AnswerStore,
    Claim,
    StoredAnswer,
)

HEADER = b"idempotency-key"
REPLAYED = b"idempotency-replayed"
LONGEST_KEY = 255
WAIT_S = 30.0
"""How long a repeated request waits for the first one; longer than a lease."""
MOST_WAITING = 100
"""Repeated requests of one process that wait at once; the others get 409 immediately."""
_FIRST_LOOK_S, _LONGEST_LOOK_S = 0.02, 0.5
_RETRY_AFTER_S = 2.0
_KEY = re.compile(rb"[!-~]([ -~]{0,253}[!-~])?")
_OF_THE_MOMENT = (b"x-ratelimit-", b"access-control-", b"vary", b"content-length", REPLAYED)
"""Headers that are made again for each answer."""
PATHS = (
    "/v1/chat/completions",
    "/v1/responses",
    "/v1/messages",
    "/v1/embeddings",
    "/v1/sampling/createMessage",
)
_log = logging.getLogger("penstock.server")


class Idempotency:
    """Wraps the endpoints that spend money; without the header they run as they are."""

    def __init__(self) -> None:
        """Off until it is configured."""
        self._store: AnswerStore | None = None
        self._earlier: list[AnswerStore] = []
        self._running: set[asyncio.Task[None]] = set()
        self._waiting = 0

    def configure(self, ledger: Path, limits: AnswerLimits) -> None:
        """Keep answers next to this ledger, within these limits."""
        path = AnswerStore.beside(ledger)
        store = self._store
        if store is not None and store.path == path and limits.ttl_s > 0:
            store.limits = limits
            return
        if store is not None:
            self._earlier.append(store)
        self._store = AnswerStore(path, limits) if limits.ttl_s > 0 else None

    def wrapped(self, routes: Routes) -> Routes:
        """These routes, with this behaviour where a request spends money."""
        return {
            (method, path): self._wrap(route) if method == "POST" and path in PATHS else route
            for (method, path), route in routes.items()
        }

    async def aclose(self) -> None:
        """Stop what runs without its client, and close the files."""
        for task in list(self._running):
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)
        for store in (*self._earlier, self._store):
            if store is not None:
                await store.aclose()

    def _wrap(self, route: Route) -> Route:
        async def handle(engine: Engine, exchange: Exchange) -> None:
            given = exchange.headers.get(HEADER)
            if given is None or self._store is None:
                await route.handler(engine, exchange)
            else:
                await self._answer(self._store, given, route, engine, exchange)

        return route._replace(handler=handle)

    async def _answer(
        self, store: AnswerStore, given: bytes, route: Route, engine: Engine, exchange: Exchange
    ) -> None:
        if not _KEY.fullmatch(given):
            text = f"give 1 to {LONGEST_KEY} visible ASCII characters"
            raise InvalidRequest.of([Problem("Idempotency-Key", text)])
        scope, key = scope_of(exchange.access), given.decode("ascii")
        said = (exchange.path.encode(), exchange.headers.get(ADAPT))
        content = b"\0".join([*filter(None, said), await exchange.body()])
        claim = await self._claim(store, scope, key, hashlib.sha256(content).digest())
        if claim.answer is not None:
            await _replay(exchange, claim.answer)
            return
        recording = _Recording(store, scope, key, exchange)
        task = asyncio.create_task(self._run(recording, route.handler, route.errors, engine))
        self._running.add(task)
        task.add_done_callback(self._ended)
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            if exchange.gone:
                recording.detached = True
            else:
                # The server has no more time for it.
                task.cancel()
            raise

    async def _claim(self, store: AnswerStore, scope: str, key: str, fingerprint: bytes) -> Claim:
        """The claim or the stored answer; raises HttpProblem for what gets neither."""
        claim = await store.claim(scope, key, fingerprint)
        if claim.verdict == "running" and self._waiting < MOST_WAITING:
            self._waiting += 1
            try:
                claim = await self._wait(store, scope, key, fingerprint)
            finally:
                self._waiting -= 1
        if claim.verdict in ("mine", "done"):
            return claim
        raise HttpProblem(_REFUSALS[claim.verdict])

    async def _wait(self, store: AnswerStore, scope: str, key: str, fingerprint: bytes) -> Claim:
        now = asyncio.get_running_loop().time
        deadline, pause = now() + WAIT_S, _FIRST_LOOK_S
        while True:
            await asyncio.sleep(pause)
            found = await store.claim(scope, key, fingerprint)
            if found.verdict != "running" or now() >= deadline:
                return found
            pause = min(pause * 1.5, _LONGEST_LOOK_S)

    async def _run(
        self, recording: _Recording, handler: Handler, errors: ErrorShape, engine: Engine
    ) -> None:
        inner = recording.inner
        try:
            # It may outlive the request that began it.
            with engine.in_use():
                try:
                    await handler(engine, inner)
                except ContentRejected as error:
                    recording.keeps_failure = True
                    await tell_error(inner, errors, error)
        finally:
            if not recording.stored:
                await _quietly(recording.store.release(recording.scope, recording.key))

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            # The request of the client answers with it, unless the client has gone.
            _log.debug("a request with an Idempotency-Key failed: %s", error)


class _Recording:
    """Passes an answer on to its client, and stores it before its last byte."""

    def __init__(self, store: AnswerStore, scope: str, key: str, outer: Exchange) -> None:
        self.store, self.scope, self.key = store, scope, key
        self.inner = outer.passed_on_by(self._send)
        self.detached = False
        """Whether the client has gone."""
        self.keeps_failure = False
        self.stored = False
        self._outer = outer
        self._status = 0
        self._headers: list[tuple[str, str]] = []
        self._pieces: list[bytes] = []
        self._size = 0

    async def _send(self, event: Event) -> None:
        if event["type"] == "http.response.start":
            self._status = event["status"]
            self._headers = [
                (name.decode("latin-1"), value.decode("latin-1"))
                for name, value in event["headers"]
                if not name.startswith(_OF_THE_MOMENT)
            ]
            event = {**event, "headers": [*event["headers"], (REPLAYED, b"false")]}
        else:
            self._add(event.get("body", b""))
            if not event.get("more_body", False) and self._is_kept():
                self.stored = await _quietly(
                    self.store.complete(self.scope, self.key, self._answer())
                )
        if not self.detached:
            await self._outer.forward_event(event)

    def _add(self, data: bytes) -> None:
        self._size += len(data)
        if self._size <= self.store.limits.max_bytes:
            self._pieces.append(data)
        else:
            self._pieces.clear()

    def _is_kept(self) -> bool:
        return self.inner.whole and (self._status < 400 or self.keeps_failure)

    def _answer(self) -> StoredAnswer | None:
        if self._size > self.store.limits.max_bytes:
            return None
        return StoredAnswer(self._status, self._headers, b"".join(self._pieces))


def scope_of(access: Access | None) -> str:
    """Whose keys these are: those of one API key, also after a rotation of its text."""
    if access is None or access.terms is None:
        return ""
    key = access.terms.key
    return f"{key.name}@{key.created or 0}"


async def _replay(exchange: Exchange, answer: StoredAnswer) -> None:
    headers = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in answer.headers]
    await exchange.replay(answer.status, [*headers, (REPLAYED, b"true")], answer.body)


async def _quietly(work: Coroutine[Any, Any, None]) -> bool:
    """Whether the file could be written; the client gets its answer in either case."""
    try:
        await work
    except PenstockError as error:
        _log.error("an answer for repeated requests could not be stored: %s", error)
        return False
    return True


_TYPE = "idempotency_error"
_REFUSALS = {
    "different": Failure(
        422,
        "this Idempotency-Key was used for another request; use a new key for each new request",
        _TYPE,
        "idempotency_key_reused",
        "Idempotency-Key",
    ),
    "running": Failure(
        409,
        "the first request with this Idempotency-Key is still running; try again in "
        f"{_RETRY_AFTER_S:.0f} s",
        _TYPE,
        "idempotency_in_flight",
        "Idempotency-Key",
        retry_after=_RETRY_AFTER_S,
        retryable=True,
    ),
    "too_large": Failure(
        409,
        "the answer to this Idempotency-Key was larger than limits.max_idempotency_bytes and is "
        "not stored; use a new key for a new call",
        _TYPE,
        "idempotency_answer_too_large",
        "Idempotency-Key",
        headers=((b"x-should-retry", b"false"),),
    ),
}
