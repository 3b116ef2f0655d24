"""The resources: models, providers and budgets, each as one JSON document."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from mcp.server.mcpserver import MCPServer

from penstock.mcp.serving.visits import Visit, at_a_resource

MODELS, PROVIDERS, BUDGETS = "penstock://models", "penstock://providers", "penstock://budgets"


def add_resources(server: MCPServer[Any]) -> None:
    """Let the server have them all."""
    _add(server, MODELS, "models", "The models that you may ask for, with their targets.", _models)
    _add(
        server,
        PROVIDERS,
        "providers",
        "The configured providers and how their targets are; takes a key for all models.",
        _providers,
    )
    _add(server, BUDGETS, "budgets", "The budgets that concern you: limit, used, left.", _budgets)


def _add(
    server: MCPServer[Any],
    uri: str,
    name: str,
    description: str,
    read: Callable[[Visit], Awaitable[dict[str, Any]]],
) -> None:
    async def document() -> str:
        with at_a_resource() as visit:
            return msgspec.json.encode(await read(visit)).decode()

    register = server.resource(
        uri, name=name, description=description, mime_type="application/json"
    )
    register(document)


def _models(visit: Visit) -> Awaitable[dict[str, Any]]:
    return visit.models()


def _providers(visit: Visit) -> Awaitable[dict[str, Any]]:
    return visit.providers()


def _budgets(visit: Visit) -> Awaitable[dict[str, Any]]:
    return visit.budgets()
