"""Random requests through the door and out by the Responses dialect: the same is asked."""

import json
from typing import Any, cast

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from penstock.contract.options import Capabilities
from penstock.pipeline.validate import Limits, validate
from penstock.providers.openai_responses.encode import encode
from penstock.providers.profiles import ModelProfile
from penstock.server.doors.openai_responses.decode import decode

PROFILE = ModelProfile(Capabilities(), {})
_TEXTS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)
_SAID = _TEXTS.filter(lambda text: bool(text.strip()))
_NAMES = st.from_regex(r"[a-z_]{1,12}", fullmatch=True)
_OBJECTS = st.dictionaries(_TEXTS, st.integers(-9, 9) | st.booleans() | _TEXTS, max_size=3)


def _picture(url: str, detail: str) -> dict[str, Any]:
    return {"type": "input_image", "image_url": url, "detail": detail}


def _input_text(text: str) -> dict[str, Any]:
    return {"type": "input_text", "text": text}


def _format(name: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"format": {"type": "json_schema", "name": name, "schema": schema, "strict": True}}


def _object(types: dict[str, str]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {name: {"type": kind} for name, kind in types.items()},
        "required": list(types),
        "additionalProperties": False,
    }


_PICTURES = st.builds(
    _picture,
    st.sampled_from(["https://x.test/a.png", "data:image/png;base64,iVBORw0KGgo="]),
    st.sampled_from(["auto", "low", "high"]),
)
_INPUT_TEXTS = st.builds(_input_text, _SAID)


def schemas() -> st.SearchStrategy[dict[str, Any]]:
    """Objects that strict mode takes as they are."""
    kinds = st.sampled_from(["string", "integer", "boolean", "number"])
    return st.builds(_object, st.dictionaries(_NAMES, kinds, min_size=1))


@st.composite
def rounds(draw: st.DrawFn, ids: st.SearchStrategy[str]) -> list[dict[str, Any]]:
    """A user's turn, and what the assistant and its tools made of it."""
    user: Any = draw(_SAID | st.lists(_PICTURES | _INPUT_TEXTS, min_size=1, max_size=3))
    items: list[dict[str, Any]] = [{"role": "user", "content": user}]
    for _ in range(draw(st.integers(0, 2))):
        calls = draw(st.lists(ids, unique=True, max_size=3))
        if draw(st.booleans()):
            summary = [{"type": "summary_text", "text": draw(_SAID)}]
            items.append(
                {
                    "type": "reasoning",
                    "id": draw(_NAMES),
                    "summary": summary if draw(st.booleans()) else [],
                    "encrypted_content": draw(_NAMES),
                }
            )
        if draw(st.booleans()) or not calls:
            said: dict[str, Any] = {
                "type": "message",
                "role": "assistant",
                "content": [{"type": "output_text", "text": draw(_SAID)}],
            }
            if draw(st.booleans()):
                said["phase"] = draw(st.sampled_from(["commentary", "final_answer"]))
            items.append(said)
        items += [
            {
                "type": "function_call",
                "call_id": call,
                "name": draw(_NAMES),
                "arguments": msgspec.json.encode(draw(_OBJECTS)).decode(),
            }
            for call in calls
        ]
        items += [
            {
                "type": "function_call_output",
                "call_id": call,
                "output": draw(_TEXTS | st.lists(_PICTURES, min_size=1, max_size=2)),
            }
            for call in calls
        ]
    return items


@st.composite
def requests(draw: st.DrawFn) -> dict[str, Any]:
    items = draw(st.lists(rounds(_NAMES), min_size=1, max_size=3))
    body: dict[str, Any] = {
        "model": "m",
        "input": [item for turn in items for item in turn],
        "max_output_tokens": draw(st.integers(1, 10_000)),
        "store": False,
        "include": ["reasoning.encrypted_content"],
    }
    optional: dict[str, st.SearchStrategy[Any]] = {
        "instructions": _SAID,
        "temperature": st.floats(0, 2),
        "safety_identifier": _NAMES,
        "stream": st.just(True),
        "reasoning": st.sampled_from(["low", "medium", "high"]).map(
            lambda effort: {"effort": effort, "summary": "auto"}
        ),
        "text": st.builds(_format, _NAMES, schemas()),
    }
    for name, values in optional.items():
        if draw(st.booleans()):
            body[name] = draw(values)
    tools = draw(st.lists(_NAMES, unique=True, max_size=3))
    if tools:
        body["tools"] = [
            {
                "type": "function",
                "name": name,
                "description": draw(_SAID),
                "parameters": draw(schemas()),
                "strict": True,
            }
            for name in tools
        ]
        named = {"type": "function", "name": draw(st.sampled_from(tools))}
        choices = st.sampled_from(["auto", "required", "none", named])
        if draw(st.booleans()):
            body["tool_choice"] = draw(choices)
        if draw(st.booleans()):
            body["parallel_tool_calls"] = False
    return body


def plain(body: dict[str, Any]) -> dict[str, Any]:
    """The request in the shortest of the forms that mean the same."""
    return {**body, "input": [_plain(item) for item in body["input"]]}


def _plain(item: dict[str, Any]) -> dict[str, Any]:
    content = item.get("content")
    if item.get("type") == "function_call":
        return {**item, "arguments": json.loads(item["arguments"])}
    if item.get("role") == "user" and isinstance(content, list):
        texts = [part.get("text") for part in cast(list[dict[str, Any]], content)]
        if all(isinstance(text, str) for text in texts):
            return {**item, "content": "".join(str(text) for text in texts)}
    return item


@given(requests())
def test_the_same_is_asked(body: dict[str, Any]) -> None:
    call = decode(json.dumps(body).encode(), lambda _: 1)
    request = validate(call.request, Limits())
    wire = json.loads(encode("m", request, PROFILE, call.stream).body or b"")
    assert plain(wire) == plain(body)
