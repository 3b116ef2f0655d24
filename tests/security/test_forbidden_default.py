"""A request that names no model says nothing of a default model that its key may not use."""

from __future__ import annotations

from typing import Any

import pytest

from tests.security.doors import DOORS
from tests.support.keyed import bearer, keyed_engine
from tests.unit.server.gateway_support import running_gateway

COUNT = "/v1/messages/count_tokens"
WORDS = ("default", "echo", "fake", "embedded", "wordllama", "secret", "hidden")


@pytest.mark.parametrize("path", DOORS)
@pytest.mark.parametrize("stream", [False, True])
async def test_the_default_stays_unknown(path: str, stream: bool) -> None:
    engine, texts = keyed_engine(ci={"models": ["assistant"]})
    body: dict[str, Any] = {name: value for name, value in DOORS[path].items() if name != "model"}
    async with running_gateway(engine) as gateway:
        answers = [
            await gateway.client.post(
                path, json={**body, **asked, "stream": stream}, headers=bearer(texts["ci"])
            )
            for asked in ({}, {"model": None})
        ]
    for answer in answers:
        assert 400 <= answer.status_code < 500
        told = answer.text + "".join(f"{name} {value}" for name, value in answer.headers.items())
        assert not [word for word in WORDS if word in told], told


async def test_a_key_counts_tokens_without_a_model_when_it_may_use_the_default() -> None:
    engine, texts = keyed_engine(ci={"models": ["default"]})
    body = {name: value for name, value in DOORS[COUNT].items() if name != "model"}
    async with running_gateway(engine) as gateway:
        answer = await gateway.client.post(COUNT, json=body, headers=bearer(texts["ci"]))
        assert answer.status_code == 200
        assert answer.headers["x-penstock-model"] == "echo"
