"""What aimock understood of a request, read back from its journal.

It keeps a Chat Completions request as it came. A request in another dialect it keeps in its own
reading, in the shapes of Chat Completions, without what it has no use for.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from penstock import Content, Message, Text, ToolChoice, ToolDefinition, ToolResult, ToolUse
from tests.independent.fixtures import Wire
from tests.support.wire.openai_chat.read import read_chat
from tests.support.wire.openai_responses.read import untyped_enums
from tests.support.wire.seen import Seen, SeenEmbedding, WireRequest

_CHAT = "/v1/chat/completions"
_FAILED = "Error: "


def read(entry: Mapping[str, Any], wire: Wire, key: str) -> Seen | SeenEmbedding:
    """One entry; `key` is the only one that the server lets in."""
    body = {name: value for name, value in entry["body"].items() if not name.startswith("_")}
    headers = {name.lower(): value for name, value in entry["headers"].items()}
    headers["authorization"] = f"Bearer {key}"  # the journal hides it
    if "embeddingInput" in body:
        return SeenEmbedding(model=body["model"], texts=(body["embeddingInput"],))
    path: str = entry["path"]
    if urlsplit(path).path == _CHAT:
        text = json.dumps(body).encode()
        return read_chat(WireRequest(entry["method"], _CHAT, {}, headers, text))
    return _read_normalised(body, headers, wire, key)


def kept_body(entry: Mapping[str, Any]) -> str:
    """The body as it came, but for its spaces, where it is kept so."""
    path: str = entry["path"]
    if urlsplit(path).path != _CHAT:
        raise NotImplementedError("aimock keeps its own reading of this request")
    return json.dumps(entry["body"], ensure_ascii=False)


def _read_normalised(
    body: Mapping[str, Any], headers: Mapping[str, str], wire: Wire, key: str
) -> Seen:
    messages: Sequence[Mapping[str, Any]] = body["messages"]
    system = [each["content"] for each in messages if each["role"] == "system"]
    return Seen(
        model=body["model"],
        stream=body.get("stream"),
        messages=tuple(_turns(messages, wire)),
        system="\n\n".join(system) or None,
        tools=tuple(
            ToolDefinition(
                tool["function"]["name"],
                tool["function"].get("description", ""),
                # Responses wants a type beside an enum; it is the adapter that adds it.
                untyped_enums(tool["function"].get("parameters", {})),
            )
            for tool in body.get("tools", ())
        ),
        tool_choice=_choice(body.get("tool_choice")),
        max_tokens=body.get("max_tokens"),
        temperature=body.get("temperature"),
        key=key,
        headers=headers,
    )


def _choice(wire: Any) -> ToolChoice | None:
    if wire is None:
        return None
    return ToolChoice.tool(wire["name"]) if "name" in wire else ToolChoice(wire)


def _turns(messages: Sequence[Mapping[str, Any]], wire: Wire) -> Iterator[Message]:
    """The turns without the system's; neighbours of the same role are one turn."""
    role, content = "", list[Content]()
    for message in messages:
        if message["role"] == "system":
            continue
        speaker = "assistant" if message["role"] == "assistant" else "user"
        if role and speaker != role:
            yield Message(role, tuple(content))
            content = []
        role = speaker
        content += _content(message, wire)
    if role:
        yield Message(role, tuple(content))


def _content(message: Mapping[str, Any], wire: Wire) -> Iterator[Content]:
    if message["role"] == "tool":
        yield _result(message, wire)
        return
    if message["content"]:
        yield Text(message["content"])
    for call in message.get("tool_calls", ()):
        function = call["function"]
        # Where the wire has no ids, this one is aimock's own.
        id = call["id"] if wire.dialect.call_ids else ""
        yield ToolUse(id, function["name"], json.loads(function["arguments"]))


def _result(message: Mapping[str, Any], wire: Wire) -> ToolResult:
    text: str = message["content"]
    failed = text.startswith(_FAILED)
    if wire.wraps_results:
        (kind, text), *_ = json.loads(text).items()
        failed = kind == "error"
    content = (Text(text.removeprefix(_FAILED)),)
    return ToolResult(message.get("tool_call_id", ""), content, is_error=failed)
