"""`/mcp` with the official client in both eras, with and without keys."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import mcp_types
import pytest
from mcp import Client
from mcp.shared.exceptions import MCPError
from mcp_types.version import LATEST_MODERN_VERSION

from penstock.contract.options import MCPTool
from penstock.mcp import ToolAdapter
from penstock.mcp.http import over_http
from penstock.testing import FakeProvider, FakeReply, Recorder
from tests.support.keyed import ADMIN, bearer, keyed_engine
from tests.unit.server.gateway_support import Gateway, running_gateway, until

ERAS = ("legacy", LATEST_MODERN_VERSION)
era = pytest.mark.parametrize("era", ERAS)
TOOLS = {"generate", "embed", "count_tokens", "route", "usage"}


@asynccontextmanager
async def connected(gateway: Gateway, era: str, key: str | None = None) -> AsyncGenerator[Client]:
    headers = {} if key is None else bearer(key)
    server = MCPTool(f"{gateway.url}/mcp", "penstock", headers)
    async with Client(over_http(server), mode=era) as client:
        yield client


@asynccontextmanager
async def open_gateway(
    era: str, fake: FakeProvider | None = None
) -> AsyncGenerator[tuple[Gateway, Client]]:
    """Without keys, as it is on one's own machine."""
    async with running_gateway(keyed_engine(fake)[0]) as gateway, connected(gateway, era) as client:
        yield gateway, client


def text(result: mcp_types.CallToolResult) -> str:
    return "".join(each.text for each in result.content if isinstance(each, mcp_types.TextContent))


async def read(client: Client, name: str) -> dict[str, Any]:
    (content,) = (await client.read_resource(f"penstock://{name}")).contents
    assert isinstance(content, mcp_types.TextResourceContents)
    assert content.mime_type == "application/json"
    return json.loads(content.text)


@era
async def test_the_tools_and_resources_are_there(era: str) -> None:
    async with open_gateway(era) as (_, client):
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        resources = {str(each.uri) for each in (await client.list_resources()).resources}
    assert tools.keys() == TOOLS
    generate = tools["generate"]
    assert generate.input_schema["required"] == ["prompt"]
    assert generate.output_schema is not None
    assert {"text", "model", "usage", "cost_usd"} <= generate.output_schema["properties"].keys()
    assert resources == {"penstock://models", "penstock://providers", "penstock://budgets"}


@era
async def test_a_model_answers(era: str) -> None:
    fake = FakeProvider(["Blue."])
    async with open_gateway(era, fake) as (_, client):
        result = await client.call_tool(
            "generate",
            {
                "prompt": "Which colour?",
                "messages": [
                    {"role": "user", "content": "Hi"},
                    {"role": "assistant", "content": "Yes?"},
                ],
                "system_prompt": "Be brief.",
                "max_tokens": 50,
                "temperature": 0.3,
            },
        )
    assert text(result) == "Blue."
    answer = result.structured_content
    assert answer is not None
    assert (answer["text"], answer["provider"], answer["stop_reason"]) == (
        "Blue.",
        "fake",
        "endTurn",
    )
    (request,) = fake.requests
    assert [each.text for each in request.messages] == ["Hi", "Yes?", "Which colour?"]
    assert (request.system_prompt, request.max_tokens, request.temperature) == (
        "Be brief.",
        50,
        0.3,
    )


@era
async def test_the_other_tools_answer(era: str) -> None:
    async with open_gateway(era) as (_, client):
        vectors = await client.call_tool("embed", {"texts": ["a", "b"], "model": "fake/echo"})
        count = await client.call_tool("count_tokens", {"prompt": "How long is this?"})
        route = await client.call_tool("route", {"prompt": "Hi"})
        await client.call_tool("generate", {"prompt": "Hi"})
        usage = await client.call_tool("usage")
    assert vectors.structured_content is not None
    assert len(vectors.structured_content["vectors"]) == 2
    assert text(vectors).startswith("2 vectors of ")
    assert count.structured_content is not None
    assert count.structured_content["tokens"] > 0
    assert route.structured_content is not None
    assert [each["target"] for each in route.structured_content["ranked"]] == ["fake/echo"]
    assert usage.structured_content is not None
    assert usage.structured_content["requests"] == 2
    assert usage.structured_content["key"] is None


@era
async def test_the_resources_tell_what_is_there(era: str) -> None:
    async with open_gateway(era) as (_, client):
        models = (await read(client, "models"))["models"]
        assert {each["name"]: each["targets"] for each in models} == {
            "default": ["fake/echo"],
            "assistant": ["fake/echo-2"],
            "secret-project": ["fake/hidden"],
        }
        (provider,) = (await read(client, "providers"))["providers"]
        assert provider["name"] == "fake"
        assert await read(client, "budgets") == {"budgets": []}


@era
async def test_what_is_wrong_with_a_call_is_told_by_the_tool(era: str) -> None:
    async with open_gateway(era) as (_, client):
        result = await client.call_tool("generate", {"prompt": "x", "temperature": 9.0})
        unknown = await client.call_tool("generate", {"prompt": "x", "model": "nonesuch"})
    assert result.is_error
    assert "temperature: 9.0 is not between 0 and 2" in text(result)
    assert unknown.is_error
    assert "nonesuch" in text(unknown)


@era
async def test_nobody_gets_in_without_a_key(era: str) -> None:
    engine, texts = keyed_engine(ci={})
    async with running_gateway(engine) as gateway:
        for key, status in ((None, 401), ("wrong", 401), (ADMIN, 403)):
            answer = await gateway.client.post(
                "/mcp", json={}, headers={} if key is None else bearer(key)
            )
            assert answer.status_code == status
            assert answer.json()["error"]["data"]["status"] == status
            with pytest.raises((MCPError, ExceptionGroup)):
                async with connected(gateway, era, key) as client:
                    await client.list_tools()
        async with connected(gateway, era, texts["ci"]) as client:
            assert {tool.name for tool in (await client.list_tools()).tools} == TOOLS


@era
async def test_a_model_that_is_not_for_the_key_is_not_there(era: str) -> None:
    engine, texts = keyed_engine(ci={"models": ["assistant"]}, boss={})
    async with running_gateway(engine) as gateway:
        async with connected(gateway, era, texts["ci"]) as client:
            assert not (
                await client.call_tool("generate", {"prompt": "x", "model": "assistant"})
            ).is_error
            for tool in ("generate", "count_tokens", "route"):
                for model in ("secret-project", "fake/hidden"):
                    result = await client.call_tool(tool, {"prompt": "x", "model": model})
                    assert result.is_error
                    assert "secret-project" not in text(result).replace(model, "")
            unnamed = await client.call_tool("route", {"prompt": "x"})
            assert unnamed.is_error
            vectors = await client.call_tool("embed", {"texts": ["x"], "model": "fake/hidden"})
            assert vectors.is_error
            models = await read(client, "models")
            assert [each["name"] for each in models["models"]] == ["assistant"]
            with pytest.raises(MCPError, match="a key for all models"):
                await read(client, "providers")
        async with connected(gateway, era, texts["boss"]) as client:
            assert len((await read(client, "models"))["models"]) == 3
            assert (await read(client, "providers"))["providers"][0]["name"] == "fake"


@era
async def test_a_key_over_its_budget_is_refused_and_sees_its_budgets_alone(era: str) -> None:
    engine, texts = keyed_engine(
        poor={"budget": {"limit_usd": 0.000001, "period": "day"}},
        rich={"budget": {"limit_usd": 1000.0, "period": "day"}, "models": ["default"]},
    )
    async with running_gateway(engine) as gateway:
        async with connected(gateway, era, texts["poor"]) as client:
            result = await client.call_tool("generate", {"prompt": "x", "model": "default"})
        assert result.is_error
        assert "budget" in text(result)
        async with connected(gateway, era, texts["rich"]) as client:
            await client.call_tool("generate", {"prompt": "x", "model": "default"})
            budgets = await read(client, "budgets")
            usage = await client.call_tool("usage")
    assert [each["key"] for each in budgets["budgets"]] == ["rich"]
    assert usage.structured_content is not None
    assert (usage.structured_content["key"], usage.structured_content["requests"]) == ("rich", 1)
    assert usage.structured_content["cost_usd"] > 0


@era
async def test_calls_at_once_are_each_their_own_keys(era: str) -> None:
    names = {f"key{number}": dict[str, Any]() for number in range(8)}
    engine, texts = keyed_engine(**names)
    recorder = Recorder()
    engine.hooks.subscribe(recorder)
    async with running_gateway(engine) as gateway:

        async def ask(name: str) -> None:
            async with connected(gateway, era, texts[name]) as client:
                for _ in range(5):
                    await client.call_tool("generate", {"prompt": name, "model": "default"})

        await asyncio.gather(*map(ask, texts))
        async with connected(gateway, era, texts["key3"]) as client:
            usage = await client.call_tool("usage")
    assert usage.structured_content is not None
    assert usage.structured_content["requests"] == 5
    assert sorted(record.key or "" for record in recorder.requests) == sorted(list(texts) * 5)


async def test_the_requests_of_a_key_are_limited() -> None:
    engine, texts = keyed_engine(ci={"requests_per_minute": 2})
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "usage"}}
    async with running_gateway(engine) as gateway:
        answers = [
            await gateway.client.post("/mcp", json=call, headers=bearer(texts["ci"]))
            for _ in range(3)
        ]
    assert [each.status_code for each in answers][-1] == 429
    assert answers[-1].headers["x-ratelimit-remaining-requests"] == "0"
    assert answers[0].headers["x-ratelimit-remaining-requests"] == "1"


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"origin": "https://evil.example"}, 403),
        ({"host": "evil.example"}, 403),
        ({"origin": "http://localhost:3000"}, 200),
    ],
)
async def test_web_pages_of_other_sites_are_kept_out(headers: dict[str, str], status: int) -> None:
    async with running_gateway(keyed_engine()[0]) as gateway:
        answer = await gateway.client.post(
            "/mcp", json={"jsonrpc": "2.0", "id": 1, "method": "ping"}, headers=headers
        )
    assert answer.status_code == status


async def test_a_gateway_with_keys_answers_to_any_name() -> None:
    engine, texts = keyed_engine(ci={})
    async with running_gateway(engine) as gateway:
        answer = await gateway.client.post(
            "/mcp",
            json={"jsonrpc": "2.0", "id": 1, "method": "ping"},
            headers={**bearer(texts["ci"]), "host": "gateway.example"},
        )
    assert answer.status_code == 200


async def test_an_origin_is_looked_at_where_keys_are_asked_for_too() -> None:
    engine, texts = keyed_engine(ci={})
    async with running_gateway(engine) as gateway:
        headers = {**bearer(texts["ci"]), "origin": "https://evil.example"}
        answer = await gateway.client.post("/mcp", json={}, headers=headers)
    assert answer.status_code == 403
    assert answer.json()["error"]["data"]["reason"] == "origin_not_allowed"


async def test_a_request_has_a_largest_size() -> None:
    async with running_gateway(keyed_engine()[0]) as gateway:
        gateway.app.max_request_bytes = 1_000
        answer = await gateway.client.post("/mcp", content=b"x" * 2_000)
    assert answer.status_code == 413
    assert answer.json()["error"]["data"]["reason"] == "request_too_large"


@pytest.mark.parametrize("method", ["GET", "DELETE"])
async def test_there_is_nothing_to_listen_to_and_no_session_to_end(method: str) -> None:
    async with running_gateway(keyed_engine()[0]) as gateway:
        answer = await gateway.client.request(method, "/mcp")
    assert answer.status_code == 405
    assert "POST" in answer.headers["allow"]


@era
async def test_a_caller_who_goes_away_stops_the_model(era: str) -> None:
    fake = FakeProvider([FakeReply(text="x " * 10_000, delay_s=0.01)])
    engine, _ = keyed_engine(fake)
    recorder = Recorder()
    engine.hooks.subscribe(recorder)
    async with running_gateway(engine) as gateway:
        async with connected(gateway, era) as client:
            call = asyncio.create_task(client.call_tool("generate", {"prompt": "x"}))
            await until(lambda: bool(fake.requests))
            call.cancel()
            await asyncio.gather(call, return_exceptions=True)
        await until(lambda: bool(recorder.requests))
    assert recorder.requests[0].outcome == "cancelled"


@era
async def test_a_changed_configuration_answers_the_next_call(era: str) -> None:
    async with open_gateway(era) as (gateway, client):
        engine = gateway.engine
        assert len((await read(client, "models"))["models"]) == 3
        config = engine.config.model_copy(
            update={"models": {**engine.config.models, "another": engine.config.models["default"]}}
        )
        await gateway.app.change(config)
        assert len((await read(client, "models"))["models"]) == 4
        result = await client.call_tool("generate", {"prompt": "x", "model": "another"})
    assert not result.is_error


async def test_our_own_adapter_uses_it() -> None:
    async with (
        open_gateway(ERAS[0], FakeProvider(["Hello!"])) as (gateway, _),
        ToolAdapter(MCPTool(f"{gateway.url}/mcp", "penstock")) as adapter,
    ):
        result = await adapter.call("generate", {"prompt": "Hi"})
    assert result.text == "Hello!"
