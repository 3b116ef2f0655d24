"""What `gateway.py` asks of Penstock alone: the ledger's share, and whether a cost stays flat.

    python bench/_gateway_own.py CONFIG PORT ledger|none

serves like `penstock serve`, with a ledger or without one: the command itself always keeps one.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from _gateway_config import STORE, Size, write_config
from _gateway_servers import PENSTOCK, Candidate, Place, Start
from ledger import make_file

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


def ledger_or_none(keep: str) -> Callable[[Place], Start]:
    """The same gateway with a ledger, or without."""

    def start(place: Place) -> Start:
        config = write_config(place.folder, place.upstream_url, ledger=keep == "ledger")
        words = [__file__, str(config), str(place.port), keep]
        return Start([sys.executable, *words], {"PENSTOCK_HOME": str(place.folder)})

    return start


def ledger_candidates() -> Mapping[str, Candidate]:
    """With and without."""
    return {
        name: Candidate(f"Penstock, {name}", ledger_or_none(keep))
        for name, keep in (("with a ledger", "ledger"), ("without", "none"))
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


async def serve(path: Path, port: int, *, books: bool) -> None:
    from penstock.config.load import load
    from penstock.gateway import Engine
    from penstock.server.serve import GatewayServer, application, listen
    from penstock.telemetry.logs import log_to

    config = load(path)
    log_to(None, "json")
    engine = Engine(config, model_files=False, keep_books=books)
    with listen("127.0.0.1", port) as listener:
        await GatewayServer(application(lambda: engine, config)).serve([listener])


if __name__ == "__main__":
    import uvloop

    uvloop.run(serve(Path(sys.argv[1]), int(sys.argv[2]), books=sys.argv[3] == "ledger"))
