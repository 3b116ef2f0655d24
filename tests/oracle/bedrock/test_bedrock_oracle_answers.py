"""What we read out of bytes is what boto3 reads out of the same bytes, streams included."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
import pytest
from botocore.exceptions import ClientError, EventStreamError

from penstock.contract.errors import (
    AuthenticationFailed,
    InvalidRequest,
    ModelNotFound,
    PenstockError,
    ProviderUnavailable,
    RateLimited,
)
from penstock.contract.events import Finished
from penstock.contract.exchange import Reply
from penstock.contract.messages import Content, Reasoning, Text, ToolUse
from penstock.providers.bedrock import DIALECT
from penstock.streaming.eventstream import AWSEventStreamDecoder
from tests.oracle.bedrock.official import Official, Wire
from tests.oracle.bedrock.wishes import HI
from tests.support.wire.bedrock import Bedrock, frames, render
from tests.support.wire.bedrock.render import write_json
from tests.support.wire.scenario import MODEL_IDS, Call, Failure, Scenario, Tokens

HEADERS = {"x-amzn-requestid": "0af76519-16cd-43dd", "content-type": "application/json"}
STREAM_HEADERS = {**HEADERS, "content-type": "application/vnd.amazon.eventstream"}
REDACTED = base64.b64encode(b"\x00secret").decode()
TEXT = {"text": "Hello, 👩‍👩‍👧!"}
CALL = {"toolUse": {"toolUseId": "tooluse_1", "name": "weather", "input": {"city": "Paris"}}}
BARE_CALL: dict[str, Any] = {"toolUse": {"toolUseId": "tooluse_2", "name": "now", "input": {}}}
THOUGHT = {"reasoningContent": {"reasoningText": {"text": "Hm.", "signature": "c2ln"}}}
HIDDEN = {"reasoningContent": {"redactedContent": REDACTED}}
USAGE = {"inputTokens": 11, "outputTokens": 7, "totalTokens": 18}
CACHED = {**USAGE, "cacheReadInputTokens": 100, "cacheWriteInputTokens": 20, "totalTokens": 138}
STOPS = {
    "end_turn": "endTurn",
    "stop_sequence": "stopSequence",
    "max_tokens": "maxTokens",
    "model_context_window_exceeded": "maxTokens",
    "tool_use": "toolUse",
}

ANSWERS: Mapping[str, tuple[list[dict[str, Any]], str, dict[str, Any]]] = {
    "text": ([TEXT], "end_turn", USAGE),
    "two texts": ([TEXT, {"text": "More."}], "stop_sequence", USAGE),
    "no content": ([], "end_turn", USAGE),
    "cut": ([TEXT], "max_tokens", USAGE),
    "window": ([TEXT], "model_context_window_exceeded", USAGE),
    "call": ([CALL], "tool_use", USAGE),
    "calls after text": ([TEXT, CALL, BARE_CALL], "tool_use", USAGE),
    "thinking": ([THOUGHT, TEXT], "end_turn", USAGE),
    "hidden thinking": ([HIDDEN, THOUGHT, HIDDEN, TEXT, CALL], "tool_use", CACHED),
    "cached": ([TEXT], "end_turn", CACHED),
}


@pytest.fixture(scope="module")
def official() -> Official:
    return Official()


def whole(content: list[dict[str, Any]], stop: str, usage: dict[str, Any]) -> bytes:
    message = {"role": "assistant", "content": content}
    metrics = {"latencyMs": 12}
    body = {"output": {"message": message}, "stopReason": stop, "usage": usage}
    return write_json({**body, "metrics": metrics})


def streamed(content: list[dict[str, Any]], stop: str, usage: dict[str, Any]) -> list[bytes]:
    """The same answer in pieces of two letters."""
    out = [frames.event("messageStart", {"role": "assistant"})]
    for index, block in enumerate(content):
        place = {"contentBlockIndex": index}
        start, deltas = _pieces(block)
        if start:
            out.append(frames.event("contentBlockStart", {**place, "start": start}))
        out += [frames.event("contentBlockDelta", {**place, "delta": each}) for each in deltas]
        out.append(frames.event("contentBlockStop", place))
    out.append(frames.event("messageStop", {"stopReason": stop}))
    return [*out, frames.event("metadata", {"usage": usage, "metrics": {"latencyMs": 12}})]


def _pieces(block: dict[str, Any]) -> tuple[dict[str, Any] | None, list[dict[str, Any]]]:
    if "toolUse" in block:
        call = block["toolUse"]
        text = write_json(call["input"]).decode() if call["input"] else ""
        start = {"toolUse": {"toolUseId": call["toolUseId"], "name": call["name"]}}
        return start, [{"toolUse": {"input": piece}} for piece in _cut(text)]
    if "reasoningContent" not in block:
        return None, [{"text": piece} for piece in _cut(block["text"])]
    thought = block["reasoningContent"].get("reasoningText")
    if thought is None:
        return None, [block]
    pieces: list[dict[str, Any]] = [{"text": piece} for piece in _cut(thought["text"])]
    pieces.append({"signature": thought["signature"]})
    return None, [{"reasoningContent": piece} for piece in pieces]


def _cut(text: str) -> list[str]:
    return [text[at : at + 2] for at in range(0, len(text), 2)]


def theirs(content: Iterable[Any]) -> tuple[Content, ...]:
    """boto3's blocks in our words."""
    return tuple(map(_theirs, content))


def _theirs(block: dict[str, Any]) -> Content:
    if "toolUse" in block:
        call = block["toolUse"]
        return ToolUse(call["toolUseId"], call["name"], call["input"])
    if "reasoningContent" not in block:
        return Text(block["text"])
    thought = block["reasoningContent"]
    if "redactedContent" in thought:
        hidden = base64.b64encode(thought["redactedContent"]).decode()
        return Reasoning(signature=hidden, redacted=True)
    return Reasoning(
        thought["reasoningText"]["text"], signature=thought["reasoningText"]["signature"]
    )


def assert_same(reply: Reply, answer: Any, usage: Any) -> None:
    assert reply.content == theirs(answer["content"])
    read, written = usage.get("cacheReadInputTokens"), usage.get("cacheWriteInputTokens")
    assert reply.usage.cached_input_tokens == read
    assert reply.usage.cache_write_tokens == written
    assert reply.usage.output_tokens == usage["outputTokens"]
    assert reply.usage.input_tokens == usage["inputTokens"] + (read or 0) + (written or 0)
    assert reply.usage.total_tokens == usage["totalTokens"]


@pytest.mark.parametrize("name", ANSWERS)
def test_whole_answers_are_read_alike(official: Official, name: str) -> None:
    body = whole(*ANSWERS[name])
    official.answer = Wire(body, HEADERS)
    answer = official.call("converse", modelId="m", messages=HI)
    reply = DIALECT.decode(body, HEADERS)
    assert_same(reply, answer["output"]["message"], answer["usage"])
    assert reply.response_status == answer["stopReason"]
    assert reply.stop_reason == STOPS[answer["stopReason"]]
    assert reply.response_id == answer["ResponseMetadata"]["RequestId"]


@pytest.mark.parametrize("name", ANSWERS)
def test_streams_are_read_alike(official: Official, name: str) -> None:
    body = b"".join(streamed(*ANSWERS[name]))
    official.answer = Wire(body, STREAM_HEADERS)
    stream = official.call("converse_stream", modelId="m", messages=HI)["stream"]
    content, stop, usage = _assembled(stream)
    reply = _decoded(body)
    assert_same(reply, {"content": content}, usage)
    assert reply.response_status == stop
    # And a stream says the same as the whole answer.
    assert reply == DIALECT.decode(whole(*ANSWERS[name]), HEADERS)


def _assembled(stream: Iterable[Any]) -> tuple[list[dict[str, Any]], str, dict[str, Any]]:
    """boto3's events put together, as its documentation says."""
    blocks: dict[int, dict[str, Any]] = {}
    arguments: dict[int, str] = {}
    stop = ""
    usage: dict[str, Any] = {}
    for event in stream:
        if "contentBlockStart" in event:
            begun = event["contentBlockStart"]
            blocks[begun["contentBlockIndex"]] = dict(begun["start"])
            arguments[begun["contentBlockIndex"]] = ""
        elif "contentBlockDelta" in event:
            index, delta = (
                event["contentBlockDelta"]["contentBlockIndex"],
                event["contentBlockDelta"],
            )
            _grow(blocks.setdefault(index, {}), delta["delta"], arguments, index)
        elif "messageStop" in event:
            stop = event["messageStop"]["stopReason"]
        elif "metadata" in event:
            usage = event["metadata"]["usage"]
    for index, text in arguments.items():
        blocks[index]["toolUse"]["input"] = msgspec.json.decode(text or "{}")
    return [blocks[index] for index in sorted(blocks)], stop, usage


def _grow(block: dict[str, Any], delta: Any, arguments: dict[int, str], index: int) -> None:
    if "text" in delta:
        block["text"] = block.get("text", "") + delta["text"]
    elif "toolUse" in delta:
        arguments[index] += delta["toolUse"]["input"]
    elif "redactedContent" in delta["reasoningContent"]:
        block["reasoningContent"] = dict(delta["reasoningContent"])
    else:
        inner = block.setdefault("reasoningContent", {}).setdefault("reasoningText", {"text": ""})
        inner["text"] += delta["reasoningContent"].get("text", "")
        inner.update({k: v for k, v in delta["reasoningContent"].items() if k == "signature"})


def _response(error: Any) -> Any:
    return error.response


def _decoded(body: bytes) -> Reply:
    decoder = DIALECT.stream_decoder(HEADERS)
    events = decoder.feed(AWSEventStreamDecoder().feed(body))
    assert decoder.finish() == []
    last = events[-1]
    assert isinstance(last, Finished)
    return last.reply


IN_STREAM: Mapping[str, tuple[type[PenstockError], bool]] = {
    "internalServerException": (ProviderUnavailable, True),
    "modelStreamErrorException": (ProviderUnavailable, True),
    "validationException": (InvalidRequest, False),
    "throttlingException": (RateLimited, True),
    "serviceUnavailableException": (ProviderUnavailable, True),
}


@pytest.mark.parametrize("name", IN_STREAM)
def test_exceptions_in_a_stream_are_read_alike(official: Official, name: str) -> None:
    parts = streamed(*ANSWERS["text"])[:3]
    body = b"".join([*parts, frames.exception(name, {"message": "It broke."})])
    official.answer = Wire(body, STREAM_HEADERS)
    with pytest.raises(EventStreamError) as raised:
        list(official.call("converse_stream", modelId="m", messages=HI)["stream"])
    assert _response(raised.value)["Error"]["Code"] == name
    decoder = DIALECT.stream_decoder({})
    assert decoder.feed(AWSEventStreamDecoder().feed(body))
    with pytest.raises(PenstockError) as caught:
        decoder.finish()
    kind, retryable = IN_STREAM[name]
    assert (type(caught.value), caught.value.retryable) == (kind, retryable)
    assert _response(raised.value)["Error"]["Message"] in str(caught.value)
    assert name in str(caught.value)


def test_every_exception_of_the_service_model_is_mapped(official: Official) -> None:
    """The list is Amazon's own: a new exception fails here."""
    shapes: Any = official.client.meta.service_model.error_shapes
    expected: dict[str, type[PenstockError]] = {
        "AccessDeniedException": AuthenticationFailed,
        "ConflictException": InvalidRequest,
        "InternalServerException": ProviderUnavailable,
        "ModelErrorException": ProviderUnavailable,
        "ModelNotReadyException": ProviderUnavailable,
        "ModelStreamErrorException": ProviderUnavailable,
        "ModelTimeoutException": ProviderUnavailable,
        "ResourceNotFoundException": ModelNotFound,
        "ServiceQuotaExceededException": RateLimited,
        "ServiceUnavailableException": ProviderUnavailable,
        "ThrottlingException": RateLimited,
        "ValidationException": InvalidRequest,
    }
    statuses = {shape.name: shape.metadata["error"]["httpStatusCode"] for shape in shapes}
    assert statuses.keys() == expected.keys()
    for name, status in statuses.items():
        body, headers = b'{"message": "It broke."}', {"x-amzn-errortype": name}
        official.answer = Wire(body, headers, status)
        with pytest.raises(ClientError) as raised:
            official.call("converse", modelId="m", messages=HI)
        error = DIALECT.error(status, headers, body)
        assert _response(raised.value)["Error"]["Code"] == name
        assert type(error) is expected[name]
        assert error.status == _response(raised.value)["ResponseMetadata"]["HTTPStatusCode"]


@pytest.mark.parametrize(
    ("headers", "body"),
    [
        (
            {"x-amzn-errortype": "ThrottlingException:http://internal.amazon.com/x"},
            b'{"message":"a"}',
        ),
        ({}, b'{"__type": "com.amazon.coral#ThrottlingException", "message": "a"}'),
        ({}, b'{"code": "ThrottlingException", "message": "a"}'),
        ({"x-amzn-errortype": "ThrottlingException"}, b'{"Message": "a"}'),
    ],
)
def test_names_of_exceptions_are_found_where_boto3_finds_them(
    official: Official, headers: dict[str, str], body: bytes
) -> None:
    official.answer = Wire(body, headers, 429)
    with pytest.raises(ClientError) as raised:
        official.call("converse", modelId="m", messages=HI)
    assert _response(raised.value)["Error"]["Code"] == "ThrottlingException"
    error = DIALECT.error(429, headers, body)
    assert type(error) is RateLimited
    assert str(error) == "Bedrock answered 429 (ThrottlingException): a"


def test_models_and_counts_are_read_alike(official: Official) -> None:
    control, body = Official("bedrock"), Bedrock().models()
    control.answer = Wire(body, HEADERS)
    listed = control.call("list_foundation_models")["modelSummaries"]
    models = DIALECT.models.decode(body)
    assert [(each.id, each.owned_by) for each in models] == [
        (each["modelId"], each["providerName"]) for each in listed
    ]
    assert [each.id for each in models] == list(MODEL_IDS)
    official.answer = Wire(b'{"inputTokens": 15}', HEADERS)
    told = official.call("count_tokens", modelId="m", input={"converse": {"messages": HI}})
    assert DIALECT.count is not None
    assert DIALECT.count.decode(b'{"inputTokens": 15}') == told["inputTokens"] == 15


def test_boto3_reads_the_server_under_the_matrix(official: Official) -> None:
    scenario = Scenario(
        reasoning=("Hm", "."),
        text=("The ", "fox"),
        calls=(Call.of("call_a", "weather", {"city": "Paris"}),),
        stop="tool_use",
        tokens=Tokens(9, 8, cached=4),
    )
    body = render.answer(scenario)
    official.answer = Wire(body, HEADERS)
    answer = official.call("converse", modelId="m", messages=HI)
    assert_same(DIALECT.decode(body, HEADERS), answer["output"]["message"], answer["usage"])
    stream = b"".join(frame.data for frame in render.stream(scenario))
    official.answer = Wire(stream, STREAM_HEADERS)
    events = official.call("converse_stream", modelId="m", messages=HI)["stream"]
    content, stop, usage = _assembled(events)
    assert theirs(content) == theirs(answer["output"]["message"]["content"])
    assert (stop, usage) == ("tool_use", answer["usage"])
    failure = Bedrock().error(Failure("rate_limit"), None)
    official.answer = Wire(failure.body, failure.headers, failure.status)
    with pytest.raises(ClientError) as raised:
        official.call("converse", modelId="m", messages=HI)
    assert _response(raised.value)["Error"]["Code"] == "ThrottlingException"
