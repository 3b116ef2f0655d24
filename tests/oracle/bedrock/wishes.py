"""Builders for one wish in two languages: Penstock's, and that of Amazon's client."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from typing import Any

from penstock import (
    Audio,
    Image,
    Message,
    Text,
    ToolDefinition,
    ToolResult,
    ToolUse,
    assistant,
    user,
)
from penstock.contract.exchange import SamplingRequest

NOVA = "amazon.nova-micro-v1:0"
PLAIN = "test-model"
SONNET = "eu.anthropic.claude-sonnet-5"
OPUS = "global.anthropic.claude-opus-5-5"
OLD = "anthropic.claude-sonnet-4-5-20250929-v1:0"
ARN = "arn:aws:bedrock:eu-west-1:123456789012:application-inference-profile/abc123"

PNG = b"\x89PNG\r\n\x1a\npixels"
WAV = b"RIFF\x00\x00\x00\x00WAVEsound"
HI = [{"role": "user", "content": [{"text": "Hi"}]}]
SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}
WEATHER = ToolDefinition("weather", "The weather.", SCHEMA)
CLOCK = ToolDefinition("clock", "", {"type": "object"})
SPEC = {
    "toolSpec": {
        "name": "weather",
        "description": "The weather.",
        "inputSchema": {"json": SCHEMA},
    }
}
CLOCK_SPEC = {"toolSpec": {"name": "clock", "inputSchema": {"json": {"type": "object"}}}}
POINT = {"cachePoint": {"type": "default"}}
USE = ToolUse("tooluse_1", "weather", {"city": "Paris"})
USE_BLOCK = {"toolUse": {"toolUseId": "tooluse_1", "name": "weather", "input": {"city": "Paris"}}}


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def picture(data: bytes = PNG, kind: str = "png") -> Image:
    return Image(data=b64(data), mime_type=f"image/{kind}")


def picture_block(kind: str = "png") -> dict[str, Any]:
    return {"image": {"format": kind, "source": {"bytes": PNG}}}


def sound_block(kind: str) -> dict[str, Any]:
    return {"audio": {"format": kind, "source": {"bytes": WAV}}}


@dataclass(frozen=True, slots=True)
class Intent:
    """One wish; `official` are the arguments of boto3's `converse`."""

    id: str
    request: SamplingRequest
    official: dict[str, Any]
    model: str = PLAIN


def intent(
    id: str,
    *messages: Message,
    model: str = PLAIN,
    say: list[dict[str, Any]] | None = None,
    limit: dict[str, Any] | None = None,
    official: dict[str, Any] | None = None,
    **options: Any,
) -> Intent:
    asked: dict[str, Any] = {"max_tokens": 64, **options}
    inference = {"maxTokens": asked["max_tokens"], **(limit or {})}
    return Intent(
        id,
        SamplingRequest(messages=messages or (user("Hi"),), **asked),
        {"messages": say or HI, "inferenceConfig": inference, **(official or {})},
        model,
    )


def turns(*blocks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [
        {"role": ("user", "assistant")[at % 2], "content": content}
        for at, content in enumerate(blocks)
    ]


def tools(*specs: dict[str, Any], choice: dict[str, Any] | None = None) -> dict[str, Any]:
    config: dict[str, Any] = {"tools": list(specs)}
    return {"toolConfig": config | ({"toolChoice": choice} if choice else {})}


def fields(**values: Any) -> dict[str, Any]:
    return {"additionalModelRequestFields": values}


def history(*content: Any, failed: bool = False, **structured: Any) -> tuple[Message, ...]:
    result = ToolResult("tooluse_1", content, is_error=failed, **structured)
    return (user("Weather?"), assistant(USE), user(result))


def told(*content: dict[str, Any], **status: str) -> list[dict[str, Any]]:
    result = {"toolResult": {"toolUseId": "tooluse_1", "content": list(content), **status}}
    return turns([{"text": "Weather?"}], [USE_BLOCK], [result])


def output(schema: dict[str, Any], **names: str) -> dict[str, Any]:
    inner = {"schema": json.dumps(schema), "name": "answer", **names}
    text_format = {"type": "json_schema", "structure": {"jsonSchema": inner}}
    return {"outputConfig": {"textFormat": text_format}}


def thought(signature: str) -> dict[str, Any]:
    return {"reasoningContent": {"reasoningText": {"text": "Hm.", "signature": signature}}}


def sound(kind: str) -> Audio:
    return Audio(b64(WAV), kind)


CALLS = (USE, ToolUse("tooluse_2", "clock", {}))
CALL_BLOCKS: list[dict[str, Any]] = [
    USE_BLOCK,
    {"toolUse": {"toolUseId": "tooluse_2", "name": "clock", "input": {}}},
]
RESULTS = (ToolResult("tooluse_1", (Text("Sun"),)), ToolResult("tooluse_2", (Text("12:00"),)))
RESULT_BLOCKS = [
    {"toolResult": {"toolUseId": "tooluse_1", "content": [{"text": "Sun"}]}},
    {"toolResult": {"toolUseId": "tooluse_2", "content": [{"text": "12:00"}]}},
]
