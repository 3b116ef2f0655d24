"""The documented reasons why an answer ends, of all dialects and of known compatible services.

A table of data: a reason that is missing here is a row to add. `endings` says what follows from a
meaning. Case and the difference between `-` and `_` do not matter, so each reason is listed once.

| meaning | what follows |
|---|---|
| `end`, `stop_sequence`, `tool_use` | the answer is complete |
| `max_tokens` | the answer is complete as far as a limit allows: `maxTokens` |
| `resume` | the provider only paused: it is asked to go on, or, where it cannot be, `maxTokens` |
| `filter` | `ContentRejected` |
| `error` | `ProviderUnavailable`: retry, failover or continuation |
| `malformed` | `MalformedResponse`: the same, for output that the provider itself could not read |
| `none` | the provider gave no reason |
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal, NamedTuple, TypeAlias

Meaning: TypeAlias = Literal[
    "end",
    "stop_sequence",
    "max_tokens",
    "tool_use",
    "resume",
    "filter",
    "error",
    "malformed",
    "none",
]


class StopReasonRow(NamedTuple):
    """One reason."""

    reason: str
    """In lower case, with underscores."""
    meaning: Meaning
    used_by: str


def _rows(meaning: Meaning, reasons: Mapping[str, str]) -> Iterable[StopReasonRow]:
    return (StopReasonRow(reason, meaning, used_by) for reason, used_by in reasons.items())


STOP_REASONS: tuple[StopReasonRow, ...] = (
    *_rows(
        "end",
        {
            "stop": "OpenAI Chat and compatible services, Gemini, Ollama, llama.cpp, vLLM, SGLang",
            "end_turn": "Anthropic, Bedrock, xAI",
            "completed": "OpenAI Responses (status)",
            "complete": "Cohere",
            "eos": "Together",
            "eos_token": "Text Generation Inference, watsonx",
            "eosfound": "LM Studio",
            "normal": "Baidu",
        },
    ),
    *_rows(
        "stop_sequence",
        {
            "stop_sequence": "Anthropic, Bedrock, Cohere, Text Generation Inference, watsonx",
            "stopstringfound": "LM Studio",
        },
    ),
    *_rows(
        "max_tokens",
        {
            "length": "OpenAI Chat and compatible services, Ollama, llama.cpp, vLLM, SGLang",
            "max_tokens": "Anthropic, Bedrock, Gemini, Cohere, watsonx",
            "max_output_tokens": "OpenAI Responses (incomplete_details)",
            "max_messages": "OpenAI Responses (incomplete_details)",
            "incomplete": "OpenAI Responses (status without details)",
            "model_length": "Mistral",
            "model_context_window_exceeded": "Anthropic, Bedrock, Zhipu",
            "error_limit": "Cohere",
            "token_limit": "watsonx",
            "maxpredictedtokensreached": "LM Studio",
            "contextlengthreached": "LM Studio",
            "repetition": "vLLM",
            "repetition_truncation": "Xiaomi MiMo",
        },
    ),
    *_rows(
        "tool_use",
        {
            "tool_calls": "OpenAI Chat and compatible services",
            "function_call": "OpenAI Chat (deprecated)",
            "tool_use": "Anthropic, Bedrock",
            "tool_call": "Cohere",
            "toolcalls": "LM Studio",
        },
    ),
    *_rows(
        "resume",
        {
            "pause_turn": "Anthropic",
            "compaction": "Anthropic (beta)",
            "continuation": "Gemini",
            "steered": "OpenAI Responses (incomplete_details, WebSocket only)",
        },
    ),
    *_rows(
        "filter",
        {
            "content_filter": "OpenAI Chat and compatible services, OpenAI Responses, Azure",
            "refusal": "Anthropic, Bedrock",
            "content_filtered": "Bedrock",
            "guardrail_intervened": "Bedrock",
            "safety": "Gemini",
            "recitation": "Gemini",
            "language": "Gemini",
            "blocklist": "Gemini",
            "prohibited_content": "Gemini",
            "spii": "Gemini",
            "model_armor": "Gemini (Vertex AI)",
            "image_safety": "Gemini",
            "image_prohibited_content": "Gemini",
            "image_recitation": "Gemini",
            "image_other": "Gemini",
            "sensitive": "Zhipu, Hunyuan",
            "error_toxic": "Cohere",
        },
    ),
    *_rows(
        "error",
        {
            "error": "OpenRouter, Mistral, vLLM, Cohere, watsonx, MLC LLM",
            "abort": "vLLM, SGLang",
            "aborted": "gateways in front of vLLM and SGLang",
            "insufficient_system_resource": "DeepSeek",
            "network_error": "Zhipu",
            "timeout": "Cohere, TensorRT-LLM",
            "time_limit": "watsonx",
            "cancelled": "OpenAI Responses (status), watsonx, TensorRT-LLM",
            "user_cancel": "Cohere",
            "userstopped": "LM Studio",
            "modelunloaded": "LM Studio",
            "failed": "OpenAI Responses (status), LM Studio",
            "queued": "OpenAI Responses (status)",
            "in_progress": "OpenAI Responses (status)",
            "load": "Ollama",
            "unload": "Ollama",
            "other": "Gemini",
            "no_image": "Gemini",
        },
    ),
    *_rows(
        "malformed",
        {
            "malformed_function_call": "Gemini",
            "unexpected_tool_call": "Gemini",
            "too_many_tool_calls": "Gemini",
            "malformed_response": "Gemini",
            "missing_thought_signature": "Gemini",
            "malformed_model_output": "Bedrock",
            "malformed_tool_use": "Bedrock",
        },
    ),
    *_rows(
        "none",
        {
            "null": "DashScope, watsonx, Baidu",
            "not_finished": "watsonx",
            "finish_reason_unspecified": "Gemini",
        },
    ),
)

_MEANINGS: Mapping[str, Meaning] = {row.reason: row.meaning for row in STOP_REASONS}
_NOT_NORMAL = ("max_tokens", "filter", "error", "malformed")
_LONGEST = 256
"""Characters of a reason that are read."""


def meaning_of(reason: str | None) -> Meaning | None:
    """The meaning of a provider's reason; `none` where there is no reason, None if it is unknown.

    Gemini's compatible endpoint writes what stopped the answer in front of its own reason, such as
    `content_filter: SAFETY`; its own reason counts. If that is unknown, the answer did not end
    normally, whatever stands in front.
    """
    if not reason:
        return "none"
    found = _MEANINGS.get(reason)
    if found is not None:
        return found
    first, _, last = reason[:_LONGEST].lower().replace("-", "_").partition(":")
    outer = _MEANINGS.get(first.strip())
    if not last:
        return outer
    return _MEANINGS.get(last.strip()) or (outer if outer in _NOT_NORMAL else None)
