"""The catalogue of quirks: a model's name in, its profile out."""

from typing import Any

import pytest

from penstock.contract.options import Capabilities
from penstock.providers.openai_responses.catalogue import CATALOGUE
from penstock.providers.profiles import ModelProfile


def profile_of(model: str) -> ModelProfile:
    return CATALOGUE.profile("openai", model, {})


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        ("gpt-6-luna", {"temperature": False, "reasoning": True, "context_window": 1_050_000}),
        ("GPT-6.1-sol", {"temperature": False, "embeddings": False}),
        ("gpt-5", {"temperature": False, "context_window": 400_000, "max_output": 128_000}),
        ("gpt-5.1", {"temperature": True, "reasoning": True}),
        ("gpt-5-chat-latest", {"temperature": True, "reasoning": False, "max_output": 16_384}),
        ("gpt-4o", {"temperature": True, "reasoning": False, "context_window": 128_000}),
        ("gpt-4.1-mini", {"reasoning": False, "context_window": 1_047_576}),
        ("o3", {"temperature": False, "reasoning": True, "images": True}),
        ("o3-mini", {"images": False}),
        ("text-embedding-3-small", {"embeddings": True, "reasoning": False, "tools": False}),
        ("anything", {"stop_sequences": False, "audio": False, "prefill": False}),
    ],
)
def test_what_models_take(model: str, expected: dict[str, Any]) -> None:
    capabilities = profile_of(model).capabilities
    assert {name: getattr(capabilities, name) for name in expected} == expected


@pytest.mark.parametrize(
    ("model", "effort"),
    [
        ("o3", "low"),
        ("o4-mini-2025-04-16", "low"),
        ("gpt-5", "minimal"),
        ("gpt-5-nano", "minimal"),
        ("gpt-5-pro", "high"),
        ("gpt-5.1", None),
        ("gpt-6-luna", None),
    ],
)
def test_the_least_a_model_can_think(model: str, effort: str | None) -> None:
    profile = profile_of(model)
    assert profile.options.get("least_effort") == effort
    assert profile.capabilities.reasoning_off is (effort is None)


def test_every_rule_names_real_capabilities() -> None:
    names = set(Capabilities.__struct_fields__)
    assert all(set(rule.capabilities) <= names for rule in CATALOGUE.rules)
