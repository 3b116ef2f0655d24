"""What single models do differently on this wire, as data.

Profile options: `thinking_levels` (the model takes a word) or `thinking_budgets` (it takes a number
of tokens), each from our level to the model's; `signed_calls` (a call in the history needs a
signature), `result_media` (a function's result may hold pictures) and `origin` (the family that
reads its signatures on every account).
"""

from __future__ import annotations

from collections.abc import Mapping

from penstock.contract.options import Capabilities
from penstock.providers.profiles import Catalogue, Rule

LEVELS: Mapping[str, str] = {"none": "MINIMAL", "low": "LOW", "med": "MEDIUM", "high": "HIGH"}
"""What models take that no rule knows: the words of the newest ones."""

_ALWAYS_THINKS: Mapping[str, str] = {**LEVELS, "none": "LOW"}
_MINIMAL_OR_HIGH: Mapping[str, str] = {**LEVELS, "low": "MINIMAL", "med": "HIGH"}
_BUDGETS: Mapping[str, int] = {"none": 0, "low": 1_024, "med": 8_192, "high": 24_576}
# The smallest and the largest budget of the model that cannot be told not to think.
_PRO_BUDGETS: Mapping[str, int] = {**_BUDGETS, "none": 128, "high": 32_768}


def _named(*patterns: str) -> tuple[str, ...]:
    """A model is asked for with or without the collection that it belongs to."""
    return (*patterns, *(f"models/{pattern}" for pattern in patterns))


_RULES: tuple[Rule, ...] = (
    Rule(
        models=_named("gemini-2.*", "gemini-3*", "gemini-4*", "gemini-flash*", "gemini-pro*"),
        capabilities={"context_window": 1_048_576, "embeddings": False},
        options={"origin": "gemini"},
    ),
    Rule(
        models=_named("gemini-2.5*", "gemini-3*", "gemini-4*", "gemini-flash*", "gemini-pro*"),
        capabilities={"max_output": 65_536},
    ),
    Rule(
        models=_named("gemini-2.0*", "gemini-1.*"),
        capabilities={"reasoning": False, "image_urls": False, "max_output": 8_192},
    ),
    Rule(models=_named("gemini-2.5*"), options={"thinking_budgets": _BUDGETS}),
    Rule(
        models=_named("gemini-2.5-pro*"),
        capabilities={"reasoning_off": False},
        options={"thinking_budgets": _PRO_BUDGETS},
    ),
    # Later ones refuse a request that ends with a turn of the model.
    Rule(
        models=_named("gemini-2.*", "gemini-3-*", "gemini-3.1-*"),
        capabilities={"prefill": True},
    ),
    Rule(
        models=_named("gemini-3*", "gemini-4*"),
        options={"signed_calls": True, "result_media": True},
    ),
    Rule(
        models=_named("gemini-3*-pro*"),
        capabilities={"reasoning_off": False},
        options={"thinking_levels": _ALWAYS_THINKS},
    ),
    Rule(
        models=_named("gemma-*"),
        capabilities={
            "audio": False,
            "embeddings": False,
            "native_mcp": False,
            "transcription": False,
        },
    ),
    Rule(
        models=_named("gemma-3*"),
        capabilities={"reasoning": False, "system_prompt": False, "tools": False},
    ),
    Rule(
        models=_named("gemma-4*"),
        capabilities={"context_window": 262_144},
        options={"thinking_levels": _MINIMAL_OR_HIGH},
    ),
    Rule(
        models=_named("*embedding*"),
        capabilities={
            "context_window": 8_192,
            "max_output": None,
            "embeddings": True,
            "native_mcp": False,
            "transcription": False,
        },
    ),
)

CATALOGUE = Catalogue(
    Capabilities(
        sampling_fields={
            "top_p": "generationConfig.topP",
            "top_k": "generationConfig.topK",
            "seed": "generationConfig.seed",
            "presence_penalty": "generationConfig.presencePenalty",
            "frequency_penalty": "generationConfig.frequencyPenalty",
        },
        max_temperature=2.0,
        max_stop_sequences=5,
        audio=True,
        parallel_tools_switch=False,
        native_mcp=True,
        mcp_allow_list=False,
        assistant_last=False,
        embeddings=True,
        transcription=True,
    ),
    _RULES,
)
