"""`POST /v1/feedback`: what callers say about answers reaches the router, at every door."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from penstock.config.settings import Config
from penstock.engine.engine import Engine
from penstock.keys.records import hash_of, new_text
from penstock.routing.outcomes.sqlite import SqliteOutcomes
from tests.support.keyed import bearer
from tests.unit.server.gateway_support import Gateway, chat_body, running_gateway

FEEDBACK = "/v1/feedback"
SAID = {"role": "user", "content": "Hello there"}
SAMPLED = {"role": "user", "content": {"type": "text", "text": "Hello there"}}
DOORS: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": chat_body("Hello there"),
    "/v1/responses": {"input": "Hello there", "max_output_tokens": 20},
    "/v1/messages": {"messages": [SAID], "max_tokens": 20},
    "/v1/sampling/createMessage": {"messages": [SAMPLED], "maxTokens": 20},
}


def _config(tmp_path: Path, **sections: Any) -> Config:
    return Config.model_validate(
        {
            "providers": {"fake": {}},
            "models": {"default": {"targets": ["fake/a", "fake/b"], "routing": "learned"}},
            "storage": {"url": f"sqlite:///{tmp_path / 'p.db'}"},
            **sections,
        }
    )


async def _labels(gateway: Gateway, tmp_path: Path, request_id: str) -> list[float]:
    assert gateway.engine.learning is not None
    await gateway.engine.learning.catch_up()
    found = SqliteOutcomes(tmp_path / "p.db").find(request_id)
    return [label.quality.score for each in found for label in each.labels]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("door", DOORS)
async def test_the_header_of_an_answer_names_it(tmp_path: Path, door: str, stream: bool) -> None:
    async with running_gateway(Engine(_config(tmp_path))) as gateway:
        answer = await gateway.client.post(door, json={**DOORS[door], "stream": stream})
        assert answer.status_code == 200, answer.text
        request_id = answer.headers["x-request-id"]
        said = {"request_id": request_id, "score": 0.25}
        response = await gateway.client.post(FEEDBACK, json=said)
        assert (response.status_code, response.content) == (204, b"")
        assert await _labels(gateway, tmp_path, request_id) == [0.25]


async def test_a_key_speaks_of_its_own_requests_where_keys_are_isolated(tmp_path: Path) -> None:
    texts = {name: new_text() for name in ("one", "two")}
    config = _config(
        tmp_path,
        routing={"isolate_keys": True},
        keys={name: {"hash": hash_of(text)} for name, text in texts.items()},
    )
    async with running_gateway(Engine(config)) as gateway:
        headers = {name: bearer(text) for name, text in texts.items()}
        body = chat_body("Hello there")
        answer = await gateway.client.post(
            "/v1/chat/completions", json=body, headers=headers["one"]
        )
        request_id = answer.headers["x-request-id"]
        said = {"request_id": request_id, "score": 0.0}
        nobody = await gateway.client.post(FEEDBACK, json=said)
        other = await gateway.client.post(FEEDBACK, json=said, headers=headers["two"])
        own = await gateway.client.post(
            FEEDBACK, json={**said, "score": 1.0}, headers=headers["one"]
        )
        assert (nobody.status_code, other.status_code, own.status_code) == (401, 404, 204)
        assert other.json()["error"]["param"] == "request_id"
        assert await _labels(gateway, tmp_path, request_id) == [1.0]


@pytest.mark.parametrize(
    ("body", "param", "message"),
    [
        ({"score": 1}, "body", "`request_id`"),
        ({"request_id": "r"}, "body", "`score`"),
        ({"request_id": "r", "score": 2}, "score", "2"),
        ({"request_id": "r", "score": "good"}, "score", "good"),
        ({"request_id": "r", "score": 1, "source": "rumour"}, "source", "rumour"),
        ({"request_id": "r", "score": 1, "sauce": "judge"}, "sauce", "request_id, score, source"),
    ],
)
async def test_what_cannot_be_taken_is_refused(
    tmp_path: Path, body: dict[str, Any], param: str, message: str
) -> None:
    async with running_gateway(Engine(_config(tmp_path))) as gateway:
        response = await gateway.client.post(FEEDBACK, json=body)
    error = response.json()["error"]
    assert (response.status_code, error["param"]) == (400, param)
    assert message in error["message"]


async def test_a_request_that_nobody_knows_is_not_found(tmp_path: Path) -> None:
    async with running_gateway(Engine(_config(tmp_path))) as gateway:
        response = await gateway.client.post(FEEDBACK, json={"request_id": "r", "score": 1})
    error = response.json()["error"]
    assert (response.status_code, error["param"], error["code"]) == (404, "request_id", "not_found")
    assert "'r' is not a remembered request" in error["message"]
