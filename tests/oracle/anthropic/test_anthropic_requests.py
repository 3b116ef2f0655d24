"""What Penstock sends is what the official SDK sends for the same intent.

Differences that are meant, and nothing else:

- The SDK sends every key as a bearer token; Penstock sends Anthropic's own keys in `x-api-key`, as
  the API's documentation does, and all others as the SDK does.
- The SDK always asks for version 2026-10-21; Penstock asks for the configured one, by default
  2023-06-01, on which older models still take a temperature (`extra_body` says it to the SDK).
- A text may travel as a string or as a block of type text: the API reads both alike.
- The SDK sends `stream: false`; Penstock leaves it out, which is the default.
- What a schema cannot say moves into its description, in the SDK as Python writes it (`None`,
  `True`), in Penstock as JSON does (`null`, `true`).
- What is a beta has methods of its own in the SDK, which add `?beta=true` to the path; the header
  `anthropic-beta`, which both send, is what the API goes by.
- Telemetry of the SDK (`x-stainless-*`, `user-agent`) and its `accept` have no counterpart.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator
from typing import Any, cast

import pytest
from anthropic import AsyncAnthropic

from penstock.contract.exchange import SamplingRequest
from penstock.providers.credentials import Secret
from penstock.providers.http.transport import HttpTransport
from penstock.providers.registry import ProviderSettings, build
from tests.oracle.anthropic.capture import MESSAGE, Capture, Reply, Sent
from tests.oracle.anthropic.intents import HI, INTENTS, Intent
from tests.unit.providers.anthropic.message_wire import (
    START,
    STOP,
    begin,
    body,
    ending,
    says,
    stop,
    text,
    wire_bytes,
)

HEADERS = ("content-type", "authorization", "anthropic-version", "anthropic-beta")
BETAS = ["mcp-client-2025-11-20"]
TOKEN = "gateway-token"


@pytest.fixture(scope="module")
def capture() -> Generator[Capture]:
    with Capture() as opened:
        yield opened


@pytest.fixture
async def transport() -> AsyncGenerator[HttpTransport]:
    async with HttpTransport() as opened:
        yield opened


def request_of(intent: Intent) -> SamplingRequest:
    asked: dict[str, Any] = {"messages": intent.messages, "max_tokens": 9, **intent.ours}
    return SamplingRequest(**asked)


def provider_at(capture: Capture, transport: HttpTransport, version: str | None) -> Any:
    options = {"api_version": version} if version else {}
    settings = ProviderSettings("a", "anthropic", capture.url, Secret(TOKEN), options=options)
    return build(settings, transport)


async def by_sdk(intent: Intent, capture: Capture, *, stream: bool) -> Sent:
    headers = {} if intent.version else {"anthropic-version": "2023-06-01"}
    async with AsyncAnthropic(
        base_url=capture.url, auth_token=TOKEN, max_retries=0, default_headers=headers
    ) as client:
        asked: dict[str, Any] = {
            "model": intent.model,
            "max_tokens": 9,
            "messages": HI,
            **intent.sdk,
        }
        messages = cast(Any, client.beta.messages if intent.beta else client.messages)
        if intent.beta:
            asked["betas"] = BETAS
        if stream:
            extra = {"output_format": intent.parse} if intent.parse else {}
            async with messages.stream(**asked, **extra) as opened:
                async for _ in opened:
                    pass
        elif intent.parse:
            await messages.parse(**asked, output_format=intent.parse)
        else:
            await messages.create(**asked)
    return capture.sent[-1]


def blocks(content: Any) -> Any:
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def plain(body: dict[str, Any]) -> dict[str, Any]:
    """The body with every text as a block, and without what is its default."""
    same = dict(body)
    if same.get("stream") is False:
        del same["stream"]
    if "system" in same:
        same["system"] = blocks(same["system"])
    messages: list[dict[str, Any]] = []
    for message in body["messages"]:
        content = [
            {**part, "content": blocks(part["content"])} if "content" in part else part
            for part in blocks(message["content"])
        ]
        messages.append({**message, "content": content})
    return same | {"messages": messages}


def test_there_are_enough_intents() -> None:
    assert len({intent.id for intent in INTENTS}) == len(INTENTS) >= 40


@pytest.mark.filterwarnings("ignore:The model .* is deprecated:DeprecationWarning")
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("intent", INTENTS, ids=lambda intent: intent.id)
async def test_the_same_request(
    intent: Intent, stream: bool, capture: Capture, transport: HttpTransport
) -> None:
    if stream:
        events = (START, begin(0, text("")), says(0, intent.answer), stop(0), ending(), STOP)
        capture.reply = Reply(wire_bytes(events), "text/event-stream")
    else:
        capture.reply = Reply(body(text(intent.answer)))
    theirs = await by_sdk(intent, capture, stream=stream)
    provider = provider_at(capture, transport, intent.version)
    if stream:
        assert [events async for events in provider.stream(intent.model, request_of(intent))]
    else:
        assert await provider.generate(intent.model, request_of(intent))
    ours = capture.sent[-1]
    assert ours is not theirs
    assert (ours.method, ours.path) == (theirs.method, theirs.path.removesuffix("?beta=true"))
    assert plain(ours.body) == plain(theirs.body)
    assert {name: ours.headers.get(name) for name in HEADERS} == {
        name: theirs.headers.get(name) for name in HEADERS
    }


COUNTED = [
    intent
    for intent in INTENTS
    if not (intent.parse or {"metadata", "stop_sequences", "extra_body"} & intent.sdk.keys())
]


@pytest.mark.parametrize("intent", COUNTED, ids=lambda intent: intent.id)
async def test_the_same_count(intent: Intent, capture: Capture, transport: HttpTransport) -> None:
    capture.reply = Reply(b'{"input_tokens": 14}')
    async with AsyncAnthropic(base_url=capture.url, auth_token=TOKEN, max_retries=0) as client:
        asked: dict[str, Any] = {"model": intent.model, "messages": HI, **intent.sdk}
        asked.pop("max_tokens", None)
        if intent.beta:
            count = await cast(Any, client.beta.messages).count_tokens(**asked, betas=BETAS)
        else:
            count = await cast(Any, client.messages).count_tokens(**asked)
    theirs = capture.sent[-1]
    provider = provider_at(capture, transport, "2026-10-21")
    assert await provider.count_tokens(intent.model, request_of(intent)) == count.input_tokens
    ours = capture.sent[-1]
    assert (ours.method, ours.path) == (theirs.method, theirs.path.removesuffix("?beta=true"))
    assert plain(ours.body) == plain(theirs.body)
    # The SDK adds a beta of its own for the counting itself.
    needed = ours.headers.get("anthropic-beta", "")
    assert needed in theirs.headers.get("anthropic-beta", "")


async def test_the_same_list_of_models(capture: Capture, transport: HttpTransport) -> None:
    model = {"type": "model", "id": "claude-x", "display_name": "X", "lifecycle": "active"}
    entry = str(model | {"created_at": "2026-09-22T00:00:00Z"}).replace("'", '"')
    page = f'{{"data": [{entry}], "has_more": false, "first_id": "a", "last_id": "a"}}'
    capture.reply = Reply(page.encode())
    async with AsyncAnthropic(base_url=capture.url, auth_token=TOKEN, max_retries=0) as client:
        theirs = [found async for found in client.models.list(limit=1000)]
    asked = capture.sent[-1]
    ours = await provider_at(capture, transport, "2026-10-21").models()
    assert [(found.id, found.created) for found in ours] == [
        (found.id, int(found.created_at.timestamp())) for found in theirs
    ]
    sent = capture.sent[-1]
    assert (sent.method, sent.path) == (asked.method, asked.path)
    assert sent.headers["anthropic-version"] == asked.headers["anthropic-version"]


async def test_anthropics_own_keys_have_a_header_of_their_own(
    capture: Capture, transport: HttpTransport
) -> None:
    capture.reply = Reply()
    key = "sk-ant-api03-x"
    settings = ProviderSettings("a", "anthropic", capture.url, Secret(key))
    reply = await build(settings, transport).generate("claude-x", request_of(INTENTS[0]))
    assert reply.response_id == MESSAGE["id"]
    sent = capture.sent[-1].headers
    assert (sent["x-api-key"], sent.get("authorization")) == (key, None)
    assert sent["anthropic-version"] == "2023-06-01"
