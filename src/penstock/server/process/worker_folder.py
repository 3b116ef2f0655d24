"""The temporary folder of one gateway's workers: their sockets, for their user only.

The parent holds a lock in it, which its workers inherit. So the next gateway of this user can tell
a folder in use from one whose processes were killed, and removes the latter.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import stat
import tempfile
from collections.abc import Generator
from pathlib import Path

PREFIX = "penstock-workers-"
LOOK_S = 0.5
"""How often the folder and the sockets in it are looked for."""
_LOCK = "lock"
_log = logging.getLogger("penstock.server")


class WorkerFolder:
    """A folder that only this user may enter; it is made again when it was removed."""

    def __init__(self) -> None:
        """Make a new one."""
        self.path = Path(tempfile.mkdtemp(prefix=PREFIX))
        self._lock = _locked(self.path)
        self._reported = False

    @property
    def lock(self) -> int:
        """The descriptor that holds the lock; a process that inherits it holds it too."""
        return self._lock

    def restore(self) -> None:
        """Make the folder and its lock again where they are missing; others may clean up."""
        with contextlib.suppress(OSError):
            there, held = (self.path / _LOCK).lstat(), os.fstat(self._lock)
            if (there.st_dev, there.st_ino) == (held.st_dev, held.st_ino):
                return
        try:
            with contextlib.suppress(FileExistsError):
                self.path.mkdir(mode=0o700)
            if not is_private(self.path):
                raise PermissionError(0, "it is not a folder of this user alone")
            lock = _locked(self.path)
        except OSError as error:
            if not self._reported:
                _log.error("workers cannot meet: %s was removed: %s", self.path, error.strerror)
            self._reported = True
            return
        os.close(self._lock)
        self._lock = lock
        self._reported = False
        _log.warning("%s was removed, and is made again", self.path)

    def close(self) -> None:
        """Remove the folder."""
        if is_private(self.path):
            shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._lock)


@contextlib.contextmanager
def worker_folder() -> Generator[WorkerFolder]:
    """A folder until the end of the block; those of gateways that were killed are removed first."""
    remove_stale(Path(tempfile.gettempdir()))
    folder = WorkerFolder()
    try:
        yield folder
    finally:
        folder.close()


def limits_file() -> int:
    """A descriptor of a file without a name, which no one can remove, for shared limits."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("penstock-limits")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


def is_private(folder: Path) -> bool:
    """Whether this is a folder of this user, and closed to all others."""
    try:
        return _is_own_folder(folder.lstat())
    except OSError:
        return False


def remove_stale(base: Path) -> None:
    """Remove this user's folders whose processes have all ended: their lock is free.

    Nothing is decided by age, and no symbolic link is followed.
    """
    if not shutil.rmtree.avoids_symlink_attacks:
        return
    try:
        at = os.open(base, os.O_RDONLY | os.O_DIRECTORY)
    except OSError:
        return
    try:
        for name in os.listdir(at):  # noqa: PTH208 - of the open folder
            if name.startswith(PREFIX):
                with contextlib.suppress(OSError):
                    _remove_if_stale(name, at)
    finally:
        os.close(at)


def _remove_if_stale(name: str, at: int) -> None:
    import fcntl

    folder = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=at)
    try:
        if not _is_own_folder(os.fstat(folder)):
            return
        lock = os.open(_LOCK, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(name, dir_fd=at)
        finally:
            os.close(lock)
    finally:
        os.close(folder)


def _locked(folder: Path) -> int:
    """Make the lock of this folder; it has its name only once it is held."""
    import fcntl  # there is none for Windows, where siblings import this module too

    descriptor, temporary = tempfile.mkstemp(dir=folder)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        Path(temporary).rename(folder / _LOCK)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _is_own_folder(status: os.stat_result) -> bool:
    own = stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid()
    return own and not stat.S_IMODE(status.st_mode) & 0o077
