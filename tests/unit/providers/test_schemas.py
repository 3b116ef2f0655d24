"""What some APIs cannot say: circles and free keys, and how a request asks for them in words."""

import json
from typing import Any

import pytest

from penstock import OutputSchema, SamplingRequest, user
from penstock.providers.wire.schemas import has_free_keys, in_words, is_circular, nodes, referenced

SELF: dict[str, Any] = {"$ref": "#/$defs/A"}
MAP: dict[str, Any] = {"type": "object", "additionalProperties": {"type": "integer"}}


def _object(required: bool, **properties: Any) -> dict[str, Any]:
    names = list(properties) if required else []
    return {"type": "object", "properties": properties, "required": names}


@pytest.mark.parametrize(
    ("schema", "circular", "by_force"),
    [
        pytest.param(_object(True, a={"type": "null"}), False, False, id="no reference"),
        pytest.param({**_object(True, a=SELF), "$defs": {"A": {}}}, False, False, id="no circle"),
        pytest.param({**SELF, "$defs": {"A": _object(True, a=SELF)}}, True, True, id="required"),
        pytest.param({**SELF, "$defs": {"A": _object(False, a=SELF)}}, True, False, id="optional"),
        pytest.param(_object(True, a={"$ref": "#"}), True, True, id="the root"),
        pytest.param(
            {
                **_object(True, a=SELF),
                "definitions": {"B": _object(True, x={"$ref": "#/$defs/A"})},
                "$defs": {"A": {"type": "array", "items": {"$ref": "#/definitions/B"}}},
            },
            True,
            True,
            id="two, in lists and on both shelves",
        ),
        pytest.param(
            {
                **_object(True, a={"$ref": "#/$defs/a~1b"}),
                "$defs": {"a/b": {"$ref": "#/$defs/a~1b"}},
            },
            True,
            True,
            id="escaped names",
        ),
        pytest.param(
            {"anyOf": [SELF, SELF], "$defs": {"A": {"$ref": "#/$defs/B"}, "B": {"type": "null"}}},
            False,
            False,
            id="twice is no circle",
        ),
        pytest.param(_object(True, a={"$ref": "#/nowhere"}), False, False, id="leads nowhere"),
    ],
)
def test_circles_are_found(schema: dict[str, Any], circular: bool, by_force: bool) -> None:
    assert is_circular(schema) is circular
    assert is_circular(schema, optional=False) is by_force


@pytest.mark.parametrize(
    ("schema", "free"),
    [
        (MAP, True),
        ({"type": "object", "additionalProperties": True}, True),
        ({"type": "object", "patternProperties": {"^a": {}}}, True),
        ({"type": "array", "items": MAP}, True),
        ({"$defs": {"M": MAP}, "$ref": "#/$defs/M"}, True),
        ({"type": "object", "additionalProperties": False}, False),
        # A model that allows more than it names can do without.
        ({"properties": {"a": {}}, "additionalProperties": True}, False),
        (_object(True, additionalProperties={"type": "null"}), False),
    ],
)
def test_free_keys_are_found(schema: dict[str, Any], free: bool) -> None:
    assert has_free_keys(schema) is free


def _request(**schema: Any) -> SamplingRequest:
    return SamplingRequest(
        messages=(user("Go."),),
        max_tokens=9,
        system_prompt="Be brief.",
        output_schema=OutputSchema(MAP, **schema),
    )


def test_a_schema_in_words_stands_behind_the_system_prompt() -> None:
    request = in_words(_request(prompted=True), lambda _: False)
    assert request.output_schema is None
    assert request.system_prompt is not None
    assert request.system_prompt.startswith("Be brief.\n\n")
    assert json.loads(request.system_prompt.rpartition("\n")[2]) == MAP


@pytest.mark.parametrize(("prompted", "sayable"), [(True, True), (False, False), (False, True)])
def test_other_requests_stay_as_they_are(prompted: bool, sayable: bool) -> None:
    request = _request(prompted=prompted)
    assert in_words(request, lambda _: sayable) is request


def test_schemas_are_found_in_the_lists_of_older_ones() -> None:
    first, second = {"type": "null"}, {"type": "integer"}
    schema = {"items": [first, second, True]}
    assert sorted(map(str, nodes(schema))) == sorted(map(str, [schema, first, second]))


@pytest.mark.parametrize(
    ("reference", "found"),
    [
        ("#/a/b~1c", {"type": "null"}),
        ("#/list/1", {"type": "integer"}),
        ("#/list/2", None),
        ("#/list/01", None),
        ("#/list/-1", None),
        ("#/list/1/type/x", None),
        ("#/nowhere", None),
        ("#anchor", None),
        ("https://example.com/x#/a", None),
    ],
)
def test_a_reference_is_followed_step_by_step(reference: str, found: Any) -> None:
    schema = {"a": {"b/c": {"type": "null"}}, "list": [{}, {"type": "integer"}]}
    assert referenced(reference, schema) == found


def test_the_root_may_be_referred_to() -> None:
    assert referenced("#", MAP) is MAP
