"""Any valid request that comes in by this wire goes out by it with the same meaning."""

import json
from typing import Any, cast

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from penstock.pipeline.validate import Limits, validate
from penstock.providers.anthropic.catalogue import CATALOGUE
from penstock.providers.anthropic.encode import encode
from penstock.providers.signed_reasoning import legible, origin_of
from penstock.server.doors.anthropic.decode import decode
from tests.support.media import WEBP

MODEL = "claude-opus-4-6"
PROFILE = CATALOGUE.profile("anthropic", MODEL, {})
SCHEMA = {
    "type": "object",
    "properties": {"a": {"type": "string"}},
    "required": ["a"],
    "additionalProperties": False,
}

words = st.text(st.characters(exclude_categories=["Cs"]), min_size=1).filter(
    lambda text: text.strip() != ""
)
ids = st.from_regex(r"[a-zA-Z0-9_-]{1,12}", fullmatch=True)
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(ids, inner, max_size=3),
    max_leaves=5,
)
texts = words.map(lambda text: {"type": "text", "text": text})
sources = st.one_of(
    st.sampled_from([("image/png", "iVBORw0KGgo="), ("image/webp", WEBP)]).map(
        lambda pair: {"type": "base64", "media_type": pair[0], "data": pair[1]}
    ),
    st.fixed_dictionaries({"type": st.just("url"), "url": st.just("https://x.org/a.png")}),
)
images = sources.map(lambda source: {"type": "image", "source": source})
thoughts = st.one_of(
    st.fixed_dictionaries({"type": st.just("thinking"), "thinking": st.text(), "signature": words}),
    st.fixed_dictionaries({"type": st.just("redacted_thinking"), "data": words}),
).filter(lambda block: not str(block.get("signature", block.get("data"))).startswith("penstock."))
tools: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {"name": ids, "input_schema": st.just(SCHEMA)},
    optional={"description": words, "strict": st.booleans()},
)


@st.composite
def results(draw: st.DrawFn, id: str) -> dict[str, Any]:
    block: dict[str, Any] = {"type": "tool_result", "tool_use_id": id}
    block["content"] = draw(words | st.lists(texts | images, min_size=1, max_size=3))
    if draw(st.booleans()):
        block["is_error"] = draw(st.booleans())
    return block


@st.composite
def conversations(draw: st.DrawFn) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = []
    waiting: list[str] = []
    for _ in range(draw(st.integers(1, 3))):
        answered = [draw(results(id)) for id in draw(st.permutations(waiting))]
        spoken = draw(st.lists(texts | images, min_size=0 if answered else 1, max_size=3))
        said = [*answered, *spoken]
        # Neighbours of one role are one turn, wherever it is cut.
        cut = draw(st.integers(0, len(said)))
        turns = [part for part in (said[:cut], said[cut:]) if part]
        messages += [{"role": "user", "content": part} for part in turns]
        if not answered and draw(st.booleans()):
            messages[-1] = {"role": "user", "content": draw(words)}
        waiting = draw(st.lists(ids, max_size=3, unique=True))
        uses = [
            {
                "type": "tool_use",
                "id": id,
                "name": draw(ids),
                "input": draw(st.dictionaries(ids, values, max_size=3)),
            }
            for id in waiting
        ]
        blocks = [*draw(st.lists(thoughts, max_size=2)), *draw(st.lists(texts, max_size=2)), *uses]
        if not blocks or (not waiting and not any(b["type"] == "text" for b in blocks)):
            blocks.append(draw(texts))
        messages.append({"role": "assistant", "content": blocks})
    answered = [draw(results(id)) for id in waiting]
    return [*messages, {"role": "user", "content": [*answered, draw(texts)]}]


@st.composite
def requests(draw: st.DrawFn) -> dict[str, Any]:
    body: dict[str, Any] = {
        "model": MODEL,
        "messages": draw(conversations()),
        "max_tokens": draw(st.integers(1, 100_000)),
    }
    optional: dict[str, st.SearchStrategy[Any]] = {
        "system": words | st.lists(texts, min_size=1, max_size=3),
        "temperature": st.floats(0, 1),
        "stop_sequences": st.lists(words, min_size=1, max_size=4),
        "stream": st.just(True),
        "metadata": words.map(lambda user: {"user_id": user}),
        "output_config": st.just({"format": {"type": "json_schema", "schema": SCHEMA}}),
        "thinking": st.sampled_from([{"type": "disabled"}, {"type": "adaptive"}]),
    }
    for name, strategy in optional.items():
        if draw(st.booleans()):
            body[name] = draw(strategy)
    if draw(st.booleans()):
        body["tools"] = draw(
            st.lists(tools, min_size=1, max_size=3, unique_by=lambda tool: tool["name"])
        )
        named = {"type": "tool", "name": body["tools"][-1]["name"]}
        choice = draw(
            st.none()
            | st.sampled_from([named, {"type": "any"}, {"type": "auto"}, {"type": "none"}])
        )
        if choice is not None:
            switch = choice["type"] != "none" and draw(st.booleans())
            body["tool_choice"] = choice | ({"disable_parallel_tool_use": True} if switch else {})
    return body


def plain(body: dict[str, Any]) -> dict[str, Any]:
    """The request in one of the ways in which this wire can say the same."""
    body = {**body, "messages": _turns(body["messages"])}
    system: Any = body.get("system")
    if isinstance(system, list):
        blocks = cast(list[dict[str, str]], system)
        body["system"] = "\n\n".join(block["text"] for block in blocks)
    # Effort and display go with thinking as the model wants it, which is tested elsewhere.
    if "thinking" in body:
        body["thinking"] = {"type": body["thinking"]["type"]}
    if "output_config" in body:
        wanted = body.pop("output_config").get("format")
        body |= {"output_config": {"format": wanted}} if wanted else {}
    return body


def _turns(messages: list[dict[str, Any]]) -> list[Any]:
    turns: list[tuple[str, list[Any]]] = []
    for message in messages:
        content = message["content"]
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        if not turns or turns[-1][0] != message["role"]:
            turns.append((message["role"], []))
        turns[-1][1].extend(map(_block, blocks))
    for _, blocks in turns:
        blocks.sort(key=lambda block: block["type"] != "tool_result")
    return turns


def _block(block: dict[str, Any]) -> dict[str, Any]:
    if block["type"] != "tool_result":
        return block
    content: Any = block.get("content", "")
    if isinstance(content, list):
        parts = cast(list[dict[str, str]], content)
        if all(part["type"] == "text" for part in parts):
            content = "".join(part["text"] for part in parts)
    return {**block, "content": content, "is_error": block.get("is_error", False)}


@given(requests())
def test_a_request_goes_through_unharmed(body: dict[str, Any]) -> None:
    call = decode(json.dumps(body).encode())
    request = validate(call.request, Limits())
    request = legible(request, origin_of("anthropic", "any", PROFILE))
    assert request.messages == call.request.messages
    sent = encode(MODEL, request, PROFILE, call.stream).body
    assert sent is not None
    assert plain(msgspec.json.decode(sent)) == plain(body)
