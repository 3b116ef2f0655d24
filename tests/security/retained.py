"""A plain body for every endpoint that takes one, and plain answers of MCP servers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_TOOL = {"name": "look", "description": "Looks", "parameters": {"type": "object"}}
_SCHEMA = {"name": "fits", "schema": {"type": "object", "properties": {"a": {"type": "string"}}}}
_TURN = {"role": "user", "content": "Hi"}
_CALL = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
MCP_SERVER = {
    "type": "mcp",
    "server_label": "docs",
    "server_url": "https://mcp.example.com/mcp",
    "headers": {"x-team": "a"},
    "allowed_tools": ["search"],
    "require_approval": "never",
}
BODIES: Mapping[str, Any] = {
    "POST /v1/chat/completions": {
        "model": "openai-chat/m",
        "messages": [
            {"role": "system", "content": "Be brief"},
            {**_TURN, "name": "ann"},
            {"role": "assistant", "content": "Yes", "tool_calls": [_CALL]},
            {"role": "tool", "tool_call_id": "c1", "content": "high"},
            {"role": "user", "content": [{"type": "text", "text": "And now?"}]},
        ],
        "max_tokens": 10,
        "tools": [{"type": "function", "function": _TOOL}],
        "tool_choice": {"type": "function", "function": {"name": "look"}},
        "stop": ["END"],
        "metadata": {"session_id": "s1"},
        "user": "u1",
        "safety_identifier": "u1",
        "prompt_cache_key": "p1",
        "service_tier": "auto",
        "reasoning_effort": "low",
        "response_format": {"type": "json_schema", "json_schema": _SCHEMA},
    },
    "POST /v1/chat/completions?mcp": {
        "model": "openai-chat/m",
        "messages": [_TURN],
        "max_tokens": 10,
        "tools": [MCP_SERVER],
    },
    "POST /v1/responses": {
        "model": "openai-responses/m",
        "input": [
            {"role": "user", "content": [{"type": "input_text", "text": "Hi"}]},
            {"type": "function_call", "call_id": "c1", "name": "look", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c1", "output": "high"},
        ],
        "instructions": "Be brief",
        "tools": [{"type": "function", **_TOOL}],
        "tool_choice": {"type": "function", "name": "look"},
        "metadata": {"session_id": "s1"},
        "user": "u1",
        "previous_response_id": None,
        "prompt_cache_key": "p1",
        "text": {"format": {"type": "json_schema", **_SCHEMA}},
        "truncation": "disabled",
    },
    "POST /v1/messages": {
        "model": "anthropic/m",
        "system": "Be brief",
        "messages": [
            _TURN,
            {
                "role": "assistant",
                "content": [{"type": "tool_use", "id": "c1", "name": "look", "input": {"a": "b"}}],
            },
            {
                "role": "user",
                "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "high"}],
            },
        ],
        "max_tokens": 10,
        "tools": [{"name": "look", "description": "Looks", "input_schema": {"type": "object"}}],
        "tool_choice": {"type": "tool", "name": "look"},
        "stop_sequences": ["END"],
        "metadata": {"user_id": "u1"},
    },
    "POST /v1/messages/count_tokens": {"model": "openai-chat/m", "messages": [_TURN]},
    "POST /v1/embeddings": {"model": "openai-chat/m", "input": ["Hi"], "user": "u1"},
    "POST /v1/sampling/createMessage": {
        "model": "openai-chat/m",
        "messages": [{"role": "user", "content": {"type": "text", "text": "Hi"}}],
        "maxTokens": 5,
        "systemPrompt": "Be brief",
        "stopSequences": ["END"],
        "modelPreferences": {"hints": [{"name": "mini"}], "costPriority": 0.5},
        "metadata": {"session_id": "s1"},
        "tools": [{"name": "look", "description": "Looks", "inputSchema": {"type": "object"}}],
        "_meta": {"progressToken": "t1", "io.example/x": "y"},
    },
    "POST /v1/feedback": {"request_id": "req_1", "score": 1, "source": "feedback"},
    "POST /mcp": {
        "jsonrpc": "2.0",
        "id": "1",
        "method": "tools/call",
        "params": {
            "name": "count_tokens",
            "arguments": {"prompt": "Hi", "model": "openai-chat/m"},
            "_meta": {"progressToken": "t1", "traceparent": "00-0", "io.example/x": "y"},
        },
    },
    "POST /admin/v1/targets/down": {"target": "ollama/other", "reason": "tired"},
    "POST /admin/v1/route": {"prompt": "Hi", "model": "openai-chat/m", "hints": ["mini"]},
    "POST /v1/estimate": {"model": "openai-chat/m", "messages": [_TURN], "max_tokens": 5},
    "POST /admin/v1/usage": {
        "target": "openai-chat/m",
        "usage": {"input_tokens": 1},
        "key": "ci",
        "tags": {"team": "a"},
        "prompt": "Hi",
    },
    "POST /admin/v1/estimate": {
        "prompt": "Hi",
        "model": "openai-chat/m",
        "system_prompt": "Be brief",
        "key": "ci",
        "tags": {"team": "a"},
    },
    "POST /admin/v1/estimate?whole": {
        "request": {"model": "openai-chat/m", "messages": [_TURN], "user": "u1"}
    },
    "POST /admin/v1/targets/up": {"target": "ollama/other"},
    "PUT /admin/v1/budgets/made": {
        "limit_usd": 5,
        "period": "day",
        "timezone": "UTC",
        "provider": "ollama",
        "model": "m",
        "key": "ci",
        "tags": {"team": "a"},
    },
    "POST /admin/v1/keys": {
        "name": "new",
        "scope": "calls",
        "models": ["openai-chat/m"],
        "tags": {"team": "a"},
        "budget": {"limit_usd": 1, "period": "day", "timezone": "UTC"},
    },
    "PATCH /admin/v1/keys/made": {
        "models": ["openai-chat/m"],
        "tags": {"team": "a"},
        "budget": {"limit_usd": 1, "period": "day", "timezone": "UTC"},
    },
    "POST /admin/v1/keys/made/rotate": {"grace_s": 0},
    "POST /admin/v1/approvals/some-id": {
        "decision": "edit",
        "reason": "no",
        "params": {"systemPrompt": "Be brief"},
        "text": "Hello",
    },
}
"""A body for each endpoint that takes one, by its method and path.

What follows `?` tells two bodies of one endpoint apart.
"""
MESSAGES: Mapping[str, Any] = {
    "createMessage": {
        "type": "createMessage",
        "id": "a",
        "params": BODIES["POST /v1/sampling/createMessage"],
        "requestId": "r1",
    },
    "cancel": {"type": "cancel", "id": "a"},
    "ping": {"type": "ping", "id": "p"},
}
"""What a client sends over the WebSocket for sampling, by the type of the message."""
MCP_RESULTS: Mapping[str, Any] = {
    "initialize": {
        "protocolVersion": "2025-06-18",
        "capabilities": {"tools": {}},
        "serverInfo": {"name": "docs", "title": "Docs", "version": "1"},
        "instructions": "Ask it",
    },
    "tools/list": {
        "tools": [
            {
                "name": "search",
                "title": "Search",
                "description": "Looks",
                "inputSchema": {"type": "object", "description": "What"},
                "_meta": {"io.example/x": "y"},
            }
        ],
        "nextCursor": "",
    },
    "tools/call": {
        "content": [
            {"type": "text", "text": "high"},
            {"type": "resource_link", "uri": "https://example.com/a", "name": "a"},
        ],
        "structuredContent": {"level": "high"},
        "isError": False,
    },
}
"""What an MCP server answers, by the method."""
