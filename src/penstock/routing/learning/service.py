"""What models learn while they serve.

A decision is kept until its request has ended; then its outcome goes into the store, and so does
every label that anybody gives it. Whatever is learnt is learnt from the store, in its order: so
processes that share one know the same, and one that starts again knows what it knew.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from penstock.contract.errors import InvalidRequest, PenstockError, Problem
from penstock.contract.estimates import RecordedUsage
from penstock.contract.exchange import SamplingRequest
from penstock.contract.metadata import Usage
from penstock.contract.ports import Target
from penstock.routing.cost_model import Expected
from penstock.routing.format_check import validity
from penstock.routing.learning.features import Vector
from penstock.routing.learning.prompt_features import Reader
from penstock.routing.learning.prompts import asked_text
from penstock.routing.learning.router import Known, LearnedRouter
from penstock.routing.learning.trust import Verdict
from penstock.routing.outcomes.outcome import Quality, Source
from penstock.routing.outcomes.ports import Event, Events, Label, OutcomeStore, Served
from penstock.routing.pending import MOST_PENDING, Pending, Unjudged, is_judged_later, served_of
from penstock.routing.selection import Choice, Weights
from penstock.routing.sessions import Repeats, session_of
from penstock.telemetry.records import (
    Record,
    RequestContent,
    RequestIdentity,
    RequestRecord,
    identity_of,
)

if TYPE_CHECKING:
    from penstock.routing.index.pgvector_table import PgvectorTable

_log = logging.getLogger(__name__)
LOOKED_EVERY_S = 1.0
"""How long others' outcomes may wait until they are learnt from."""
_AT_ONCE = 500
_BETWEEN_BREATHS = 20
"""Events that are learnt from before other work gets its turn; one of a file teaches many keys."""
_LONGEST_PAUSE_S = 30.0
"""Between two looks at a store that cannot be read."""
PATIENCE_S = 1.5
"""How long a request is looked for that another process has served, and is about to write down."""
_DAY_S = 86_400.0


class Settings(msgspec.Struct, frozen=True):
    """What is kept of requests, and who may teach whom."""

    isolated: bool = False
    keep_prompts: bool = False
    keep_days: int | None = None
    rules: object = None
    """What routers are made by: two that learn by the same rules may share what they know."""


class Learning:
    """The routers of all models that learn, and the store that they learn from."""

    def __init__(
        self,
        models: Sequence[str],
        make_router: Callable[[str], LearnedRouter],
        reader: Reader,
        store: OutcomeStore,
        settings: Settings | None = None,
        *,
        shared: PgvectorTable | None = None,
    ) -> None:
        """`make_router` gives a router for a model that has learnt nothing; called more than once.

        Nothing is read before `tend` or `catch_up`. `shared` holds the indexes, if anything does.
        """
        self._make_router = make_router
        self._routers = {model: make_router(model) for model in models}
        self._reader = reader
        self._store = store
        self._settings = settings or Settings()
        self._shared = shared
        self._pending: OrderedDict[RequestIdentity, Pending] = OrderedDict()
        self._unjudged = Unjudged()
        self._repeats = Repeats()
        self._cursor = 0
        self._generation: tuple[int, str] | None = None
        """What was learnt from: the store's number, and the name of the features."""
        self._reading = asyncio.Lock()
        self._tended = False
        self._looked = -LOOKED_EVERY_S
        self._told_unreadable = False

    async def decide(
        self,
        model: str,
        request: SamplingRequest,
        targets: Sequence[Target],
        known: Mapping[Target, Known],
        *,
        prompt_tokens: int,
        request_id: str,
        key: str | None,
    ) -> Choice:
        """Choose, and remember the choice until the request has ended."""
        text, features = await self._read(model, request)
        again = self._repeats.noted(session_of(request, model, key), request, request_id)
        if again is not None:
            bad = Quality(0.0, Source.RETRY)
            self._store.labelled(Label(request_id=again, quality=bad, at=time.time(), key=key))
        decided = self._routers[model].decide(
            features,
            prompt_tokens,
            targets,
            Weights.of(request.model_preferences),
            known=known,
            key=key,
        )
        self._pending[key, request_id] = Pending(
            model, decided, text if self._settings.keep_prompts else None
        )
        if len(self._pending) > MOST_PENDING:
            self._pending.popitem(last=False)
        return decided.choice

    async def explain(
        self,
        model: str,
        request: SamplingRequest,
        targets: Sequence[Target],
        known: Mapping[Target, Known],
        *,
        prompt_tokens: int,
        key: str | None,
    ) -> Choice:
        """What would be chosen, without dice and without being remembered."""
        _, features = await self._read(model, request)
        return self._routers[model].explain(
            features,
            prompt_tokens,
            targets,
            Weights.of(request.model_preferences),
            known=known,
            key=key,
        )

    async def look(self, *, serving: bool = False) -> None:
        """Read what is new where nobody reads beside the requests, so one of them has to.

        `serving`: a request that is served goes by what was known when nothing can be read.
        """
        if self._tended or time.monotonic() - self._looked < LOOKED_EVERY_S:
            return
        try:
            await self._catch_up()
        except PenstockError as error:
            if not serving:
                raise
            self._looked = time.monotonic()
            self._tell_unreadable(error)

    def expected(self, model: str, key: str | None) -> Callable[[Target, int], Expected]:
        """What answers of this model's targets take, by their earlier ones, here and elsewhere."""
        return self._routers[model].expecting(key)

    def verdict(self, model: str, key: str | None = None) -> Verdict:
        """Whether what this model has learnt is in force, and what it gains."""
        return self._routers[model].verdict(key)

    def heard(self, record: Record) -> None:
        """Take in what is told of requests: a subscriber of hooks, for content too."""
        if isinstance(record, RequestContent):
            pending = self._pending.get(identity_of(record))
            if pending is not None:
                pending.judged_later = is_judged_later(record.request, record.answer)
                if not pending.judged_later:
                    pending.valid = validity(record.request, record.answer)
        elif isinstance(record, RequestRecord):
            pending = self._pending.pop(identity_of(record), None)
            if pending is not None:
                self._ended(record, pending)

    def validated(self, request_id: str, *, fits: bool) -> None:
        """Keep whether an answer was of the type that its caller reads; never waits.

        Only programs that use the library call it, and they show no key.
        """
        pending = self._pending.get((None, request_id))
        if pending is not None:
            pending.valid = fits
        elif self._unjudged.take((None, request_id)):
            self._label_validity(request_id, fits)

    async def recorded(
        self,
        models: Sequence[str],
        call: RecordedUsage,
        usage: Usage,
        *,
        latency_ms: float | None,
        quality: float,
        prompt: str,
        key: str | None,
    ) -> None:
        """Learn from a call that was made elsewhere, for each of these models."""
        features = await self._reader.features(prompt)
        for number, model in enumerate(models):
            if self._shared is not None:
                await self._shared.prepare(model, features)
            # A label is about one outcome, which it finds by the id.
            request_id = call.request_id if not number else f"{call.request_id}.{number}"
            self._store.served(
                Served(
                    request_id=request_id,
                    model=model,
                    target=Target(call.provider, call.model),
                    at=time.time(),
                    prompt_tokens=usage.input_tokens or 0,
                    key=key,
                    features=features,
                    made_by=self._reader.name,
                    output_tokens=usage.output_tokens,
                    cost_nanos=call.cost_nanos,
                    latency_ms=latency_ms,
                    prompt=prompt if self._settings.keep_prompts and prompt else None,
                )
            )
            label = Quality(quality)
            self._store.labelled(
                Label(request_id=request_id, quality=label, at=time.time(), key=key)
            )

    async def feedback(
        self, request_id: str, quality: Quality, key: str | None = None, *, own_only: bool = False
    ) -> None:
        """Keep what somebody says about an answer; raises InvalidRequest when it is not known.

        `own_only`: only the key that asked may rate the answer, as it must with isolation.
        """
        isolated = self._settings.isolated or own_only
        deadline = time.monotonic() + PATIENCE_S
        while True:
            await asyncio.to_thread(self._store.flush)
            found = await asyncio.to_thread(self._store.find, request_id)
            if any(each.takes_label_of(key, isolated=isolated) for each in found):
                break
            # That it is another's is not told, nor by how soon there is an answer.
            if time.monotonic() > deadline:
                raise InvalidRequest.of([Problem("request_id", unknown(request_id))])
            await asyncio.sleep(PATIENCE_S / 10)
        label = Label(request_id=request_id, quality=quality, at=time.time(), key=key)
        self._store.labelled(label, isolated=isolated)

    async def tend(self) -> None:
        """Learn from what is written down, here and elsewhere, for as long as it is not stopped."""
        tidied = 0.0
        pause_s = LOOKED_EVERY_S
        self._tended = True
        while True:
            try:
                if time.monotonic() - tidied > _DAY_S or not tidied:
                    tidied = time.monotonic()
                    await self._tidy()
                await self._catch_up()
                if self._shared is not None:
                    self._shared.share_soon()
                pause_s = LOOKED_EVERY_S
            except PenstockError as error:
                # A supervisor would give it up; but a disk gets room again, or a file is put back.
                self._tell_unreadable(error)
                pause_s = min(_LONGEST_PAUSE_S, 2 * pause_s)
            await asyncio.sleep(pause_s)

    async def catch_up(self) -> None:
        """Return when all that has ended or was said here until now is learnt."""
        await asyncio.to_thread(self._store.flush)
        await self._catch_up()

    async def share(self) -> bool:
        """Have indexes outside of this process hold what is left, now; whether they could."""
        await self.catch_up()
        return self._shared is None or await self._shared.share()

    def adopt(self, before: Learning) -> None:
        """Go on with what another has learnt, which learns no more; `tend` must not run there."""
        if self._settings == before._settings and self._reader.name == before._reader.name:
            self._routers = before._routers
            self._cursor = before._cursor
            self._generation = before._generation
            if before._shared is not None:
                # New indexes must be made where the present ones are.
                self._make_router = before._make_router
                self._shared, before._shared = before._shared, None

    async def aclose(self) -> None:
        """Write down what is left."""
        await asyncio.to_thread(self._store.close)
        if self._shared is not None:
            await self._shared.aclose()

    async def _read(self, model: str, request: SamplingRequest) -> tuple[str, Vector]:
        text = asked_text(request)
        features = await self._reader.features(text)
        if self._shared is not None:
            await self._shared.prepare(model, features)
        return text, features

    def _ended(self, record: RequestRecord, pending: Pending) -> None:
        for attempt in record.attempts:
            self._store.served(served_of(record, attempt, pending, self._reader.name))
        last = record.attempts[-1] if record.attempts else None
        if last is None or last.outcome != "ok":
            return
        if pending.valid is not None:
            target = Target(last.provider, last.model)
            self._label_validity(record.request_id, pending.valid, record.key, target)
        elif pending.judged_later:
            self._unjudged.add(identity_of(record))

    def _label_validity(
        self, request_id: str, fits: bool, key: str | None = None, target: Target | None = None
    ) -> None:
        quality = Quality(float(fits), Source.VALIDATION)
        self._store.labelled(
            Label(request_id=request_id, quality=quality, at=time.time(), key=key, target=target)
        )

    async def _catch_up(self) -> None:
        async with self._reading:
            await self._reader.prepare()
            while True:
                events = await asyncio.to_thread(self._events, self._cursor)
                if (events.generation, self._reader.name) != self._generation:
                    await self._anew()
                    continue
                for number, event in enumerate(events.found, 1):
                    _learn(self._routers, event)
                    if number % _BETWEEN_BREATHS == 0 or event.outcome.given:
                        await asyncio.sleep(0)
                self._cursor = events.cursor
                if not events.more:
                    self._looked = time.monotonic()
                    self._told_unreadable = False
                    return

    async def _anew(self) -> None:
        """Begin again: at the start, when something was forgotten, and for other features."""
        name = self._reader.name
        routers, cursor, generation = await asyncio.to_thread(self._replayed)
        self._routers, self._cursor, self._generation = routers, cursor, (generation, name)

    def _replayed(self) -> tuple[dict[str, LearnedRouter], int, int]:
        """In a thread: others go on deciding by what was known."""
        routers = {model: self._make_router(model) for model in self._routers}
        cursor, generation = 0, None
        while True:
            events = self._events(cursor)
            if generation not in (None, events.generation):
                return self._replayed()
            generation = events.generation
            for event in events.found:
                _learn(routers, event)
            cursor = events.cursor
            if not events.more:
                return routers, cursor, generation

    def _tell_unreadable(self, error: PenstockError) -> None:
        """Once, until it can be read again; requests are routed by what was known."""
        told, self._told_unreadable = self._told_unreadable, True
        if not told:
            _log.warning("routing cannot read its outcomes, and does not learn: %s", error)

    def _events(self, after: int) -> Events:
        return self._store.events(after, _AT_ONCE, made_by=self._reader.name)

    async def _tidy(self) -> None:
        days = self._settings.keep_days
        if days is not None:
            before = time.time() - days * _DAY_S
            await asyncio.to_thread(lambda: self._store.forget(before=before))


def _learn(routers: Mapping[str, LearnedRouter], event: Event) -> None:
    """Take in an event, unless its model learns no more."""
    router = routers.get(event.model)
    if router is not None:
        router.learn(event.outcome)


def unknown(request_id: str) -> str:
    """Why nothing can be said about a request."""
    return (
        f"{request_id!r} is not a remembered request: outcomes are kept of models with "
        'routing = "learned", for their targets that answered, by the key that asked'
    )
