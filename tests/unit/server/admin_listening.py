"""Who listens to `GET /admin/v1/events`."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

import msgspec

from penstock.server.admin.events import DATA
from tests.support.keyed import ADMIN, bearer
from tests.unit.server.admin_support import BASE, Admin

Event = tuple[str, dict[str, Any], int | None]


@contextlib.asynccontextmanager
async def listening(admin: Admin, last: int | None = None) -> AsyncGenerator[AsyncIterator[Event]]:
    """The events from now on; what comes before the block is entered is not among them."""
    headers = bearer(ADMIN) if last is None else {**bearer(ADMIN), "last-event-id": str(last)}
    async with admin.gateway.client.stream("GET", f"{BASE}/events", headers=headers) as response:
        assert response.status_code == 200
        assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
        lines = response.aiter_lines()
        assert await anext(lines) == ": listening"
        yield read(lines)


async def read(lines: AsyncIterator[str]) -> AsyncIterator[Event]:
    fields: dict[str, str] = {}
    async for line in lines:
        if line.startswith(":"):
            continue
        if line:
            name, _, value = line.partition(": ")
            fields[name] = value
        elif fields:
            number = fields.get("id")
            data = json.loads(fields["data"])
            msgspec.convert(data, DATA[fields["event"]])
            yield fields["event"], data, None if number is None else int(number)
            fields = {}
