"""What the SDK's own types write, we read; what we write, they take."""

import json
from collections.abc import Mapping
from typing import Any, TypeVar

import mcp_types
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp_types import (
    CreateMessageRequestParams,
    CreateMessageResult,
    CreateMessageResultWithTools,
)
from pydantic import BaseModel

from penstock.contract.exchange import Result, SamplingRequest
from penstock.contract.messages import (
    Audio,
    Content,
    Image,
    MCPCall,
    Reasoning,
    Text,
    ToolResult,
    ToolUse,
)
from penstock.contract.metadata import Metadata

M = TypeVar("M", bound=BaseModel)
METADATA = Metadata(provider="openai", model="gpt-1", request_id="req_1", latency_ms=12)


def model(kind: type[M], **fields: st.SearchStrategy[Any]) -> st.SearchStrategy[M]:
    """Values of a type of the SDK, each field from its strategy."""
    return st.fixed_dictionaries(fields).map(kind.model_validate)


WORDS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
NAMES = st.text(st.characters(categories=["L", "N"]), min_size=1, max_size=8)
JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**40), 2**40) | WORDS,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(WORDS, inner, max_size=2),
    max_leaves=4,
)
OBJECTS = st.dictionaries(WORDS, JSON, max_size=3)
META = st.none() | OBJECTS
BASE64 = st.sampled_from(["", "AAAA", "AAA="])
TEXTS = model(mcp_types.TextContent, text=WORDS, _meta=META)
IMAGES = model(mcp_types.ImageContent, data=BASE64, mime_type=WORDS, _meta=META)
SOUNDS = model(mcp_types.AudioContent, data=BASE64, mime_type=WORDS, _meta=META)
USES = model(mcp_types.ToolUseContent, id=NAMES, name=NAMES, input=OBJECTS, _meta=META)
LINKS = model(mcp_types.ResourceLink, name=WORDS, uri=st.just("x:a"), title=st.none() | WORDS)
BLOBS = model(mcp_types.BlobResourceContents, uri=st.just("x:a"), blob=BASE64)
EMBEDDED = model(mcp_types.EmbeddedResource, resource=BLOBS)
RESULTS = model(
    mcp_types.ToolResultContent,
    tool_use_id=NAMES,
    content=st.lists(TEXTS | IMAGES | SOUNDS | LINKS | EMBEDDED, max_size=2),
    structured_content=JSON,
    is_error=st.none() | st.booleans(),
    _meta=META,
)
BLOCKS = TEXTS | IMAGES | SOUNDS | USES | RESULTS
MESSAGES = model(
    mcp_types.SamplingMessage,
    role=st.sampled_from(["user", "assistant"]),
    content=BLOCKS | st.lists(BLOCKS, max_size=3),
    _meta=META,
)
PRIORITY = st.none() | st.floats(0, 1)
PREFERENCES = model(
    mcp_types.ModelPreferences,
    hints=st.none() | st.lists(model(mcp_types.ModelHint, name=st.none() | WORDS), max_size=3),
    cost_priority=PRIORITY,
    speed_priority=PRIORITY,
    intelligence_priority=PRIORITY,
)
TOOLS = model(
    mcp_types.Tool,
    name=NAMES,
    description=st.none() | WORDS,
    input_schema=OBJECTS.map(lambda more: {**more, "type": "object"}),
    _meta=META,
)
CHOICES = model(mcp_types.ToolChoice, mode=st.sampled_from([None, "auto", "required", "none"]))
PARAMS = model(
    CreateMessageRequestParams,
    messages=st.lists(MESSAGES, max_size=3),
    model_preferences=st.none() | PREFERENCES,
    system_prompt=st.none() | WORDS,
    include_context=st.sampled_from([None, "none", "thisServer", "allServers"]),
    temperature=st.none() | st.floats(0, 2),
    max_tokens=st.integers(1, 2**31),
    stop_sequences=st.none() | st.lists(WORDS, max_size=3),
    metadata=st.none() | OBJECTS,
    tools=st.none() | st.lists(TOOLS, max_size=2),
    tool_choice=st.none() | CHOICES,
    _meta=st.none() | st.fixed_dictionaries({"progressToken": st.integers() | WORDS}),
)


@given(PARAMS, st.booleans())
def test_whatever_the_sdk_writes_is_read_with_nothing_lost(
    params: CreateMessageRequestParams, without_nulls: bool
) -> None:
    written = params.model_dump(mode="json", by_alias=True, exclude_none=without_nulls)
    request = SamplingRequest.from_mcp(written)
    assert SamplingRequest.from_mcp(json.dumps(written)) == request
    assert request.max_tokens == params.max_tokens
    assert request.system_prompt == params.system_prompt
    assert request.temperature == params.temperature
    assert list(request.stop_sequences) == (params.stop_sequences or [])
    assert request.include_context == (params.include_context or "none")
    assert request.metadata == (written.get("metadata") or {})
    assert request.meta == written.get("_meta")
    assert [tool.name for tool in request.tools] == [tool.name for tool in params.tools or []]
    assert [tool.input_schema for tool in request.tools] == [
        tool.input_schema for tool in params.tools or []
    ]
    assert (request.tool_choice is None) == (params.tool_choice is None)
    preferences, asked = request.model_preferences, params.model_preferences
    assert (preferences is None) == (asked is None)
    if preferences is not None and asked is not None:
        named = [hint.name for hint in asked.hints or [] if hint.name]
        assert list(preferences.hints) == named
        assert preferences.cost == asked.cost_priority
    for message, theirs in zip(request.messages, written["messages"], strict=True):
        blocks = theirs["content"] if isinstance(theirs["content"], list) else [theirs["content"]]
        assert message.role == theirs["role"]
        assert message.meta == theirs.get("_meta")
        assert [part.meta for part in message.content] == [block.get("_meta") for block in blocks]
        for part, block in zip(message.content, blocks, strict=True):
            _same(part, block)


def _same(part: Content, block: Mapping[str, Any]) -> None:
    match part:
        case Text(text=text):
            assert (block["type"], block["text"]) == ("text", text)
        case Image(data=data, mime_type=mime) | Audio(data=data, mime_type=mime):
            assert (block["data"], block["mimeType"]) == (data, mime)
        case ToolUse(id=identifier, name=name, input=arguments):
            assert (block["id"], block["name"], block["input"]) == (identifier, name, arguments)
        case ToolResult():
            assert block["toolUseId"] == part.tool_use_id
            assert bool(block.get("isError")) == part.is_error
            structured = block.get("structuredContent")
            if isinstance(structured, dict):
                assert part.structured_content == structured
            told_as_text = structured is not None and not isinstance(structured, dict)
            extra = len(part.content) - len(block["content"])
            assert extra == 0 or (extra == 1 and told_as_text)
        case _:
            pytest.fail(f"{part} has no block")


OUR_TEXTS = st.builds(Text, text=WORDS, meta=META)
OUR_PARTS: st.SearchStrategy[Content] = st.one_of(
    OUR_TEXTS,
    st.builds(Image, data=BASE64, mime_type=WORDS, url=st.none() | WORDS, meta=META),
    st.builds(Audio, data=BASE64, mime_type=WORDS, meta=META),
    st.builds(ToolUse, id=NAMES, name=NAMES, input=OBJECTS, meta=META),
    st.builds(Reasoning, text=WORDS, signature=st.none() | WORDS),
    st.builds(MCPCall, id=NAMES, server=NAMES, name=NAMES, input=OBJECTS),
)
RESULTS_OF_OURS = st.builds(
    Result,
    content=st.lists(OUR_PARTS, max_size=4).map(tuple),
    model=WORDS,
    stop_reason=st.sampled_from(["endTurn", "stopSequence", "maxTokens", "toolUse", "other"]),
    metadata=st.just(METADATA),
)


@given(RESULTS_OF_OURS, st.booleans())
def test_the_sdk_takes_whatever_we_write(ours: Result, extras: bool) -> None:
    written = json.loads(json.dumps(ours.to_mcp(extras=extras)))
    theirs = CreateMessageResultWithTools.model_validate(written)
    assert (theirs.role, theirs.model, theirs.stop_reason) == (
        "assistant",
        ours.model,
        ours.stop_reason,
    )
    texts = [block.text for block in theirs.content_as_list if block.type == "text"]
    pictures = "".join(
        (part.url or "") if isinstance(part, Image) and not part.data else ""
        for part in ours.content
    )
    assert len("".join(texts)) == len(ours.text) + len(pictures)
    calls = [block.id for block in theirs.content_as_list if block.type == "tool_use"]
    assert calls == [use.id for use in ours.tool_uses]


@given(RESULTS_OF_OURS.filter(lambda ours: not ours.tool_uses))
def test_a_single_block_fits_the_sdks_older_result(ours: Result) -> None:
    CreateMessageResult.model_validate(ours.to_mcp(single=True))


@given(RESULTS_OF_OURS)
def test_our_answer_comes_back_as_a_turn_of_the_history(ours: Result) -> None:
    written = ours.to_mcp()
    turn = {"role": written["role"], "content": written["content"]}
    (message,) = SamplingRequest.from_mcp({"messages": [turn], "maxTokens": 9}).messages
    assert message.tool_uses == ours.tool_uses
    if not any(isinstance(part, Image) for part in ours.content):
        assert message.text == ours.text
