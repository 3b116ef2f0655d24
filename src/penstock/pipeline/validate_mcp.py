"""Checks the MCP servers of a request; no message here holds the value of a header."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import get_args
from urllib.parse import SplitResult, urlsplit

from penstock.contract.checks.addresses import forbidden
from penstock.contract.checks.lengths import HEADER_VALUE, URL, too_long
from penstock.contract.errors import Problem
from penstock.contract.exchange import SamplingRequest
from penstock.contract.options import MCPMode, MCPTool

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_HEADER_VALUE = re.compile(r"[\x21-\x7e](?:[\x20-\x7e\t]*[\x21-\x7e])?")
_NOT_IN_URLS = re.compile(r"[\x00-\x20\x7f\\]")


def mcp_problems(request: SamplingRequest) -> Iterator[Problem]:
    """Every problem of `mcp_tools`, each with its path."""
    taken = {tool.name: "a tool" for tool in request.tools}
    for index, tool in enumerate(request.mcp_tools):
        path = f"mcp_tools[{index}]"
        yield from server_problems(path, tool, taken)
        if tool.mode == "adapter":
            yield Problem(
                f"{path}.mode",
                "is 'adapter', and only generators run tools; here the provider connects: "
                "say 'native' or 'auto', or use a generator",
            )
        taken[tool.name] = "another server"


def server_problems(path: str, tool: MCPTool, taken: Mapping[str, str]) -> Iterator[Problem]:
    """What is wrong with one server, whoever connects to it; `taken` says what has which name."""
    yield from _url(f"{path}.url", tool)
    yield from _name(f"{path}.name", tool.name, taken)
    yield from _headers(f"{path}.http_headers", tool.http_headers)
    yield from _allowed(f"{path}.allowed_tools", tool.allowed_tools)
    if tool.mode not in get_args(MCPMode):
        yield Problem(f"{path}.mode", f"is {tool.mode!r}; say 'auto', 'native' or 'adapter'")


def _url(path: str, tool: MCPTool) -> Iterator[Problem]:
    if problem := too_long(tool.url, URL):
        yield Problem(path, problem)
        return
    parts = _split(tool.url)
    if parts is None or parts.scheme not in ("http", "https") or not parts.hostname:
        yield Problem(path, f"{tool.place} is not an address; give one such as https://host/mcp")
    elif parts.username is not None or parts.password is not None:
        yield Problem(path, "holds a user or a password; put credentials into http_headers")
    elif not tool.allow_link_local and (reason := forbidden(parts.hostname)):
        yield Problem(path, f"{parts.hostname} {reason}; give the address of an MCP server")


def _split(url: str) -> SplitResult | None:
    if _NOT_IN_URLS.search(url):
        return None
    try:
        parts = urlsplit(url)
        parts.port  # noqa: B018 - it is read here because it raises for what is no port
    except ValueError:
        return None
    return parts


def _name(path: str, name: str, taken: Mapping[str, str]) -> Iterator[Problem]:
    if not _NAME.fullmatch(name):
        yield Problem(path, f"{name[:80]!r} is not 1 to 64 letters, digits, '_' and '-' of ASCII")
    elif name in taken:
        yield Problem(path, f"{name!r} is the name of {taken[name]} already; give it another")


def _headers(path: str, headers: Mapping[str, str]) -> Iterator[Problem]:
    found = Counter(name.lower() for name in headers)
    for name, value in headers.items():
        if problem := too_long(name) or too_long(value, HEADER_VALUE):
            yield Problem(f"{path}.{name}", problem)
            continue
        if not _HEADER_NAME.fullmatch(name):
            yield Problem(path, f"{name[:80]!r} is not a header name")
            continue
        if found[name.lower()] > 1:
            yield Problem(f"{path}.{name}", "is there twice, in capitals and not; keep one")
        if not _HEADER_VALUE.fullmatch(value):
            yield Problem(
                f"{path}.{name}",
                "its value is empty, has spaces at an end, or holds a line break or another "
                "character that a header cannot carry",
            )


def _allowed(path: str, names: Sequence[str] | None) -> Iterator[Problem]:
    if names is None:
        return
    if isinstance(names, str):
        # It is a sequence of strings to Python, and would become a tool for each letter.
        yield Problem(path, "is a single text; give a list of names")
        return
    if not names:
        yield Problem(path, "is empty, so that no tool is left; leave it out to allow all")
    for index, name in enumerate(names):
        if not name.strip():
            yield Problem(f"{path}[{index}]", "is empty; give the name of a tool")
        elif problem := too_long(name):
            yield Problem(f"{path}[{index}]", problem)
