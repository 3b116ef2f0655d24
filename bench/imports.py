"""Time to import Penstock beside the official OpenAI client, and what the import brings with it.

Run: python bench/imports.py [--quick] [--json]

Each import runs in a fresh interpreter, by turns, from compiled files; the start of the bare
interpreter is the floor and part of each figure.
"""

from __future__ import annotations

import subprocess
import sys
from functools import partial

from _support import (
    Arguments,
    hand_over,
    median_seconds,
    parse_arguments,
    print_table,
    run_worker,
    throwaway_python,
)

SUBJECTS = {
    "bare interpreter": "pass",
    "import msgspec": "import msgspec",
    "import penstock": "import penstock",
    "penstock.open()": "import penstock; penstock.open()",
    "import openai": "import openai",
    "HTTP client": "import penstock.providers.http.client",
}
HEAVY = (
    *("aiohttp", "pydantic", "asyncio", "rich", "typer", "granian", "numpy", "xllamacpp", "mcp"),
    "genai_prices",
)


def python(code: str) -> str:
    """What this code prints in a fresh interpreter of the same environment."""
    # -P: the folder that the bench is started from must not lend its modules.
    command = [sys.executable, "-P", "-c", code]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def work(arguments: Arguments) -> None:
    """Measure every import; runs in the environment that has the peer."""
    loaded = python(f"import penstock, sys; print(*[n for n in {HEAVY!r} if n in sys.modules])")
    heavy = loaded.split()
    if heavy:
        sys.exit(f"import penstock loads {', '.join(heavy)}, which must wait until needed")
    seconds = median_seconds(
        {name: partial(python, code) for name, code in SUBJECTS.items()},
        3 if arguments.quick else 15,
    )
    hand_over({name: value * 1000 for name, value in seconds.items()})


def main() -> None:
    arguments = parse_arguments(__doc__)
    if arguments.worker:
        work(arguments)
        return
    milliseconds = run_worker(throwaway_python("openai"), __file__, arguments)
    if arguments.json:
        hand_over(milliseconds)
        return
    print("Milliseconds in a fresh interpreter, median of interleaved runs")
    peer = milliseconds["import openai"]
    print_table(
        ["", "ms", "x import openai"],
        [[name, value, value / peer] for name, value in milliseconds.items()],
    )


if __name__ == "__main__":
    main()
