"""Names of tools that every provider takes, with the way back to the tools."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence

from penstock.contract.tools import RunnableTool

_LEGAL = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")
_ILLEGAL = re.compile(r"[^A-Za-z0-9_-]")
_KEPT = 55
"""How much of a name is kept before the eight digits that tell it from others."""


def offered(tools: Sequence[RunnableTool], taken: Collection[str] = ()) -> dict[str, RunnableTool]:
    """The tools by the names that the model is told, none of which is `taken`.

    A tool keeps its own name where it is legal and nobody else's. The tools of servers make way for
    functions, and for each other: then the name of the server stands before theirs.
    """
    counted = Counter([*(tool.definition.name for tool in tools), *taken])
    named: dict[str, RunnableTool] = {}
    for tool in sorted(tools, key=lambda tool: bool(tool.server)):
        own = tool.definition.name
        shared = tool.server and counted[own] > 1
        name = _legal(f"{tool.server}_{own}" if shared else own)
        while name in named or name in taken:
            name = _marked(name, f"{tool.server}/{own}")
        named[name] = tool
    return named


def offered_name(name: str, tools: Mapping[str, RunnableTool]) -> str:
    """What the model calls the tool that its server or its function calls by this name.

    A name that is not to be found, or stands for several tools, is given back as it is.
    """
    if name in tools:
        return name
    own = [offer for offer, tool in tools.items() if tool.definition.name == name]
    return own[0] if len(own) == 1 else name


def _legal(name: str) -> str:
    if _LEGAL.fullmatch(name):
        return name
    plain = _ILLEGAL.sub("_", name)
    return _marked(plain if plain[:1].isalpha() or plain[:1] == "_" else f"_{plain}", name)


def _marked(name: str, told: str) -> str:
    """The name with digits made of the whole of it, for what is lost may be all that differs."""
    digits = hashlib.sha256(f"{name} {told}".encode()).hexdigest()[:8]
    return f"{name[:_KEPT]}_{digits}"
