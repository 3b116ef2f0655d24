"""One exchange with a model: the request that goes in, and the result that comes out."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias, cast

import msgspec

from penstock.contract.adaptation import AdaptMode
from penstock.contract.checks.lengths import NAME, cut
from penstock.contract.checks.spelling import NameSuggesting
from penstock.contract.mcp.sampling import (
    MCPParams,
    decode_params,
    read_params,
    write_extras,
    write_result,
)
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
from penstock.contract.metadata import Metadata, Usage
from penstock.contract.options import (
    Extra,
    IncludeContext,
    MCPTool,
    ModelPreferences,
    OutputSchema,
    ReasoningLevel,
    ToolChoice,
    ToolDefinition,
)
from penstock.contract.serializing import Serializable, known

StopReason: TypeAlias = Literal["endTurn", "stopSequence", "maxTokens", "toolUse"] | str


def _cut_names(answer: msgspec.Struct, *fields: str) -> None:
    for field in fields:
        name: str | None = getattr(answer, field)
        if name is not None and len(name) > NAME:
            msgspec.structs.force_setattr(answer, field, cut(name))


class SamplingRequest(
    msgspec.Struct, metaclass=NameSuggesting, frozen=True, kw_only=True, omit_defaults=True
):
    """Everything one call may say; the pipeline passes this one value from stage to stage."""

    messages: tuple[Message, ...]
    max_tokens: int
    model: str | None = None
    fallback_models: tuple[str, ...] = ()
    """Models to try after `model`, in this order; `model=[...]` of the calls sets both."""
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
    extra: Extra | None = None
    metadata: JSONObject = msgspec.field(default_factory=dict[str, Any])
    timeout: float | None = None
    ignore_invalid_options: bool = False
    adapt: AdaptMode = "refuse"
    """What becomes of advisory options that a target lacks: the nearest value is sent or none
    ("adapt"), or the request is refused. `ignore_invalid_options` goes further."""
    meta: JSONObject | None = None
    """The `_meta` of an MCP request: a progress token, a protocol version, whatever came."""

    @classmethod
    def from_mcp(cls, params: MCPParams) -> SamplingRequest:
        """The request in MCP's own JSON: the params of `sampling/createMessage`, of either era.

        Raises InvalidRequest with every problem, each with its path as MCP spells it.
        """
        return cls(**read_params(decode_params(params)))

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


class TokenCount(Serializable, frozen=True):
    """How many tokens a model reads for a request, and who says so."""

    tokens: int
    estimated: bool
    """Whether it is our estimate, where the provider gives no count of its own."""
    provider: str
    model: str

    def to_dict(self) -> JSONObject:
        """The count as JSON."""
        return msgspec.structs.asdict(self)


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
    extra: Extra | None = None
    """What the answer said beyond this, for a caller who speaks the same dialect."""
    stop_detail: str | None = None
    """See `Metadata.stop_detail`."""
    stop_sequence: str | None = None
    """The stop sequence that ended the answer, where that is known."""

    def __post_init__(self) -> None:
        """Cut the names that the provider chose: they are kept, logged and sent as headers."""
        _cut_names(self, "model", "stop_reason", "response_id", "response_status", "stop_detail")

    @property
    def text(self) -> str:
        """The text parts, joined."""
        return join_text(self.content)


class Result(Serializable, frozen=True, dict=True):
    """The answer to a request."""

    content: tuple[Content, ...]
    model: str
    stop_reason: StopReason
    metadata: Metadata
    role: Literal["assistant"] = "assistant"
    extra: Extra | None = None
    """What the provider's whole answer said beyond this, if the request came with an `Extra` of its
    dialect."""
    stop_sequence: str | None = None
    """The stop sequence that ended the answer, where that is known."""

    @property
    def text(self) -> str:
        """The text parts, joined."""
        return join_text(self.content)

    @property
    def parsed(self) -> Any:
        """The value of the type that was given as `output_schema`; None without one.

        It is no part of the JSON of the result, which has its text. None also where the model calls
        tools instead of an answer.
        """
        return self.__dict__.get("parsed")

    def with_parsed(self, value: Any) -> Result:
        """The same result with this value as `parsed`."""
        copy = msgspec.structs.replace(self)
        cast(JSONObject, copy.__dict__)["parsed"] = value
        return copy

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle `parsed` too."""
        make, values = cast(tuple[Any, Any], super().__reduce__())
        return make, values, dict(self.__dict__) or None

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

    def to_dict(self) -> JSONObject:
        """The answer as JSON: its text, its parts in MCP's form, and its metadata as numbers."""
        document: JSONObject = {
            "role": self.role,
            "text": self.text,
            "content": list(msgspec.to_builtins(self.content)),
            "model": self.model,
            "stop_reason": self.stop_reason,
            "metadata": self.metadata.to_dict(),
        }
        if self.stop_sequence is not None:
            document["stop_sequence"] = self.stop_sequence
        return document

    def to_mcp(self, *, extras: bool = False, single: bool = False) -> JSONObject:
        """The result of `sampling/createMessage`: `role`, `content`, `model` and `stopReason`.

        The content is one block, or a list when there is more to say than one can hold; thinking
        is left out. `single` is for peers that know no lists: they get all text in one block, or
        the first block when there is no text. `extras` adds `usage` and `_metadata`.
        """
        written = write_result(self.content, self.model, self.stop_reason, single=single)
        return written | write_extras(self.metadata) if extras else written


class EmbeddingRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Texts to be turned into vectors."""

    texts: tuple[str, ...]
    model: str | None = None
    dimensions: int | None = None
    timeout: float | None = None
    ignore_invalid_options: bool = False


class Vectors(msgspec.Struct, frozen=True):
    """What a provider answered to an embedding request: a vector a text, in the texts' order."""

    vectors: tuple[tuple[float, ...], ...]
    model: str
    usage: Usage = Usage()
    api_calls: int = 1

    def __post_init__(self) -> None:
        """Cut the name that the provider chose."""
        _cut_names(self, "model")


class EmbeddingResult(Serializable, frozen=True):
    """A vector for each text, in the texts' order."""

    vectors: tuple[tuple[float, ...], ...]
    model: str
    metadata: Metadata

    def to_dict(self) -> JSONObject:
        """The vectors as lists, and the metadata as numbers."""
        return {
            "vectors": [list(vector) for vector in self.vectors],
            "model": self.model,
            "metadata": self.metadata.to_dict(),
        }


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


AnyRequest: TypeAlias = SamplingRequest | EmbeddingRequest | TranscriptionRequest
"""Whatever the pipeline runs."""


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

    def __post_init__(self) -> None:
        """Cut the names that the provider chose."""
        _cut_names(self, "model", "language", "response_id", "response_status")


class TranscriptionResult(Serializable, frozen=True):
    """The words of a recording."""

    text: str
    model: str
    metadata: Metadata
    language: str | None = None
    """The language that was heard, in the provider's own words: a code or a name."""
    duration_s: float | None = None
    segments: tuple[TranscriptSegment, ...] = ()
    """Where each piece of the text is in the recording, from models that say so."""

    def to_dict(self) -> JSONObject:
        """The transcript as JSON, its metadata as numbers."""
        return known(
            {
                "text": self.text,
                "model": self.model,
                "language": self.language,
                "duration_s": self.duration_s,
                "segments": list(msgspec.to_builtins(self.segments)),
                "metadata": self.metadata.to_dict(),
            }
        )

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
