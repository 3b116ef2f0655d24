"""A gateway that asks for keys, and its administrator."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Any

import httpx

from penstock.engine.engine import Engine
from penstock.testing import FakeProvider
from tests.support.keyed import ADMIN, bearer, keyed_engine
from tests.unit.server.gateway_support import CHAT, Gateway, chat_body, running_gateway

BASE = "/admin/v1"


@dataclass
class Admin:
    """Who has the admin key of a gateway, and the keys of its users."""

    gateway: Gateway
    texts: dict[str, str]

    @property
    def engine(self) -> Engine:
        """The engine behind the gateway."""
        return self.gateway.engine

    async def call(self, method: str, path: str, **options: Any) -> httpx.Response:
        """One call below /admin/v1."""
        headers = {**bearer(ADMIN), **options.pop("headers", {})}
        return await self.gateway.client.request(
            method, f"{BASE}/{path}", headers=headers, **options
        )

    async def get(self, path: str, **query: Any) -> Any:
        """The JSON of an answer that must be good."""
        answer = await self.call("GET", path, params=query)
        assert answer.status_code == 200, answer.text
        assert answer.headers["content-type"] == "application/json"
        return answer.json()

    async def send(self, method: str, path: str, body: Any = None, *, status: int = 200) -> Any:
        """The JSON of the answer to this body, which must have this status."""
        options = {} if body is None else {"json": body}
        answer = await self.call(method, path, **options)
        assert answer.status_code == status, answer.text
        return answer.json() if answer.content else None

    async def error(self, method: str, path: str, status: int, **options: Any) -> dict[str, Any]:
        """The error of an answer that must have failed so."""
        answer = await self.call(method, path, **options)
        assert answer.status_code == status, answer.text
        document = answer.json()
        assert set(document) == {"error"}
        assert set(document["error"]) == {"message", "type", "param", "code"}
        return document["error"]

    async def chat(self, key: str = "ci", **fields: Any) -> httpx.Response:
        """A user asks something."""
        body = chat_body("Hi there", **{"model": "default", "max_tokens": 10, **fields})
        return await self.gateway.client.post(CHAT, json=body, headers=bearer(self.texts[key]))


@contextlib.asynccontextmanager
async def administered(
    fake: FakeProvider | None = None, /, **keys: dict[str, Any]
) -> AsyncGenerator[Admin]:
    """A gateway with these keys, or with the one key `ci`."""
    engine, texts = keyed_engine(fake, **(keys or {"ci": {"tags": {"team": "search"}}}))
    async with running_gateway(engine) as gateway:
        yield Admin(gateway, texts)
