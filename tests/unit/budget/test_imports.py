"""SQLite is loaded when a ledger is opened, and not before."""

import subprocess
import sys


def test_the_facade_loads_no_database() -> None:
    # What measures coverage may have loaded SQLite before.
    code = """
import sys
before = set(sys.modules)
import penstock.budget.ledger
new = set(sys.modules) - before
print([name for name in new if name == "sqlite3" or name.startswith("penstock.budget.stores")])
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=50
    )
    assert done.stdout == "[]\n"
