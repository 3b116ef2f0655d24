"""Keys in a file, and the ring that has them in memory."""

import hashlib
import hmac
import inspect
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from penstock.budget.ledger import Ledger
from penstock.contract.errors import ConfigurationError
from penstock.keys import keyring as ring_module
from penstock.keys.keyring import Keyring
from penstock.keys.records import Key, KeyHash, hash_of, new_text
from penstock.keys.store import KeyStore
from tests.support.clock import ManualClock


def key_of(text: str, name: str = "ci", **fields: Any) -> Key:
    return Key(name=name, hashes=(KeyHash(hash_of(text)),), **fields)


async def ring_of(store: KeyStore, clock: ManualClock | None = None) -> Keyring:
    ring = Keyring(store=store) if clock is None else Keyring(store=store, clock=clock)
    await ring.refresh()
    return ring


def test_texts_are_long_random_and_marked() -> None:
    texts = {new_text() for _ in range(1000)}
    assert len(texts) == 1000
    assert all(text.startswith("psk_") and len(text) == 47 for text in texts)


async def test_a_file_that_is_not_there_has_no_keys_and_is_not_made(tmp_path: Path) -> None:
    store = KeyStore(tmp_path / "none" / "x.db")
    assert store.keys() == (0, ())
    ring = await ring_of(store)
    assert not ring.asks
    assert not (tmp_path / "none").exists()


async def test_from_creation_to_revocation(tmp_path: Path) -> None:
    clock = ManualClock()
    store = KeyStore(tmp_path / "x.db", clock)
    first, second = new_text(), new_text()
    store.add(key_of(first, created=clock.now))
    ring = await ring_of(store, clock)
    assert ring.asks
    assert ring.find(first.encode()).verdict == "good"
    assert not await ring.refresh()

    store.rotate("ci", hash_of(second), grace_s=60)
    assert ring.find(second.encode()).verdict == "unknown"
    assert await ring.refresh()
    assert ring.find(first.encode()).verdict == "good"
    assert ring.find(second.encode()).verdict == "good"
    clock.now += 60
    assert ring.find(first.encode()).verdict == "rotated"
    assert ring.find(second.encode()).verdict == "good"

    store.revoke("ci")
    await ring.refresh()
    found = ring.find(second.encode())
    assert found.verdict == "revoked"
    assert found.terms is not None
    assert found.terms.key.name == "ci"
    # The last key is gone, and the door stays shut.
    assert ring.asks


async def test_a_key_expires_by_itself(tmp_path: Path) -> None:
    clock = ManualClock()
    text = new_text()
    ring = Keyring([key_of(text, expires=clock.now + 1)], clock=clock)
    assert ring.find(text.encode()).verdict == "good"
    clock.now += 1
    assert ring.find(text.encode()).verdict == "expired"


def test_a_second_rotation_does_not_prolong_the_first_text(tmp_path: Path) -> None:
    clock = ManualClock()
    store = KeyStore(tmp_path / "x.db", clock)
    store.add(key_of(new_text()))
    store.rotate("ci", hash_of(new_text()), grace_s=10)
    key = store.rotate("ci", hash_of(new_text()), grace_s=100)
    assert [each.until for each in key.hashes] == [None, clock.now + 100, clock.now + 10]
    clock.now += 10
    key = store.rotate("ci", hash_of(new_text()))
    assert [each.until for each in key.hashes] == [None]


def test_a_name_is_used_again_after_its_key_was_revoked(tmp_path: Path) -> None:
    store = KeyStore(tmp_path / "x.db")
    store.add(key_of(new_text()))
    with pytest.raises(ConfigurationError, match="there is a key 'ci' already"):
        store.add(key_of(new_text()))
    store.revoke("ci")
    store.revoke("ci")
    with pytest.raises(ConfigurationError, match="was revoked at"):
        store.rotate("ci", hash_of(new_text()))
    with pytest.raises(ConfigurationError, match="there is a key 'ci' already"):
        store.add(key_of(new_text()))
    second = msgspec.structs.replace(key_of(new_text()), number=2)
    store.add(second)
    assert {key.id: key.state(0) for key in store.keys()[1]} == {"ci": "revoked", "ci~2": "active"}
    # What is done to the name is done to the key that has it now.
    assert store.rotate("ci", hash_of(new_text())).id == "ci~2"
    assert store.revoke("ci").id == "ci~2"
    with pytest.raises(ConfigurationError, match="no key 'cj'; there are: ci"):
        store.revoke("cj")


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"name": "a b"}, "is not a valid key name"),
        ({"name": "x" * 65}, "is not a valid key name"),
        ({"requests_per_minute": 0}, "requests_per_minute=0: give 1 or more"),
        ({"models": ("a*",)}, "models has 'a\\*'"),
    ],
)
def test_nonsense_is_refused(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        key_of(new_text(), **fields)


def test_a_hash_of_another_kind_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="write sha256: and 64"):
        KeyHash("md5:1")


async def test_the_ledger_and_the_keys_share_a_file(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    store = KeyStore(path)
    store.add(key_of(new_text()))
    async with await Ledger.open(path) as ledger:
        store.rotate("ci", hash_of(new_text()))
        assert not list(await ledger.verify())
        assert len(store.keys()[1]) == 1


def test_a_file_of_a_newer_penstock_is_left_alone(tmp_path: Path) -> None:
    store = KeyStore(tmp_path / "x.db")
    store.add(key_of(new_text()))
    with sqlite3.connect(store.path) as connection:
        connection.execute("UPDATE gateway_keys_meta SET value = 99 WHERE name = 'version'")
    connection.close()
    with pytest.raises(ConfigurationError, match="version 99"):
        store.add(key_of(new_text(), "other"))
    with pytest.raises(ConfigurationError, match="version 99"):
        store.keys()


async def test_a_row_that_is_no_key_changes_nothing_for_those_that_are_known(
    tmp_path: Path,
) -> None:
    store, text = KeyStore(tmp_path / "x.db"), new_text()
    store.add(key_of(text))
    ring = await ring_of(store)
    with sqlite3.connect(store.path) as connection:
        connection.execute("UPDATE gateway_keys SET definition = '{}'")
        connection.execute("UPDATE gateway_keys_meta SET value = 77 WHERE name = 'generation'")
    connection.close()
    with pytest.raises(ConfigurationError, match="is not a key"):
        await ring.refresh()
    assert ring.find(text.encode()).verdict == "good"


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "x.db").write_bytes(b"no database" * 100)
    with pytest.raises(ConfigurationError, match=r"x\.db is damaged"):
        KeyStore(tmp_path / "x.db").keys()


CREATE = """
import sys
from pathlib import Path
from penstock.keys.records import Key, KeyHash
from penstock.keys.store import KeyStore
KeyStore(Path(sys.argv[1])).add(Key(name="other", hashes=(KeyHash(sys.argv[2]),)))
"""


async def test_a_key_of_another_process_is_noticed(tmp_path: Path) -> None:
    store = KeyStore(tmp_path / "x.db")
    ring = await ring_of(store)
    text = new_text()
    subprocess.run([sys.executable, "-c", CREATE, str(store.path), hash_of(text)], check=True)
    assert ring.find(text.encode()).verdict == "unknown"
    assert await ring.refresh()
    assert ring.find(text.encode()).verdict == "good"


def test_what_a_window_has_counted_outlives_a_change_of_the_key() -> None:
    text = new_text()
    ring = Keyring([key_of(text, requests_per_minute=2)])
    terms = ring.find(text.encode()).terms
    assert terms is not None
    assert terms.requests is not None
    terms.requests.take(2)
    ring.configure([key_of(text, requests_per_minute=3)], {})
    terms = ring.find(text.encode()).terms
    assert terms is not None
    assert terms.requests is not None
    assert (terms.requests.limit, terms.requests.remaining) == (3, 1)


def test_one_look_up_whatever_the_number_of_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [new_text() for _ in range(1000)]
    ring = Keyring([key_of(text, f"key-{number}") for number, text in enumerate(texts)])
    hashed: list[bytes] = []
    compared: list[bytes] = []

    def digest(data: bytes) -> bytes:
        hashed.append(data)
        return hashlib.sha256(data).digest()

    def compare(one: bytes, other: bytes) -> bool:
        compared.append(one)
        return one == other

    monkeypatch.setattr(ring_module, "digest_of", digest)
    monkeypatch.setattr(hmac, "compare_digest", compare)
    for text in (texts[0], texts[-1]):
        found = ring.find(text.encode())
        assert found.terms is not None
        assert found.verdict == "good"
    assert (len(hashed), len(compared)) == (2, 2)
    assert ring.find(b"psk_wrong").verdict == "unknown"
    # What is shown goes into the hash and nowhere else: no comparison sees it.
    assert len(hashed) == 3
    source = inspect.getsource(Keyring.find)
    assert source.count("shown") == 3
