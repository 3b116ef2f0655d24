"""What a caller may ask for beside the messages."""

import msgspec
import pytest

from penstock.contract.options import (
    Capabilities,
    ModelPreferences,
    OutputSchema,
    ToolChoice,
    ToolDefinition,
)


def test_a_tool_choice_is_a_word_or_one_tool() -> None:
    assert ToolChoice.of("required") == ToolChoice("required")
    assert ToolChoice.of(ToolChoice.tool("now")) == ToolChoice("tool", "now")
    assert ToolChoice() == ToolChoice("auto")


def test_a_tool_is_read_from_the_shape_of_the_standard() -> None:
    shape = {
        "name": "weather",
        "description": "The weather.",
        "inputSchema": {"type": "object", "properties": {"city": {"type": "string"}}},
        "_meta": {"k": 1},
    }
    tool = msgspec.convert(shape, ToolDefinition)
    assert tool.input_schema == shape["inputSchema"]
    assert tool.meta == {"k": 1}
    assert msgspec.to_builtins(tool) == shape


def test_a_tool_without_arguments_takes_an_empty_object() -> None:
    assert ToolDefinition("now").input_schema == {"type": "object"}
    assert ToolDefinition("now").input_schema is not ToolDefinition("now").input_schema


@pytest.mark.parametrize(
    "value",
    [ToolChoice(), ToolDefinition("t"), OutputSchema({}), ModelPreferences(), Capabilities()],
)
def test_options_are_frozen(value: msgspec.Struct) -> None:
    field = value.__struct_fields__[0]
    with pytest.raises(AttributeError):
        setattr(value, field, None)
