"""The catalogue of quirks: a model's name in, its profile out."""

from typing import Any

import pytest

from penstock.contract.options import Capabilities
from penstock.providers.openai_chat.catalogue import CATALOGUE
from penstock.providers.profiles import ModelProfile

CHAT = "openai-chat"


def profile_of(model: str, kind: str = CHAT) -> ModelProfile:
    return CATALOGUE.profile(kind, model, {})


@pytest.mark.parametrize(
    ("model", "field"),
    [
        ("o1", "max_completion_tokens"),
        ("o3-mini", "max_completion_tokens"),
        ("o4-mini-2025-04-16", "max_completion_tokens"),
        ("gpt-5", "max_completion_tokens"),
        ("gpt-5.6-terra", "max_completion_tokens"),
        ("GPT-6.1-sol", "max_completion_tokens"),
        ("gpt-4o", "max_tokens"),
        ("gpt-oss-120b", "max_tokens"),
        ("qwen3", "max_tokens"),
        ("olmo-3-32b", "max_tokens"),
    ],
)
def test_the_field_for_max_tokens(model: str, field: str) -> None:
    options = profile_of(model).options
    assert options.get("max_tokens_field", "max_tokens") == field


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        ("gpt-6-luna", {"temperature": False, "reasoning": True, "context_window": 1_050_000}),
        ("gpt-5", {"temperature": False, "reasoning": True}),
        ("gpt-5-mini", {"temperature": False, "reasoning": True}),
        ("gpt-5.1", {"temperature": True, "reasoning": True, "reasoning_off": True}),
        ("gpt-5-mini", {"reasoning_off": False, "prefill": False}),
        ("o3-mini", {"reasoning_off": False}),
        ("gpt-6-luna", {"reasoning_off": True}),
        ("openai/gpt-oss-120b", {"reasoning_off": False}),
        ("gpt-5-chat-latest", {"temperature": True, "reasoning": False}),
        ("gpt-4o", {"temperature": True, "reasoning": False, "max_stop_sequences": 4}),
        ("gpt-4o", {"audio": False, "images": True, "embeddings": False}),
        ("gpt-4o-audio-preview", {"audio": True}),
        ("gpt-audio-mini", {"audio": True}),
        ("o3", {"stop_sequences": False, "temperature": False}),
        ("o3-2025-04-16", {"stop_sequences": False}),
        ("o4-mini", {"stop_sequences": False, "reasoning": True}),
        ("o3-mini", {"stop_sequences": True, "max_stop_sequences": 4}),
        ("o1", {"stop_sequences": True}),
        ("text-embedding-3-small", {"embeddings": True}),
    ],
)
def test_what_openais_own_models_take(model: str, expected: dict[str, Any]) -> None:
    capabilities = profile_of(model).capabilities
    assert {name: getattr(capabilities, name) for name in expected} == expected


@pytest.mark.parametrize(("kind", "able"), [("llamacpp", True), ("groq", True), ("vllm", False)])
def test_servers_that_continue_the_last_message(kind: str, able: bool) -> None:
    assert profile_of("qwen3", kind).capabilities.prefill is able


def test_an_unknown_model_may_do_everything() -> None:
    profile = profile_of("my-own-model", "vllm")
    fields = profile.capabilities.sampling_fields
    assert {"top_p", "top_k", "min_p", "seed"} <= fields.keys()
    assert profile.capabilities == Capabilities(
        extra_of="openai-chat",
        sampling_fields=fields,
        audio=True,
        embeddings=True,
        transcription=True,
    )
    assert not profile.options
    assert profile.capabilities.context_window is None


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("mistral", {"include_usage": False, "user_field": None}),
        ("deepseek", {"replay_reasoning": "reasoning_content"}),
        ("moonshot", {"replay_reasoning": "reasoning_content"}),
        ("groq", {}),
    ],
)
def test_a_provider_may_have_quirks_for_all_its_models(kind: str, options: dict[str, Any]) -> None:
    assert dict(profile_of("any", kind).options) == options


def test_profiles_cannot_be_changed() -> None:
    profile = profile_of("gpt-6-luna")
    with pytest.raises(TypeError):
        profile.options["max_tokens_field"] = "max_tokens"  # pyright: ignore[reportIndexIssue]


def test_every_rule_names_real_capabilities() -> None:
    names = set(Capabilities.__struct_fields__)
    assert all(set(rule.capabilities) <= names for rule in CATALOGUE.rules)


def test_the_options_of_a_provider_win_over_the_rules() -> None:
    profile = CATALOGUE.profile(CHAT, "gpt-6-luna", {"max_tokens_field": "mine", "more": 1})
    assert dict(profile.options) == {"max_tokens_field": "mine", "more": 1}
