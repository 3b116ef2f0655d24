"""A plain request for each door that reads a body."""

from __future__ import annotations

from typing import Any

_SAID = [{"role": "user", "content": "Hi"}]
DOORS: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"model": "default", "messages": _SAID, "max_tokens": 5},
    "/v1/responses": {"model": "default", "input": _SAID},
    "/v1/messages": {"model": "default", "messages": _SAID, "max_tokens": 5},
    "/v1/messages/count_tokens": {"model": "default", "messages": _SAID},
    "/v1/embeddings": {"model": "default", "input": ["Hi"]},
    "/v1/sampling/createMessage": {
        "model": "default",
        "messages": [{"role": "user", "content": {"type": "text", "text": "Hi"}}],
        "maxTokens": 5,
    },
}
FIELDS = (
    *("model", "messages", "input", "max_tokens", "maxTokens", "max_output_tokens", "stream"),
    *("tools", "tool_choice", "toolChoice", "metadata", "temperature", "stop", "stop_sequences"),
    *("response_format", "reasoning", "reasoning_effort", "text", "system", "systemPrompt"),
    *("thinking", "output_config", "user", "timeout", "modelPreferences", "stopSequences"),
    *("dimensions", "encoding_format", "instructions", "include", "stream_options", "n", "_meta"),
    *("a field that nobody knows", "includeContext", "previous_response_id", "logit_bias"),
)
