"""What a caller may ask of a model beside the messages, and what a model is able to do."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from penstock.contract.messages import JSONObject

ReasoningLevel: TypeAlias = Literal["none", "low", "med", "high"]
IncludeContext: TypeAlias = Literal["none", "thisServer", "allServers"]
ToolMode: TypeAlias = Literal["auto", "required", "none", "tool"]


class ToolDefinition(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A tool as the model sees it: a name, what it does, and the JSON Schema of its arguments."""

    name: str
    description: str = ""
    input_schema: JSONObject = msgspec.field(default_factory=lambda: {"type": "object"})
    strict: bool | None = None
    meta: JSONObject | None = msgspec.field(default=None, name="_meta")


class ToolChoice(msgspec.Struct, frozen=True, omit_defaults=True):
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


class OutputSchema(msgspec.Struct, frozen=True, omit_defaults=True):
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


class ModelPreferences(msgspec.Struct, frozen=True, omit_defaults=True):
    """What matters when a model is chosen: name hints in order, and three priorities in 0..1."""

    hints: tuple[str, ...] = ()
    cost: float | None = None
    speed: float | None = None
    intelligence: float | None = None


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
    min_reasoning_tokens: int | None = None
    """What `max_tokens` must exceed for the model to think, where its thinking has a budget."""
    prefill: bool = False
    """Whether the model goes on with an assistant's turn at the end."""
    embeddings: bool = False
    context_window: int | None = None
    max_output: int | None = None
