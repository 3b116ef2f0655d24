"""Kills a process under load again and again, and looks whether its ledger has lost anything.

Run: python bench/ledger_kill.py [--quick] [--json]

A process reserves, calls a provider on loopback and settles, 16 requests at a time, until it gets
SIGKILL at a random moment. After each of 200 killings the ledger must add up, every call that the
provider has written down before it answered must be in it, settled at its cost or expired as an
estimate, and no hold may be left when the leases are over. A difference ends the bench with an
error. A kill says nothing about a power failure: `docs/decisions/0009-ledger.md` has that.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
from pathlib import Path

from _support import ROOT, parse_arguments, print_table

# The workers are those of the tests.
sys.path.insert(0, str(ROOT))

from tests.support.ledger_kill import Round, kill_and_look


async def kill(rounds: int, path: Path) -> list[Round]:
    found: list[Round] = []
    for seed in range(rounds):
        one = await kill_and_look(path, seed)
        if one.problems:
            sys.exit(f"killing {seed}: " + "; ".join(one.problems[:20]))
        found.append(one)
    return found


def main() -> None:
    arguments = parse_arguments(__doc__)
    with tempfile.TemporaryDirectory() as folder:
        found = asyncio.run(kill(5 if arguments.quick else 200, Path(folder) / "ledger.db"))
    result = {
        "killings": len(found),
        "answered": sum(one.answered for one in found),
        "settled": sum(one.settled for one in found),
        "expired": sum(one.expired for one in found),
        "lost": 0,
    }
    if arguments.json:
        print(json.dumps(result))
    else:
        print_table(list(result), [list(result.values())])


if __name__ == "__main__":
    main()
