"""The sampling door in plain HTTP: MCP's params in, its result or its errors out."""

import base64
from collections.abc import Mapping
from typing import Any

import pytest

from penstock.config.settings import Config
from penstock.contract.errors import (
    BudgetExceeded,
    ContentRejected,
    ContextLengthExceeded,
    PenstockError,
    ProviderTimeout,
    ProviderUnavailable,
    RateLimited,
    SamplingRejected,
)
from penstock.contract.messages import Image, ToolResult, ToolUse
from penstock.contract.options import ModelPreferences, ToolChoice
from penstock.engine.engine import Engine
from penstock.testing import FakeProvider, FakeReply, engine_with
from tests.support.wire.anthropic import Anthropic
from tests.support.wire.scenario import Call, Scenario
from tests.support.wire.server import WireServer
from tests.unit.server.gateway_support import Gateway, running_gateway
from tests.unit.server.sampling_support import CREATE, params, sample, text, wire_engine

PIXEL = base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(20)).decode()
TOOL = {
    "name": "weather",
    "description": "Says it.",
    "inputSchema": {"type": "object", "properties": {"city": {"type": "string"}}},
}


async def test_a_whole_answer(gateway: Gateway) -> None:
    response = await sample(gateway, "one two three")
    assert response.status_code == 200
    assert response.headers["content-type"] == "application/json"
    body = response.json()
    facts = body.pop("_metadata")
    assert body == {
        "role": "assistant",
        "content": {"type": "text", "text": "one two three"},
        "model": "echo",
        "stopReason": "endTurn",
        "usage": {"promptTokens": 3, "completionTokens": 3, "totalTokens": 6},
    }
    assert (facts["provider"], facts["attempts"]) == ("fake", 1)
    assert facts["request_id"] == response.headers["x-request-id"]
    assert response.headers["x-penstock-provider"] == "fake"


async def test_all_params_reach_the_provider(gateway: Gateway, fake: FakeProvider) -> None:
    response = await sample(
        gateway,
        text("Hi"),
        maxTokens=77,
        systemPrompt="Be brief.",
        temperature=0.5,
        stopSequences=["END", "STOP"],
        modelPreferences={
            "hints": [{"name": "echo"}, {}],
            "costPriority": 0.1,
            "speedPriority": 0.2,
            "intelligencePriority": 0.3,
        },
        includeContext="none",
        metadata={"user": "u1"},
        tools=[TOOL],
        toolChoice={"mode": "none"},
        _meta={"progressToken": 7},
        timeout=30,
    )
    assert response.status_code == 200, response.text
    (asked,) = fake.requests
    assert asked.max_tokens == 77
    assert asked.system_prompt == "Be brief."
    assert asked.temperature == 0.5
    assert asked.stop_sequences == ("END", "STOP")
    assert asked.model_preferences == ModelPreferences(("echo",), 0.1, 0.2, 0.3)
    assert asked.include_context == "none"
    assert asked.metadata == {"user": "u1"}
    assert asked.tools[0].name == "weather"
    assert asked.tool_choice == ToolChoice("none")
    assert asked.meta == {"progressToken": 7}
    assert asked.timeout == 30


async def test_the_model_by_its_name_and_by_a_hint() -> None:
    small, large = FakeProvider(name="small"), FakeProvider(name="large")
    async with running_gateway(engine_with(small, large)) as gateway:
        named = await sample(gateway, model="large/words-2")
        hinted = await sample(gateway, modelPreferences={"hints": [{"name": "large"}]})
        plain = await sample(gateway)
    assert named.json()["_metadata"]["provider"] == "large"
    assert named.json()["content"]["text"] == "word1 word2"
    assert hinted.headers["x-penstock-provider"] == "large"
    assert plain.headers["x-penstock-provider"] == "small"


@pytest.mark.parametrize(
    ("settings", "providers"),
    [({}, ["free", "dear", "dear"]), ({"priorities": "off"}, ["dear", "dear", "dear"])],
)
async def test_priorities_choose_among_the_targets_of_an_ordered_model(
    settings: dict[str, str], providers: list[str]
) -> None:
    targets = ["dear/gpt-6-astra", "free/gpt-6-luna"]
    config = Config.model_validate(
        {
            "providers": {"dear": {"kind": "fake"}, "free": {"kind": "fake"}},
            "models": {"m": {"targets": targets, **settings}},
        }
    )
    asked = [{"speedPriority": 1}, {"intelligencePriority": 1}, {"speedPriority": 0}]
    async with running_gateway(Engine(config)) as gateway:
        answers = [await sample(gateway, modelPreferences=each) for each in asked]
    assert [each.json()["_metadata"]["provider"] for each in answers] == providers


async def test_without_max_tokens_it_is_a_thousand(gateway: Gateway, fake: FakeProvider) -> None:
    body = params()
    del body["maxTokens"]
    assert (await gateway.client.post(CREATE, json=body)).status_code == 200
    assert fake.requests[0].max_tokens == 1000


async def test_a_tool_is_called_and_answered(gateway: Gateway, fake: FakeProvider) -> None:
    response = await sample(gateway, "Rain?", tools=[TOOL], toolChoice={"mode": "required"})
    body = response.json()
    assert body["stopReason"] == "toolUse"
    assert body["content"]["type"] == "tool_use"
    call = body["content"]
    answered = await sample(
        gateway,
        "Rain?",
        {"role": "assistant", "content": [call]},
        {
            "role": "user",
            "content": [
                {
                    "type": "tool_result",
                    "toolUseId": call["id"],
                    "content": [{"type": "text", "text": "dry"}],
                }
            ],
        },
        tools=[TOOL],
    )
    assert answered.json()["content"]["text"] == "dry"
    _, asked = fake.requests
    assert asked.messages[1].content == (ToolUse(call["id"], "weather", call["input"]),)
    (result,) = asked.messages[2].content
    assert isinstance(result, ToolResult)


async def test_several_calls_are_a_list(gateway: Gateway) -> None:
    uses = (ToolUse("a", "f", {"x": 1}), ToolUse("b", "g", {}))
    reply = FakeReply(text="Let me see.", reasoning="hm", tool_uses=uses)
    async with running_gateway(engine_with(FakeProvider([reply]))) as scripted:
        content = (await sample(scripted)).json()["content"]
    assert [block["type"] for block in content] == ["text", "tool_use", "tool_use"]
    assert content[1] == {"type": "tool_use", "id": "a", "name": "f", "input": {"x": 1}}


async def test_an_image(gateway: Gateway, fake: FakeProvider) -> None:
    image = {"type": "image", "data": PIXEL, "mimeType": "image/png"}
    question = {"type": "text", "text": "See?"}
    response = await sample(gateway, {"role": "user", "content": [image, question]})
    assert response.status_code == 200, response.text
    (picture, _) = fake.requests[0].messages[0].content
    assert isinstance(picture, Image)
    assert picture.mime_type == "image/png"


async def test_a_provider_on_another_wire_answers() -> None:
    async with WireServer(Anthropic()) as upstream:
        engine = wire_engine(upstream.url.removesuffix("/v1"), "anthropic")
        upstream.play(
            Scenario(text=("Hello ", "there")),
            Scenario(calls=(Call.of("c1", "weather", {"city": "Rome"}),), stop="tool_use"),
        )
        async with running_gateway(engine) as gateway:
            said = await sample(gateway, "Hi", systemPrompt="Be kind.", temperature=0.5)
            called = await sample(gateway, "Rain?", tools=[TOOL], toolChoice={"mode": "auto"})
    assert said.json()["content"] == {"type": "text", "text": "Hello there"}
    assert said.json()["usage"]["promptTokens"] == 11
    assert called.json()["content"]["input"] == {"city": "Rome"}
    assert called.json()["stopReason"] == "toolUse"
    assert upstream.seen[0].system == "Be kind."


async def test_the_embedded_model_answers() -> None:
    async with running_gateway(Engine(Config.embedded())) as gateway:
        response = await sample(gateway, "Name three colours.", maxTokens=5)
    body = response.json()
    assert body["model"] == "smollm2"
    assert body["usage"]["completionTokens"] <= 5
    assert body["content"]["text"]


@pytest.mark.parametrize(
    ("fields", "paths"),
    [
        ({"maxTokens": 0}, ["maxTokens"]),
        ({"messages": []}, ["messages"]),
        ({"temperature": 9.0, "stopSequences": ["a"] * 11}, ["temperature", "stopSequences"]),
        ({"temperature": "hot", "stream": "yes"}, ["temperature", "stream"]),
        ({"model": 7, "timeout": "soon"}, ["model", "timeout"]),
        ({"timeout": -1}, ["timeout"]),
        ({"toolChoice": {"mode": "maybe"}}, ["toolChoice.mode"]),
        ({"modelPreferences": {"costPriority": 2}}, ["modelPreferences.costPriority"]),
        ({"messages": [{"role": "user", "content": 5}]}, ["messages[0].content"]),
        (
            {"messages": [{"role": "assistant", "content": {"type": "tool_use", "id": "a"}}]},
            ["messages[0].content.name", "messages[0].content.input"],
        ),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
async def test_every_problem_has_its_path(
    gateway: Gateway, fields: dict[str, Any], paths: list[str], stream: bool
) -> None:
    response = await sample(gateway, **{"stream": stream, **fields})
    assert response.status_code == 400
    error = response.json()["error"]
    assert error["code"] == -32602
    assert [problem["path"] for problem in error["data"]["problems"]] == paths
    assert all(problem["message"] for problem in error["data"]["problems"])
    assert response.headers["x-request-id"].startswith("req_")


async def test_an_answer_to_a_tool_that_nobody_called(gateway: Gateway) -> None:
    result: dict[str, Any] = {"type": "tool_result", "toolUseId": "x", "content": []}
    response = await sample(gateway, {"role": "user", "content": [result]})
    assert (response.status_code, response.json()["error"]["code"]) == (400, -32602)


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"", -32700),
        (b"{", -32700),
        (b'{"messages": "\xff"}', -32700),
        (b"[" * 100_000, -32700),
        (b"[]", -32602),
        (b"null", -32602),
        (b'"messages"', -32602),
    ],
)
async def test_bodies_that_are_no_params(gateway: Gateway, body: bytes, code: int) -> None:
    response = await gateway.client.post(CREATE, content=body)
    assert response.status_code == 400
    assert response.json()["error"]["code"] == code


@pytest.mark.parametrize(
    ("error", "status", "code", "data"),
    [
        (SamplingRejected("no"), 403, -1, {"reason": "sampling_rejected"}),
        (RateLimited("slow", retry_after=3), 429, -32000, {"retryAfter": 3.0, "retryable": True}),
        (BudgetExceeded("spent"), 429, -32000, {"reason": "insufficient_quota"}),
        (ContentRejected("filtered"), 400, -32000, {"reason": "content_filter"}),
        (ContextLengthExceeded("too long"), 400, -32602, {"reason": "context_length_exceeded"}),
        (ProviderTimeout("silence"), 504, -32000, {"reason": "upstream_timeout"}),
        (ProviderUnavailable("down"), 502, -32000, {"reason": "upstream_unavailable"}),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
async def test_errors_before_the_answer(
    error: PenstockError, status: int, code: int, data: Mapping[str, Any], stream: bool
) -> None:
    async with running_gateway(engine_with(FakeProvider([error]))) as gateway:
        response = await sample(gateway, stream=stream)
    assert response.status_code == status
    told = response.json()["error"]
    assert told["code"] == code
    assert error.message in told["message"]
    assert told["data"]["status"] == status
    assert told["data"] | data == told["data"]
    assert response.headers["content-type"] == "application/json"


async def test_an_unknown_model_and_an_accident(caplog: pytest.LogCaptureFixture) -> None:
    def explode(_: object) -> str:
        raise RuntimeError("hunter2")

    async with running_gateway(engine_with(FakeProvider([explode]))) as gateway:
        unknown = await sample(gateway, model="nobody/x")
        accident = await sample(gateway)
    assert (unknown.status_code, unknown.json()["error"]["code"]) == (404, -32602)
    assert (accident.status_code, accident.json()["error"]["code"]) == (500, -32603)
    assert "hunter2" not in accident.text
    assert accident.headers["x-request-id"] in caplog.text


async def test_a_request_may_bring_its_id(gateway: Gateway) -> None:
    headers = {"x-request-id": "mine-1"}
    response = await gateway.client.post(CREATE, json=params(), headers=headers)
    assert response.headers["x-request-id"] == "mine-1"
    assert response.json()["_metadata"]["request_id"] == "mine-1"
    streamed = await gateway.client.post(CREATE, json=params(stream=True), headers=headers)
    assert streamed.headers["x-request-id"] == "mine-1"
    wrong = await gateway.client.post(CREATE, content=b"{", headers=headers)
    assert wrong.headers["x-request-id"] == "mine-1"


@pytest.mark.parametrize("identifier", ["", "two words", "x" * 129, "caf\u00e9"])
async def test_an_id_that_is_none(gateway: Gateway, identifier: str) -> None:
    headers = [(b"x-request-id", identifier.encode("latin-1"))]
    response = await gateway.client.post(CREATE, json=params(), headers=headers)
    assert response.status_code == 400
    (problem,) = response.json()["error"]["data"]["problems"]
    assert problem["path"] == "x-request-id"
    assert response.headers["x-request-id"].startswith("req_")


async def test_wrong_methods_and_plain_http_at_the_sockets_path(gateway: Gateway) -> None:
    assert (await gateway.client.get(CREATE)).status_code == 405
    response = await gateway.client.get("/v1/sampling/ws")
    assert response.status_code == 426
    assert response.headers["upgrade"] == "websocket"
    assert response.json()["error"]["code"] == -32600
