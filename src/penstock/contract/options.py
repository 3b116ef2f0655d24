"""What a caller may ask of a model beside the messages, and what a model is able to do."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias

import msgspec

from penstock.contract.checks.spelling import NameSuggesting
from penstock.contract.messages import Audio, Image, JSONObject

ReasoningLevel: TypeAlias = Literal["none", "minimal", "low", "med", "high", "xhigh", "max"]
IncludeContext: TypeAlias = Literal["none", "thisServer", "allServers"]
ToolMode: TypeAlias = Literal["auto", "required", "none", "tool"]
MCPMode: TypeAlias = Literal["auto", "native", "adapter"]

_AFTER_HOST = re.compile(r"[/?#\\]")


class ToolDefinition(
    msgspec.Struct, metaclass=NameSuggesting, frozen=True, rename="camel", omit_defaults=True
):
    """A tool as the model sees it: a name, what it does, and the JSON Schema of its arguments."""

    name: str
    description: str = ""
    input_schema: JSONObject = msgspec.field(default_factory=lambda: {"type": "object"})
    strict: bool | None = None
    meta: JSONObject | None = msgspec.field(default=None, name="_meta")


class MCPTool(msgspec.Struct, metaclass=NameSuggesting, frozen=True, omit_defaults=True):
    """The tools of one MCP server, which stands at `url` and is called `name` towards the model.

    `http_headers` go to that server with every call; their values are shown nowhere. Only the
    `allowed_tools` are offered, or all. `mode` says who connects: the provider ("native"), Penstock
    ("adapter", for generators), or whichever is able to ("auto").
    """

    url: str
    name: str
    http_headers: Mapping[str, str] = msgspec.field(default_factory=dict[str, str])
    allowed_tools: Sequence[str] | None = None
    mode: MCPMode = "auto"
    allow_link_local: bool = False
    """Whether the server may stand where clouds keep their metadata services; never, as a rule."""
    public_only: bool = False
    """Whether we connect only by TLS to an address of the internet, wherever the name leads: for
    addresses that strangers have chosen."""

    def __post_init__(self) -> None:
        """Keep copies, so that the caller's own list and dict may change."""
        if self.allowed_tools is not None and not isinstance(self.allowed_tools, str):
            msgspec.structs.force_setattr(self, "allowed_tools", tuple(self.allowed_tools))
        msgspec.structs.force_setattr(self, "http_headers", dict(self.http_headers))

    def suits(self, able: Capabilities) -> bool:
        """Whether a provider that is able to do this can be told all about the server."""
        only_token = all(
            name.lower() == "authorization" and value.lower().startswith("bearer ")
            for name, value in self.http_headers.items()
        )
        return (
            able.native_mcp
            and (able.mcp_headers or only_token)
            and (able.mcp_allow_list or self.allowed_tools is None)
        )

    @property
    def place(self) -> str:
        """The address as it may be shown: some servers' keys are a part of the path or query."""
        scheme, separator, rest = self.url.partition("://")
        host, *more = _AFTER_HOST.split(rest, maxsplit=1)
        return f"{scheme}{separator}{host.rpartition('@')[2]}{'/...' if any(more) else ''}"

    def __repr__(self) -> str:
        """With the names of the headers, for their values are secrets."""
        shown = (f"{name}={value!r}" for name, value in self.__rich_repr__())
        return f"MCPTool({', '.join(shown)})"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        """What `rich` shows: the same as `repr`."""
        return [
            ("url", self.place),
            ("name", self.name),
            ("http_headers", sorted(self.http_headers)),
            ("allowed_tools", self.allowed_tools),
            ("mode", self.mode),
        ]


class ToolChoice(msgspec.Struct, metaclass=NameSuggesting, frozen=True, omit_defaults=True):
    """Whether the model may, must or must not call a tool; `ToolChoice.tool(name)` forces one."""

    mode: ToolMode = "auto"
    name: str | None = None

    @classmethod
    def tool(cls, name: str) -> ToolChoice:
        """Exactly this tool."""
        return cls("tool", name)

    @classmethod
    def of(cls, value: ToolChoice | Literal["auto", "required", "none"]) -> ToolChoice:
        """Accept the plain words as well."""
        return value if isinstance(value, ToolChoice) else cls(value)


class OutputSchema(msgspec.Struct, metaclass=NameSuggesting, frozen=True, omit_defaults=True):
    """The JSON Schema that the answer must fit."""

    schema: JSONObject
    name: str = "answer"
    description: str = ""
    strict: bool = True
    prompted: bool = False
    """Whether a model without a schema mode may be asked for it in the prompt: then nothing but the
    caller's own validation makes the answer fit."""

    @property
    def instruction(self) -> str:
        """The schema in words, for where it can only be asked for in the prompt."""
        about = f" ({self.description})" if self.description else ""
        return (
            f"When you give your final answer{about}, it must be one JSON value that fits the JSON "
            "Schema below, without any other text around it and without a code fence.\n"
            f"{msgspec.json.encode(self.schema).decode()}"
        )


class Extra(msgspec.Struct, metaclass=NameSuggesting, frozen=True, omit_defaults=True):
    """Fields of one dialect's own, for which there is no option here; they travel as they are.

    In a request, `fields` stand at the top of the body that a target of this `dialect` gets
    ("openai-chat", "openai-responses" or "anthropic"), beside what Penstock writes there, which
    they cannot replace. A target that speaks otherwise does not support them, except for those
    that are `optional`: without them the answer is the same, so there they are left out. In a
    result, `fields` are what the provider's whole answer said and the result has no place for.
    """

    dialect: str
    fields: JSONObject = msgspec.field(default_factory=dict[str, Any])
    optional: frozenset[str] = frozenset()
    inner: frozenset[str] = frozenset()
    """Those that have no place at the top of the body: only targets that name their place in
    `Capabilities.sampling_fields` get them."""
    placed: JSONObject = msgspec.field(default_factory=dict[str, Any])
    """Values by their place in the body, such as `generationConfig.topP`: the caller's own options
    in the words of the target. The pool fills it in."""

    def foreign_to(self, dialect: str | None) -> tuple[str, ...]:
        """The fields that a target which speaks this cannot take, and not do without."""
        if dialect == self.dialect:
            return ()
        return tuple(name for name in self.fields if name not in self.optional)


class ModelPreferences(msgspec.Struct, metaclass=NameSuggesting, frozen=True, omit_defaults=True):
    """What matters when a model is chosen: name hints in order, and three priorities in 0..1."""

    hints: tuple[str, ...] = ()
    cost: float | None = None
    speed: float | None = None
    intelligence: float | None = None


_PATIENCE: Mapping[ReasoningLevel, float] = {
    "none": 1.0,
    "minimal": 1.0,
    "low": 1.0,
    "med": 2.0,
    "high": 4.0,
    "xhigh": 4.0,
    "max": 4.0,
}


class Capabilities(msgspec.Struct, frozen=True):
    """What one model of one provider takes and gives; a fact sheet, never a branch in code."""

    streaming: bool = True
    system_prompt: bool = True
    temperature: bool = True
    max_temperature: float | None = None
    stop_sequences: bool = True
    max_stop_sequences: int | None = None
    images: bool = True
    image_urls: bool = True
    audio: bool = False
    tools: bool = True
    tool_choice: bool = True
    parallel_tools_switch: bool = True
    output_schema: bool = True
    reasoning: bool = True
    reasoning_off: bool = True
    """Whether a model that thinks can be told not to (`reasoning_level="none"`)."""
    reasoning_levels: tuple[ReasoningLevel, ...] = ("low", "med", "high")
    """The levels beside "none" that the API has words for, in their order."""
    min_reasoning_tokens: int | None = None
    """What `max_tokens` must exceed for the model to think, where its thinking has a budget."""
    prefill: bool = False
    """Whether the model goes on with an assistant's turn at the end."""
    assistant_last: bool = True
    """Whether such a turn may be there at all, if only to be answered anew."""
    native_mcp: bool = False
    """Whether the provider itself connects to MCP servers."""
    mcp_headers: bool = True
    """Whether it then sends them any header; otherwise, a bearer token only."""
    mcp_allow_list: bool = True
    """Whether it then offers only the tools that are allowed."""
    embeddings: bool = False
    transcription: bool = False
    transcription_prompt: bool = True
    extra_of: str | None = None
    """The dialect whose own fields it is handed as they are (`Extra`); None for none."""
    sampling_fields: Mapping[str, str] = {}
    """Where options without a field in `SamplingRequest`, such as `top_p`, stand in the body that
    the model is sent: the name of the option to a path such as `generationConfig.topP`."""
    context_window: int | None = None
    max_output: int | None = None

    def patience(self, level: ReasoningLevel | None) -> float:
        """How many times the usual silence a model that thinks before it answers may need."""
        if level is None:
            return _PATIENCE["med"] if self.reasoning and not self.reasoning_off else 1.0
        return _PATIENCE[level] if self.reasoning else 1.0

    def takes(self, part: Image | Audio) -> bool:
        """Whether the model reads parts like this one."""
        if isinstance(part, Audio):
            return self.audio
        return self.images and (self.image_urls or not part.url)
