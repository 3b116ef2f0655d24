"""The limits that the integers of a schema get before it becomes a grammar."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from penstock.providers.embedded.integers import LARGEST, UnreadableSchemaError, with_limits

INTEGER: dict[str, Any] = {"type": "integer"}
WHOLE_RANGE = {"type": "integer", "minimum": -LARGEST, "maximum": LARGEST}
TOO_LARGE = {"type": "integer", "minimum": 10**17}


@pytest.mark.parametrize(
    ("given", "low", "high"),
    [
        pytest.param({}, -LARGEST, LARGEST, id="none"),
        pytest.param({"minimum": 0}, 0, LARGEST, id="a lowest"),
        pytest.param({"maximum": 9}, -LARGEST, 9, id="a highest"),
        pytest.param({"minimum": 3, "maximum": 3}, 3, 3, id="one value"),
        pytest.param({"minimum": 1.5, "maximum": 2.5}, 2, 2, id="fractions"),
        pytest.param({"minimum": -2.5, "maximum": -1.5}, -2, -2, id="negative fractions"),
        pytest.param({"exclusiveMinimum": 2, "exclusiveMaximum": 6}, 3, 5, id="exclusive"),
        pytest.param({"exclusiveMinimum": 1.5, "exclusiveMaximum": 2.5}, 2, 2, id="between"),
        pytest.param({"minimum": 4, "exclusiveMinimum": 2}, 4, LARGEST, id="the tighter"),
        pytest.param(
            {"minimum": 2, "exclusiveMinimum": 4}, 5, LARGEST, id="the tighter, exclusive"
        ),
        pytest.param(
            {"minimum": 2, "exclusiveMinimum": True, "maximum": 6, "exclusiveMaximum": False},
            *(3, 6),
            id="as older schemas have it",
        ),
        pytest.param({"minimum": -(2**63), "maximum": 2**64 - 1}, -LARGEST, LARGEST, id="64 bits"),
        pytest.param({"minimum": -1e300, "maximum": 1e300}, -LARGEST, LARGEST, id="far away"),
        pytest.param({"minimum": None}, -LARGEST, LARGEST, id="null"),
    ],
)
@pytest.mark.parametrize("kind", ["integer", ["null", "integer"]])
def test_both_limits_are_whole_and_within_reach(given: Any, low: int, high: int, kind: Any) -> None:
    limited = with_limits({"type": kind, **given})
    assert limited == {"type": kind, "minimum": low, "maximum": high}
    assert isinstance(limited["minimum"], int)
    assert isinstance(limited["maximum"], int)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"minimum": 10**17}, f"of {10**17} or more, and this model writes those from -"),
        ({"maximum": -(10**17)}, f"of {-(10**17)} or less, and this model writes those from -"),
        ({"exclusiveMinimum": LARGEST}, f"of {LARGEST + 1} or more, and this"),
        ({"minimum": 2**60, "maximum": 2**61}, f"of {2**60} or more, and this"),
        ({"minimum": 5, "maximum": 4}, "from 5 to 4, and there is none"),
        ({"minimum": 1.2, "maximum": 1.8}, "from 2 to 1, and there is none"),
        ({"exclusiveMinimum": 1, "exclusiveMaximum": 2}, "from 2 to 1, and there is none"),
    ],
)
def test_a_range_without_an_integer_is_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(UnreadableSchemaError) as caught:
        with_limits({"type": "integer", **given})
    assert str(caught.value).startswith(f"an integer {said}")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"minimum": "x"}, "an integer with minimum 'x', which is not a number"),
        ({"maximum": True}, "an integer with maximum True, which is not a number"),
        ({"minimum": 10**17, "exclusiveMaximum": []}, "an integer with exclusiveMaximum []"),
    ],
)
def test_a_limit_that_is_no_number_is_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(UnreadableSchemaError) as caught:
        with_limits({"type": "integer", **given})
    assert str(caught.value).startswith(said)


def _places(inner: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {
        "a property": {"properties": {"type": inner}},
        "items": {"items": inner},
        "items of older schemas": {"items": [{"type": "string"}, inner]},
        "first items": {"prefixItems": [inner]},
        "other properties": {"additionalProperties": inner},
        "a variant": {"anyOf": [{"type": "null"}, inner]},
        "both kinds of variants": {"oneOf": [{"allOf": [inner]}]},
        "a definition": {"$ref": "#/$defs/n", "$defs": {"n": inner}},
        "a list of its own": {"$ref": "#/own/numbers/1", "own": {"numbers": [{}, inner]}},
        "a name with signs": {"$ref": "#/own/a~1b~0", "own": {"a/b~": {"items": inner}}},
        "beside a circle": {"items": {"$ref": "#"}, "additionalProperties": inner},
    }


@pytest.mark.parametrize("place", _places({}))
def test_it_finds_integers_wherever_a_grammar_does(place: str) -> None:
    schema = _places(INTEGER)[place]
    before = copy.deepcopy(schema)
    assert with_limits(schema) == _places(WHOLE_RANGE)[place]
    assert schema == before
    with pytest.raises(UnreadableSchemaError):
        with_limits(_places(TOO_LARGE)[place])


@pytest.mark.parametrize(
    "schema",
    [
        {},
        {"type": "number", "minimum": 1.5},
        {"type": ["string", "null"], "minLength": 3},
        {"const": {"type": "integer"}},
        {"enum": [{"type": "integer"}]},
        {"properties": {"a": {"default": {"type": "integer"}}}},
        {"properties": {"a": True}, "items": False},
        {"$ref": "https://example.com/schema"},
    ],
)
def test_everything_else_stays_as_it_is(schema: dict[str, Any]) -> None:
    assert with_limits(schema) == schema


@pytest.mark.parametrize(
    "reference", ["#/nowhere", "#/a/01", "#/a/1x", "#/a/-1", "#/a/2", "#/a/0/b"]
)
def test_a_reference_that_leads_nowhere_is_refused(reference: str) -> None:
    # llama.cpp takes some of these for the second item, whose grammar takes all memory.
    with pytest.raises(UnreadableSchemaError, match="which is not in it"):
        with_limits({"$ref": reference, "a": [1, TOO_LARGE]})
