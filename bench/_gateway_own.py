"""What `gateway.py` asks of Penstock alone: the ledger's share, and whether a cost stays flat.

    python bench/_gateway_own.py --config FILE --port PORT

is `penstock serve` without a ledger, which the command itself always keeps.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from _gateway_config import STORE, Size, write_config
from _gateway_servers import PENSTOCK, Candidate, Place, Start
from ledger import make_file

from penstock.config.settings import Config

MANY = 1000
PAST = 1_000_000


def started_with(size: Size, past: Path | None = None) -> Callable[[Place], Start]:
    """`penstock serve` with so much in its configuration, or with a ledger that has a past."""

    def start(place: Place) -> Start:
        begun = PENSTOCK.start(place)
        write_config(place.folder, place.upstream_url, size)
        if past is not None:
            shutil.copyfile(past, place.folder / STORE)
        return begun

    return start


def without_ledger(place: Place) -> Start:
    """The same gateway, which keeps no books."""
    config = write_config(place.folder, place.upstream_url, ledger=False)
    words = [__file__, "--config", str(config), "--port", str(place.port)]
    return Start([sys.executable, *words], {"PENSTOCK_HOME": str(place.folder)})


def ledger_candidates() -> Mapping[str, Candidate]:
    """With and without."""
    return {
        "with a ledger": PENSTOCK,
        "without": Candidate("Penstock, without a ledger", without_ledger),
    }


def sized_candidates(folder: Path, *, quick: bool) -> Mapping[str, Candidate]:
    """One for each of what a cost must not grow with."""
    many, past = (50, 2_000) if quick else (MANY, PAST)
    file = folder / "past.db"
    make_file(file, past)
    starts = {
        "nothing else": started_with(Size()),
        f"{many:,} models": started_with(Size(models=many)),
        f"{many:,} budgets": started_with(Size(budgets=many)),
        f"{many:,} keys": started_with(Size(keys=many)),
        f"{past:,} entries in the ledger": started_with(Size(), file),
    }
    return {name: Candidate(f"Penstock, {name}", start) for name, start in starts.items()}


def serve_without_ledger(arguments: list[str]) -> None:
    """`penstock serve` with an engine that keeps no books, put in the place of its own."""
    from penstock.engine import engine

    class Engine(engine.Engine):
        def __init__(self, config: Config, **options: Any) -> None:
            options["keep_books"] = False
            super().__init__(config, **options)

        async def ledger(self) -> Any:
            """There is none to be opened at the start."""

    engine.Engine = Engine
    from penstock.cli import main

    sys.argv = ["penstock", "serve", *arguments]
    main()


if __name__ == "__main__":
    serve_without_ledger(sys.argv[1:])
