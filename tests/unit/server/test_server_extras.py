"""Fields that a door has no name for: to targets of its own dialect as they are, and back."""

import contextlib
import json
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Any

import pytest
from anthropic import AsyncAnthropic
from openai import AsyncOpenAI

from tests.unit.server.extras_support import ANSWERS, VENDOR, Upstream, engine_on, upstream
from tests.unit.server.gateway_support import Gateway, running_gateway

FLAG = {"vendor_flag": {"deep": [1, 2.5, None, "ü"]}}


@dataclass(frozen=True)
class Door:
    """A door, the kind of provider that speaks its dialect, and fields that only that knows."""

    path: str
    kind: str
    body: dict[str, Any]
    fields: dict[str, Any]
    essential: tuple[str, ...]
    """Those of them that another dialect refuses."""
    hint: dict[str, Any]
    """Without it the answer is the same."""


_TURNS: dict[str, Any] = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 9}
DOORS = {
    "chat": Door(
        "/v1/chat/completions",
        "openai-chat",
        _TURNS,
        {"logit_bias": {"50256": -100}, "top_p": 0.5, **FLAG},
        ("logit_bias", *FLAG),
        {"seed": 7},
    ),
    "responses": Door(
        "/v1/responses",
        "openai",
        {"input": "Hi", "max_output_tokens": 9},
        {"truncation": "auto", "top_p": 0.5, **FLAG},
        (*FLAG,),
        {"service_tier": "flex"},
    ),
    "messages": Door(
        "/v1/messages",
        "anthropic",
        _TURNS,
        {"top_k": 5, "container": "c_1", **FLAG},
        ("container", *FLAG),
        {"speed": "fast"},
    ),
}
EVERY = pytest.mark.parametrize("door", DOORS.values(), ids=[*DOORS])
STREAM = pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
OTHERS = {"openai-chat": "anthropic", "openai": "openai-chat", "anthropic": "openai"}


@contextlib.asynccontextmanager
async def gateway_on(*kinds: str) -> AsyncGenerator[tuple[Gateway, list[Upstream]]]:
    """A gateway whose default model tries a provider of each of these kinds."""
    async with contextlib.AsyncExitStack() as stack:
        seen = [await stack.enter_async_context(upstream(kind)) for kind in kinds]
        yield await stack.enter_async_context(running_gateway(engine_on(*seen))), seen


@EVERY
@STREAM
async def test_the_same_dialect_gets_them_as_they_are(door: Door, stream: bool) -> None:
    extra = {**door.fields, **door.hint}
    async with gateway_on(door.kind) as (gateway, (seen,)):
        body = {**door.body, **({"stream": True} if stream else {})}
        bare = await gateway.client.post(door.path, json=body)
        full = await gateway.client.post(door.path, json={**body, **extra})
        assert (bare.status_code, full.status_code) == (200, 200), full.text
        assert '"Hi"' in full.text
        # Nothing but them is new, and nothing that Penstock writes is another.
        assert seen.bodies[1] == {**seen.bodies[0], **extra}
        assert not set(extra) & set(seen.bodies[0])


@EVERY
@STREAM
async def test_another_dialect_refuses_them_by_name(door: Door, stream: bool) -> None:
    async with gateway_on(OTHERS[door.kind]) as (gateway, (seen,)):
        body = {**door.body, "stream": stream, **door.fields, **door.hint}
        response = await gateway.client.post(door.path, json=body)
        assert response.status_code == 400, response.text
        error = response.json()["error"]
        names = ", ".join(door.essential)
        assert f"{seen.kind}/m does not support {names}; leave" in error["message"]
        if door.kind != "anthropic":
            first, *_ = door.essential
            assert (error["code"], error["param"]) == ("unsupported_parameter", first)
        assert seen.bodies == []


@EVERY
async def test_what_changes_no_answer_is_left_out_elsewhere(door: Door) -> None:
    async with gateway_on(OTHERS[door.kind]) as (gateway, (seen,)):
        response = await gateway.client.post(door.path, json={**door.body, **door.hint})
        assert response.status_code == 200, response.text
        assert not set(door.hint) & set(seen.bodies[0])


@EVERY
@STREAM
async def test_targets_that_cannot_take_them_are_passed_over(door: Door, stream: bool) -> None:
    async with gateway_on(OTHERS[door.kind], door.kind) as (gateway, (other, same)):
        body = {**door.body, "stream": stream, **door.fields}
        response = await gateway.client.post(door.path, json=body)
        assert response.status_code == 200, response.text
        assert response.headers["x-penstock-provider"] == same.kind
        assert (other.bodies, len(same.bodies)) == ([], 1)
        assert FLAG.items() <= same.bodies[0].items()
        # Without them it is the first that answers.
        response = await gateway.client.post(door.path, json={**door.body, **door.hint})
        assert response.headers["x-penstock-provider"] == other.kind


async def test_what_penstock_writes_itself_cannot_be_replaced() -> None:
    door = DOORS["chat"]
    async with gateway_on("openai-chat") as (gateway, (seen,)):
        body = {**door.body, "stream_options": {"vendor": 1}, "store": True, "stop": ["x"], **FLAG}
        response = await gateway.client.post(door.path, json=body)
        assert response.status_code == 200, response.text
        assert seen.bodies == [
            {
                "model": "m",
                "messages": [{"role": "user", "content": "Hi"}],
                "max_tokens": 9,
                "stop": ["x"],
                "store": True,
                **FLAG,
            }
        ]


@EVERY
@pytest.mark.parametrize(
    "value",
    ["1e400", "[" * 5000 + "]" * 5000, '"\\ud800"', "nul"],
    ids=["huge", "deep", "half-a-character", "no-json"],
)
async def test_a_value_that_cannot_be_passed_on_is_a_bad_request(door: Door, value: str) -> None:
    async with gateway_on(door.kind) as (gateway, (seen,)):
        body = json.dumps(door.body)[:-1] + f', "vendor": {value}}}'
        response = await gateway.client.post(door.path, content=body)
        assert (response.status_code, seen.bodies) == (400, []), response.text


# ---- answers


@EVERY
async def test_what_a_whole_answer_says_more_comes_back(door: Door) -> None:
    async with gateway_on(door.kind) as (gateway, _):
        answer = (await gateway.client.post(door.path, json=door.body)).json()
    assert VENDOR.items() <= answer.items()
    # What the door says of itself stays its own.
    assert answer["id"] != "up_1"
    assert answer["usage"] is not None


async def test_where_the_fields_of_an_answer_stand() -> None:
    async with gateway_on("openai-chat") as (gateway, _):
        answer = (await gateway.client.post("/v1/chat/completions", json=_TURNS)).json()
        (theirs,) = ANSWERS["openai-chat"]["choices"]
        (ours,) = answer["choices"]
        assert answer["system_fingerprint"] == "fp_1"
        assert ours["logprobs"] == theirs["logprobs"]
        assert ours["message"]["annotations"] == theirs["message"]["annotations"]
        assert (ours["message"]["content"], ours["finish_reason"]) == ("Hi", "stop")
    async with gateway_on("openai") as (gateway, _):
        body = {"input": "Hi", "instructions": "Be brief."}
        answer = (await gateway.client.post("/v1/responses", json=body)).json()
        assert answer["service_tier"] == "flex"
        assert answer["instructions"] == "Be brief."
    async with gateway_on("anthropic") as (gateway, _):
        answer = (await gateway.client.post("/v1/messages", json=_TURNS)).json()
        assert answer["container"] == {"id": "c_1"}


@EVERY
async def test_an_answer_in_another_dialect_brings_none(door: Door) -> None:
    async with gateway_on(OTHERS[door.kind]) as (gateway, _):
        response = await gateway.client.post(door.path, json=door.body)
        assert response.status_code == 200, response.text
        assert not set(VENDOR) & set(response.json())


@EVERY
async def test_a_stream_brings_none(door: Door) -> None:
    async with gateway_on(door.kind) as (gateway, _):
        response = await gateway.client.post(door.path, json={**door.body, "stream": True})
        assert response.status_code == 200, response.text
        assert "vendor_note" not in response.text


# ---- the official packages


async def test_the_openai_package() -> None:
    async with (
        gateway_on("openai-chat", "openai") as (gateway, (chat, responses)),
        AsyncOpenAI(base_url=f"{gateway.url}/v1", api_key="k", max_retries=0) as client,
    ):
        completion = await client.chat.completions.create(
            model="openai-chat/m",
            messages=[{"role": "user", "content": "Hi"}],
            logit_bias={"50256": -100},
            logprobs=True,
            extra_body=FLAG,
        )
        asked = {"logit_bias": {"50256": -100}, "logprobs": True, **FLAG}
        assert asked.items() <= chat.bodies[0].items()
        assert completion.model_extra is not None
        assert completion.model_extra["vendor_note"] == VENDOR["vendor_note"]
        logprobs = completion.choices[0].logprobs
        assert logprobs is not None
        assert logprobs.content is not None
        assert logprobs.content[0].logprob == -0.5
        response = await client.responses.create(
            model="openai/m", input="Hi", truncation="auto", extra_body=FLAG
        )
        assert {"truncation": "auto", **FLAG}.items() <= responses.bodies[0].items()
        assert (response.output_text, response.truncation) == ("Hi", "auto")
        assert response.model_extra is not None
        assert response.model_extra["vendor_note"] == VENDOR["vendor_note"]


async def test_the_anthropic_package() -> None:
    async with gateway_on("anthropic") as (gateway, (seen,)):
        async with AsyncAnthropic(base_url=gateway.url, api_key="k", max_retries=0) as client:
            message = await client.messages.create(
                model="anthropic/m",
                max_tokens=9,
                messages=[{"role": "user", "content": "Hi"}],
                extra_body={"top_k": 5, **FLAG},
            )
        assert {"top_k": 5, **FLAG}.items() <= seen.bodies[0].items()
        assert message.model_extra is not None
        assert message.model_extra["vendor_note"] == VENDOR["vendor_note"]
