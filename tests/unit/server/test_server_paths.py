"""The page at `/`, base URLs without `/v1` or with two, and suggestions for other paths."""

from __future__ import annotations

import re
from pathlib import Path

import openai
import pytest
from pydantic import SecretStr

from penstock import Engine
from penstock.config.keys import KeyConfig
from penstock.config.server import ServerConfig
from penstock.config.settings import Config, ModelConfig, ProviderConfig, StorageConfig
from penstock.keys.records import hash_of, new_text
from penstock.server.openapi.public import doors_document
from penstock.server.ops.home import ROUTES
from tests.support.keyed import ADMIN, bearer
from tests.unit.server.admin_support import administered
from tests.unit.server.gateway_support import Gateway, chat_body, running_gateway

BROWSER = {"accept": "text/html,application/xhtml+xml,*/*;q=0.8"}


async def test_a_browser_gets_a_page_and_others_get_json(gateway: Gateway) -> None:
    page = await gateway.client.get("/", headers=BROWSER)
    assert page.status_code == 200
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert page.headers["content-security-policy"].startswith("default-src 'none'; style-src 'sha")
    assert "/v1/chat/completions" in page.text
    listed = (await gateway.client.get("/")).json()
    paths = {each.partition(" ")[2] for each in listed["endpoints"]}
    assert paths - set(doors_document()["paths"]) == {"/mcp", "/admin/v1/usage"}
    assert (await gateway.client.head("/")).content == b""
    assert list(ROUTES) == [("GET", "/")]


async def test_the_page_links_what_a_browser_can_open_and_each_link_leads_somewhere(
    gateway: Gateway,
) -> None:
    page = (await gateway.client.get("/", headers=BROWSER)).text
    listed = (await gateway.client.get("/")).json()["endpoints"]
    links = re.findall(r'<a href="([^"]+)">', page)
    assert links == [each.partition(" ")[2] for each in listed if each.startswith("GET ")]
    for link in links:
        status = (await gateway.client.get(link)).status_code
        # /ready answers 503 here, where no process serves; the admin API has no key to open it.
        expected = {"/ready": {200, 503}, "/admin/v1/usage": {401, 403, 404}}.get(link, {200})
        assert status in expected, link


@pytest.mark.parametrize("base", ["", "/v1", "/v1/v1"])
async def test_a_base_url_works_with_and_without_v1(gateway: Gateway, base: str) -> None:
    async with openai.AsyncOpenAI(base_url=f"{gateway.url}{base}", api_key="none") as client:
        answer = await client.chat.completions.create(
            model="default", messages=[{"role": "user", "content": "Hello"}], max_tokens=9
        )
        assert answer.choices[0].message.content == "Hello"
        assert (await client.models.retrieve("default")).id == "default"
        assert [model.id for model in (await client.models.list()).data][:1] == ["default"]


@pytest.mark.parametrize(
    ("path", "near"),
    [
        ("/v1/chat/completion", "/v1/chat/completions"),
        ("/v1/response", "/v1/responses"),
        ("/metric", "/metrics"),
        ("/v1/sampling/createmessage", "/v1/sampling/createMessage"),
        ("/v1/mcp", "/mcp"),
        ("/v1/health", "/health"),
        ("/nothing/like/it", None),
        ("/v1/chat/completions" + "x" * 200, None),
    ],
)
async def test_an_unknown_path_names_the_nearest(
    gateway: Gateway, path: str, near: str | None
) -> None:
    response = await gateway.client.post(path, json=chat_body())
    assert response.status_code == 404
    said = response.json()["error"]["message"]
    assert said.endswith(f"; did you mean {near}?" if near else path)


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("/v1", "it, such as /v1/usage"),
        ("/v1/", "it, such as /v1/usage"),
        ("/v1/chat", "it, such as /v1/chat/completions"),
        ("/admin", "/admin/v1/"),
        ("/admin/v1", "/admin/v1/"),
    ],
)
async def test_a_path_above_endpoints_says_so(path: str, said: str) -> None:
    async with administered() as admin:
        key = ADMIN if path.startswith("/admin") else admin.texts["ci"]
        response = await admin.gateway.client.post(path, headers=bearer(key))
    assert response.status_code == 404
    message = response.json()["error"]["message"]
    assert message == f"there is nothing at {path}; the endpoints are below {said}"


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("requets", "; did you mean /admin/v1/requests?"),
        ("requests/req_1/x", "; did you mean /admin/v1/requests/req_1?"),
        ("budgets/team/rest", "; did you mean /admin/v1/budgets/team/reset?"),
        ("key/ci", "; did you mean /admin/v1/keys/ci?"),
        ("target", "; did you mean /admin/v1/targets?"),
        ("", "; the endpoints are below it, such as /admin/v1/keys"),
        ("nothing", ""),
        ("requests" + "/x" * 60, ""),
    ],
)
async def test_an_unknown_path_of_the_admin_api_names_the_nearest(path: str, said: str) -> None:
    async with administered() as admin:
        message = (await admin.error("GET", path, 404))["message"]
    assert message == f"there is nothing at /admin/v1/{path}"[: len(message) - len(said)] + said


async def test_no_spelling_passes_a_key_or_reaches_the_admin_api(tmp_path: Path) -> None:
    text = new_text()
    config = Config(
        providers={"fake": ProviderConfig()},
        models={"default": ModelConfig(targets=("fake/echo",))},
        server=ServerConfig(admin_key=SecretStr("a" * 40)),
        keys={"app": KeyConfig(hash=hash_of(text))},
        storage=StorageConfig(url=f"sqlite:///{tmp_path / 'ledger.db'}"),
    )
    async with running_gateway(Engine(config, keep_books=True)) as gateway:
        for path in ("/chat/completions", "/v1/v1/chat/completions", "/models", "/v1/v1/models"):
            assert (await gateway.client.get(path)).status_code == 401, path
        key = {"authorization": f"Bearer {text}"}
        for path in ("/v1/admin/v1/usage", "/v1/v1/admin/v1/usage"):
            assert (await gateway.client.get(path, headers=key)).status_code == 404, path
        assert (await gateway.client.get("/models", headers=key)).status_code == 200
        assert (await gateway.client.get("/")).status_code == 200
