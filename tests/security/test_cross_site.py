"""Where no key is asked for, pages of other sites cannot make a browser use the gateway."""

from __future__ import annotations

import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from penstock.config.settings import Config
from penstock.engine.engine import Engine
from tests.unit.server.gateway_support import CHAT, chat_body, running_gateway
from tests.unit.server.sampling_support import SOCKET

PAGE = "https://app.example.com"
LOCAL = "http://localhost:3000"
CASES: list[tuple[dict[str, str], int]] = [
    ({"sec-fetch-site": "cross-site"}, 403),
    ({"sec-fetch-site": "Cross-Site"}, 403),
    ({"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}, 403),
    ({"sec-fetch-site": "cross-site", "origin": "null"}, 403),
    ({"sec-fetch-site": "cross-site", "origin": "https://evil.example"}, 403),
    ({"sec-fetch-site": "cross-site", "origin": PAGE}, 200),
    ({"sec-fetch-site": "cross-site", "origin": LOCAL}, 200),
    ({"sec-fetch-site": "same-site"}, 200),
    ({"sec-fetch-site": "same-origin"}, 200),
    ({"sec-fetch-site": "none"}, 200),
    ({}, 200),
]


def engine(*origins: str) -> Engine:
    return Engine(
        Config.model_validate(
            {
                "server": {"cors_origins": origins},
                "providers": {"fake": {}},
                "models": {"default": {"targets": ["fake/echo"]}},
            }
        )
    )


@pytest.mark.parametrize(("headers", "status"), CASES)
async def test_requests_of_pages_of_other_sites_are_refused(
    headers: dict[str, str], status: int
) -> None:
    async with running_gateway(engine(PAGE)) as gateway:
        client = gateway.client
        for path in ("/health", "/v1/models"):
            answer = await client.get(path, headers=headers)
            assert answer.status_code == status, path
        answer = await client.post(CHAT, json=chat_body(), headers=headers)
        assert answer.status_code == status
        if status == 403:
            assert answer.json()["error"]["code"] == "not_local"
            assert "server.cors_origins" in answer.json()["error"]["message"]
        address = gateway.url.replace("http", "ws") + SOCKET
        if status == 200:
            async with connect(address, additional_headers=headers):
                pass
            return
        with pytest.raises(InvalidStatus) as caught:
            async with connect(address, additional_headers=headers):
                pass
        assert caught.value.response.status_code == 403


async def test_a_gateway_for_all_pages_takes_links_and_images_of_all() -> None:
    async with running_gateway(engine("*")) as gateway:
        answer = await gateway.client.get("/v1/models", headers={"sec-fetch-site": "cross-site"})
        assert answer.status_code == 200
