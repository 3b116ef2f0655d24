"""The folder of the workers: removed under them, left by a killed gateway, and imitated."""

import fcntl
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator
from pathlib import Path

import httpx
import pytest

from penstock.keys.records import hash_of, new_text
from penstock.keys.shared_rate_limit import SharedWindow, SharedWindows
from penstock.server.process.peers import Siblings
from penstock.server.process.worker_folder import (
    PREFIX,
    WorkerFolder,
    is_private,
    limits_file,
    remove_stale,
    worker_folder,
)
from tests.support.keyed import bearer
from tests.unit.server.gateway_support import until
from tests.unit.server.test_server_workers import Fleet, fleet


@pytest.fixture
def base(monkeypatch: pytest.MonkeyPatch) -> Generator[Path]:
    """A temporary directory; its path is short, for the path of a socket has a limit."""
    with tempfile.TemporaryDirectory(prefix="t") as folder:
        monkeypatch.setenv("TMPDIR", folder)
        monkeypatch.setattr(tempfile, "tempdir", folder)
        yield Path(folder)


def folders(base: Path) -> list[Path]:
    return list(base.glob(f"{PREFIX}*"))


def counted(gateway: Fleet, key: str) -> float:
    """The answered requests that the metrics of all workers count."""
    text = httpx.get(f"{gateway.url}/metrics", headers=bearer(key), timeout=30).text
    found = re.findall(r'\npenstock_requests_total{.*outcome="ok".*} (\S+)', text)
    return sum(map(float, found))


def test_workers_meet_again_and_limits_stay_when_the_folder_is_removed(
    tmp_path: Path, base: Path
) -> None:
    key = new_text()
    keys = f'[keys.ci]\nhash = "{hash_of(key)}"\nrequests_per_minute = 20\n'
    with fleet(tmp_path, keys) as gateway:
        statuses = [gateway.ask(headers=bearer(key)).status_code for _ in range(10)]
        (folder,) = folders(base)
        shutil.rmtree(folder)
        # One of the two is new, and must count where the other does.
        victim = gateway.workers()[0]
        os.kill(victim, signal.SIGKILL)
        while victim in gateway.workers() or len(gateway.workers()) < 2:
            time.sleep(0.02)
        sockets = [folder / "worker-0", folder / "worker-1", folder / "lock"]
        while not all(each.exists() for each in sockets):
            time.sleep(0.02)
        statuses += [gateway.ask(headers=bearer(key)).status_code for _ in range(15)]
        assert (statuses.count(200), statuses.count(429)) == (20, 5)
        assert is_private(folder)
        # Whichever worker is asked, it counts what the other has answered since its start.
        assert len({counted(gateway, key) for _ in range(10)}) == 1
        assert gateway.stop() == 0
        assert gateway.process.stderr is not None
        assert b"was removed, and is made again" in gateway.process.stderr.read()
    assert folders(base) == []


def test_a_killed_gateway_leaves_no_folder_after_the_next_start(tmp_path: Path, base: Path) -> None:
    with fleet(tmp_path) as gateway:
        (left,) = folders(base)
        workers = gateway.workers()
        gateway.process.kill()
        gateway.process.wait()
        # Its workers hold the lock to their end.
        while any(Path(f"/proc/{each}/fd").exists() for each in workers):
            time.sleep(0.02)
        assert left.exists()
    with worker_folder() as folder:
        assert folders(base) == [folder.path]
    assert folders(base) == []


def test_a_folder_in_use_stays(base: Path) -> None:
    with worker_folder() as first:
        remove_stale(base)
        assert first.path.exists()
        with worker_folder() as second:
            assert first.path.exists()
            assert second.path != first.path


def test_the_lock_of_a_child_keeps_the_folder(base: Path) -> None:
    folder = WorkerFolder()
    code = "import sys; print(flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        pass_fds=[folder.lock],
    ) as child:
        assert child.stdout is not None
        child.stdout.readline()
        # As at the end of a parent that was killed.
        os.close(folder.lock)
        remove_stale(base)
        assert folder.path.exists()
        child.communicate(b"")
    remove_stale(base)
    assert not folder.path.exists()


def test_only_folders_of_ours_are_removed(base: Path, tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.mkdir(mode=0o700)
    (kept / "lock").touch()
    (base / f"{PREFIX}link").symlink_to(kept)
    (base / f"{PREFIX}file").touch()
    without = base / f"{PREFIX}without-lock"
    without.mkdir(mode=0o700)
    (without / "data").touch()
    linked = base / f"{PREFIX}linked-lock"
    linked.mkdir(mode=0o700)
    (linked / "lock").symlink_to(kept / "lock")
    opened = base / f"{PREFIX}open"
    opened.mkdir()
    opened.chmod(0o755)
    (opened / "lock").touch()
    other = base / "other"
    other.mkdir(mode=0o700)
    (other / "lock").touch()
    stale = base / f"{PREFIX}stale"
    stale.mkdir(mode=0o700)
    (stale / "lock").touch()
    (stale / "link").symlink_to(kept)
    before = sorted(base.iterdir())
    remove_stale(base)
    assert sorted(base.iterdir()) == [each for each in before if each != stale]
    assert (kept / "lock").exists()
    remove_stale(base / "nothing")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give files away")
def test_folders_of_other_users_stay_and_are_not_used(base: Path) -> None:
    theirs = base / f"{PREFIX}theirs"
    theirs.mkdir(mode=0o700)
    (theirs / "lock").touch()
    os.chown(theirs, 12345, 12345)
    remove_stale(base)
    assert theirs.exists()
    assert not is_private(theirs)


def test_a_folder_that_another_user_has_made_is_not_used(
    base: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = WorkerFolder()
    shutil.rmtree(folder.path)
    folder.path.mkdir()
    folder.path.chmod(0o777)
    folder.restore()
    folder.restore()
    assert list(folder.path.iterdir()) == []
    assert [each.levelname for each in caplog.records] == ["ERROR"]
    # Once it is gone, the next look makes ours.
    folder.path.rmdir()
    folder.restore()
    assert is_private(folder.path)
    lock = os.open(folder.path / "lock", os.O_RDWR)
    with pytest.raises(BlockingIOError):
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(lock)
    folder.close()
    assert not folder.path.exists()


async def test_siblings_ask_nobody_in_a_folder_that_others_can_enter(base: Path) -> None:
    folder = base / "both"
    folder.mkdir(mode=0o700)
    first, second = Siblings(folder, 0, 2), Siblings(folder, 1, 2)

    async def answer(argument: int) -> int:
        return argument

    second.answer("same", answer)
    async with first, second:
        assert await first.ask("same", 1) == [1]
        shutil.rmtree(folder)
        assert await first.ask("same", 2) == []
        folder.mkdir(mode=0o700)
        await until((folder / "worker-1").exists)
        assert await first.ask("same", 3) == [3]
        folder.chmod(0o777)
        assert await first.ask("same", 4) == []
        folder.chmod(0o700)
        assert await first.ask("same", 5) == [5]


def test_limits_have_no_name_and_are_shared() -> None:
    descriptor = limits_file()
    first, second = SharedWindows(os.dup(descriptor), 4), SharedWindows(descriptor, 4)
    one, two = first("name", 3), second("name", 3)
    assert isinstance(one, SharedWindow)
    assert isinstance(two, SharedWindow)
    assert one.take(2) is not None
    assert two.take(2) is None
    assert two.take(1) is not None
    assert os.fstat(descriptor).st_nlink == 0
    first.close()
    second.close()
