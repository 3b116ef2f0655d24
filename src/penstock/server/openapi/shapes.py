"""What the doors give that they write without types of their own, for the OpenAPI document."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

from penstock.contract.messages import JSONObject
from penstock.server.doors.openai_responses.encode import ResponseUsage


class ModelCard(msgspec.Struct):
    """A model that may be asked for."""

    id: str
    object: Literal["model"]
    created: int
    owned_by: str


class ModelCards(msgspec.Struct):
    """All of them that the key may use."""

    object: Literal["list"]
    data: list[ModelCard]


class ModelPath(msgspec.Struct):
    """Which model; slashes in its name are written as they are."""

    model: str


class RequestPath(msgspec.Struct):
    """Which request."""

    request_id: str


class Response(msgspec.Struct, kw_only=True):
    """The object of the Responses API, with its output and what it repeats of the request."""

    id: str
    object: Literal["response"]
    created_at: int
    model: str
    status: str
    error: JSONObject | None
    incomplete_details: JSONObject | None
    output: list[JSONObject]
    usage: ResponseUsage | None
    instructions: str | None
    max_output_tokens: int | None
    metadata: JSONObject
    parallel_tool_calls: bool
    temperature: float | None
    tool_choice: str | JSONObject
    tools: list[JSONObject]


class TokenCount(msgspec.Struct):
    """How many tokens the model would read."""

    input_tokens: int


class AnthropicErrorDetail(msgspec.Struct):
    """What went wrong."""

    type: str
    message: str


class AnthropicError(msgspec.Struct):
    """A failure, in Anthropic's shape."""

    type: Literal["error"]
    error: AnthropicErrorDetail
    request_id: str | None


class SamplingErrorDetail(msgspec.Struct):
    """What went wrong, as JSON-RPC says it."""

    code: int
    message: str
    data: dict[str, Any]


class SamplingError(msgspec.Struct):
    """A failure at the sampling door."""

    error: SamplingErrorDetail


class Params(msgspec.Struct, kw_only=True):
    """MCP's params of `sampling/createMessage`, and some fields of our own beside them."""

    messages: list[dict[str, Any]]
    maxTokens: int | None = None  # noqa: N815 - as MCP spells it
    systemPrompt: str | None = None  # noqa: N815
    temperature: float | None = None
    stopSequences: list[str] | None = None  # noqa: N815
    modelPreferences: dict[str, Any] | None = None  # noqa: N815
    includeContext: Literal["none", "thisServer", "allServers"] | None = None  # noqa: N815
    model: str | None = None
    timeout: float | None = None
    stream: bool | None = None
    provider: str | None = msgspec.field(default=None, name="_provider")
    timeout_ms: Annotated[
        float | Literal["infinity"] | None, msgspec.Meta(description="In milliseconds.")
    ] = msgspec.field(default=None, name="_timeout")
    other_stream: bool | None = msgspec.field(default=None, name="_stream")


class Result(msgspec.Struct, kw_only=True):
    """MCP's result, with usage and metadata."""

    role: Literal["assistant"]
    content: dict[str, Any] | list[dict[str, Any]]
    model: str
    stopReason: str | msgspec.UnsetType = msgspec.UNSET  # noqa: N815
    usage: dict[str, Any]
    metadata: dict[str, Any] = msgspec.field(name="_metadata")


class Health(msgspec.Struct):
    """The process is alive."""

    status: Literal["ok"]
    version: str


class Home(msgspec.Struct):
    """What answers at this address."""

    name: str
    endpoints: dict[str, str]
    """What each method and path is for."""


class Readiness(msgspec.Struct, kw_only=True):
    """Whether a request would be served now; the rest is for operators."""

    status: Literal["ready", "unready"]
    problems: list[str] | msgspec.UnsetType = msgspec.UNSET
    budgets: int | msgspec.UnsetType | None = msgspec.UNSET
    targets: list[dict[str, Any]] | msgspec.UnsetType = msgspec.UNSET
    background: list[dict[str, Any]] | msgspec.UnsetType = msgspec.UNSET
