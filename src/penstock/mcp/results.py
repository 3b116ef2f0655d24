"""What a tool of an MCP server answers, as a part of a message."""

from __future__ import annotations

from typing import Any, cast

import msgspec
from mcp_types import (
    AudioContent,
    BlobResourceContents,
    CallToolResult,
    ContentBlock,
    EmbeddedResource,
    ImageContent,
    TextContent,
    TextResourceContents,
)

from penstock.contract.mcp.content import told_blob, told_link
from penstock.contract.messages import Audio, Image, JSONObject, Text, ToolResult


def result_of(answer: CallToolResult) -> ToolResult:
    """The result, whatever it holds; its `tool_use_id` is for the caller to fill in.

    A resource is told by its text, its picture or its sound; of any other only the place, the type
    and the size are told, and so is a link.
    """
    structured: Any = answer.structured_content
    content = tuple(map(_part, answer.content))
    if not content and structured is not None:
        content = (Text(msgspec.json.encode(structured).decode()),)
    return ToolResult(
        "",
        content,
        cast(JSONObject, structured) if isinstance(structured, dict) else None,
        answer.is_error,
    )


def _part(block: ContentBlock) -> Text | Image | Audio:
    if isinstance(block, TextContent):
        return Text(block.text)
    if isinstance(block, ImageContent):
        return Image(block.data, block.mime_type)
    if isinstance(block, AudioContent):
        return Audio(block.data, block.mime_type)
    if isinstance(block, EmbeddedResource):
        return _resource(block.resource)
    shown = block.title or block.name
    return Text(told_link(shown, str(block.uri), block.mime_type, block.description))


def _resource(resource: TextResourceContents | BlobResourceContents) -> Text | Image | Audio:
    if isinstance(resource, TextResourceContents):
        return Text(resource.text)
    return told_blob(resource.blob, resource.mime_type, str(resource.uri))
