"""What single models and services do differently on this wire, as data."""

from __future__ import annotations

from penstock.contract.options import Capabilities
from penstock.providers.openai_wire import transcription
from penstock.providers.profiles import Catalogue, Rule

_O_SERIES = ("o1", "o1-*", "o3", "o3-*", "o4-mini", "o4-mini-*")
_GPT_5 = ("gpt-5", "gpt-5-*")
_OPENAI_BEFORE_REASONING = ("gpt-3.5*", "gpt-4*", "chatgpt-*")
_OPENAI_REASONING = (*_O_SERIES, "gpt-5*", "gpt-6*")

_FIELDS = {
    name: name for name in ("top_p", "seed", "presence_penalty", "frequency_penalty", "verbosity")
}
_FIELDS_OF_OPEN_MODELS = _FIELDS | {
    name: name for name in ("top_k", "min_p", "repetition_penalty") if name not in _FIELDS
}
"""What servers of open models take as well."""
_ALL_EFFORTS = ("low", "med", "high", "xhigh", "max")

_RULES: tuple[Rule, ...] = (
    # OpenAI's own models.
    Rule(
        models=(*_OPENAI_BEFORE_REASONING, *_OPENAI_REASONING),
        capabilities={
            "max_stop_sequences": 4,
            "audio": False,
            "embeddings": False,
            "transcription": False,
        },
    ),
    Rule(models=_OPENAI_BEFORE_REASONING, capabilities={"reasoning": False}),
    Rule(
        models=_OPENAI_REASONING,
        capabilities={"reasoning": True},
        options={"max_tokens_field": "max_completion_tokens"},
    ),
    Rule(models=(*_O_SERIES, *_GPT_5, "gpt-6*"), capabilities={"temperature": False}),
    Rule(models=(*_O_SERIES, *_GPT_5), capabilities={"reasoning_off": False}),
    Rule(
        models=(*_OPENAI_BEFORE_REASONING, *_O_SERIES),
        capabilities={
            "sampling_fields": {name: name for name in _FIELDS if name != "verbosity"},
        },
    ),
    Rule(models=_GPT_5, capabilities={"reasoning_levels": ("minimal", "low", "med", "high")}),
    Rule(
        models=("gpt-5.2*", "gpt-5.3*", "gpt-5.4*", "gpt-5.5*"),
        capabilities={"reasoning_levels": ("low", "med", "high", "xhigh")},
    ),
    Rule(models=("gpt-5.6*", "gpt-6*"), capabilities={"reasoning_levels": _ALL_EFFORTS}),
    Rule(models=_GPT_5, options={"least_effort": "minimal"}),
    Rule(models=("gpt-5-pro*",), options={"least_effort": "high"}),
    Rule(
        models=("gpt-5-chat*",),
        capabilities={"temperature": True, "reasoning": False},
    ),
    Rule(
        models=("o3", "o3-2*", "o4-mini", "o4-mini-*"),
        capabilities={"stop_sequences": False},
    ),
    Rule(
        models=("o1", "o1-2*", "o3", "o3-*", "o4-mini", "o4-mini-*"),
        capabilities={"context_window": 200_000, "max_output": 100_000},
    ),
    Rule(models=("gpt-4o*",), capabilities={"context_window": 128_000, "max_output": 16_384}),
    Rule(models=("gpt-4.1*",), capabilities={"context_window": 1_047_576, "max_output": 32_768}),
    Rule(models=_GPT_5, capabilities={"context_window": 400_000, "max_output": 128_000}),
    Rule(models=("gpt-5-chat*",), capabilities={"context_window": 128_000, "max_output": 16_384}),
    Rule(models=("gpt-5-pro*",), capabilities={"max_output": 272_000}),
    Rule(models=("gpt-5.1*", "gpt-5.2*"), capabilities={"context_window": 400_000}),
    Rule(models=("gpt-5.6*", "gpt-6*"), capabilities={"context_window": 1_050_000}),
    Rule(models=("*audio*",), capabilities={"audio": True}),
    # Its open model, at whoever serves it.
    Rule(models=("gpt-oss*", "*/gpt-oss*"), capabilities={"reasoning_off": False}),
    *(
        Rule(kind=kind, capabilities={"sampling_fields": _FIELDS_OF_OPEN_MODELS})
        for kind in ("vllm", "llamacpp", "lmstudio", "openrouter", "together", "fireworks")
    ),
    Rule(kind="openrouter", capabilities={"reasoning_levels": ("minimal", *_ALL_EFFORTS)}),
    # xAI's models that think refuse it.
    Rule(
        models=("grok-4*", "grok-3-mini*", "grok-code*"),
        kind="xai",
        capabilities={"stop_sequences": False},
    ),
    # Servers that go on with the assistant's last message.
    Rule(kind="llamacpp", capabilities={"prefill": True}),
    Rule(kind="groq", capabilities={"prefill": True}),
    # Providers that refuse fields, or want some back.
    Rule(kind="mistral", options={"include_usage": False, "user_field": None}),
    Rule(kind="deepseek", options={"replay_reasoning": "reasoning_content"}),
    Rule(kind="moonshot", options={"replay_reasoning": "reasoning_content"}),
)

CATALOGUE = Catalogue(
    Capabilities(
        extra_of="openai-chat",
        sampling_fields=_FIELDS,
        audio=True,
        embeddings=True,
        transcription=True,
    ),
    (*_RULES, *transcription.RULES),
)
