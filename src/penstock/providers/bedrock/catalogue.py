"""What single models do differently on this wire, as data.

A name is matched anywhere in the id, because inference profiles put a region before it
(`eu.anthropic.claude-...`) and ARNs more. Options that the encoder reads:

- `reasoning`: how a level is said; see `reasoning.py`. Converse's own `outputConfig.effort` where
  nothing else is known.
- `origin`: the family that reads its signatures, which another one behind this wire does not.
- `counted`: the model is one of the few that CountTokens knows; others are estimated.
- `cache_points`: where a cache point may stand; nowhere in models that are not known to take one.
"""

from __future__ import annotations

from typing import Any

from penstock.contract.options import Capabilities
from penstock.providers.profiles import Catalogue, Rule

LEAST_BUDGET = 1024
"""The fewest tokens that a budget of thinking may have."""
_CLAUDE = "*anthropic.claude-"
_CLAUDE_3 = (f"{_CLAUDE}3-haiku*", f"{_CLAUDE}3-sonnet*", f"{_CLAUDE}3-opus*")
_CLAUDE_3_5 = (f"{_CLAUDE}3-5-*",)
_CLAUDE_3_7 = (f"{_CLAUDE}3-7-*",)
_CLAUDE_4 = (f"{_CLAUDE}sonnet-4-2025*", f"{_CLAUDE}opus-4-2025*", f"{_CLAUDE}opus-4-1-*")
_CLAUDE_4_5 = (f"{_CLAUDE}sonnet-4-5*", f"{_CLAUDE}haiku-4-5*", f"{_CLAUDE}opus-4-5*")
_CLAUDE_4_6 = (f"{_CLAUDE}sonnet-4-6*", f"{_CLAUDE}opus-4-6*")
_CLAUDE_TO_4_5 = (*_CLAUDE_3, *_CLAUDE_3_5, *_CLAUDE_3_7, *_CLAUDE_4, *_CLAUDE_4_5)
_NOVA_1 = tuple(f"*amazon.nova-{size}-v1*" for size in ("micro", "lite", "pro", "premier"))
_NOVA_2 = ("*amazon.nova-2-*",)

_TEXT_ONLY: dict[str, Any] = {"images": False, "audio": False, "embeddings": False}
_NO_CONTROL: dict[str, Any] = {"reasoning": False, "audio": False, "embeddings": False}

_FIELDS = {"top_p": "inferenceConfig.topP"}

_RULES: tuple[Rule, ...] = (
    # Claude: first what holds for the newest, then what older ones still take.
    Rule(
        models=(f"{_CLAUDE}*",),
        capabilities={
            "temperature": False,
            "reasoning_levels": ("low", "med", "high", "xhigh", "max"),
            "sampling_fields": {
                **_FIELDS,
                # Not a field of Converse; the model takes it.
                "top_k": "additionalModelRequestFields.top_k",
            },
            "audio": False,
            "embeddings": False,
            "context_window": 1_000_000,
            "max_output": 128_000,
        },
        options={
            "reasoning": "adaptive",
            "origin": "bedrock-claude",
            "cache_points": ("system", "tools", "messages"),
            "counted": True,
        },
    ),
    Rule(
        models=(f"{_CLAUDE}opus-5-5*", f"{_CLAUDE}fable-5*", f"{_CLAUDE}mythos-5*"),
        capabilities={"reasoning_off": False},
    ),
    Rule(
        models=_CLAUDE_4_6,
        capabilities={"temperature": True, "reasoning_levels": ("low", "med", "high", "max")},
    ),
    Rule(models=(f"{_CLAUDE}sonnet-4-6*",), capabilities={"max_output": 64_000}),
    Rule(
        models=_CLAUDE_TO_4_5,
        capabilities={
            "temperature": True,
            "reasoning_levels": ("low", "med", "high"),
            "prefill": True,
            "context_window": 200_000,
            "max_output": 64_000,
            "min_reasoning_tokens": LEAST_BUDGET,
        },
        options={"reasoning": "budget"},
    ),
    Rule(
        models=(*_CLAUDE_3, *_CLAUDE_3_5, *_CLAUDE_3_7, *_CLAUDE_4),
        capabilities={"output_schema": False},
    ),
    Rule(
        models=(f"{_CLAUDE}opus-4-2025*", f"{_CLAUDE}opus-4-1-*"),
        capabilities={"max_output": 32_000},
    ),
    Rule(models=_CLAUDE_3_5, capabilities={"reasoning": False, "max_output": 8192}),
    Rule(
        models=_CLAUDE_3,
        capabilities={"reasoning": False, "max_output": 4096},
        options={"cache_points": ()},
    ),
    # Amazon's own.
    Rule(
        models=(*_NOVA_1, *_NOVA_2),
        capabilities={"audio": False, "output_schema": False, "max_stop_sequences": 4},
        # A cache point among Nova's tools is refused.
        options={"origin": "bedrock-nova", "cache_points": ("system", "messages")},
    ),
    Rule(
        models=_NOVA_1,
        capabilities={"reasoning": False, "prefill": True, "embeddings": False},
    ),
    Rule(
        models=("*amazon.nova-micro-*",),
        capabilities={"images": False, "context_window": 128_000},
    ),
    Rule(
        models=("*amazon.nova-lite-*", "*amazon.nova-pro-*"),
        capabilities={"context_window": 300_000},
    ),
    Rule(
        models=("*amazon.nova-premier-*", *_NOVA_2),
        capabilities={"context_window": 1_000_000},
    ),
    Rule(models=_NOVA_2, options={"reasoning": "nova"}),
    # Others.
    Rule(
        models=("*openai.gpt-oss-*",),
        capabilities={**_TEXT_ONLY, "reasoning_off": False, "context_window": 128_000},
        options={"reasoning": "reasoning_effort"},
    ),
    Rule(
        models=("*openai.gpt-5*", "*openai.gpt-6*"),
        capabilities={"audio": False, "embeddings": False, "context_window": 1_000_000},
    ),
    Rule(models=("*openai.gpt-6*",), capabilities={"temperature": False}),
    Rule(
        models=("*deepseek.*",),
        capabilities={**_NO_CONTROL, "images": False, "context_window": 128_000},
    ),
    Rule(
        models=("*meta.llama*",),
        capabilities={**_NO_CONTROL, "tool_choice": False, "output_schema": False},
    ),
    Rule(
        models=("*cohere.command-*", "*ai21.*"),
        capabilities={**_NO_CONTROL, "images": False, "output_schema": False},
    ),
    Rule(models=("*mistral.*",), capabilities=_NO_CONTROL),
    Rule(models=("*voxtral*",), capabilities={"audio": True}),
)

CATALOGUE = Catalogue(
    Capabilities(
        sampling_fields=_FIELDS,
        max_temperature=1.0,
        image_urls=False,
        audio=True,
        parallel_tools_switch=False,
        assistant_last=False,
        embeddings=True,
    ),
    _RULES,
)
