"""What single models do differently on this wire, as data.

Options that the encoder reads: `least_effort` is what to ask for in place of `none` of a model that
always thinks.
"""

from __future__ import annotations

from penstock.contract.options import Capabilities
from penstock.providers.openai_wire import transcription
from penstock.providers.profiles import Catalogue, Rule

_O_SERIES = ("o1", "o1-*", "o3", "o3-*", "o4-mini", "o4-mini-*")
_GPT_5 = ("gpt-5", "gpt-5-*")
_BEFORE_REASONING = ("gpt-3.5*", "gpt-4*", "chatgpt-*")
_REASONING = (*_O_SERIES, "gpt-5*", "gpt-6*")

_FIELDS = {"top_p": "top_p"}
_ALL_EFFORTS = ("low", "med", "high", "xhigh", "max")

_RULES: tuple[Rule, ...] = (
    Rule(
        models=(*_BEFORE_REASONING, *_REASONING),
        capabilities={"embeddings": False, "transcription": False},
    ),
    Rule(models=_BEFORE_REASONING, capabilities={"reasoning": False}),
    Rule(models=(*_O_SERIES, *_GPT_5, "gpt-6*"), capabilities={"temperature": False}),
    Rule(models=(*_O_SERIES, *_GPT_5), capabilities={"reasoning_off": False}),
    Rule(
        models=(*_BEFORE_REASONING, *_O_SERIES),
        capabilities={"sampling_fields": _FIELDS, "reasoning_levels": ("low", "med", "high")},
    ),
    Rule(models=_GPT_5, capabilities={"reasoning_levels": ("minimal", "low", "med", "high")}),
    Rule(models=("gpt-5.1*",), capabilities={"reasoning_levels": ("low", "med", "high")}),
    Rule(
        models=("gpt-5.1-codex-max*", "gpt-5.2*", "gpt-5.3*", "gpt-5.4*", "gpt-5.5*"),
        capabilities={"reasoning_levels": ("low", "med", "high", "xhigh")},
    ),
    Rule(models=_O_SERIES, options={"least_effort": "low"}),
    Rule(models=_GPT_5, options={"least_effort": "minimal"}),
    Rule(models=("gpt-5-pro*",), options={"least_effort": "high"}),
    Rule(models=("o1-mini*", "o3-mini*"), capabilities={"images": False, "image_urls": False}),
    Rule(models=("gpt-3.5*",), capabilities={"images": False, "image_urls": False}),
    Rule(
        models=("gpt-5-chat*",),
        capabilities={"temperature": True, "reasoning": False},
    ),
    # Windows.
    Rule(models=("gpt-3.5*",), capabilities={"context_window": 16_385}),
    Rule(models=("gpt-4-turbo*", "chatgpt-4o*"), capabilities={"context_window": 128_000}),
    Rule(models=("gpt-4o*",), capabilities={"context_window": 128_000, "max_output": 16_384}),
    Rule(models=("gpt-4.1*",), capabilities={"context_window": 1_047_576, "max_output": 32_768}),
    Rule(
        models=("o1", "o1-2*", "o1-pro*", "o3", "o3-*", "o4-mini", "o4-mini-*"),
        capabilities={"context_window": 200_000, "max_output": 100_000},
    ),
    Rule(models=_GPT_5, capabilities={"context_window": 400_000, "max_output": 128_000}),
    Rule(models=("gpt-5-chat*",), capabilities={"context_window": 128_000, "max_output": 16_384}),
    Rule(models=("gpt-5-pro*",), capabilities={"max_output": 272_000}),
    Rule(
        models=("gpt-5.1*", "gpt-5.2*", "gpt-5.3-codex*", "gpt-5.4-mini*", "gpt-5.4-nano*"),
        capabilities={"context_window": 400_000},
    ),
    Rule(
        models=("gpt-5.4", "gpt-5.4-2*", "gpt-5.4-pro*", "gpt-5.6*"),
        capabilities={"context_window": 1_050_000},
    ),
    Rule(models=("gpt-5.5*",), capabilities={"context_window": 1_000_000}),
    Rule(models=("gpt-6*",), capabilities={"context_window": 1_050_000}),
    Rule(
        models=("text-embedding-*",),
        capabilities={
            "reasoning": False,
            "tools": False,
            "native_mcp": False,
            "images": False,
            "image_urls": False,
        },
    ),
)

CATALOGUE = Catalogue(
    Capabilities(
        extra_of="openai-responses",
        stop_sequences=False,
        reasoning_levels=_ALL_EFFORTS,
        sampling_fields=_FIELDS | {"verbosity": "text.verbosity"},
        audio=False,
        native_mcp=True,
        embeddings=True,
        transcription=True,
    ),
    (*_RULES, *transcription.RULES),
)
