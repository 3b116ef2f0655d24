"""Search paths for code, without the working folder.

The folder in which a command runs may belong to a stranger: no module, program or library may come
from it. This module imports only what every interpreter has loaded, as `startup` does.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

_SEARCH_PATHS = ("PATH", "PYTHONPATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")
"""Lists of folders to load code from; an empty or relative entry means the working folder."""
_PLACES = ("PYTHONHOME", "PYTHONUSERBASE", "PYTHONPYCACHEPREFIX", "PYTHONSTARTUP")
"""Single places to load code from."""
_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
ROOT = os.path.dirname(_PACKAGE)
"""The folder that holds the package; a child must find it as well."""


def safe_environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment without what would be looked up in the working folder, and with `extra`."""
    environment = {**os.environ, **(extra or {})}
    for name in _SEARCH_PATHS:
        if name in environment:
            environment[name] = absolute_entries(environment[name])
            if not environment[name]:
                del environment[name]
    for name in _PLACES:
        if name in environment and not os.path.isabs(environment[name]):
            del environment[name]
    # For the interpreters that a child starts, such as those of pip.
    environment["PYTHONSAFEPATH"] = "1"
    return environment


def leave_working_folder() -> None:
    """Apply the same rules to this process: to its import path and its environment."""
    given = os.environ.get("PYTHONPATH")
    # Python has made the entries of PYTHONPATH absolute.
    relative = {
        os.path.abspath(each)
        for each in (given.split(os.pathsep) if given else ())
        if not os.path.isabs(each)
    }
    sys.path[:] = [
        each for each in sys.path if os.path.isabs(each) and (each not in relative or each == ROOT)
    ]
    safe = safe_environment()
    for name in (*_SEARCH_PATHS, *_PLACES):
        if name in os.environ and name not in safe:
            del os.environ[name]
        elif name in safe:
            os.environ[name] = safe[name]


def absolute_entries(value: str) -> str:
    """This list of folders without its empty and relative entries."""
    return os.pathsep.join(each for each in value.split(os.pathsep) if os.path.isabs(each))
