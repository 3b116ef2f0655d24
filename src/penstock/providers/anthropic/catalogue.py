"""What single models do differently on this wire, as data.

Profile options that the encoder reads: `thinking` ("adaptive" with an effort, or "budget" of
tokens), `thinking_off` (the `thinking.type` that switches it off) and `thinking_display` (sent
where the model would hide its thinking otherwise). `origin` names the family that reads its
signatures on every account.
"""

from __future__ import annotations

from penstock.contract.options import Capabilities
from penstock.providers.profiles import Catalogue, Rule

LEAST_BUDGET = 1024
"""The fewest tokens that a budget of thinking may have."""
_UNTHINKING = ("claude-3-haiku*", "claude-3-opus*", "claude-3-sonnet*", "claude-3-5-*")
_OPUS_4 = ("claude-opus-4-0*", "claude-opus-4-1*", "claude-opus-4-2025*")
_SONNET_4 = ("claude-3-7-*", "claude-sonnet-4-0*", "claude-sonnet-4-2025*")
_CLAUDE_4_5 = ("claude-haiku-4-5*", "claude-sonnet-4-5*", "claude-opus-4-5*")
_CLAUDE_4_6 = ("claude-opus-4-6*", "claude-sonnet-4-6*")
_BEFORE_4_6 = (*_UNTHINKING, *_OPUS_4, *_SONNET_4, *_CLAUDE_4_5)
_ALWAYS_THINKING = ("claude-opus-5-5*", "claude-fable-5*", "claude-mythos-5*")

_RULES: tuple[Rule, ...] = (
    # Anthropic's own, as they are since Opus 4.7; a model of tomorrow is likelier to be like these.
    Rule(
        models=("claude-*",),
        capabilities={
            "temperature": False,
            "prefill": False,
            "assistant_last": False,
            "context_window": 1_000_000,
            "max_output": 128_000,
        },
        options={"thinking_display": "summarized", "origin": "anthropic-claude"},
    ),
    Rule(
        models=("claude-*",),
        capabilities={"reasoning_levels": ("low", "med", "high", "xhigh", "max")},
    ),
    Rule(
        models=_ALWAYS_THINKING,
        capabilities={"tool_choice": False, "reasoning_off": False},
    ),
    Rule(
        models=("claude-sonnet-5-5*",),
        capabilities={"tool_choice": False},
        options={"thinking_off": "between_tools"},
    ),
    # The older ones.
    Rule(
        models=(*_CLAUDE_4_6, *_BEFORE_4_6),
        capabilities={"temperature": True},
        options={"thinking_display": None},
    ),
    Rule(models=_CLAUDE_4_6, capabilities={"reasoning_levels": ("low", "med", "high", "max")}),
    Rule(models=_BEFORE_4_6, capabilities={"reasoning_levels": ("low", "med", "high")}),
    Rule(models=("claude-sonnet-4-6*",), capabilities={"max_output": 64_000}),
    Rule(
        models=_BEFORE_4_6,
        capabilities={
            "prefill": True,
            "context_window": 200_000,
            "max_output": 64_000,
            "min_reasoning_tokens": LEAST_BUDGET,
        },
        options={"thinking": "budget"},
    ),
    Rule(models=_OPUS_4, capabilities={"max_output": 32_000}),
    Rule(models=_UNTHINKING, capabilities={"max_output": 4_096, "reasoning": False}),
    Rule(models=("claude-3-5-*",), capabilities={"max_output": 8_192}),
    Rule(
        models=("claude-opus-4-0*", "claude-opus-4-2025*", *_SONNET_4, *_UNTHINKING),
        capabilities={"output_schema": False},
    ),
    # This version of the API takes no sampling parameter, whatever the model.
    Rule(option=("api_version", "2026-10-21"), capabilities={"temperature": False}),
)

CATALOGUE = Catalogue(
    Capabilities(
        extra_of="anthropic",
        sampling_fields={"top_p": "top_p", "top_k": "top_k"},
        max_temperature=1.0,
        prefill=True,
        native_mcp=True,
        mcp_headers=False,
    ),
    _RULES,
)
