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
    ResourceLink,
    TextContent,
    TextResourceContents,
)

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
    return _link(block)


def _resource(resource: TextResourceContents | BlobResourceContents) -> Text | Image | Audio:
    if isinstance(resource, TextResourceContents):
        return Text(resource.text)
    kind = resource.mime_type or "application/octet-stream"
    if kind.startswith("image/"):
        return Image(resource.blob, kind)
    if kind.startswith("audio/"):
        return Audio(resource.blob, kind)
    size = len(resource.blob) * 3 // 4 - resource.blob[-2:].count("=")
    return Text(f"[{kind} of {size:,} bytes at {resource.uri}]")


def _link(link: ResourceLink) -> Text:
    about = " ".join(filter(None, (link.mime_type, link.description)))
    return Text(f"[{link.title or link.name}: {link.uri}{f' ({about})' if about else ''}]")
