"""What is known of a store outside of its file, so that its loss is noticed after a restart."""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
from pathlib import Path

import msgspec

from penstock.contract.errors import StorageUnavailable
from penstock.storage.sqlite.identity import Progress


class StoreRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One store as a gateway knows it."""

    path: str
    id: str
    synced: int = 0
    """How often the store was marked."""
    progress: Progress = Progress()
    inode: tuple[int, int] | None = None
    """Device and number of the open file; only processes of one gateway give it to each other."""
    protected: bool = True
    """Whether the gateway has had keys, an admin key or budgets."""

    def newer(self, other: StoreRecord | None) -> StoreRecord:
        """The higher number of each kind; of another store, this one."""
        if other is None or other.id != self.id:
            return self
        progress = Progress(*map(max, zip(self.progress, other.progress, strict=True)))
        return msgspec.structs.replace(
            self, synced=max(self.synced, other.synced), progress=progress
        )


def record_file(folder: Path, path: Path) -> Path:
    """Where the record of the store at this path is kept."""
    name = hashlib.sha256(str(path).encode()).hexdigest()[:16]
    return folder / f"{path.stem[:40]}-{name}.json"


def read_record(file: Path) -> StoreRecord | None:
    """None without a record; raises StorageUnavailable for one that cannot be read."""
    try:
        return msgspec.json.decode(file.read_bytes(), type=StoreRecord)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, msgspec.MsgspecError) as error:
        raise StorageUnavailable(
            f"the record {file} of the store cannot be read ({error}): without it, a lost store "
            "is not noticed. Check the ledger with `penstock budget verify`, then run "
            "`penstock storage accept`"
        ) from error


def write_record(file: Path, record: StoreRecord) -> None:
    """Replace the file as a whole; raises OSError."""
    file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    descriptor, name = tempfile.mkstemp(prefix=f"{file.name}.", dir=file.parent)
    try:
        with os.fdopen(descriptor, "wb") as unfinished:
            unfinished.write(msgspec.json.encode(record) + b"\n")
            unfinished.flush()
            os.fsync(unfinished.fileno())
        Path(name).replace(file)
    except BaseException:
        with contextlib.suppress(OSError):
            Path(name).unlink()
        raise
