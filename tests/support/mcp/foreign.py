"""MCP servers in Node.js that others wrote, from the lock file in `tests/mcp/npm`."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path

from mcp import StdioServerParameters

from tests.support import node
from tests.support.mcp.processes import HttpServer, http_server

PACKAGES = node.ROOT / "tests" / "mcp" / "npm"
_NO_FETCHING = "GZIP_ALLOWED_DOMAINS=nowhere.invalid"
"""A tool of server-everything fetches what a model asks for; it must not leave this machine."""


def _program(package: str) -> str:
    packages = node.required_packages(PACKAGES)
    return str(packages / "@modelcontextprotocol" / package / "dist" / "index.js")


def _over_stdio(package: str, *arguments: str, **environment: str) -> StdioServerParameters:
    return StdioServerParameters(
        command=str(node.NODE), args=[_program(package), *arguments], env=environment
    )


def everything() -> StdioServerParameters:
    """One tool for each thing that the protocol can do."""
    name, _, value = _NO_FETCHING.partition("=")
    return _over_stdio("server-everything", "stdio", **{name: value})


def everything_over_http() -> AbstractContextManager[HttpServer]:
    """The same behind an address."""
    program = _program("server-everything")

    def command(port: int) -> list[str]:
        # It takes its port from the environment, and from nowhere else.
        return ["env", f"PORT={port}", _NO_FETCHING, str(node.NODE), program, "streamableHttp"]

    return http_server(command)


def filesystem(folder: Path) -> StdioServerParameters:
    """Files of this folder, and no others."""
    return _over_stdio("server-filesystem", str(folder))


def memory(file: Path) -> StdioServerParameters:
    """A graph of what was said, kept in this file."""
    return _over_stdio("server-memory", MEMORY_FILE_PATH=str(file))
