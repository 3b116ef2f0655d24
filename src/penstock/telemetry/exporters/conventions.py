"""The names of OpenTelemetry's conventions for generative AI, and our values in their words.

They are written out here: the package of constants declares all of them deprecated since the
conventions have moved to a repository of their own, and no released package has followed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from penstock.contract.exchange import Usage
from penstock.contract.messages import (
    Audio,
    Content,
    Image,
    JSONObject,
    MCPCall,
    Message,
    Reasoning,
    Text,
    ToolResult,
    ToolUse,
)

ERROR_TYPE = "error.type"
HTTP_STATUS = "http.response.status_code"
INPUT_MESSAGES = "gen_ai.input.messages"
OPERATION = "gen_ai.operation.name"
OUTPUT_MESSAGES = "gen_ai.output.messages"
PROVIDER = "gen_ai.provider.name"
REQUEST_MAX_TOKENS = "gen_ai.request.max_tokens"
REQUEST_MODEL = "gen_ai.request.model"
REQUEST_STREAM = "gen_ai.request.stream"
REQUEST_TEMPERATURE = "gen_ai.request.temperature"
RESPONSE_FINISH_REASONS = "gen_ai.response.finish_reasons"
RESPONSE_FIRST_CHUNK = "gen_ai.response.time_to_first_chunk"
RESPONSE_ID = "gen_ai.response.id"
RESPONSE_MODEL = "gen_ai.response.model"
SYSTEM_INSTRUCTIONS = "gen_ai.system_instructions"
TOKEN_TYPE = "gen_ai.token.type"  # noqa: S105 - a kind of token, and no secret

# What the conventions have no word for.
ATTEMPT = "penstock.attempt"
ATTEMPTS = "penstock.attempts"
COST_USD = "penstock.cost_usd"
DROPPED_OPTIONS = "penstock.dropped_options"
ADAPTED = "penstock.adapted"
ESTIMATED = "penstock.usage.estimated"
IMPLAUSIBLE = "penstock.usage.implausible"
OUTCOME = "penstock.outcome"
PROVIDER_CONFIGURED = "penstock.provider"
REQUEST_ID = "penstock.request_id"
RETRYABLE = "penstock.retryable"

OTLP_ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"
"""The standard variable for the address of a collector."""

OPERATION_DURATION = "gen_ai.client.operation.duration"
TIME_TO_FIRST_CHUNK = "gen_ai.client.operation.time_to_first_chunk"
TOKEN_USAGE = "gen_ai.client.token.usage"  # noqa: S105 - a kind of token, and no secret
ATTEMPT_DURATION = "penstock.attempt.duration"
COST = "penstock.cost"
SECONDS_BUCKETS = tuple(0.01 * 2**step for step in range(14))
TOKEN_BUCKETS = tuple(4**step for step in range(14))

PROVIDERS: Mapping[str, str] = {
    "bedrock": "aws.bedrock",
    "gemini": "gcp.gemini",
    "mistral": "mistral_ai",
    "moonshot": "moonshot_ai",
    "xai": "x_ai",
}
"""What the conventions call a kind of provider, where they do not call it as we do."""

_FINISH_REASONS: Mapping[str, str] = {
    "endTurn": "stop",
    "stopSequence": "stop",
    "maxTokens": "length",
    "toolUse": "tool_call",
}


def finish_reason(stop_reason: str) -> str:
    """A stop reason in the conventions' words; one that they do not know stays as it is."""
    return _FINISH_REASONS.get(stop_reason, stop_reason)


def usage_attributes(usage: Usage) -> Iterator[tuple[str, int]]:
    """Every count that is known."""
    for name, tokens in (
        ("gen_ai.usage.input_tokens", usage.input_tokens),
        ("gen_ai.usage.output_tokens", usage.output_tokens),
        ("gen_ai.usage.cache_read.input_tokens", usage.cached_input_tokens),
        ("gen_ai.usage.cache_creation.input_tokens", usage.cache_write_tokens),
        ("gen_ai.usage.reasoning.output_tokens", usage.reasoning_tokens),
    ):
        if tokens is not None:
            yield name, tokens


def input_messages(messages: Sequence[Message]) -> list[JSONObject]:
    """The conversation in the conventions' form."""
    return [{"role": _role(message), "parts": parts_of(message.content)} for message in messages]


def parts_of(content: Sequence[Content]) -> list[JSONObject]:
    """Parts in the conventions' form; of pictures and sounds only that they were there."""
    return [shown for part in content for shown in _part(part)]


def _role(message: Message) -> str:
    results = all(isinstance(part, ToolResult) for part in message.content)
    return "tool" if message.content and results else message.role


def _part(part: Content) -> list[JSONObject]:
    match part:
        case Text(text=text):
            return [{"type": "text", "content": text}]
        case Reasoning(text=text):
            return [{"type": "reasoning", "content": text}]
        case Image(url=str(url)):
            return [{"type": "uri", "modality": "image", "uri": url}]
        case Image():
            return [_blob("image", part.mime_type, part.data)]
        case Audio():
            return [_blob("audio", part.mime_type, part.data)]
        case ToolUse(id=id, name=name, input=arguments):
            return [{"type": "tool_call", "id": id, "name": name, "arguments": arguments}]
        case ToolResult(tool_use_id=id):
            return [{"type": "tool_call_response", "id": id, "response": part.text}]
        case MCPCall(id=id, name=name):
            called: dict[str, Any] = {"type": "mcp", "server": part.server, "arguments": part.input}
            answered = {"type": "mcp", "content": part.text}
            return [
                {"type": "server_tool_call", "id": id, "name": name, "server_tool_call": called},
                {
                    "type": "server_tool_call_response",
                    "id": id,
                    "server_tool_call_response": answered,
                },
            ]


def _blob(modality: str, mime_type: str, data: str) -> JSONObject:
    # Spans are no place for megabytes: the size stands for the bytes.
    size = len(data) * 3 // 4
    return {
        "type": "blob",
        "modality": modality,
        "mime_type": mime_type,
        "content": "",
        "bytes": size,
    }
