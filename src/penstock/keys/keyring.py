"""All keys that there are, by the hash of their text: one look-up a request, whatever their number.

The hash of what a caller shows is looked up, and then compared in constant time. Nobody can learn
anything about a key from how long that takes: what a caller chooses is hashed first.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal, NamedTuple, TypeAlias

from penstock.contract.errors import PenstockError, StorageUnavailable
from penstock.keys.policy import KeyTerms
from penstock.keys.rate_limit import WindowOf, window_of
from penstock.keys.records import LONGEST, Key, digest_of
from penstock.keys.store import KeyStore

CHECK_S = 1.0
"""How soon a change that another process has made is noticed."""
REMEMBER_EVERY = 10
"""After so many looks the record of the store is brought up to date."""
_log = logging.getLogger("penstock.server")

Verdict: TypeAlias = Literal["good", "unknown", "expired", "revoked", "rotated"]


class Found(NamedTuple):
    """What there is to say about what a caller has shown."""

    verdict: Verdict
    terms: KeyTerms | None = None
    """Of the key that it is, or was; None: of none that is known."""


class _Slot(NamedTuple):
    digest: bytes
    until: float | None
    terms: KeyTerms


UNKNOWN = Found("unknown")


class Keyring:
    """The keys of the configuration and those of the store; the former go first."""

    def __init__(
        self,
        configured: Iterable[Key] = (),
        store: KeyStore | None = None,
        *,
        models: Mapping[str, Iterable[str]] | None = None,
        required: bool = False,
        clock: Callable[[], float] = time.time,
        windows: WindowOf = window_of,
    ) -> None:
        """`models` are the configured ones with their targets; `windows` has those of the limits.

        `required`: a key is asked for even when there is none, so that nobody gets in.
        """
        self._configured = {key.name: key for key in configured}
        self._store = store
        self._models = models or {}
        self._required = required
        self._clock = clock
        self._windows = windows
        self._generation = 0
        self._stored: Sequence[Key] = ()
        self._terms: dict[str, KeyTerms] = {}
        self._slots: dict[bytes, _Slot] = {}
        self._failing = False
        self._read = store is None
        self.problem: StorageUnavailable | None = None
        """Why the keys of the store are not known; nobody is let in while there is a reason."""
        self._sort()

    @property
    def asks(self) -> bool:
        """Whether callers need a key: as soon as there ever was one, also if it was revoked."""
        return self._required

    def __len__(self) -> int:
        """How many keys are known, those included that open nothing any more."""
        return len(self._terms)

    def find(self, shown: bytes) -> Found:
        """Whose text this is, and whether it opens the door now."""
        if len(shown) > LONGEST:
            return UNKNOWN
        digest = digest_of(shown)
        slot = self._slots.get(digest)
        if slot is None or not hmac.compare_digest(slot.digest, digest):
            return UNKNOWN
        now = self._clock()
        if slot.until is not None and slot.until <= now:
            return Found("rotated", slot.terms)
        state = slot.terms.key.state(now)
        return Found("good" if state == "active" else state, slot.terms)

    def named(self, name: str) -> KeyTerms | None:
        """The terms of the key of this name or id; of a name, those of its newest key."""
        if (found := self._terms.get(name)) is not None and found.key.revoked is None:
            return found
        same = [each for each in self._terms.values() if each.key.name == name]
        return max(same, key=lambda each: each.key.number, default=found)

    def configure(
        self,
        keys: Iterable[Key],
        models: Mapping[str, Iterable[str]],
        store: KeyStore | None = None,
    ) -> None:
        """The configuration has changed; what the windows have counted stays counted."""
        self._configured = {key.name: key for key in keys}
        self._models = models
        if store is not None and (self._store is None or store.path != self._store.path):
            # Those of the old file hold until the new one is read, which is soon.
            self._store, self._generation, self._read = store, -1, False
        self._sort()

    async def refresh(self) -> bool:
        """Look whether the store has changed, and if so, read it; whether it had.

        Raises StorageUnavailable for a store that is not the expected one.
        """
        store = self._store
        if store is None:
            return False
        try:
            changed = await self._refresh(store)
        except StorageUnavailable as error:
            # Keys that are known hold while the file is locked, but not while it is another one.
            if not self._read or store.guard.refused:
                self.problem = error
            raise
        self._read, self.problem = True, None
        return changed

    async def _refresh(self, store: KeyStore) -> bool:
        generation = await asyncio.to_thread(store.generation)
        if generation == self._generation:
            return False
        if generation < self._generation:
            store.guard.fell(f"keys: {generation}, known: {self._generation}")
        generation, stored = await asyncio.to_thread(store.keys)
        known = {key.id for key in self._stored}
        # Below 0, those that are known are of another store.
        if self._generation >= 0 and not known <= {key.id for key in stored}:
            store.guard.fell("keys are gone, and none is ever deleted")
        self._generation, self._stored = generation, stored
        self._sort()
        return True

    async def watch(self) -> None:
        """Refresh again and again; while the file cannot be read, the keys stay as they are."""
        ticks = 0
        while True:
            await asyncio.sleep(CHECK_S)
            ticks += 1
            try:
                changed = await self.refresh()
                if self._store is not None and (changed or ticks % REMEMBER_EVERY == 0):
                    await asyncio.to_thread(self._store.guard.remember)
            except StorageUnavailable as error:
                # The guard logs what it refuses.
                if self.problem is None and not self._failing:
                    _log.error("the keys cannot be read, those known still hold: %s", error)
                self._failing = True
            except PenstockError as error:
                if not self._failing:
                    _log.error("the keys cannot be read, those known still hold: %s", error)
                self._failing = True
            else:
                self._failing = False

    def _sort(self) -> None:
        for name in {key.name for key in self._stored} & self._configured.keys():
            _log.warning("the key %r of penstock.toml hides the one that was created", name)
        keys = {key.id: key for key in self._stored if key.name not in self._configured}
        keys |= self._configured
        if keys:
            # What asks for keys once goes on to do so: keys that disappear open nothing.
            self._required = True
            if self._store is not None:
                self._store.guard.protect()
        elif self._terms:
            _log.warning("no key is left, and one is still asked for: restart to serve without")
        before = self._terms
        self._terms = {
            id: KeyTerms(key, self._models, before.get(id), self._windows)
            for id, key in keys.items()
        }
        self._slots = {
            each.digest: _Slot(each.digest, each.until, terms)
            for terms in self._terms.values()
            for each in terms.key.hashes
        }
