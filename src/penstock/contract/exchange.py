"""One exchange with a model: the request that goes in, and the result that comes out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

import msgspec

from penstock.contract.messages import (
    Audio,
    Content,
    JSONObject,
    MCPCall,
    Message,
    Reasoning,
    Text,
    ToolUse,
    join_text,
)
from penstock.contract.options import (
    IncludeContext,
    MCPTool,
    ModelPreferences,
    OutputSchema,
    ReasoningLevel,
    ToolChoice,
    ToolDefinition,
)

StopReason: TypeAlias = Literal["endTurn", "stopSequence", "maxTokens", "toolUse"] | str


class SamplingRequest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Everything one call may say; the pipeline passes this one value from stage to stage."""

    messages: tuple[Message, ...]
    max_tokens: int
    model: str | None = None
    system_prompt: str | None = None
    temperature: float | None = None
    stop_sequences: tuple[str, ...] = ()
    model_preferences: ModelPreferences | None = None
    include_context: IncludeContext = "none"
    tools: tuple[ToolDefinition, ...] = ()
    mcp_tools: tuple[MCPTool, ...] = ()
    tool_choice: ToolChoice | None = None
    parallel_tools: bool | None = None
    output_schema: OutputSchema | None = None
    reasoning_level: ReasoningLevel | None = None
    metadata: JSONObject = msgspec.field(default_factory=dict[str, Any])
    timeout: float | None = None
    ignore_invalid_options: bool = False

    def with_schema_in_words(self, *, in_system_prompt: bool = True) -> SamplingRequest:
        """The same request, its schema asked for in the prompt instead of by the API's own way."""
        if self.output_schema is None:
            return self
        asked = self.output_schema.instruction
        if in_system_prompt:
            system = f"{self.system_prompt}\n\n{asked}" if self.system_prompt else asked
            return msgspec.structs.replace(self, output_schema=None, system_prompt=system)
        *earlier, last = self.messages
        last = msgspec.structs.replace(last, content=(*last.content, Text(asked)))
        return msgspec.structs.replace(self, output_schema=None, messages=(*earlier, last))


class Usage(msgspec.Struct, frozen=True, omit_defaults=True):
    """Tokens as the provider counted them.

    `input_tokens` is the whole prompt, cached part included. None means that the provider did not
    say; an estimate of ours is marked by `estimated` and never mixed with a count.
    """

    input_tokens: int | None = None
    output_tokens: int | None = None
    cached_input_tokens: int | None = None
    cache_write_tokens: int | None = None
    reasoning_tokens: int | None = None
    estimated: bool = False

    @property
    def total_tokens(self) -> int | None:
        """Input and output together; None when neither is known."""
        return _sum(self.input_tokens, self.output_tokens)

    def __add__(self, other: Usage) -> Usage:
        """The usage of both calls; an estimate makes the sum an estimate."""
        return Usage(
            _sum(self.input_tokens, other.input_tokens),
            _sum(self.output_tokens, other.output_tokens),
            _sum(self.cached_input_tokens, other.cached_input_tokens),
            _sum(self.cache_write_tokens, other.cache_write_tokens),
            _sum(self.reasoning_tokens, other.reasoning_tokens),
            self.estimated or other.estimated,
        )


def _sum(first: int | None, second: int | None) -> int | None:
    if first is None:
        return second
    return first if second is None else first + second


class TokenCount(msgspec.Struct, frozen=True):
    """How many tokens a model reads for a request, and who says so."""

    tokens: int
    estimated: bool
    """Whether it is our estimate, where the provider gives no count of its own."""
    provider: str
    model: str


class Reply(msgspec.Struct, frozen=True):
    """What a provider answered to one attempt, before the engine adds timings and cost."""

    content: tuple[Content, ...]
    model: str
    stop_reason: StopReason
    usage: Usage
    response_id: str | None = None
    response_status: str | None = None
    dropped_options: tuple[str, ...] = ()
    """What the provider would not take, and was asked again without."""
    api_calls: int = 1

    @property
    def text(self) -> str:
        """The text parts, joined."""
        return join_text(self.content)


class Metadata(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What there is to know about a call; `as_dict()` gives the stable string keys."""

    provider: str
    model: str
    request_id: str
    latency_ms: int
    first_token_ms: int | None = None
    usage: Usage = Usage()
    api_calls: int = 1
    tool_rounds: int = 0
    attempts: int = 1
    response_id: str | None = None
    response_status: str | None = None
    embedding_count: int | None = None
    embedding_dims: int | None = None
    cost_nanos: int | None = None
    dropped_options: tuple[str, ...] = ()

    @property
    def cost_usd(self) -> float | None:
        """The cost for people; sums of money are kept in integer nano-dollars (`cost_nanos`)."""
        return None if self.cost_nanos is None else self.cost_nanos / 1e9

    def as_dict(self) -> dict[str, str]:
        """Every known fact as text under its stable key; what is unknown is absent."""
        facts: Mapping[str, object] = {
            "provider": self.provider,
            "model": self.model,
            "request_id": self.request_id,
            "latency_ms": self.latency_ms,
            "first_token_ms": self.first_token_ms,
            "input_tokens": self.usage.input_tokens,
            "output_tokens": self.usage.output_tokens,
            "total_tokens": self.usage.total_tokens,
            "cached_input_tokens": self.usage.cached_input_tokens,
            "reasoning_tokens": self.usage.reasoning_tokens,
            "api_calls": self.api_calls,
            "tool_rounds": self.tool_rounds,
            "attempts": self.attempts,
            "response_id": self.response_id,
            "response_status": self.response_status,
            "embedding_count": self.embedding_count,
            "embedding_dims": self.embedding_dims,
            "cost_usd": None if self.cost_nanos is None else nanos_to_text(self.cost_nanos),
            "dropped_options": ",".join(self.dropped_options) or None,
        }
        return {key: str(value) for key, value in facts.items() if value is not None}


def nanos_to_text(nanos: int) -> str:
    """Nano-dollars as an exact decimal number of dollars, without trailing zeros."""
    sign, nanos = ("-", -nanos) if nanos < 0 else ("", nanos)
    whole, fraction = divmod(nanos, 1_000_000_000)
    digits = f"{fraction:09d}".rstrip("0")
    return f"{sign}{whole}.{digits}" if digits else f"{sign}{whole}"


class Result(msgspec.Struct, frozen=True):
    """The answer to a request."""

    content: tuple[Content, ...]
    model: str
    stop_reason: StopReason
    metadata: Metadata
    role: Literal["assistant"] = "assistant"

    @property
    def text(self) -> str:
        """The text parts, joined."""
        return join_text(self.content)

    @property
    def reasoning(self) -> str:
        """The model's visible thinking, joined."""
        return "".join(part.text for part in self.content if isinstance(part, Reasoning))

    @property
    def tool_uses(self) -> tuple[ToolUse, ...]:
        """The tool calls that the model asks for."""
        return tuple(part for part in self.content if isinstance(part, ToolUse))

    @property
    def mcp_calls(self) -> tuple[MCPCall, ...]:
        """The tools of MCP servers that the provider has called on the way to the answer."""
        return tuple(part for part in self.content if isinstance(part, MCPCall))

    @property
    def usage(self) -> Usage:
        """Tokens as the provider counted them."""
        return self.metadata.usage

    @property
    def request_id(self) -> str:
        """Names this request in logs, in `cancel_request` and in feedback."""
        return self.metadata.request_id

    @property
    def cost_usd(self) -> float | None:
        """What the call cost, or None when the price is unknown."""
        return self.metadata.cost_usd

    @property
    def message(self) -> Message:
        """The answer as a turn, ready to be appended to the history."""
        return Message("assistant", self.content)


class EmbeddingRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Texts to be turned into vectors."""

    texts: tuple[str, ...]
    model: str | None = None
    dimensions: int | None = None
    timeout: float | None = None
    ignore_invalid_options: bool = False


class Vectors(msgspec.Struct, frozen=True):
    """What a provider answered to one embedding call: a vector a text, in the texts' order."""

    vectors: tuple[tuple[float, ...], ...]
    model: str
    usage: Usage = Usage()


class EmbeddingResult(msgspec.Struct, frozen=True):
    """A vector for each text, in the texts' order."""

    vectors: tuple[tuple[float, ...], ...]
    model: str
    metadata: Metadata


class TranscriptionRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A recording whose words are wanted.

    `language` is the code of the language that is spoken, such as `en`; `prompt` is what helps to
    understand it: names, terms, or the text that came before.
    """

    audio: Audio
    model: str | None = None
    language: str | None = None
    prompt: str | None = None
    temperature: float | None = None
    timeout: float | None = None
    ignore_invalid_options: bool = False


class TranscriptSegment(msgspec.Struct, frozen=True, omit_defaults=True):
    """A piece of a transcript with its place in the recording, in seconds."""

    text: str
    start_s: float
    end_s: float
    speaker: str | None = None
    """A label, from models that tell speakers apart."""


class Transcript(msgspec.Struct, frozen=True, kw_only=True):
    """What a provider answered to one transcription; what it did not say is None, or empty."""

    text: str
    model: str = ""
    language: str | None = None
    """The language that was heard, in the provider's own words: a code or a name."""
    duration_s: float | None = None
    segments: tuple[TranscriptSegment, ...] = ()
    usage: Usage = Usage()
    response_id: str | None = None
    response_status: str | None = None
    dropped_options: tuple[str, ...] = ()
    api_calls: int = 1


class TranscriptionResult(msgspec.Struct, frozen=True):
    """The words of a recording."""

    text: str
    model: str
    metadata: Metadata
    language: str | None = None
    """The language that was heard, in the provider's own words: a code or a name."""
    duration_s: float | None = None
    segments: tuple[TranscriptSegment, ...] = ()
    """Where each piece of the text is in the recording, from models that say so."""

    @property
    def usage(self) -> Usage:
        """Tokens as the provider counted them; none where it charges by the minute."""
        return self.metadata.usage

    @property
    def request_id(self) -> str:
        """Names this request in logs."""
        return self.metadata.request_id

    @property
    def cost_usd(self) -> float | None:
        """What the call cost, or None when the price is unknown."""
        return self.metadata.cost_usd
