"""Streaming MCP tools: chunks a second, time to the first, and many calls at once.

Beside them, in the same run, stands what the official SDK offers by itself: a tool that reports
progress with a message, and a client whose callback hears of it. Both go through the SDK's client
and server, in one process and over streamable HTTP, in both eras. The rounds take turns. Both tools
wait for each piece to be sent, and the clock stops when the last has reached whoever wants it, with
the result:

- `penstock`: a loop over `stream_tool`. Every chunk must come once and in order.
- `SDK callback`: the callback keeps the text and does no more. This is the floor: nobody iterates,
  and the pieces may be out of order, for the SDK calls back in tasks of their own.
- `SDK queue`: the callback puts them into a bounded queue, which a loop reads. This is the least
  that one would write to get a loop; the order is still not kept.

In one process the modern era has no transport: to send is to call the callback. What is measured
there is only what the two put around it, some microseconds.

Then many calls run on one server at once: each of them is under way before any gives a chunk. The
server's memory is looked at between the waves, in blocks of Python: their number may not grow with
the calls, beyond three times the standard error of the slope.

Run: python bench/mcp.py [--quick] [--json]
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path


def step_aside() -> None:
    """Import the package that is called as this file is, in place of it."""
    here, search = Path(__file__).resolve().parent, sys.path[:]
    sys.path[:] = [entry for entry in search if Path(entry).resolve() != here]
    del sys.modules["mcp"]
    try:
        importlib.import_module("mcp")
    finally:
        sys.path[:] = search


if __name__ == "mcp":
    # Whatever is started in this folder has it first in its search, and so finds this file where
    # it wants the SDK. What stands in `sys.modules` in the end is what the importer gets.
    step_aside()

if __name__ == "__main__":
    from _mcp_streaming import main

    main(__doc__)
