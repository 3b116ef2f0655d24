"""One fuzzing process: `python -m tests.fuzz.child TARGET` and the arguments of libFuzzer.

It needs atheris on the path; `tests.fuzz.run` puts it there.
"""

from __future__ import annotations

import importlib
import shlex
import sys
from typing import Any


def main() -> None:
    """Fuzz one target until libFuzzer's limits are reached."""
    # It is not in the environment of the tests, where its types would be read.
    atheris: Any = importlib.import_module("atheris")
    with atheris.instrument_imports(include=["penstock"]):
        targets = importlib.import_module("tests.fuzz.targets")
    name = sys.argv.pop(1)
    # To merge, libFuzzer runs its own program again, by a shell: this is how.
    sys.argv[0] = f"{shlex.quote(sys.executable)} -m tests.fuzz.child {name}"
    atheris.Setup(sys.argv, targets.TARGETS[name])
    atheris.Fuzz()


if __name__ == "__main__":
    main()
