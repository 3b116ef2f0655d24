"""MCP servers that a user starts by a command, on standard input and output."""

from __future__ import annotations

from collections.abc import Sequence

from mcp import StdioServerParameters

from penstock.runtime.child_processes import server_environment, typed_program


def over_stdio(command: Sequence[str]) -> StdioServerParameters:
    """The parameters that start this command; raises OSError.

    The SDK starts the process, so the search paths are set here: no module or program is taken from
    the working folder unless the command names its path.
    """
    return StdioServerParameters(
        command=typed_program(command[0]),
        args=list(command[1:]),
        env=server_environment(),
        encoding_error_handler="replace",
    )
