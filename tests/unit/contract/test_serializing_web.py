"""Answers as the responses of FastAPI, with and without an annotation, and as JSON of msgspec."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

import penstock
from penstock.testing import FakeProvider, engine_with


@pytest.fixture
async def result() -> penstock.Result:
    async with engine_with(FakeProvider(["Hello."])) as engine:
        return await engine.create_message("Hi", max_tokens=9)


RETURNS: dict[str, Callable[[penstock.Result], Any]] = {
    "result": lambda result: result,
    "in a dict": lambda result: {"r": result},
    "in a list": lambda result: [result, result.usage],
    "usage": lambda result: result.usage,
    "metadata": lambda result: {"m": result.metadata},
}


def plain(value: Any) -> Any:
    """What the response should say."""
    if isinstance(value, dict):
        return {key: plain(each) for key, each in value.items()}  # pyright: ignore[reportUnknownVariableType]
    if isinstance(value, list):
        return [plain(each) for each in value]  # pyright: ignore[reportUnknownVariableType]
    return value.to_dict()


@pytest.mark.parametrize("name", RETURNS)
async def test_a_route_without_an_annotation_returns_it(name: str, result: penstock.Result) -> None:
    app = FastAPI()
    app.add_api_route("/", lambda: RETURNS[name](result))
    with TestClient(app) as client:
        response = client.get("/")
    assert response.status_code == 200
    assert response.json() == plain(RETURNS[name](result))


async def test_a_route_with_an_annotation_returns_it(result: penstock.Result) -> None:
    app = FastAPI()

    @app.get("/")
    def answer() -> penstock.Result:
        return result

    @app.get("/usage", response_model=dict[str, penstock.Usage])
    def usage() -> Any:
        return {"usage": result.usage}

    with TestClient(app) as client:
        body = client.get("/").json()
        assert body == result.to_dict()
        assert isinstance(body["metadata"]["latency_ms"], int)
        assert client.get("/usage").json() == {"usage": result.usage.to_dict()}


async def test_dict_of_an_answer_is_its_json(result: penstock.Result) -> None:
    assert dict(result) == result.to_dict()
    assert dict(result.usage) == result.usage.to_dict()


async def test_msgspec_writes_numbers_as_numbers(result: penstock.Result) -> None:
    written = json.loads(msgspec.json.encode({"r": result}))["r"]
    assert written["metadata"]["usage"]["input_tokens"] == result.usage.input_tokens
    assert msgspec.convert(written, penstock.Result) == result
