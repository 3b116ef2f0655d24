"""Take the working folder off the import path of `python -m penstock`.

Python puts the working folder first on `sys.path` for `-m`, so that a `msgspec.py` in it would run.
This module is imported before all others of the package, and imports only what every interpreter
has loaded by then. Modules that Python loads to find the package (`contextlib`, `collections`, ...)
and a folder named `penstock` come earlier; `penstock` and `python -P -m penstock` exclude them.
"""

import os
import sys


def _runs_as_module() -> bool:
    """Whether this process is `python -m penstock`, in any spelling of the option."""
    # Python's documented mark: "-m" is the first argument while the module is being located.
    if sys.argv[:1] != ["-m"]:
        return False
    option = sys.orig_argv[len(sys.orig_argv) - len(sys.argv)]
    return option == "penstock" or (option.startswith("-") and option.endswith("mpenstock"))


if not sys.flags.safe_path and _runs_as_module() and sys.path[:1] == [os.getcwd()]:
    del sys.path[0]
