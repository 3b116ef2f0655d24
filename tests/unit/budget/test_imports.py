"""SQLite is loaded when a ledger is opened, and not before."""

import subprocess
import sys


def test_the_facade_loads_no_database() -> None:
    code = "import sys, penstock.budget.ledger; print('sqlite3' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=50
    )
    assert done.stdout == "False\n"
