"""Fields that only one dialect knows, in its bodies and out of its answers."""

import importlib
import json
from typing import Any

import pytest

from penstock import Extra, InvalidRequest, Result, SamplingRequest, UnsupportedOption, user
from penstock.providers.profiles import ModelProfile
from penstock.providers.wire.dialect import Dialect
from penstock.providers.wire.extra_fields import other_fields
from tests.unit.server.extras_support import ANSWERS, VENDOR, engine_on, upstream

PACKAGES = {
    "openai-chat": "openai_chat",
    "openai-responses": "openai_responses",
    "anthropic": "anthropic",
}
OTHERS = ("gemini", "ollama", "bedrock")
EVERY = pytest.mark.parametrize("name", PACKAGES)


def dialect(package: str) -> Dialect:
    return importlib.import_module(f"penstock.providers.{package}").DIALECT


def asked(spoken: Dialect, extra: Extra | None, stream: bool = False) -> dict[str, Any]:
    """The body of a request with these fields."""
    request = SamplingRequest(messages=(user("Hi"),), max_tokens=9, extra=extra)
    body = spoken.encode("m", request, ModelProfile(), stream).body
    assert body is not None
    return json.loads(body)


@EVERY
@pytest.mark.parametrize("stream", [False, True])
def test_they_stand_beside_what_is_written_anyway(name: str, stream: bool) -> None:
    spoken = dialect(PACKAGES[name])
    fields = {"top_k": 5, "vendor": {"a": [1, None]}}
    bare = asked(spoken, None, stream)
    assert asked(spoken, Extra(name, fields), stream) == bare | fields
    assert asked(spoken, Extra("another", fields), stream) == bare


@EVERY
def test_every_field_that_a_full_request_has_is_penstocks_own(name: str) -> None:
    spoken = dialect(PACKAGES[name])
    for field in asked(spoken, None, stream=True):
        with pytest.raises(InvalidRequest) as caught:
            asked(spoken, Extra(name, {field: "x"}), stream=True)
        (problem,) = caught.value.problems
        assert problem.path == f"extra.fields.{field}"
        assert "Penstock" in problem.message


@EVERY
@pytest.mark.parametrize("field", ["stream", "tools", "temperature"])
def test_a_field_is_penstocks_own_even_where_it_is_not_written(name: str, field: str) -> None:
    with pytest.raises(InvalidRequest, match=f"extra.fields.{field}"):
        asked(dialect(PACKAGES[name]), Extra(name, {field: "x"}))


@EVERY
def test_of_an_optional_field_the_bodys_own_stays(name: str) -> None:
    spoken = dialect(PACKAGES[name])
    extra = Extra(name, {"model": "x", "vendor": 1}, frozenset({"model"}))
    assert asked(spoken, extra) == asked(spoken, None) | {"vendor": 1}


@pytest.mark.parametrize("package", OTHERS)
def test_no_other_dialect_takes_any(package: str) -> None:
    spoken = dialect(package)
    assert spoken.catalogue.base.extra_of is None
    assert spoken.further is None


@EVERY
def test_the_catalogue_says_who_takes_them(name: str) -> None:
    spoken = dialect(PACKAGES[name])
    assert spoken.name == spoken.catalogue.base.extra_of == name


@pytest.mark.parametrize("data", [b"", b"[]", b"null", b"{", b'{"a": ' + b"[" * 100_000])
def test_what_is_no_object_has_none(data: bytes) -> None:
    assert other_fields(data, ()) == {}


# ---- without a gateway


async def answered(kind: str, extra: Extra | None, **options: Any) -> tuple[Result, dict[str, Any]]:
    """The result, and the body that the provider was sent."""
    async with upstream(kind) as seen, engine_on(seen) as engine:
        result = await engine.create_message("Hi", max_tokens=9, extra=extra, **options)
        return result, seen.bodies[0]


@pytest.mark.parametrize("kind", ANSWERS)
async def test_the_library_takes_them_as_an_option(kind: str) -> None:
    name = "openai-responses" if kind == "openai" else kind
    result, body = await answered(kind, Extra(name, {"vendor": 1}))
    assert body["vendor"] == 1
    assert result.extra is not None
    assert result.extra.dialect == name
    assert VENDOR.items() <= result.extra.fields.items()
    assert not {"id", "model", "usage", "content", "output"} & set(result.extra.fields)
    plain, _ = await answered(kind, None)
    assert plain.extra is None


async def test_a_target_that_speaks_otherwise_names_them() -> None:
    extra = Extra("anthropic", {"top_k": 5})
    with pytest.raises(UnsupportedOption, match="openai-chat/m does not support top_k"):
        await answered("openai-chat", extra)
    result, body = await answered("openai-chat", extra, ignore_invalid_options=True)
    assert result.metadata.dropped_options == ("top_k",)
    assert "top_k" not in body
    assert result.extra is None


def test_an_answer_with_a_broken_character_in_a_field_of_its_own_has_none() -> None:
    """A typed decoder passes over what it does not know, without a look at its characters."""
    assert other_fields(b'{"id": "x", "note": "\x8f"}', {"id"}) == {}
