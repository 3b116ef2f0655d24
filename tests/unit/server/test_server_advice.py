"""No error that leaves by HTTP advises its reader to change Python code."""

import ast
import json
import re
from collections.abc import AsyncGenerator, Iterator
from pathlib import Path
from typing import Any

import pytest
from mcp import Client

import penstock
from penstock.contract.errors import (
    PYTHON_ADVICE,
    Advice,
    AllTargetsFailed,
    InvalidRequest,
    Problem,
    UnsupportedOption,
)
from penstock.contract.options import Capabilities, MCPTool
from penstock.mcp.http import over_http
from penstock.testing import FakeProvider
from tests.support.keyed import keyed_engine
from tests.support.media import WAV
from tests.unit.server.gateway_support import Gateway, running_gateway
from tests.unit.server.sampling_support import socket_of

SOURCE = Path(penstock.__file__).parent
PYTHON = re.compile(
    r"=(True|False|None)\b|\bpenstock\.[a-z_]+\(|\bpenstock\.[A-Z]|\bengine\.\w+\(|\bawait\b"
    r"|ignore_invalid_options|\bkeyword argument|\b(in|from|your) code\b"
)
INSIDE = {
    "cli": "the command line words its own errors",
    "generators": "called from Python only",
    "sync": "called from Python only",
    "testing.py": "called from Python only",
    "mcp/asking": "called from Python only",
    "mcp/__init__.py": "called from Python only",
}
"""Modules whose errors cannot leave by HTTP."""
WORDS = {
    "contract/errors.py": "the table of advice for Python",
    "contract/checks/spelling.py": "TypeErrors of calls in Python",
    "server/process/banner.py": "the start-up screen",
    "budget/queries.py": "an error of the Python API of the ledger",
}


class Plain(FakeProvider):
    """A model that takes nothing but a text."""

    def capabilities(self, model: str) -> Capabilities:
        return Capabilities(
            temperature=False,
            stop_sequences=False,
            tools=False,
            reasoning=False,
            output_schema=False,
            images=False,
            parallel_tools_switch=False,
            embeddings=True,
        )


def texts() -> Iterator[tuple[str, str]]:
    """Every text of the source that is no docstring, with its place."""
    for file in sorted(SOURCE.rglob("*.py")):
        name = file.relative_to(SOURCE).as_posix()
        if name in WORDS or any(name.startswith(each) for each in INSIDE):
            continue
        tree = ast.parse(file.read_text())
        alone = {
            id(node.value)
            for node in ast.walk(tree)
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        }
        for node in ast.walk(tree):
            if (
                isinstance(node, ast.Constant)
                and isinstance(node.value, str)
                and id(node) not in alone
                and " " in node.value
            ):
                yield f"{name}:{node.lineno}", node.value


def test_no_text_of_the_source_advises_python() -> None:
    found = {place: text for place, text in texts() if PYTHON.search(text)}
    assert found == {}
    # The search finds such texts where there are any.
    assert all(PYTHON.search(text) for text in PYTHON_ADVICE.values())
    assert PYTHON_ADVICE.keys() == set(Advice)


def test_python_gets_the_advice_and_the_message_has_none() -> None:
    error = UnsupportedOption(
        "a/b does not support temperature; leave it out",
        options=["temperature"],
        provider="a",
        model="b",
        advice=[Advice.IGNORE_OPTIONS],
    )
    assert str(error).endswith("leave it out, or set ignore_invalid_options=True")
    assert error.message.endswith("leave it out")
    every = AllTargetsFailed("all 2 targets failed", attempts=[error, error])
    assert str(every).count("ignore_invalid_options") == 1
    sound = InvalidRequest.of([Problem("data", "is not base64", Advice.ENCODE_AUDIO)])
    assert str(sound) == "data: is not base64; penstock.audio(...) makes it"
    assert sound.message == "data: is not base64"


@pytest.fixture
async def plain() -> AsyncGenerator[Gateway]:
    async with running_gateway(keyed_engine(Plain())[0]) as gateway:
        yield gateway


SAID = {"role": "user", "content": "Hi"}
SAMPLED = {"role": "user", "content": {"type": "text", "text": "Hi"}}
SOUND = {"type": "audio", "data": WAV, "mimeType": "audio/wav"}
TOOL = {"name": "t", "description": "d"}
SCHEMA = {"type": "object"}
SOUNDING = {"messages": [SAMPLED], "maxTokens": 9, "temperature": 0.5}
ASKED: list[tuple[str, dict[str, Any], str]] = [
    ("/v1/chat/completions", {"messages": [SAID], "temperature": 0.5}, "temperature"),
    ("/v1/chat/completions", {"messages": [SAID], "parallel_tool_calls": False}, "parallel"),
    ("/v1/chat/completions", {"messages": [SAID], "reasoning_effort": "high"}, "reasoning"),
    (
        "/v1/chat/completions",
        {"messages": [SAID], "tools": [{"type": "function", "function": TOOL}]},
        "tools",
    ),
    (
        "/v1/chat/completions",
        {
            "messages": [
                {
                    "role": "user",
                    "content": [
                        {"type": "input_audio", "input_audio": {"data": WAV, "format": "wav"}}
                    ],
                }
            ]
        },
        "audio",
    ),
    ("/v1/responses", {"input": "Hi", "temperature": 0.5}, "temperature"),
    ("/v1/responses", {"input": "Hi", "reasoning": {"effort": "high"}}, "reasoning"),
    (
        "/v1/messages",
        {"messages": [SAID], "max_tokens": 9, "model": "default", "temperature": 0.5},
        "temperature",
    ),
    (
        "/v1/messages",
        {
            "messages": [SAID],
            "max_tokens": 9,
            "model": "default",
            "tools": [{"name": "t", "input_schema": SCHEMA}],
        },
        "tools",
    ),
    (
        "/v1/sampling/createMessage",
        {"messages": [SAMPLED], "maxTokens": 9, "temperature": 0.5},
        "temperature",
    ),
    (
        "/v1/sampling/createMessage",
        {"messages": [{"role": "user", "content": SOUND}], "maxTokens": 9},
        "audio",
    ),
]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("path", "body", "named"), ASKED)
async def test_what_a_model_refuses_is_said_without_python(
    plain: Gateway, path: str, body: dict[str, Any], named: str, stream: bool
) -> None:
    strict = {"x-penstock-adapt": "refuse"}
    answer = await plain.client.post(path, json={**body, "stream": stream}, headers=strict)
    assert answer.status_code == 400, answer.text
    assert named in answer.text
    assert not PYTHON.search(answer.text), answer.text


async def test_the_websocket_says_it_without_python(plain: Gateway) -> None:
    async with socket_of(plain) as socket:
        await socket.send(type="createMessage", id=1, params=SOUNDING, adapt="refuse")
        message = json.dumps(await socket.end(1))
        assert "temperature" in message
        assert not PYTHON.search(message), message


async def test_mcp_says_it_without_python(plain: Gateway) -> None:
    async with Client(over_http(MCPTool(f"{plain.url}/mcp", "penstock", {}))) as client:
        asked = {"prompt": "Hi", "output_schema": SCHEMA}
        result = await client.call_tool("generate", asked)
        message = result.model_dump_json()
        assert "output_schema" in message
        assert not PYTHON.search(message), message


async def test_several_targets_say_it_without_python() -> None:
    fake = Plain()
    engine, _ = keyed_engine(fake)
    async with running_gateway(engine) as gateway:
        body = {"messages": [SAID], "temperature": 0.5, "model": "assistant"}
        strict = {"x-penstock-adapt": "refuse"}
        answer = await gateway.client.post("/v1/chat/completions", json=body, headers=strict)
        assert not PYTHON.search(answer.text), answer.text
