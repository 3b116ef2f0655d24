"""Starts and stops MCP servers that are processes of their own."""

from __future__ import annotations

import atexit
import functools
import socket
import subprocess
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

from mcp import StdioServerParameters

from penstock import MCPTool
from tests.support.services import HOST, free_port, wait_until

SCRIPT = Path(__file__).with_name("server.py")
START_SECONDS = 100.0


def on_sdk(port: int) -> list[str]:
    """The command that starts `server.py` behind an address."""
    return [sys.executable, str(SCRIPT), str(port)]


def up_to(mischief: str) -> Callable[[int], list[str]]:
    """The same, of a server that does not tell of changes as it should."""
    return lambda port: [*on_sdk(port), mischief]


class HttpServer:
    """A server that can be killed and started again at the same address."""

    def __init__(self, command: Callable[[int], list[str]] = on_sdk) -> None:
        """Not started yet; `command` is for the port that it gets."""
        self.port = free_port()
        self._command = command
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """Where its MCP endpoint is."""
        return f"http://{HOST}:{self.port}/mcp"

    def tool(self, name: str = "tests") -> MCPTool:
        """The server as a request names it."""
        return MCPTool(self.url, name)

    def start(self) -> None:
        """Return when it listens."""
        self._process = subprocess.Popen(
            self._command(self.port),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        process = self._process
        wait_until(lambda: process.poll() is not None or _connects(self.port), START_SECONDS)
        assert process.poll() is None, f"the server ended with {process.returncode}"
        assert _connects(self.port), "the server did not start"

    def kill(self) -> None:
        """Return when it is gone."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


def _connects(port: int) -> bool:
    try:
        socket.create_connection((HOST, port)).close()
    except OSError:
        return False
    return True


@contextmanager
def http_server(command: Callable[[int], list[str]] = on_sdk) -> Generator[HttpServer]:
    """A server that runs until the block is left."""
    server = HttpServer(command)
    try:
        server.start()
        yield server
    finally:
        server.kill()


@functools.cache
def shared_server() -> HttpServer:
    """One for all tests of this process that do it no harm; it ends with the process."""
    server = HttpServer()
    atexit.register(server.kill)
    server.start()
    return server


def stdio_server(*mischief: str) -> StdioServerParameters:
    """The command that starts the same server on standard input and output."""
    return StdioServerParameters(command=sys.executable, args=[str(SCRIPT), "stdio", *mischief])


def misbehaving_server(what: str) -> StdioServerParameters:
    """The command that starts a server which does this one thing wrong."""
    script = SCRIPT.with_name("misbehaving.py")
    return StdioServerParameters(command=sys.executable, args=[str(script), what])
