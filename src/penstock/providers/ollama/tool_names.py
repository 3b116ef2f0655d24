"""Names of tools, which some models dress up as `tool.<name>` or `functions.<name>`.

A decoder does not know the tools that were offered, so it takes one such prefix off every name. For
a tool that really is called so, the encoder puts one more in front: what comes back is its name.
"""

from __future__ import annotations

_PREFIXES = ("tool.", "tools.", "function.", "functions.")


def to_wire(name: str) -> str:
    """The name as the model sees it."""
    return f"tool.{name}" if name.startswith(_PREFIXES) else name


def from_wire(name: str) -> str:
    """The tool that the model means."""
    for prefix in _PREFIXES:
        if name.startswith(prefix) and len(name) > len(prefix):
            return name[len(prefix) :]
    return name
