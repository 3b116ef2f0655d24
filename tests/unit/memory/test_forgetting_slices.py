"""Forgetting in slices: others write between them, and who is killed on the way leaves a mark."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from penstock.routing.outcomes import erase
from penstock.routing.outcomes.sqlite import SqliteOutcomes
from tests.unit.memory.support import features, label, served

NUMBER = 24
AT_ONCE = 5


class Killed(BaseException):
    """The process is gone."""


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SqliteOutcomes:
    """Every second outcome is of the key `ci`, which has labelled all of them."""
    monkeypatch.setattr(erase, "AT_ONCE", AT_ONCE)
    store = SqliteOutcomes(tmp_path / "x.db")
    for number in range(NUMBER):
        key = "ci" if number % 2 else "other"
        given = served(f"r{number}", seed=number, key=key, prompt=f"<secret of {key} {number:03d}>")
        store.served(given)
        store.labelled(label(f"r{number}"))
    store.flush()
    return store


def between(monkeypatch: pytest.MonkeyPatch, step: Callable[[int], None]) -> None:
    """Have something happen whenever others have their turn; it is told which time it is."""
    times = iter(range(10_000))

    def pause(_: float) -> None:
        step(next(times))

    monkeypatch.setattr(erase, "pause", pause)


def on_disk(store: SqliteOutcomes) -> bytes:
    return b"".join(each.read_bytes() for each in store.path.parent.iterdir())


def tables(store: SqliteOutcomes) -> list[str]:
    with closing(sqlite3.connect(store.path)) as connection:
        query = "SELECT name FROM sqlite_master WHERE name LIKE 'routing_prompts%'"
        return [name for (name,) in connection.execute(query)]


def assert_only_others_are_left(store: SqliteOutcomes) -> None:
    left = on_disk(store)
    assert b"<secret of ci" not in left
    for number in range(0, NUMBER, 2):
        (found,) = store.find(f"r{number}")
        assert found.served.prompt == f"<secret of other {number:03d}>"
        assert found.served.features is not None
        assert (found.served.features == features(number)).all()
    assert tables(store) == ["routing_prompts"]


def test_others_write_between_the_slices_and_nothing_of_it_is_lost(
    store: SqliteOutcomes, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = SqliteOutcomes(store.path)
    written: list[str] = []

    def write(number: int) -> None:
        with closing(sqlite3.connect(store.path, timeout=0, isolation_level=None)) as connection:
            connection.execute("BEGIN IMMEDIATE")  # raises when it is locked
            connection.execute("ROLLBACK")
        name = f"new{number}"
        other.served(served(name, seed=100 + number, key="new", prompt=f"new {number}"))
        other.flush()
        written.append(name)

    between(monkeypatch, write)
    forgotten = store.forget(key="ci")
    assert (forgotten.outcomes, forgotten.labels, forgotten.features) == (12, NUMBER, 12)
    assert forgotten.erased
    assert len(written) > NUMBER // AT_ONCE
    for number, name in enumerate(written):
        (found,) = store.find(name)
        assert found.served.features is not None
        assert (found.served.features == features(100 + number)).all()
    assert_only_others_are_left(store)
    other.close()


@pytest.mark.parametrize("last", range(9))
def test_what_a_killed_process_has_left_is_erased_by_the_next(
    store: SqliteOutcomes, monkeypatch: pytest.MonkeyPatch, last: int
) -> None:
    before = store.events().generation

    def die(number: int) -> None:
        if number == last:
            raise Killed

    with monkeypatch.context() as patched:
        between(patched, die)
        try:
            store.forget(key="ci")
        except Killed:
            pass
        else:
            pytest.fail(f"it has fewer than {last + 1} slices")
    assert store.forget(key="ci").erased
    assert_only_others_are_left(store)
    assert store.events().generation > before


def test_of_two_that_forget_at_once_the_later_one_erases_for_both(
    store: SqliteOutcomes, monkeypatch: pytest.MonkeyPatch
) -> None:
    later = SqliteOutcomes(store.path)
    results: list[bool] = []

    def forget_too(number: int) -> None:
        if number == 8 and not results:
            results.append(True)
            results.append(later.forget(key="ci").erased)

    between(monkeypatch, forget_too)
    assert store.forget(key="ci").erased is False
    assert results == [True, True]
    assert_only_others_are_left(store)


def test_what_goes_while_prompts_are_written_anew_does_not_come_back(
    store: SqliteOutcomes, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = SqliteOutcomes(store.path, keep=3)
    pruned: list[int] = []

    def prune(number: int) -> None:
        if erase.ANEW in tables(store) and not pruned:
            pruned.append(0)
            pruned.append(small.prune())

    between(monkeypatch, prune)
    store.forget(key="ci")
    assert pruned[1] > 0
    counts = store.counts()
    assert counts.outcomes == counts.features == 3
