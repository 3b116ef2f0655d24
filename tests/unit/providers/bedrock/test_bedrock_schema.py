"""Schemas and models: what is adapted, and what is known."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.contract.errors import InvalidRequest
from penstock.contract.options import Capabilities
from penstock.providers.bedrock.catalogue import CATALOGUE
from penstock.providers.bedrock.schema import adapt

CLOSED = {"additionalProperties": False}


@pytest.mark.parametrize(
    ("schema", "adapted"),
    [
        ({"type": "string"}, {"type": "string"}),
        ({"type": "object"}, {"type": "object", **CLOSED}),
        ({"type": ["object", "null"]}, {"type": ["object", "null"], **CLOSED}),
        ({"properties": {}}, {"properties": {}, **CLOSED}),
        ({"type": "object", "additionalProperties": True}, {"type": "object", **CLOSED}),
        (
            {"type": "object", "additionalProperties": {"type": "integer"}},
            {
                "type": "object",
                **CLOSED,
                "description": '(additionalProperties: {"type":"integer"})',
            },
        ),
        (
            {"type": "integer", "minimum": 1, "maximum": 5, "description": "A grade."},
            {"type": "integer", "description": "A grade. (minimum: 1, maximum: 5)"},
        ),
        (
            {"type": "string", "pattern": "^a", "format": "date"},
            {"type": "string", "format": "date", "description": '(pattern: "^a")'},
        ),
        (
            {"type": "string", "format": "color"},
            {"type": "string", "description": '(format: "color")'},
        ),
        (
            {"type": "array", "items": {"type": "object"}, "minItems": 1, "maxItems": 3},
            {
                "type": "array",
                "items": {"type": "object", **CLOSED},
                "minItems": 1,
                "description": "(maxItems: 3)",
            },
        ),
        ({"type": "array", "minItems": 2}, {"type": "array", "description": "(minItems: 2)"}),
        (
            {"oneOf": [{"const": 1}, {"type": "object"}]},
            {"anyOf": [{"const": 1}, {"type": "object", **CLOSED}]},
        ),
        ({"$schema": "x", "$id": "y", "enum": [1, None]}, {"enum": [1, None]}),
        (
            {"$ref": "#/$defs/n", "$defs": {"n": {"properties": {"next": {"$ref": "#/$defs/n"}}}}},
            {
                "$ref": "#/$defs/n",
                "$defs": {"n": {"properties": {"next": {"$ref": "#/$defs/n"}}, **CLOSED}},
            },
        ),
        (
            {"properties": {"minimum": {"type": "string"}}},
            {"properties": {"minimum": {"type": "string"}}, **CLOSED},
        ),
    ],
)
def test_schemas(schema: dict[str, Any], adapted: dict[str, Any]) -> None:
    before = copy.deepcopy(schema)
    assert adapt(schema) == adapted
    assert schema == before
    assert adapt(adapted | {}) == adapt(adapt(adapted))


def test_a_schema_without_end_is_refused() -> None:
    endless: dict[str, Any] = {"type": "array"}
    endless["items"] = endless
    with pytest.raises(InvalidRequest, match="deep"):
        adapt(endless)
    with pytest.raises(InvalidRequest, match="JSON"):
        adapt({"minimum": object()})


KEYS = st.sampled_from(["type", "properties", "items", "anyOf", "oneOf", "$defs", "minimum", "x"])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=10,
)


@given(st.dictionaries(KEYS, VALUES))
def test_any_json_is_adapted_without_being_changed(schema: dict[str, Any]) -> None:
    before = copy.deepcopy(schema)
    adapt(schema)
    assert schema == before


def able(model: str) -> Capabilities:
    return CATALOGUE.profile("bedrock", model, {}).capabilities


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        ("unknown", {"temperature": True, "audio": True, "image_urls": False, "reasoning": True}),
        ("unknown", {"parallel_tools_switch": False, "max_temperature": 1.0, "prefill": False}),
        ("global.anthropic.claude-opus-5-5", {"temperature": False, "max_output": 128_000}),
        ("global.anthropic.claude-opus-5-5", {"reasoning_off": False, "prefill": False}),
        ("global.anthropic.claude-mythos-5-2", {"reasoning_off": False}),
        ("us.anthropic.claude-sonnet-4-5-20250929-v1:0", {"min_reasoning_tokens": 1024}),
        ("openai.gpt-oss-120b-1:0", {"reasoning_off": False}),
        ("amazon.nova-pro-v1:0", {"prefill": True, "reasoning": False}),
        ("eu.anthropic.claude-opus-4-7", {"temperature": False, "prefill": False}),
        ("us.anthropic.claude-sonnet-4-6", {"temperature": True, "prefill": False}),
        ("anthropic.claude-sonnet-4-5-20250929-v1:0", {"prefill": True, "output_schema": True}),
        ("anthropic.claude-opus-4-1-20250805-v1:0", {"max_output": 32_000, "output_schema": False}),
        ("anthropic.claude-3-haiku-20240307-v1:0", {"reasoning": False, "max_output": 4096}),
        ("anthropic.claude-3-5-sonnet-20241022-v2:0", {"reasoning": False, "max_output": 8192}),
        ("anthropic.claude-3-7-sonnet-20250219-v1:0", {"reasoning": True, "temperature": True}),
        ("amazon.nova-micro-v1:0", {"images": False, "context_window": 128_000}),
        ("us.amazon.nova-pro-v1:0", {"max_stop_sequences": 4, "reasoning": False}),
        ("us.amazon.nova-2-lite-v1:0", {"reasoning": True, "context_window": 1_000_000}),
        ("us.meta.llama4-scout-17b-instruct-v1:0", {"tool_choice": False, "reasoning": False}),
        ("mistral.voxtral-mini-3b-2507", {"audio": True}),
        ("mistral.mistral-large-3-675b-instruct", {"audio": False}),
        ("amazon.titan-embed-text-v2:0", {"embeddings": True}),
        ("eu.cohere.embed-v4:0", {"embeddings": True}),
        (
            "arn:aws:bedrock:us-east-1:1:inference-profile/us.anthropic.claude-sonnet-4-6",
            {"temperature": True, "max_output": 64_000},
        ),
    ],
)
def test_what_models_take(model: str, expected: dict[str, Any]) -> None:
    known = able(model)
    assert {name: getattr(known, name) for name in expected} == expected
