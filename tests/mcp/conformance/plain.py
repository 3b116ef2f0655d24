"""What the conformance suite asks of any server: tools, resources and prompts by name."""

from __future__ import annotations

import asyncio
import base64
import json
from typing import Annotated, Any

import mcp_types as types
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.mcpserver.prompts.base import UserMessage
from mcp.shared.exceptions import MCPError
from pydantic import BaseModel, Field

from tests.support.mcp.server import PIXEL

STEP_SECONDS = 0.05
SILENCE = base64.b64encode(
    b"RIFF$\0\0\0WAVEfmt \x10\0\0\0\1\0\1\0@\x1f\0\0@\x1f\0\0\1\0\x08\0data\0\0\0\0"
)
SCHEMA_2020_12: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {
        "address": {
            "$anchor": "addressDef",
            "type": "object",
            "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
        }
    },
    "properties": {
        "name": {"type": "string"},
        "address": {"$ref": "#/$defs/address"},
        "contactMethod": {"type": "string", "enum": ["phone", "email"]},
        "phone": {"type": "string"},
        "email": {"type": "string"},
    },
    "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
    "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
    "then": {"required": ["phone"]},
    "else": {"required": ["email"]},
    "additionalProperties": False,
}


def _resource(uri: str, mime_type: str, text: str) -> types.EmbeddedResource:
    inside = types.TextResourceContents(uri=uri, mime_type=mime_type, text=text)
    return types.EmbeddedResource(type="resource", resource=inside)


def _picture() -> types.ImageContent:
    return types.ImageContent(type="image", data=PIXEL, mime_type="image/png")


def _result(*content: types.ContentBlock) -> types.CallToolResult:
    return types.CallToolResult(content=list(content))


def _text(text: str) -> types.TextContent:
    return types.TextContent(type="text", text=text)


def add_tools(server: MCPServer[Any]) -> None:
    """One for each kind of content and of traffic."""

    @server.tool()
    async def test_simple_text() -> types.CallToolResult:
        """A text."""
        return _result(_text("This is a simple text response for testing."))

    @server.tool()
    async def test_image_content() -> types.CallToolResult:
        """A picture."""
        return _result(_picture())

    @server.tool()
    async def test_audio_content() -> types.CallToolResult:
        """A sound."""
        sound = types.AudioContent(type="audio", data=SILENCE.decode(), mime_type="audio/wav")
        return _result(sound)

    @server.tool()
    async def test_embedded_resource() -> types.CallToolResult:
        """A resource."""
        text = "This is an embedded resource content."
        return _result(_resource("test://embedded-resource", "text/plain", text))

    @server.tool()
    async def test_multiple_content_types() -> types.CallToolResult:
        """A text, a picture and a resource."""
        data = _resource(
            "test://mixed-content-resource", "application/json", '{"test":"data","value":123}'
        )
        return _result(_text("Multiple content types test:"), _picture(), data)

    @server.tool()
    async def test_error_handling() -> types.CallToolResult:
        """Fail."""
        raise ToolError("This tool intentionally returns an error for testing")

    @server.tool()
    async def test_tool_with_progress(ctx: Context) -> types.CallToolResult:
        """Report progress thrice."""
        for done in (0, 50, 100):
            await ctx.report_progress(done, 100)
            await asyncio.sleep(STEP_SECONDS)
        return _result(_text("finished"))

    @server.tool()
    async def test_tool_with_logging(ctx: Context) -> types.CallToolResult:
        """Log thrice."""
        for said in ("started", "processing data", "completed"):
            text = f"Tool {said}" if said == "processing data" else f"Tool execution {said}"
            await ctx.log("info", text)  # pyright: ignore[reportDeprecated]
            await asyncio.sleep(STEP_SECONDS)
        return _result(_text("logged"))

    @server.tool()
    async def test_logging_tool(ctx: Context) -> types.CallToolResult:
        """Log once, for those who want to hear it."""
        await ctx.log("info", "logged")  # pyright: ignore[reportDeprecated]
        return _result(_text("logged"))

    @server.tool()
    async def test_reconnection(ctx: Context) -> types.CallToolResult:
        """Close the stream in the middle of the call."""
        # At once would be in the same pass of the loop in which the SDK sends the stream's first
        # event: closing first withdraws it, and without its id no client can come back.
        await asyncio.sleep(STEP_SECONDS)
        await ctx.close_sse_stream()
        await asyncio.sleep(STEP_SECONDS)
        return _result(_text("Reconnected."))

    @server.tool()
    async def test_header_parameter(
        region: Annotated[str, Field(json_schema_extra={"x-mcp-header": "Region"})],
    ) -> types.CallToolResult:
        """An argument that travels in a header, too."""
        return _result(_text(region))

    @server.tool()
    async def test_trigger_tool_change(ctx: Context) -> types.CallToolResult:
        """Say that the tools have changed."""
        await ctx.notify_tools_changed()
        return _result(_text("changed"))

    @server.tool()
    async def test_trigger_prompt_change(ctx: Context) -> types.CallToolResult:
        """Say that the prompts have changed."""
        await ctx.notify_prompts_changed()
        return _result(_text("changed"))

    @server.tool()
    async def json_schema_2020_12_tool() -> types.CallToolResult:
        """Tool with JSON Schema 2020-12 features."""
        return _result(_text("fine"))

    found = server._tool_manager.get_tool("json_schema_2020_12_tool")  # pyright: ignore[reportPrivateUsage]
    assert found is not None
    found.parameters = SCHEMA_2020_12


class Account(BaseModel):
    """What the user is asked for."""

    username: str = Field(description="User's response")
    email: str = Field(description="User's email address")


DEFAULTS: dict[str, Any] = {
    "name": {"type": "string", "default": "John Doe"},
    "age": {"type": "integer", "default": 30},
    "score": {"type": "number", "default": 95.5},
    "status": {"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
    "verified": {"type": "boolean", "default": True},
}
_TITLED = [
    {"const": "value1", "title": "First"},
    {"const": "value2", "title": "Second"},
    {"const": "value3", "title": "Third"},
]
_UNTITLED = ["option1", "option2", "option3"]
ENUMS: dict[str, Any] = {
    "untitledSingle": {"type": "string", "enum": _UNTITLED},
    "titledSingle": {"type": "string", "oneOf": _TITLED},
    "legacyEnum": {
        "type": "string",
        "enum": ["opt1", "opt2", "opt3"],
        "enumNames": ["Option One", "Option Two", "Option Three"],
    },
    "untitledMulti": {"type": "array", "items": {"type": "string", "enum": _UNTITLED}},
    "titledMulti": {"type": "array", "items": {"anyOf": _TITLED}},
}


def add_asking_tools(server: MCPServer[Any]) -> None:
    """Those that ask the client in the middle of the call."""

    @server.tool()
    async def test_sampling(ctx: Context, prompt: str) -> types.CallToolResult:
        """Have the client's model answer."""
        message = types.SamplingMessage(role="user", content=_text(prompt))
        said = await ctx.session.create_message(  # pyright: ignore[reportDeprecated]
            [message], max_tokens=100, related_request_id=ctx.request_id
        )
        text = said.content.text if isinstance(said.content, types.TextContent) else ""
        return _result(_text(f"LLM response: {text}"))

    @server.tool()
    async def test_elicitation(ctx: Context, message: str) -> types.CallToolResult:
        """Have the client's user answer."""
        said = await ctx.elicit(message, Account)
        content = said.data.model_dump() if said.action == "accept" else {}
        told = f"action: {said.action}, content: {json.dumps(content)}"
        return _result(_text(f"User response: <{told}>"))

    async def elicited(ctx: Context, properties: dict[str, Any]) -> types.CallToolResult:
        schema: dict[str, Any] = {"type": "object", "properties": properties}
        said = await ctx.session.elicit_form("Fill it in.", schema, ctx.request_id)
        told = f"action={said.action}, content={json.dumps(said.content)}"
        return _result(_text(f"Elicitation completed: {told}"))

    @server.tool()
    async def test_elicitation_sep1034_defaults(ctx: Context) -> types.CallToolResult:
        """A form with defaults."""
        return await elicited(ctx, DEFAULTS)

    @server.tool()
    async def test_elicitation_sep1330_enums(ctx: Context) -> types.CallToolResult:
        """A form with every kind of choice."""
        return await elicited(ctx, ENUMS)

    @server.tool()
    async def test_missing_capability(ctx: Context) -> types.CallToolResult:
        """Need sampling."""
        wanted = types.ClientCapabilities(sampling=types.SamplingCapability())
        if not ctx.session.check_client_capability(wanted):
            needed: dict[str, Any] = {"requiredCapabilities": {"sampling": {}}}
            message = "sampling is needed"
            raise MCPError(types.MISSING_REQUIRED_CLIENT_CAPABILITY, message, needed)
        return _result(_text("fine"))


def add_resources(server: MCPServer[Any]) -> None:
    """A text, a picture and a template."""

    @server.resource("test://static-text", mime_type="text/plain")
    def static_text() -> str:
        """A text."""
        return "This is the content of the static text resource."

    @server.resource("test://static-binary", mime_type="image/png")
    def static_binary() -> bytes:
        """A picture."""
        return base64.b64decode(PIXEL)

    @server.resource("test://template/{id}/data", mime_type="application/json")
    def template(id: str) -> str:
        """Data by number."""
        return json.dumps({"id": id, "templateTest": True, "data": f"Data for ID: {id}"})

    @server.resource("test://watched-resource", mime_type="text/plain")
    def watched() -> str:
        """One to subscribe to."""
        return "watched"


def add_prompts(server: MCPServer[Any]) -> None:
    """With arguments, a resource and a picture."""

    @server.prompt()
    def test_simple_prompt() -> list[UserMessage]:
        """Plain."""
        return [UserMessage("This is a simple prompt for testing.")]

    @server.prompt()
    def test_prompt_with_arguments(
        arg1: Annotated[str, Field(description="First test argument")],
        arg2: Annotated[str, Field(description="Second test argument")],
    ) -> list[UserMessage]:
        """With arguments."""
        return [UserMessage(f"Prompt with arguments: arg1='{arg1}', arg2='{arg2}'")]

    @server.prompt()
    def test_prompt_with_embedded_resource(resourceUri: str) -> list[UserMessage]:  # noqa: N803
        """With a resource."""
        text = "Embedded resource content for testing."
        return [
            UserMessage(_resource(resourceUri, "text/plain", text)),
            UserMessage("Please process the embedded resource above."),
        ]

    @server.prompt()
    def test_prompt_with_image() -> list[UserMessage]:
        """With a picture."""
        return [UserMessage(_picture()), UserMessage("Please analyze the image above.")]

    @server.completion()
    async def complete(*_: object) -> types.Completion:
        return types.Completion(values=["paris", "park", "party"], total=3, has_more=False)
