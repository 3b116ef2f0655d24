"""Which fields of a caller's own body may do more than shape one answer of one model.

A gateway passes fields that it has no name for to providers of the same dialect. Some of them
choose another model, route or tariff there, or start something that costs extra. This table says
which, by kind of provider. `server.permitted_fields` decides who may send them.

Two lists, because they serve two purposes:

- `steering(kind)`: fields with a known effect. Where a hard budget holds, they are refused.
- `is_harmless(kind, name, value)`: fields that are known to have no such effect. A key with limited
  models may send these only: a server that nobody here knows may have a field for anything.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

MODEL = "chooses another model"
ROUTE = "chooses another route or host"
TOOL = "starts searches, plug-ins or tools, which cost extra"
TARIFF = "chooses another tariff, or several answers"
STATE = "refers to what the provider's account has stored"

_SERVICE_TIER = {"service_tier": TARIFF}
# LiteLLM and other gateways stand behind any address, so these rows hold for every Chat server.
_CHAT: Mapping[str, str] = {
    **dict.fromkeys(
        (
            *("models", "model_list", "model_group", "fallbacks", "fallback", "default_fallbacks"),
            *("context_window_fallbacks", "content_policy_fallbacks", "preset", "deployment_id"),
            *("draft_model", "safety_model", "adapter", "adapter_id", "lora", "lora_adapter"),
            *("prompt_id", "agent_id"),
        ),
        MODEL,
    ),
    **dict.fromkeys(
        (
            *("route", "router", "provider", "providers", "transforms", "api_base", "base_url"),
            *("api_url", "api_key", "api_version", "api_type", "custom_llm_provider"),
            *("organization", "user_config", "litellm_params", "router_settings", "region_name"),
            *("aws_region_name", "vertex_project", "vertex_location", "extra_body"),
            *("extra_headers", "extra_query", "headers", "proxy"),
        ),
        ROUTE,
    ),
    **dict.fromkeys(
        (
            *("plugins", "web_search_options", "web_search", "search_parameters", "enable_search"),
            *("search_settings", "mcp_servers", "server_tools", "file_ids", "guardrails"),
        ),
        TOOL,
    ),
    **dict.fromkeys(
        ("service_tier", "speed", "priority", "best_of", "num_return_sequences", "use_beam_search"),
        TARIFF,
    ),
    **dict.fromkeys(
        (
            *("prompt", "prompt_variables", "conversation", "previous_response_id", "container"),
            *("background", "deferred"),
        ),
        STATE,
    ),
}
_RESPONSES: Mapping[str, str] = {
    **_SERVICE_TIER,
    **dict.fromkeys(("models", "fallbacks"), MODEL),
    **dict.fromkeys(("provider", "route", "api_base", "base_url", "extra_body"), ROUTE),
    "plugins": TOOL,
    "container": STATE,
}
_MESSAGES: Mapping[str, str] = {
    **_SERVICE_TIER,
    "speed": TARIFF,
    "inference_geo": TARIFF,
    "container": STATE,
    "user_profile_id": STATE,
    **dict.fromkeys(("models", "model_list"), MODEL),
    **dict.fromkeys(
        ("provider", "route", "api_base", "base_url", "custom_llm_provider", "extra_body"), ROUTE
    ),
    "plugins": TOOL,
}
_BY_DIALECT: Mapping[str, Mapping[str, str]] = {
    "anthropic": _MESSAGES,
    "openai_chat": _CHAT,
    "openai_responses": _RESPONSES,
}
_BY_KIND: Mapping[str, Mapping[str, str]] = {
    "fireworks": {"speculation": MODEL, "prompt_cache_isolation_key": STATE},
    "groq": {"compound_custom": MODEL, "documents": TOOL},
    "llamacpp": {"id_slot": STATE},
    "lmstudio": {"ttl": STATE},
    "mistral": {"guardrails": TOOL},
    "nvidia": {"nvext": ROUTE},
    "openrouter": {"session_id": ROUTE, "zdr": ROUTE, "max_price": ROUTE},
    "perplexity": {"search_type": TARIFF, "num_search_results": TARIFF, "media_response": TOOL},
    "vllm": {
        "kv_transfer_params": ROUTE,
        "vllm_xargs": ROUTE,
        "chat_template": ROUTE,
        "mm_processor_kwargs": TARIFF,
    },
    "xai": {"search_parameters": TOOL, "deferred": STATE},
}
"""What only servers of this kind know, beside what all of their dialect may know."""

_HARMLESS_CHAT = frozenset(
    {
        *("top_p", "presence_penalty", "frequency_penalty", "logit_bias", "logprobs"),
        *("top_logprobs", "seed", "store", "prediction", "safety_identifier", "verbosity"),
        *("prompt_cache_key", "prompt_cache_options", "prompt_cache_retention"),
        # How the next token is chosen: vLLM, llama.cpp and most servers of open models.
        *("top_k", "min_p", "top_a", "typical_p", "repetition_penalty", "repeat_penalty"),
        *("repeat_last_n", "length_penalty", "min_tokens", "ignore_eos", "stop_token_ids"),
        *("bad_words", "allowed_token_ids", "skip_special_tokens", "include_stop_str_in_output"),
        *(
            "spaces_between_special_tokens",
            "mirostat",
            "mirostat_tau",
            "mirostat_eta",
            "xtc_threshold",
        ),
        *("xtc_probability", "dry_multiplier", "dry_base", "dry_allowed_length", "cache_prompt"),
        *("samplers", "dynatemp_range", "n_probs", "add_generation_prompt"),
        *("continue_final_message", "chat_template_kwargs", "cache_salt"),
        # The form of the answer.
        *("guided_json", "guided_regex", "guided_choice", "guided_grammar", "structured_outputs"),
        *("grammar", "json_schema"),
        # How much the model thinks, and whether that is shown.
        *("reasoning", "include_reasoning", "reasoning_format", "reasoning_split", "thinking"),
        *("thinking_budget", "enable_thinking", "disable_reasoning"),
        *("random_seed", "safe_prompt", "prompt_mode", "return_token_ids"),
    }
)
_HARMLESS: Mapping[str, frozenset[str]] = {
    "anthropic": frozenset({"top_p", "top_k", "context_management", "diagnostics"}),
    "openai_chat": _HARMLESS_CHAT,
    "openai_responses": frozenset(
        {
            *(
                "top_p",
                "verbosity",
                "truncation",
                "max_tool_calls",
                "stream_options",
                "client_metadata",
            ),
            *("prompt_cache_key", "prompt_cache_options", "prompt_cache_retention"),
        }
    ),
}
_HARMLESS_BY_KIND: Mapping[str, frozenset[str]] = {
    "fireworks": frozenset(
        {
            *("context_length_exceeded_behavior", "prompt_truncate_len", "raw_output"),
            "perf_metrics_in_response",
        }
    ),
    "openrouter": frozenset({"usage", "user_id"}),
    "perplexity": frozenset(
        {
            *("search_mode", "search_domain_filter", "search_recency_filter", "disable_search"),
            *("search_after_date_filter", "search_before_date_filter", "language_preference"),
            *("last_updated_after_filter", "last_updated_before_filter", "return_images"),
            *("return_related_questions", "return_citations"),
        }
    ),
}
_HARMLESS_VALUES: Mapping[str, tuple[Any, ...]] = {
    "background": (False,),
    "best_of": (1,),
    "deferred": (False,),
    "enable_search": (False,),
    "fallbacks": ([],),
    "inference_geo": ("global",),
    "models": ([],),
    "plugins": ([],),
    "service_tier": ("auto", "default", "standard", "standard_only", "flex", "on_demand"),
    "speed": ("standard",),
    "transforms": ([],),
    "use_beam_search": (False,),
}
"""Values that ask for nothing beyond the usual, or for something cheaper."""


def steering(kind: str, dialect: str | None) -> Mapping[str, str]:
    """The fields of known effect at providers of this kind, with what each of them does."""
    return MappingProxyType({**_BY_DIALECT.get(dialect or "", {}), **_BY_KIND.get(kind, {})})


def asks_for_nothing(name: str, value: Any) -> bool:
    """Whether the field has no effect with this value."""
    return value is None or any(
        type(value) is type(each) and value == each for each in _HARMLESS_VALUES.get(name, ())
    )


def is_harmless(kind: str, dialect: str, name: str) -> bool:
    """Whether the field is known to shape nothing but one answer of one model."""
    return name in _HARMLESS.get(dialect, ()) or name in _HARMLESS_BY_KIND.get(kind, ())
