"""The keys that were made at run time, in the same SQLite file as the ledger.

Changes are rare and made by people, so each has a connection of its own; nobody who is served waits
for one. Whoever keeps the keys in memory asks for `generation`, which every change raises.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TypeVar

import msgspec

from penstock.budget.calendar import at_text
from penstock.contract.checks.spelling import list_known
from penstock.contract.errors import ConfigurationError
from penstock.keys.records import Key, KeyHash
from penstock.storage.sqlite.connect import (
    check_version,
    connect,
    connect_to_read,
    patiently,
    prepare,
    schema_version,
)
from penstock.storage.sqlite.errors import translated
from penstock.storage.sqlite.guard import StoreGuard

_META = "gateway_keys_meta"
_MIGRATIONS = (
    (
        """CREATE TABLE gateway_keys (
            name TEXT PRIMARY KEY,
            definition TEXT NOT NULL
        ) WITHOUT ROWID""",
    ),
)
_KEY = msgspec.json.Decoder(Key)
_T = TypeVar("_T")


class KeyStore:
    """The keys of one file; its calls block, for as long as the disk takes."""

    def __init__(
        self,
        path: Path,
        clock: Callable[[], float] = time.time,
        guard: StoreGuard | None = None,
    ) -> None:
        """Nothing is opened or made before it is needed.

        `guard` refuses a file that is not the expected one, with StorageUnavailable.
        """
        self.path = path
        self.guard = guard or StoreGuard(path)
        self._clock = clock

    def generation(self) -> int:
        """A number that is another one after every change; 0 without any key."""
        return self._read(self._generation, 0)

    def keys(self) -> tuple[int, Sequence[Key]]:
        """All keys by name, also those that were revoked, and the generation that they are of."""

        def read(connection: sqlite3.Connection) -> tuple[int, Sequence[Key]]:
            # Before the keys: what is written in between is then read once more, not missed.
            generation = self._generation(connection)
            query = "SELECT definition FROM gateway_keys ORDER BY name"
            rows = connection.execute(query) if generation else ()
            return generation, [_decoded(text) for (text,) in rows]

        return self._read(read, (0, ()))

    def add(self, key: Key) -> None:
        """Keep a new key; raises ConfigurationError when its name is in use.

        Its number is the next one of its name: see `next_number`.
        """

        def change(connection: sqlite3.Connection) -> None:
            known = _find(connection, key.name)
            if known is not None and (known.revoked is None or key.number != known.number + 1):
                raise ConfigurationError(
                    f"there is a key {key.name!r} already: change or rotate it, or take another "
                    "name"
                )
            _write(connection, key)

        self._change(change)

    def change(self, name: str, changed: Callable[[Key], Key]) -> Key:
        """Replace the key of this name by what `changed` makes of it."""

        def change(connection: sqlite3.Connection) -> Key:
            key = changed(_live(connection, name))
            _write(connection, key)
            return key

        return self._change(change)

    def revoke(self, name: str) -> Key:
        """Refuse it from now on; its name can be used again."""

        def change(connection: sqlite3.Connection) -> Key:
            key = _existing(connection, name)
            if key.revoked is None:
                key = msgspec.structs.replace(key, revoked=self._clock())
                _write(connection, key)
            return key

        return self._change(change)

    def rotate(self, name: str, new: str, grace_s: float = 0.0) -> Key:
        """Replace its text by that of this hash; the old one works for `grace_s` seconds more."""

        def change(connection: sqlite3.Connection) -> Key:
            key = _live(connection, name)
            now = self._clock()
            end = now + grace_s
            old = [
                KeyHash(each.hash, end if each.until is None else min(end, each.until))
                for each in key.hashes
            ]
            kept = [each for each in old if each.until is not None and each.until > now]
            changed = msgspec.structs.replace(key, hashes=(KeyHash(new), *kept))
            _write(connection, changed)
            return changed

        return self._change(change)

    def _generation(self, connection: sqlite3.Connection) -> int:
        version = schema_version(connection, _META)
        if not version:
            return 0
        # A newer Penstock may have written limits that this one would not see.
        check_version(version, self.path, len(_MIGRATIONS))
        query = f"SELECT value FROM {_META} WHERE name = 'generation'"
        return int(connection.execute(query).fetchone()[0])

    def _read(self, question: Callable[[sqlite3.Connection], _T], nothing: _T) -> _T:
        self.guard.verify()
        if not self.path.exists():
            return nothing
        try:
            connection = connect_to_read(self.path)
            try:
                return question(connection)
            finally:
                connection.close()
        except sqlite3.Error as error:
            raise translated(error, self.path) from error

    def _change(self, change: Callable[[sqlite3.Connection], _T]) -> _T:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.guard.verify()
            # A key that was shown must be there after a power failure, and a revoked one gone.
            connection = connect(self.path, "full")
            try:
                prepare(connection, self.path, _MIGRATIONS, _META)
                self.guard.adopt(connection)
                patiently(lambda: connection.execute("BEGIN IMMEDIATE"))
                try:
                    changed = change(connection)
                    connection.execute(
                        f"UPDATE {_META} SET value = value + 1 WHERE name = 'generation'"
                    )
                    connection.execute("COMMIT")
                except BaseException:
                    connection.execute("ROLLBACK")
                    raise
                self.guard.protect()
                self.guard.remember()
                return changed
            finally:
                connection.close()
        except OSError as error:
            raise ConfigurationError(
                f"storage.url: the folder {self.path.parent} cannot be made ({error.strerror}): "
                "choose another, or set PENSTOCK_HOME"
            ) from error
        except sqlite3.Error as error:
            raise translated(error, self.path) from error


def _decoded(text: str) -> Key:
    try:
        return _KEY.decode(text)
    except msgspec.DecodeError as error:
        raise ConfigurationError(
            f"a row of gateway_keys is not a key ({error}): restore the file from a backup"
        ) from error


def next_number(keys: Iterable[Key], name: str) -> int:
    """The number of the next key of this name."""
    return max((key.number for key in keys if key.name == name), default=0) + 1


def _find(connection: sqlite3.Connection, name: str) -> Key | None:
    """The newest key of this name; the rows are named by the ids of keys."""
    query = (
        "SELECT definition FROM gateway_keys WHERE substr(name, 1, instr(name || '~', '~') - 1) = ?"
    )
    found = [_decoded(text) for (text,) in connection.execute(query, (name,))]
    return max(found, key=lambda key: key.number, default=None)


def _live(connection: sqlite3.Connection, name: str) -> Key:
    """One that was not revoked; an expired one can be given more time."""
    key = _existing(connection, name)
    if key.revoked is not None:
        raise ConfigurationError(
            f"the key {name!r} was revoked at {at_text(key.revoked)}: create another"
        )
    return key


def _existing(connection: sqlite3.Connection, name: str) -> Key:
    key = _find(connection, name)
    if key is None:
        query = "SELECT name FROM gateway_keys ORDER BY name LIMIT 20"
        known = list_known((each for (each,) in connection.execute(query)), "keys")
        raise ConfigurationError(f"there is no key {name!r}; {known}")
    return key


def _write(connection: sqlite3.Connection, key: Key) -> None:
    connection.execute(
        "INSERT INTO gateway_keys VALUES (?, ?) "
        "ON CONFLICT (name) DO UPDATE SET definition = excluded.definition",
        (key.id, msgspec.json.encode(key).decode()),
    )
