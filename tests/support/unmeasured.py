"""For children whose lines are nobody's question: a coverage run measures them by itself.

That doubles what they cost, and tells nothing where the program is not ours, or where what it runs
of ours is measured by tests of its own.
"""

import os


def unmeasured_environment() -> dict[str, str]:
    """This process's environment without what makes a child be measured."""
    return {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE_")}
