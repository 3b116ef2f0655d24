"""Several processes on one file, a process that is killed, and what is left when told to forget."""

import random
import sqlite3
import subprocess
import sys
from collections.abc import Generator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from penstock.contract.errors import InvalidRequest
from penstock.routing.outcomes.ports import Counts
from penstock.routing.outcomes.rows import packed
from penstock.routing.outcomes.sqlite import SqliteOutcomes
from tests.unit.memory.support import all_events, features, label, served

ROOT = Path(__file__).parents[3]


@contextmanager
def writing(path: Path, name: str, number: int) -> Generator[subprocess.Popen[str]]:
    """A process that has committed so many, and writes on."""
    with subprocess.Popen(
        [sys.executable, "-m", "tests.unit.memory.support", str(path), name, str(number)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()


def ready(process: subprocess.Popen[str]) -> None:
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"


def test_two_processes_write_at_once_and_a_third_reads_on(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    mine = SqliteOutcomes(path)
    mine.served(served("mine"))
    mine.flush()
    with writing(path, "a", 300) as one, writing(path, "b", 300) as other:
        ready(one)
        ready(other)
        first = all_events(mine)
        for process in (one, other):
            assert process.communicate("")[0] == ""
            assert process.returncode == 0
    rest = all_events(mine, after=first[-1].seq)
    seqs = [event.seq for event in (*first, *rest)]
    assert seqs == [event.seq for event in all_events(mine)]
    assert len(seqs) >= 1201
    assert [event.seq for event in (*first, *rest) if event.own] == [first[0].seq]
    counts = mine.counts()
    assert counts.outcomes == counts.labels + 1
    mine.close()


def test_a_killed_process_loses_at_most_what_was_not_committed(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    with writing(path, "a", 50) as process:
        ready(process)
        process.kill()
    store = SqliteOutcomes(path)
    found = {event.seq for event in all_events(store)}
    assert len(found) >= 100
    assert all(store.find(f"a-{number}")[0].labels for number in range(50))
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    store.served(served("next"))
    store.flush()
    assert len(all_events(store)) == len(found) + 1
    store.close()


def on_disk(folder: Path) -> bytes:
    return b"".join(each.read_bytes() for each in sorted(folder.iterdir()))


@pytest.mark.parametrize("seed", range(3))
def test_what_is_forgotten_cannot_be_read_from_the_disk(tmp_path: Path, seed: int) -> None:
    luck = random.Random(seed)
    store = SqliteOutcomes(tmp_path / "x.db")
    texts: dict[str, list[bytes]] = {}
    gone: list[bytes] = []
    number = 0
    for _ in range(4):
        for _ in range(150):
            number += 1
            key, mark = f"key{luck.randrange(5)}", f"<secret {number:06d}>"
            known = features(number) if luck.random() < 0.3 else None
            filled = mark + "x" * luck.choice([0, 9, 80, 700, 3000, 9000]) + mark
            store.served(served(f"r{number}", key=key, features=known, prompt=filled))
            texts.setdefault(key, []).append(mark.encode())
            if known is not None:
                # SQLite may cut it anywhere, so a piece of it counts.
                texts[key] += [packed(known)[:48], packed(known)[-48:]]
        store.flush()
        key = f"key{luck.randrange(5)}"
        gone += texts.pop(key, [])
        assert store.forget(key=key).erased
        left = on_disk(tmp_path)
        assert [each for each in gone if each in left] == []
        assert all(each in left for kept in texts.values() for each in kept if b"secret" in each)
    store.close()


def test_forgetting_by_key_takes_its_outcomes_and_what_it_said_of_others(tmp_path: Path) -> None:
    store = SqliteOutcomes(tmp_path / "x.db")
    store.served(served("r1", key="a", prompt="one"))
    store.served(served("r2", key="b", prompt="two"))
    for request_id in ("r1", "r2"):
        store.labelled(label(request_id, key="a"))
    store.flush()
    before = store.events().generation
    forgotten = store.forget(key="a")
    assert (forgotten.outcomes, forgotten.labels) == (1, 2)
    assert (forgotten.features, forgotten.prompts, forgotten.erased) == (1, 1, True)
    assert store.counts() == Counts(outcomes=1, features=1, prompts=1)
    assert store.find("r1") == []
    assert store.events().generation > before
    store.close()


def test_forgetting_by_age_and_by_both(tmp_path: Path) -> None:
    store = SqliteOutcomes(tmp_path / "x.db")
    for number, key in enumerate("aabb"):
        store.served(served(f"r{number}", key=key, at=100.0 * (number % 2)))
    store.flush()
    assert store.forget(key="a", before=50.0).outcomes == 1
    assert store.forget(before=50.0).outcomes == 1
    assert store.forget(before=50.0).outcomes == 0
    assert {event.outcome.key for event in all_events(store)} == {"a", "b"}
    with pytest.raises(InvalidRequest, match="give a key or a time"):
        store.forget()
    store.close()


def test_a_reader_that_stays_hinders_the_erasing_and_that_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.routing.outcomes.retention._PATIENCE_S", 0.05)
    store = SqliteOutcomes(tmp_path / "x.db")
    store.served(served("r", prompt="<secret>"))
    store.flush()
    with closing(sqlite3.connect(store.path, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM routing_outcomes").fetchone()
        forgotten = store.forget(key="ci")
        assert (forgotten.outcomes, forgotten.erased) == (1, False)
        reader.execute("ROLLBACK")
    assert store.forget(key="ci").erased
    assert b"<secret>" not in on_disk(tmp_path)
    store.close()
