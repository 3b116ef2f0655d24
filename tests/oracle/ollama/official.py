"""The official client, untyped because its own types are not strict."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator
from typing import Any

import ollama


@contextlib.asynccontextmanager
async def official(host: str, **options: Any) -> AsyncGenerator[Any, None]:
    """A client of this server, closed at the end."""
    client: Any = ollama.AsyncClient(host=host, **options)
    async with client:
        yield client
