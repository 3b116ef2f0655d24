"""Broken pictures and sounds are refused at every endpoint, before any provider is asked."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

import pytest

from penstock.testing import FakeProvider
from tests.support.keyed import keyed_engine
from tests.support.media import JPEG, PNG
from tests.unit.server.gateway_support import Gateway, running_gateway


@pytest.fixture
async def gateway() -> AsyncGenerator[Gateway]:
    async with running_gateway(keyed_engine(FakeProvider(["A cat."]))[0]) as running:
        yield running


def chat(data: str) -> dict[str, Any]:
    part = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}}
    return {"model": "default", "messages": [{"role": "user", "content": [part]}]}


def responses(data: str) -> dict[str, Any]:
    part = {"type": "input_image", "image_url": f"data:image/png;base64,{data}"}
    return {"model": "default", "input": [{"role": "user", "content": [part]}]}


def messages(data: str) -> dict[str, Any]:
    source = {"type": "base64", "media_type": "image/png", "data": data}
    turn = {"role": "user", "content": [{"type": "image", "source": source}]}
    return {"model": "default", "max_tokens": 9, "messages": [turn]}


def sampling(data: str) -> dict[str, Any]:
    part = {"type": "image", "data": data, "mimeType": "image/png"}
    return {"messages": [{"role": "user", "content": part}], "maxTokens": 9}


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/chat/completions", chat),
        ("/v1/responses", responses),
        ("/v1/messages", messages),
        ("/v1/sampling/createMessage", sampling),
    ],
)
async def test_a_picture_must_be_what_it_is_called(gateway: Gateway, path: str, body: Any) -> None:
    for data, reason in (("@@@", "is not base64"), (JPEG, "is not image/png: it is image/jpeg")):
        for more in ({}, {"stream": True}):
            answer = await gateway.client.post(path, json={**body(data), **more})
            assert answer.status_code == 400, answer.text
            assert reason in answer.text
    answer = await gateway.client.post(path, json=body(PNG))
    assert answer.status_code == 200, answer.text
    assert "A cat." in answer.text


async def test_a_sound_must_be_what_it_is_called(gateway: Gateway) -> None:
    part = {"type": "input_audio", "input_audio": {"data": PNG, "format": "wav"}}
    body = {"model": "default", "messages": [{"role": "user", "content": [part]}]}
    answer = await gateway.client.post("/v1/chat/completions", json=body)
    assert answer.status_code == 400
    assert "is not audio/wav" in answer.text


async def test_all_problems_of_sampling_params_come_at_once(gateway: Gateway) -> None:
    body = {**sampling("@@@"), "maxTokens": "many", "temperature": 9, "timeout": -1, "model": 3}
    answer = await gateway.client.post("/v1/sampling/createMessage", json=body)
    assert answer.status_code == 400
    paths = ("maxTokens", "temperature", "timeout", "model", "messages[0].content[0].data")
    assert all(path in answer.text for path in paths), answer.text
