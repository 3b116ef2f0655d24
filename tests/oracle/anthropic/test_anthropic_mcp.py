"""Blocks of MCP servers: what Penstock reads is what the official SDK reads from the same bytes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import pytest
from anthropic import Anthropic
from anthropic.types.beta import (
    BetaMCPToolResultBlock,
    BetaMCPToolUseBlock,
    BetaMessage,
    BetaTextBlock,
)

from penstock.contract.errors import StreamInterrupted
from penstock.contract.events import Finished, ToolEnded, ToolStarted
from penstock.contract.exchange import Reply
from penstock.contract.messages import MCPCall
from penstock.providers.anthropic.decode import decode
from tests.oracle.anthropic.intents import ANSWERED, LISTED, MADE
from tests.oracle.anthropic.test_anthropic_answers import client_for, feed, text_of
from tests.unit.providers.anthropic.message_wire import (
    START,
    STOP,
    WireEvent,
    begin,
    body,
    call,
    ending,
    says,
    stop,
    text,
    wire_bytes,
    writes,
)

FAILED = {**ANSWERED, "tool_use_id": "mcptoolu_2", "is_error": True}
OTHER = {**MADE, "id": "mcptoolu_2", "name": "open", "input": {}}
WORDS = {**ANSWERED, "content": "a plain text"}
BEGUN = {**MADE, "input": {}}


def ask(client: Anthropic, *, stream: bool) -> BetaMessage:
    asked: dict[str, Any] = {
        "model": "claude-x",
        "max_tokens": 9,
        "messages": [{"role": "user", "content": "Hi"}],
    }
    with client:
        messages = cast(Any, client.beta.messages)
        if not stream:
            return messages.create(**asked)
        with messages.stream(**asked) as opened:
            return opened.get_final_message()


def same(reply: Reply, message: BetaMessage) -> None:
    calls = [part for part in reply.content if isinstance(part, MCPCall)]
    uses = [block for block in message.content if isinstance(block, BetaMCPToolUseBlock)]
    assert [(each.id, each.server, each.name, each.input) for each in calls] == [
        (each.id, each.server_name, each.name, each.input) for each in uses
    ]
    results = [block for block in message.content if isinstance(block, BetaMCPToolResultBlock)]
    said = {each.tool_use_id: (each.is_error, words(each)) for each in results}
    assert {each.id: (each.is_error, each.text) for each in calls} == said
    texts = [block.text for block in message.content if isinstance(block, BetaTextBlock)]
    assert reply.text == "".join(texts)
    assert reply.response_status == message.stop_reason


def words(block: BetaMCPToolResultBlock) -> str:
    said = block.content
    return said if isinstance(said, str) else "".join(each.text for each in said)


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(body(MADE, ANSWERED, text("Sunny.")), id="a call"),
        pytest.param(body(MADE, WORDS), id="an answer that is a text"),
        pytest.param(body(MADE, OTHER, FAILED, ANSWERED, text("Hm.")), id="two at once"),
        pytest.param(body(LISTED, text("So"), MADE, ANSWERED, text("Sunny.")), id="listed"),
        pytest.param(body(MADE, ANSWERED, call("a"), stop="tool_use"), id="beside a function"),
    ],
)
def test_the_same_whole_answer(data: bytes) -> None:
    same(decode(data), ask(client_for(data, "application/json"), stream=False))


STREAMS: dict[str, Sequence[WireEvent]] = {
    "a call": (
        *(START, begin(0, BEGUN), writes(0, '{"city"'), writes(0, ': "Rome"}'), stop(0)),
        *(begin(1, ANSWERED), stop(1), begin(2, text("")), says(2, "Sunny."), stop(2), ending()),
    ),
    "two at once": (
        *(START, begin(0, LISTED), stop(0), begin(1, text("")), says(1, "So"), stop(1)),
        *(begin(2, BEGUN), writes(2, '{"city": "Rome"}'), stop(2)),
        *(begin(3, OTHER), stop(3), begin(4, FAILED), stop(4), begin(5, ANSWERED), stop(5)),
        *(begin(6, text("")), says(6, "Hm."), stop(6), ending()),
    ),
    "beside a function": (
        *(START, begin(0, BEGUN), writes(0, '{"city": "Rome"}'), stop(0)),
        *(begin(1, ANSWERED), stop(1)),
        *(begin(2, call("a")), writes(2, '{"x": 1}'), stop(2), ending("tool_use")),
    ),
}


@pytest.mark.parametrize("name", STREAMS)
def test_the_same_stream(name: str) -> None:
    data = wire_bytes([*STREAMS[name], STOP])
    events = feed(data)
    last = events[-1]
    assert isinstance(last, Finished)
    message = ask(client_for(data, "text/event-stream"), stream=True)
    same(last.reply, message)
    started = [event for event in events if isinstance(event, ToolStarted)]
    uses = [block for block in message.content if isinstance(block, BetaMCPToolUseBlock)]
    assert [(event.id, event.name, event.input, event.server) for event in started] == [
        (block.id, block.name, block.input, block.server_name) for block in uses
    ]
    ended = [event for event in events if isinstance(event, ToolEnded)]
    results = [block for block in message.content if isinstance(block, BetaMCPToolResultBlock)]
    assert [(event.id, event.is_error) for event in ended] == [
        (block.tool_use_id, block.is_error) for block in results
    ]


@pytest.mark.parametrize("name", STREAMS)
def test_a_stream_cut_after_any_event_is_interrupted(name: str) -> None:
    events = [*STREAMS[name], STOP]
    for cut in range(len(events)):
        with pytest.raises(StreamInterrupted) as caught:
            feed(wire_bytes(events[:cut]))
        assert caught.value.partial == "".join(map(text_of, events[:cut]))
