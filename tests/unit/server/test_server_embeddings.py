"""`POST /v1/embeddings`."""

import base64
import json
import struct

import pytest

from tests.unit.server.gateway_support import Gateway

PATH = "/v1/embeddings"


async def test_numbers_and_their_packed_form(gateway: Gateway) -> None:
    body = {"model": "fake/words", "input": ["a b", "c"]}
    plain = (await gateway.client.post(PATH, json=body)).json()
    assert plain["object"] == "list"
    assert [(item["object"], item["index"]) for item in plain["data"]] == [
        ("embedding", 0),
        ("embedding", 1),
    ]
    assert plain["usage"] == {"prompt_tokens": 3, "total_tokens": 3}
    response = await gateway.client.post(PATH, json={**body, "encoding_format": "base64"})
    for item, one in zip(response.json()["data"], plain["data"], strict=True):
        data = base64.b64decode(item["embedding"])
        floats = struct.unpack(f"<{len(data) // 4}f", data)
        assert floats == pytest.approx(one["embedding"], abs=1e-6)
    assert response.headers["x-penstock-provider"] == "fake"


@pytest.mark.parametrize(
    ("fields", "status", "param", "code"),
    [
        ({"input": [1, 2, 3]}, 400, "input", "unsupported_parameter"),
        ({"input": [[1, 2], [3]]}, 400, "input", "unsupported_parameter"),
        ({"input": []}, 400, "input", None),
        ({"input": ["x", ""]}, 400, "input[1]", None),
        ({"input": "x", "encoding_format": "hex"}, 400, "encoding_format", None),
        ({"input": "x", "dimensions": 0}, 400, "dimensions", None),
        ({"input": {"a": 1}}, 400, "input", None),
        ({}, 400, None, None),
        ({"input": "x", "model": "nothing"}, 404, "model", "model_not_found"),
    ],
)
async def test_what_is_refused(
    gateway: Gateway, fields: dict[str, object], status: int, param: str | None, code: str | None
) -> None:
    response = await gateway.client.post(
        PATH, content=json.dumps({"model": "fake/words", **fields})
    )
    assert response.status_code == status
    error = response.json()["error"]
    assert (error["param"], error["code"]) == (param, code)
