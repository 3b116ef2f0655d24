"""What becomes of an option at a target: one table for all dialects and models.

| answer | meaning |
|---|---|
| native | the API takes the option as it is |
| adapted | the nearest value is sent, or none: the option advises, and the answer keeps its kind |
| emulated | Penstock does it here, with the same result |
| refused | nothing can take its place, and the caller is told so by name |

`OPTIONS` says how each option is judged by a model's `Capabilities` and what happens where a model
lacks it. `answer` reads one cell. `pool.fit` applies the same rows to a request, and
`docs/providers/matrix.md` shows them. A new option is a new row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Literal, TypeAlias

import msgspec

from penstock.contract.options import Capabilities, ReasoningLevel

Answer: TypeAlias = Literal["native", "adapted", "emulated", "refused"]
AdaptMode: TypeAlias = Literal["adapt", "refuse"]

OMITTED = "omitted"
"""What is sent for an option that is left out."""
EMULATED = "emulated"
PROMPTED = "prompted"
"""A schema that the prompt asks for."""


class Adaptation(msgspec.Struct, frozen=True, gc=False):
    """One option of a request that its target did not get as it was."""

    option: str
    answer: Answer
    used: str = OMITTED
    """What took its place: a value, or one of the words above."""

    def __str__(self) -> str:
        """`option=used`, as in the header `x-penstock-adapted`."""
        return f"{self.option}={self.used}"


def dropped(adaptations: Iterable[Adaptation]) -> tuple[str, ...]:
    """The options that were not done here with the same result."""
    return tuple(each.option for each in adaptations if each.answer != "emulated")


class Option(msgspec.Struct, frozen=True):
    """One row of the table."""

    title: str
    """How the documentation names it."""
    has: Callable[[Capabilities], bool]
    """Whether a model of these capabilities takes it."""
    otherwise: Answer
    """The answer where it does not."""


def _takes_field(name: str) -> Callable[[Capabilities], bool]:
    def has(able: Capabilities) -> bool:
        return takes_field(name, able)

    return has


def _takes_level(level: ReasoningLevel) -> Callable[[Capabilities], bool]:
    def has(able: Capabilities) -> bool:
        return able.reasoning and level in able.reasoning_levels

    return has


RANDOMNESS = frozenset(
    {
        *("top_p", "top_k", "min_p", "presence_penalty", "frequency_penalty"),
        *("repetition_penalty", "logit_bias"),
    }
)
"""What a model that takes no temperature refuses with it: how the next token is drawn."""
PORTABLE = ("top_p", "top_k", "min_p", "seed", "presence_penalty", "frequency_penalty")
PORTABLE_FIELDS = (*PORTABLE, "repetition_penalty", "verbosity")
"""Options of callers that several dialects have, each in its own place (`sampling_fields`)."""
HINT_FIELDS = frozenset(
    {
        *("seed", "store", "service_tier", "speed", "prediction", "safety_identifier"),
        *("prompt_cache_key", "prompt_cache_options", "prompt_cache_retention"),
        *("stream_options", "diagnostics", "client_metadata"),
    }
)
"""Fields of one API without which another gives the same answer."""
ADVISORY_FIELDS = HINT_FIELDS | frozenset(
    {
        *PORTABLE_FIELDS,
        *("context_management", "truncation", "thinking", "reasoning", "include_reasoning"),
        *("reasoning_format", "reasoning_split", "thinking_budget", "enable_thinking"),
        *("disable_reasoning", "chat_template_kwargs", "prompt_mode", "cache_prompt"),
        # How the next token is chosen, in the words of single servers.
        *("top_a", "typical_p", "repeat_penalty", "repeat_last_n", "length_penalty"),
        *("mirostat", "mirostat_tau", "mirostat_eta", "xtc_threshold", "xtc_probability"),
        *("dry_multiplier", "dry_base", "dry_allowed_length", "samplers", "dynatemp_range"),
        *("random_seed", "cache_salt"),
    }
)
"""Fields of callers that may be left out for a target that does not know them. All others ask for
something in kind (token probabilities, a grammar, a stored container) and are refused by name."""

OPTIONS: Mapping[str, Option] = {
    "system_prompt": Option("System prompt", lambda able: able.system_prompt, "emulated"),
    "max_tokens": Option(
        "`max_tokens` above the model's limit", lambda able: able.max_output is None, "adapted"
    ),
    "temperature": Option("`temperature`", lambda able: able.temperature, "adapted"),
    "temperature_above_maximum": Option(
        "`temperature` above the API's maximum",
        lambda able: able.temperature and able.max_temperature is None,
        "adapted",
    ),
    **{
        name: Option(f"`{name}`", _takes_field(name), "adapted")
        for name in PORTABLE_FIELDS
        if name != "verbosity"
    },
    "verbosity": Option("`verbosity`", _takes_field("verbosity"), "adapted"),
    "advisory_field": Option(
        "another dialect's advisory field, such as `context_management`",
        lambda able: False,
        "adapted",
    ),
    "essential_field": Option(
        "another dialect's field that changes the kind of answer, such as `logprobs`",
        lambda able: False,
        "refused",
    ),
    "stop_sequences": Option("Stop sequences", lambda able: able.stop_sequences, "emulated"),
    "stop_sequences_above_maximum": Option(
        "more stop sequences than the API takes",
        lambda able: able.stop_sequences and able.max_stop_sequences is None,
        "emulated",
    ),
    "reasoning_level": Option("Reasoning level", lambda able: able.reasoning, "adapted"),
    **{
        f"reasoning_level_{level}": Option(
            f"reasoning level `{level}`", _takes_level(level), "adapted"
        )
        for level in ("minimal", "xhigh", "max")
    },
    "reasoning_level_none": Option(
        "reasoning level `none`",
        # A model that cannot think satisfies it by itself.
        lambda able: able.reasoning_off or not able.reasoning,
        "adapted",
    ),
    "reasoning_level_without_room": Option(
        "reasoning level with `max_tokens` too small for it",
        lambda able: able.reasoning and able.min_reasoning_tokens is None,
        "adapted",
    ),
    "tools": Option("Tools", lambda able: able.tools, "refused"),
    "tool_choice": Option(
        "`tool_choice`: a tool is required", lambda able: able.tool_choice, "refused"
    ),
    "tool_choice_none": Option("`tool_choice`: none", lambda able: True, "native"),
    "parallel_tools": Option(
        "no parallel tool calls", lambda able: able.parallel_tools_switch, "adapted"
    ),
    "mcp_tools": Option(
        "MCP servers that the provider connects to", lambda able: able.native_mcp, "refused"
    ),
    "output_schema": Option("Output schema", lambda able: able.output_schema, "refused"),
    "output_schema_prompted": Option(
        "output schema that the prompt may ask for", lambda able: able.output_schema, "emulated"
    ),
    "images": Option("Images", lambda able: able.images, "refused"),
    "image_urls": Option("images by URL", lambda able: able.images and able.image_urls, "refused"),
    "audio": Option("Audio", lambda able: able.audio, "refused"),
    "prefill": Option(
        "an assistant's turn at the end",
        lambda able: able.prefill or able.assistant_last,
        "refused",
    ),
}
"""Every option that a target may lack, with what happens then."""
PENSTOCKS_OWN = frozenset(
    {
        *("messages", "model", "fallback_models", "model_preferences", "include_context"),
        *("metadata", "timeout", "ignore_invalid_options", "adapt", "meta"),
    }
)
"""Fields of a request that no target takes or lacks: Penstock acts on them itself."""


def answer(option: str, able: Capabilities) -> Answer:
    """What becomes of the option of this row at a model of these capabilities."""
    row = OPTIONS[option]
    return "native" if row.has(able) else row.otherwise


def takes_field(name: str, able: Capabilities) -> bool:
    """Whether the model takes this option of a caller, in whatever words."""
    return name in able.sampling_fields and (able.temperature or name not in RANDOMNESS)


_ORDER: tuple[ReasoningLevel, ...] = ("none", "minimal", "low", "med", "high", "xhigh", "max")


def nearest_level(level: ReasoningLevel, able: Capabilities) -> ReasoningLevel:
    """The highest level of the model that is not above this one, or else its lowest."""
    known = [_ORDER.index(each) for each in able.reasoning_levels]
    wanted = _ORDER.index(level)
    below = [each for each in known if each <= wanted]
    return _ORDER[max(below) if below else min(known)]
