"""Bodies of every endpoint in which one field is repeated, as often as one likes."""

from __future__ import annotations

import base64
import string
from collections.abc import Callable, Iterator, Mapping
from random import Random
from typing import Any, TypeAlias

import msgspec

Body: TypeAlias = dict[str, Any]
Maker: TypeAlias = Callable[[int], Body]

CHAT, RESPONSES, MESSAGES = "/v1/chat/completions", "/v1/responses", "/v1/messages"
COUNT, EMBEDDINGS = "/v1/messages/count_tokens", "/v1/embeddings"
SAMPLING, FEEDBACK, KEYS = "/v1/sampling/createMessage", "/v1/feedback", "/admin/v1/keys"
MCP = "/mcp"
WORDS = "some words of a text that is long enough"
"""Short texts are estimated in another way than long ones."""
HI = {"role": "user", "content": WORDS}
LONG_TURN = {"role": "user", "content": "some words " * 200}
"""With it, the tokens of a body are counted and not taken from its bytes, at any size."""
TEXT = {"type": "text", "text": WORDS}


def schemas() -> Mapping[str, Maker]:
    """JSON Schemas with one keyword repeated."""

    def named(n: int, value: Any = None) -> Body:
        return {f"p{i}": value or {"type": "string"} for i in range(n)}

    def root(**keywords: Any) -> Body:
        return {"type": "object", "properties": {"a": {"type": "string"}}, **keywords}

    return {
        "properties": lambda n: root(properties=named(n), required=[f"p{i}" for i in range(n)]),
        "optional properties": lambda n: root(properties=named(n)),
        "required": lambda n: root(required=[f"{WORDS} {i}" for i in range(n)]),
        "enum": lambda n: root(properties={"a": {"enum": [f"{WORDS} {i}" for i in range(n)]}}),
        "anyOf": lambda n: root(properties={"a": {"anyOf": [{"type": "string"}] * n}}),
        "oneOf": lambda n: root(properties={"a": {"oneOf": [{"type": "integer"}] * n}}),
        "allOf": lambda n: root(properties={"a": {"allOf": [{"title": "t"}] * n}}),
        "types": lambda n: root(properties={"a": {"type": ["object"] * n, "properties": named(n)}}),
        "unknown keywords": lambda n: root(**{f"x-{i}": "v" for i in range(n)}),
        "chained $defs": lambda n: root(
            properties={"a": {"$ref": "#/$defs/d0"}},
            **{"$defs": {f"d{i}": {"$ref": f"#/$defs/d{i + 1}"} for i in range(n)} | _leaf(n)},
        ),
        "chained $defs from the root": lambda n: {
            "$ref": "#/$defs/d0",
            "$defs": {f"d{i}": {f"x{i}": 1, "$ref": f"#/$defs/d{i + 1}"} for i in range(n)}
            | {f"d{n}": root()},
        },
        "branching $defs": lambda n: root(
            properties={"a": {"$ref": "#/$defs/d0"}},
            **{
                "$defs": {
                    f"d{i}": {"anyOf": [{"$ref": f"#/$defs/d{i + 1}"}] * (n // 6)} for i in range(6)
                }
                | _leaf(6)
            },
        ),
        "references to one": lambda n: root(
            properties=named(n, {"$ref": "#/$defs/d"}),
            **{"$defs": {"d": {"type": "object", "properties": named(8)}}},
        ),
    }


def _leaf(n: int) -> Body:
    return {f"d{n}": {"type": "string"}}


def _turns(n: int) -> list[Body]:
    return [{"role": ("user", "assistant")[i % 2], "content": f"{WORDS} {i}"} for i in range(n)] + [
        HI
    ]


def chat() -> Mapping[str, Maker]:
    """Of chat completions."""

    def body(*messages: Any, **fields: Any) -> Body:
        return {"messages": [*messages, HI], "max_tokens": 5, **fields}

    def function(name: str, schema: Body | None = None) -> Body:
        parameters = schema or {"type": "object", "properties": {}}
        return {"type": "function", "function": {"name": name, "parameters": parameters}}

    def calls(n: int, *, same: bool = False) -> Body:
        ids = [f"c{0 if same else i}" for i in range(n)]
        made = {"name": "f", "arguments": '{"a": 1}'}
        asked = [{"id": id, "type": "function", "function": made} for id in ids]
        results = [{"role": "tool", "tool_call_id": id, "content": "r"} for id in ids]
        return body(HI, {"role": "assistant", "tool_calls": asked}, *results)

    def rounds(n: int) -> Body:
        return body(HI, *(m for _ in range(n) for m in calls(1)["messages"][1:3]))

    def server(n: int) -> Body:
        url = "http://169.254.169.254/mcp"  # which is refused when all else has been checked
        return {"type": "mcp", "server_label": f"s{n}", "server_url": url,
                "require_approval": "never"}  # fmt: skip

    unanswered = [{"role": "tool", "tool_call_id": "x", "content": "r"}]

    def with_tool(make: Maker) -> Maker:
        return lambda n: body(tools=[function("f", make(n))])

    def with_answer(make: Maker) -> Maker:
        return lambda n: body(
            response_format={
                "type": "json_schema",
                "json_schema": {"name": "a", "strict": True, "schema": make(n)},
            }
        )

    tools = {f"tools, {name}": with_tool(make) for name, make in schemas().items()}
    strict = {f"answer, {name}": with_answer(make) for name, make in schemas().items()}
    return {
        **tools,
        **strict,
        "messages": lambda n: body(*_turns(n)),
        "messages of one role": lambda n: body(*[HI] * n),
        "system messages": lambda n: body(*[{"role": "system", "content": WORDS}] * n),
        "content parts": lambda n: body({"role": "user", "content": [TEXT] * n}),
        "pictures": lambda n: body(
            {
                "role": "user",
                "content": [
                    {
                        "type": "image_url",
                        "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="},
                    }
                ]
                * n,
            }
        ),
        "tools": lambda n: body(tools=[function(f"f{i}") for i in range(n)]),
        "tools of one name": lambda n: body(tools=[function("f")] * n),
        "tool calls": calls,
        "tool calls of one id": lambda n: calls(n, same=True),
        "rounds of tools": rounds,
        "results without calls": lambda n: body(*unanswered * n),
        "stop": lambda n: body(stop=[f"s{i}" for i in range(n)]),
        "metadata": lambda n: body(metadata={f"k{i}": "v" for i in range(n)}),
        "further fields": lambda n: body(LONG_TURN, **{f"x{i}": 1 for i in range(n)}),
        "logit_bias": lambda n: body(LONG_TURN, logit_bias={str(i): 1 for i in range(n)}),
        "MCP servers": lambda n: body(tools=[server(i) for i in range(n)]),
        "headers of a server": lambda n: body(
            tools=[{**server(0), "headers": {f"X-{i}": "v" for i in range(n)}}]
        ),
        "tools of a server": lambda n: body(
            tools=[{**server(0), "allowed_tools": [f"t{i}" for i in range(n)]}]
        ),
    }


def responses() -> Mapping[str, Maker]:
    """Of responses."""

    def body(*items: Any, **fields: Any) -> Body:
        return {"input": [*items, {"role": "user", "content": "Hi"}], **fields}

    def calls(n: int) -> Body:
        asked = [
            {"type": "function_call", "call_id": f"c{i}", "name": "f", "arguments": "{}"}
            for i in range(n)
        ]
        given = [
            {"type": "function_call_output", "call_id": f"c{i}", "output": "r"} for i in range(n)
        ]
        return body(HI, *asked, *given)

    part = {"type": "input_text", "text": WORDS}
    tool: Body = {"type": "function", "parameters": {"type": "object", "properties": {}}}
    return {
        "items": lambda n: body(*_turns(n)),
        "items of the assistant": lambda n: body(*[{"role": "assistant", "content": WORDS}] * n),
        "reasoning": lambda n: body(
            *[{"type": "reasoning", "summary": [{"type": "summary_text", "text": WORDS}]}] * n
        ),
        "content parts": lambda n: body({"role": "user", "content": [part] * n}),
        "tools": lambda n: body(tools=[{**tool, "name": f"f{i}"} for i in range(n)]),
        "tool calls": calls,
        "calls without results": lambda n: body(*calls(n)["input"][1 : n + 1]),
        "include": lambda n: body(include=["reasoning.encrypted_content"] * n),
        "metadata": lambda n: body(metadata={f"k{i}": "v" for i in range(n)}),
    }


def messages() -> Mapping[str, Maker]:
    """Of messages, and of the count of their tokens."""

    def body(*turns: Any, **fields: Any) -> Body:
        return {"messages": [*turns, HI], "max_tokens": 5, **fields}

    def calls(n: int) -> Body:
        asked: list[Body] = [
            {"type": "tool_use", "id": f"c{i}", "name": "f", "input": {}} for i in range(n)
        ]
        given = [{"type": "tool_result", "tool_use_id": f"c{i}", "content": "r"} for i in range(n)]
        return body(HI, {"role": "assistant", "content": asked}, {"role": "user", "content": given})

    def scattered(n: int) -> Body:
        given = [
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": f"c{i}"}, TEXT]}
            for i in range(n)
        ]
        return body(*calls(n)["messages"][:2], *given)

    systems = [{"role": "system", "content": WORDS}, {"role": "assistant", "content": WORDS}]
    return {
        "messages": lambda n: body(*_turns(n)),
        "messages of one role": lambda n: body(*[{"role": "user", "content": [TEXT]}] * n),
        "assistants between systems": lambda n: body(HI, *systems * n),
        "content blocks": lambda n: body({"role": "user", "content": [TEXT] * n}),
        "tools": lambda n: body(
            tools=[{"name": f"f{i}", "input_schema": {"type": "object"}} for i in range(n)]
        ),
        "tool calls": calls,
        "results among texts": scattered,
        "results without calls": lambda n: body(*calls(n)["messages"][2:3]),
        "system": lambda n: body(system=[TEXT] * n),
        "stop_sequences": lambda n: body(stop_sequences=[f"s{i}" for i in range(n)]),
    }


def sampling() -> Mapping[str, Maker]:
    """Of MCP's params, by HTTP and by WebSocket."""

    def body(*turns: Any, **fields: Any) -> Body:
        said = {"role": "user", "content": TEXT}
        return {"messages": [*turns, said], "maxTokens": 5, **fields}

    wrong = {"role": "nobody", "content": {"type": "none"}}
    return {
        "messages": lambda n: body(
            *({"role": ("user", "assistant")[i % 2], "content": TEXT} for i in range(n))
        ),
        "content blocks": lambda n: body({"role": "user", "content": [TEXT] * n}),
        "wrong messages": lambda n: body(*[wrong] * n),
        "tools": lambda n: body(
            tools=[{"name": f"f{i}", "inputSchema": {"type": "object"}} for i in range(n)]
        ),
        "hints": lambda n: body(
            modelPreferences={"hints": [{"name": f"h{n}-{i}"} for i in range(n)]}
        ),
        "stopSequences": lambda n: body(stopSequences=[f"s{i}" for i in range(n)]),
        "metadata": lambda n: body(metadata={f"k{i}": "v" for i in range(n)}),
    }


def others() -> Mapping[tuple[str, str], Maker]:
    """Of the other endpoints."""

    def generate(n: int) -> Body:
        given = {"prompt": "Hi", "max_tokens": 5, "messages": [HI] * n}
        call = {"name": "generate", "arguments": given}
        return {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call}

    return {
        (EMBEDDINGS, "input"): lambda n: {
            "input": [f"text {i}" for i in range(n)],
            "model": "fake/e",
        },
        (FEEDBACK, "unknown fields"): lambda n: {f"f{i}": 1 for i in range(n)},
        (KEYS, "models"): lambda n: {"name": f"k{n}", "models": ["default"] * n},
        (KEYS, "tags"): lambda n: {"name": f"t{n}", "tags": {f"t{i}": "v" for i in range(n)}},
        (MCP, "messages"): generate,
    }


def cases() -> Mapping[tuple[str, str], Maker]:
    """All of them, by endpoint and field."""
    tables = {
        CHAT: chat(),
        RESPONSES: responses(),
        MESSAGES: messages(),
        COUNT: {name: make for name, make in messages().items() if name != "stop_sequences"},
        SAMPLING: sampling(),
    }
    found = {(path, name): make for path, table in tables.items() for name, make in table.items()}
    return {**found, **others()}


def configurations() -> Mapping[str, Callable[[int], str]]:
    """Configurations with so many problems, more of them than an error lists."""

    def targets(n: int, form: str) -> str:
        listed = ",\n".join(f'"{form.format(i)}"' for i in range(n))
        return f"[providers.openai]\n[models.default]\ntargets = [\n{listed}\n]\n"

    return {
        "configuration, unknown providers": lambda n: targets(n, "nope{}/model"),
        "configuration, wrong targets": lambda n: targets(n, "nothing{}"),
        "configuration, unknown settings": lambda n: "".join(
            f'[models.m{i}]\ntargets = ["openai/x"]\nbad{i} = 1\n' for i in range(n)
        ),
        "configuration, variables": lambda n: "".join(
            f'[providers.p{i}]\nurl = "${{NO_SUCH_{i}}}"\n' for i in range(n)
        ),
    }


def largest() -> Iterator[tuple[tuple[str, str], bytes]]:
    """Bodies that are as large as the limits allow by default, and some that are beyond them."""
    encode = msgspec.json.encode
    mb = 1_000_000
    by = cases()

    def long(n: int, size: int) -> list[Body]:
        roles = ("user", "assistant")
        return [{"role": roles[i % 2], "content": WORDS * (size // len(WORDS))} for i in range(n)]

    yield (CHAT, "one long text"), encode({"messages": long(1, 19 * mb), "max_tokens": 5})
    yield (CHAT, "long messages"), encode({"messages": long(9_999, 1_900), "max_tokens": 5})
    yield (CHAT, "parts"), encode(by[CHAT, "content parts"](19_000))
    yield (CHAT, "tools"), encode(by[CHAT, "tools"](1_024))
    yield (CHAT, "too many tools"), encode(by[CHAT, "tools"](20_000))
    yield (CHAT, "properties"), encode(by[CHAT, "answer, properties"](16_000))
    yield (CHAT, "empty lists"), b'{"messages":[],"metadata":{"a":[%s[]]}}' % (b"[]," * 6 * mb)
    yield (CHAT, "commas in a text"), encode({"messages": long(1, mb), "x": "," * 18 * mb})
    yield (MESSAGES, "results among texts"), encode(by[MESSAGES, "results among texts"](2_000))
    yield (SAMPLING, "messages"), encode(by[SAMPLING, "messages"](9_999))
    yield (EMBEDDINGS, "texts"), encode({"input": [WORDS * 100] * 4_096, "model": "fake/e"})
    yield (MCP, "messages"), encode(by[MCP, "messages"](9_999))
    for (path, name), body in (*long_texts(), *hostile_media()):
        yield (path, name), encode(body)


def long_texts() -> Iterator[tuple[tuple[str, str], Body]]:
    """One long text of words that are in no list; `test_size` has it in all other places."""
    dice = Random(3)
    words = " ".join("".join(dice.choices(string.ascii_letters, k=8)) for _ in range(80_000))

    def chat_body(*turns: Any, **fields: Any) -> Body:
        return {"messages": [*turns, HI], "max_tokens": 5, **fields}

    def tool(**fields: Any) -> Body:
        return {"type": "function", "function": {"name": "f", **fields}}

    described = {"type": "object", "properties": {"a": {"type": "string", "description": words}}}
    made = msgspec.json.encode({"a": words}).decode()
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": made}}
    result = {"role": "tool", "tool_call_id": "c", "content": "r"}
    answer = {"type": "json_schema", "json_schema": {"name": "a", "schema": described}}
    reasoning = {"type": "reasoning", "summary": [{"type": "summary_text", "text": words}]}
    sealed = {"type": "thinking", "thinking": "", "signature": words}
    by_path: dict[str, dict[str, Body]] = {
        CHAT: {
            "long system": chat_body({"role": "system", "content": words}),
            "long description of a tool": chat_body(tools=[tool(description=words)]),
            "long arguments": chat_body(HI, {"role": "assistant", "tool_calls": [call]}, result),
            "long schema of the answer": chat_body(response_format=answer),
            "long unknown field": chat_body(x=words),
        },
        RESPONSES: {"long reasoning": {"input": [HI, reasoning, HI]}},
        MESSAGES: {
            "long signature": chat_body(HI, {"role": "assistant", "content": [sealed, TEXT]}),
        },
    }
    for path, table in by_path.items():
        for name, body in table.items():
            yield (path, name), body


def hostile_media() -> Iterator[tuple[tuple[str, str], Body]]:
    """Files of as many parts as fit, each of which takes a step of the walk through the file."""
    page = b"OggS\0\0" + bytes(20) + b"\xff" + bytes(255)
    files = {
        "JPEG": (2, "image/jpeg", b"\xff\xd8" + b"\xff\xfe\0\2" * 40_000),
        "GIF": (
            2,
            "image/gif",
            b"GIF89a\1\0\1\0\0\0\0\x2c" + bytes(8) + b"\0\2" + b"\1\0" * 40_000 + b"\0",
        ),
        "Ogg": (2, "audio/ogg", b"OggS" + bytes(22) + b"\1\x13OpusHead" + bytes(11) + page * 400),
        "FLAC": (2, "audio/flac", b"fLaC" + b"\xff\xf8" * 25_000),
    }
    for name, (count, kind, file) in files.items():
        part = {
            "type": kind.partition("/")[0],
            "data": base64.b64encode(file).decode(),
            "mimeType": kind,
        }
        said = {"role": "user", "content": [TEXT, *[part] * count]}
        yield (SAMPLING, name), {"messages": [said], "maxTokens": 5}


def errors(key: str) -> Iterator[tuple[str, int, bytes]]:
    """Answers of a provider that are errors, by their status: each takes much to be masked."""
    size = 8_000
    ends, nearly, labels = f"{key[-8:]} ", f"{key[:-1]}! ", "x-api-key: "
    for name, part in {"ends": ends, "beginnings": nearly, "labels": labels}.items():
        text = part * (size // len(part))
        yield f"{name} of a key", 400, msgspec.json.encode({"error": {"message": text}})
        yield f"{name} of a key, no JSON", 502, text.encode()
    fields = {f"field-{i}": {"name": "x-api-key", "input": f"value-{i}"} for i in range(20_000)}
    yield "fields", 200, msgspec.json.encode({"error": {"message": "wrong", **fields}})
    yield (
        "items",
        200,
        msgspec.json.encode({"error": {"detail": [["authorization", "a1b2c3d4"]] * 40_000}}),
    )
    yield (
        "a long text",
        200,
        msgspec.json.encode({"error": {"message": ends * 200_000, "api-key": key}}),
    )


def smallest(path: str) -> Body:
    """A body that this endpoint takes."""
    return next(make(2) for (each, _), make in cases().items() if each == path)
