"""What single models and providers do differently, as data.

Every rule whose dialect, provider kind and model pattern match is applied in order, so a later rule
refines an earlier one. A model that no rule knows may do everything: its server will say no itself.
To teach Penstock a quirk, add a row to `RULES`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import lru_cache
from types import MappingProxyType
from typing import Any

import msgspec

from penstock.contract.options import Capabilities
from penstock.providers.dialect import ModelProfile

CHAT = "openai-chat"

BASES: Mapping[str, Capabilities] = {
    CHAT: Capabilities(audio=True, embeddings=True),
}
"""Where each dialect starts from."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One row: for whom it holds, and what it changes. Patterns are globs on lower-case names."""

    dialect: str
    models: tuple[str, ...] = ("*",)
    kind: str = "*"
    capabilities: Mapping[str, Any] = field(default_factory=dict[str, Any])
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])


_O_SERIES = ("o1", "o1-*", "o3", "o3-*", "o4-mini", "o4-mini-*")
_GPT_5 = ("gpt-5", "gpt-5-*")
_OPENAI_BEFORE_REASONING = ("gpt-3.5*", "gpt-4*", "chatgpt-*")
_OPENAI_REASONING = (*_O_SERIES, "gpt-5*", "gpt-6*")

RULES: tuple[Rule, ...] = (
    # OpenAI's own models.
    Rule(
        CHAT,
        models=(*_OPENAI_BEFORE_REASONING, *_OPENAI_REASONING),
        capabilities={"max_stop_sequences": 4, "audio": False, "embeddings": False},
    ),
    Rule(CHAT, models=_OPENAI_BEFORE_REASONING, capabilities={"reasoning": False}),
    Rule(
        CHAT,
        models=_OPENAI_REASONING,
        capabilities={"reasoning": True},
        options={"max_tokens_field": "max_completion_tokens"},
    ),
    Rule(CHAT, models=(*_O_SERIES, *_GPT_5, "gpt-6*"), capabilities={"temperature": False}),
    Rule(
        CHAT,
        models=("gpt-5-chat*",),
        capabilities={"temperature": True, "reasoning": False},
    ),
    Rule(
        CHAT,
        models=("o3", "o3-2*", "o4-mini", "o4-mini-*"),
        capabilities={"stop_sequences": False},
    ),
    Rule(CHAT, models=("gpt-6*",), capabilities={"context_window": 1_050_000}),
    Rule(CHAT, models=("*audio*",), capabilities={"audio": True}),
    # Providers that refuse fields, or want some back.
    Rule(CHAT, kind="mistral", options={"include_usage": False, "user_field": None}),
    Rule(CHAT, kind="deepseek", options={"replay_reasoning": "reasoning_content"}),
    Rule(CHAT, kind="moonshot", options={"replay_reasoning": "reasoning_content"}),
)


@lru_cache(maxsize=4096)
def profile_for(dialect: str, provider_kind: str, model: str) -> ModelProfile:
    """The profile of this model at this kind of provider."""
    name = model.lower()
    capabilities: dict[str, Any] = {}
    options: dict[str, Any] = {}
    for rule in RULES:
        if (
            rule.dialect == dialect
            and fnmatchcase(provider_kind, rule.kind)
            and any(fnmatchcase(name, pattern) for pattern in rule.models)
        ):
            capabilities |= rule.capabilities
            options |= rule.options
    base = BASES.get(dialect, Capabilities())
    return ModelProfile(msgspec.structs.replace(base, **capabilities), MappingProxyType(options))
