"""The engine of a command: it keeps books, so that `penstock usage` knows what was asked here."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

from penstock.budget.ledger import Ledger
from penstock.cli.setup.config_file import load
from penstock.cli.ui import terminal
from penstock.config.settings import Config
from penstock.engine.engine import Engine


def open_engine(config_file: str | None) -> Engine:
    """An engine that writes down what it spends.

    A ledger that cannot be used stops it, for the ledger may hold budgets. Only where nobody asked
    for one, none is there, and none can be made, it goes on without, and says so.
    """
    config = load(config_file)
    folder = _unwritable(config)
    if folder is not None:
        terminal.say(
            f"penstock: warning: nothing is written down of this, for {folder} cannot be written "
            "to; set PENSTOCK_HOME to a folder that can"
        )
    return engine_of(config, keep_books=folder is None, declare=True)


def engine_of(config: Config, *, keep_books: bool = True, declare: bool = False) -> Engine:
    """The engine of a command.

    The ledger may be a gateway's: no budget in it is removed, and none is changed unless the
    command spends and says so with `declare`.
    """
    return Engine(config, keep_books=keep_books, declare_budgets=declare, prune_budgets=False)


@asynccontextmanager
async def opened_engine(config: Config) -> AsyncGenerator[Engine]:
    """An engine that reads the ledger and declares nothing in it."""
    engine = engine_of(config)
    try:
        yield engine
    finally:
        await engine.aclose()


@asynccontextmanager
async def opened_ledger(config: Config) -> AsyncGenerator[Ledger]:
    """The ledger; nothing is declared in it."""
    async with opened_engine(config) as engine:
        yield await engine.ledger()


def is_absent(file: Path) -> bool:
    """Whether there is surely no such file; one that may not be looked at can be there."""
    try:
        file.stat()
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        return False
    return False


def unwritable_folder(file: Path) -> Path | None:
    """The folder in which this file, or its own folder, cannot be made; None when it can."""
    folder = next(each for each in file.parents if not is_absent(each))
    return None if folder.is_dir() and os.access(folder, os.W_OK | os.X_OK) else folder


def _unwritable(config: Config) -> Path | None:
    file = config.storage.path
    if config.storage.url is not None or config.budgets or not is_absent(file):
        return None
    return unwritable_folder(file)
