"""Build the guards of the stores."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.config.settings import (
    home,
)
from penstock.storage.sqlite.guard import StoreGuards
from penstock.storage.sqlite.record import StoreRecord

if TYPE_CHECKING:
    pass


def store_guards(*, durable: bool = False, expected: StoreRecord | None = None) -> StoreGuards:
    """What refuses stores that are not the expected ones, by the records in PENSTOCK_HOME."""
    return StoreGuards(home() / "stores", durable=durable, expected=expected)
