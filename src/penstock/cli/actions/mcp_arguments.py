"""What the commands of `penstock mcp` are told; read before anything of MCP is loaded.

So whoever mistypes does not wait for it.
"""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, NamedTuple, cast
from urllib.parse import urlsplit

from penstock.cli.errors import wrong
from penstock.contract.errors import ConfigurationError
from penstock.contract.options import MCPTool


@contextmanager
def needing_mcp() -> Generator[None]:
    """Around what is imported then: where MCP is not installed, it says how it is."""
    try:
        yield
    except ImportError as error:
        raise ConfigurationError(
            f"`penstock mcp` needs the extra `mcp`: pip install 'penstock[mcp]' ({error})"
        ) from error


class Peer(NamedTuple):
    """A server as the command line names it."""

    server: str
    era: str
    timeout: float | None
    reached: MCPTool | tuple[str, ...]
    """At an address, or by the words of a command."""


def read_peer(server: str, era: str, headers: list[str] | None, timeout: float | None) -> Peer:
    """The server that is meant; raises InvalidRequest for what names none."""
    if timeout is not None and not timeout > 0:
        raise wrong("--timeout", f"{timeout} is not a positive number")
    return Peer(server, era, timeout, _reached(server, headers or []))


def read_arguments(text: str) -> dict[str, Any]:
    """The arguments of a tool; raises InvalidRequest."""
    if text == "-":
        text = sys.stdin.read()
    try:
        given: object = json.loads(text)
        # Python reads more than can be sent: numbers that are none, and halves of characters.
        json.dumps(given, ensure_ascii=False, allow_nan=False).encode()
    except (ValueError, RecursionError) as error:
        raise wrong("JSON", f"the arguments are not JSON: {error}") from error
    if not isinstance(given, dict):
        raise wrong("JSON", "the arguments are not an object; give one such as '{\"a\": 1}'")
    return cast(dict[str, Any], given)


def _reached(server: str, headers: list[str]) -> MCPTool | tuple[str, ...]:
    if server.startswith(("http://", "https://")):
        try:
            _ = urlsplit(server).port
        except ValueError as error:
            raise wrong("SERVER", f"{server!r} is not an address: {error}") from error
        return MCPTool(server, "server", dict(map(_header, headers)))
    if headers:
        raise wrong("--header", "is for a server at an address; a command has none")
    try:
        words = shlex.split(server)
    except ValueError as error:
        raise wrong("SERVER", f"{server!r} is not a command: {error}") from error
    if not words:
        raise wrong("SERVER", "is empty; give an http(s) address, or a command in quotes")
    return tuple(words)


def _header(text: str) -> tuple[str, str]:
    name, colon, value = text.partition(":")
    if not colon or not name.strip():
        raise wrong("--header", "has no name; write it as 'Name: value'")
    if not (text.isascii() and text.isprintable()):
        raise wrong("--header", f"{name!r} holds more than plain ASCII; encode what does")
    return name.strip(), value.strip()
