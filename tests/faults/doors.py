"""The gateway's doors as a plain HTTP client sees them: what is sent, and what an answer says.

A door reads an answer strictly: a shape that is not its own is an error of the test. What its
errors are called is written here once more, so that nothing is compared with itself.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import aiohttp

from penstock import (
    AllTargetsFailed,
    AuthenticationFailed,
    ContentRejected,
    ContextLengthExceeded,
    InvalidRequest,
    MalformedResponse,
    PenstockError,
    ProviderTimeout,
    ProviderUnavailable,
    RateLimited,
    StreamInterrupted,
)
from tests.faults.answer import WHOLE
from tests.support.wire.scenario import vector_of
from tests.unit.server import anthropic_support, gateway_support, responses_support
from tests.unit.server.sampling_support import params, read_sse

PROMPT = "Say it."


class Words(NamedTuple):
    """What one error is called: its status, at the OpenAI doors, in Messages and in MCP."""

    status: int
    code: str | None
    type: str
    anthropic: str
    mcp: int = -32000


_WRONG = "invalid_request_error"
WORDS: Mapping[type[PenstockError], Words] = {
    InvalidRequest: Words(400, None, _WRONG, _WRONG, -32602),
    ContextLengthExceeded: Words(400, "context_length_exceeded", _WRONG, _WRONG, -32602),
    ContentRejected: Words(400, "content_filter", _WRONG, _WRONG),
    RateLimited: Words(429, "rate_limit_exceeded", "rate_limit_error", "rate_limit_error"),
    AuthenticationFailed: Words(
        502, "upstream_authentication_failed", "upstream_error", "api_error"
    ),
    ProviderUnavailable: Words(502, "upstream_unavailable", "upstream_error", "api_error"),
    StreamInterrupted: Words(502, "upstream_stream_interrupted", "upstream_error", "api_error"),
    MalformedResponse: Words(502, "upstream_malformed_response", "upstream_error", "api_error"),
    AllTargetsFailed: Words(502, "all_targets_failed", "upstream_error", "api_error"),
    ProviderTimeout: Words(504, "upstream_timeout", "upstream_error", "timeout_error"),
}


def words_of(error: type[PenstockError], *, overloaded: bool = False) -> Words:
    """What this error is called; `overloaded` when the provider itself said 503 or 529."""
    words = WORDS[error]
    return words._replace(status=503, anthropic="overloaded_error") if overloaded else words


class Told(NamedTuple):
    """All that one answer says."""

    status: int
    headers: Mapping[str, str]
    text: str = ""
    whole: bool = False
    """Whether it says of itself that it is complete."""
    errors: Sequence[Mapping[str, Any]] = ()
    """The door's own documents, of which there may be one."""
    usage: Mapping[str, Any] | None = None


class Piece(NamedTuple):
    """What was read of a body."""

    text: str
    whole: bool
    errors: Sequence[Mapping[str, Any]]
    usage: Mapping[str, Any] | None


@dataclass(frozen=True)
class Door:
    """One path of the gateway."""

    name: str
    path: str
    ask: Callable[[], dict[str, Any]]
    """The fields of a request, but for `model` and `stream`."""
    read: Callable[[Any], Piece]
    """A whole answer."""
    read_stream: Callable[[str], Piece]
    """All events of a stream."""
    check_error: Callable[[Any, Words, int | None], None]
    """That a document says this, with the pause until it may be asked again."""
    has_headers: bool = True
    """Whether status and headers say how it went; else only the last message does."""

    def body(self, model: str, stream: bool, **fields: Any) -> dict[str, Any]:
        """A request."""
        return {**self.ask(), "model": model, **({"stream": True} if stream else {}), **fields}

    async def send(
        self, client: aiohttp.ClientSession, model: str, stream: bool, **fields: Any
    ) -> Told:
        """Ask, and read everything that comes."""
        async with client.post(self.path, json=self.body(model, stream, **fields)) as response:
            said = await response.text()
            headers = {name.lower(): value for name, value in response.headers.items()}
            if response.status != 200:
                assert headers["content-type"] == "application/json"
                return Told(response.status, headers, errors=(json.loads(said),))
            if stream:
                assert headers["content-type"] == "text/event-stream; charset=utf-8"
            piece = self.read_stream(said) if stream else self.read(json.loads(said))
            return Told(200, headers, *piece)


@dataclass(frozen=True)
class SocketDoor(Door):
    """The WebSocket, on a connection of its own for each request."""

    async def send(
        self, client: aiohttp.ClientSession, model: str, stream: bool, **fields: Any
    ) -> Told:
        """Ask, and read until the request has ended."""
        asked = {**self.ask(), "model": model, **fields}
        message = {"type": "createMessage", "id": 1, "stream": stream, "params": asked}
        chunks: list[str] = []
        async with client.ws_connect(self.path) as socket:
            await socket.send_json(message)
            while (last := await socket.receive_json())["type"] == "chunk":
                assert (last["id"], last["seq"]) == (1, len(chunks))
                chunks.append(last["content"].get("text", ""))
        text = "".join(chunks)
        if last["type"] == "error":
            return Told(200, {}, text, errors=({"error": last["error"]},))
        assert (last["type"], last["id"]) == ("complete", 1)
        assert last["requestId"] == last["result"]["_metadata"]["request_id"]
        piece = self.read(last["result"])
        assert not stream or piece.text == text
        return Told(200, _headers_of(last["result"]["_metadata"]), *piece)


@dataclass(frozen=True)
class ToolDoor(Door):
    """The tool `generate` at `/mcp`, whose text comes as progress too."""

    async def send(
        self, client: aiohttp.ClientSession, model: str, stream: bool, **fields: Any
    ) -> Told:
        """Call the tool, and read all messages."""
        assert stream, "the tool has no other form"
        call = {
            "name": "generate",
            "arguments": {**self.ask(), "model": model, **fields},
            "_meta": {"progressToken": "p"},
        }
        message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call}
        accept = {"accept": "application/json, text/event-stream"}
        async with client.post(self.path, json=message, headers=accept) as response:
            assert response.status == 200
            said = await response.text()
        messages = [
            json.loads(line.removeprefix("data: "))
            for line in said.splitlines()
            if line.startswith("data: {")
        ]
        *told, last = messages
        assert {each["method"] for each in told} <= {"notifications/progress"}
        text = "".join(each["params"].get("message") or "" for each in told)
        result = last["result"]
        if result.get("isError"):
            return Told(200, {}, text, errors=(result,))
        piece = self.read(result["structuredContent"])
        assert piece.text == text
        return Told(200, _headers_of(result["structuredContent"]), *piece)


def _headers_of(facts: Mapping[str, Any]) -> dict[str, str]:
    """What a message says of the answer, under the names of the headers."""
    names = {"request_id": "x-request-id", "provider": "x-penstock-provider"}
    names |= {"attempts": "x-penstock-attempts", "cost_usd": "x-penstock-cost-usd"}
    return {header: str(facts[name]) for name, header in names.items() if facts.get(name)}


# ---- Chat Completions


def _chat(answer: Any) -> Piece:
    (choice,) = answer["choices"]
    whole = choice["finish_reason"] == "stop"
    return Piece(choice["message"]["content"], whole, (), answer.get("usage"))


def _chat_stream(said: str) -> Piece:
    events = gateway_support.read_events(said)
    done = [at for at, event in enumerate(events) if event == "[DONE]"]
    rest = [event for event in events if event != "[DONE]"]
    errors = [event for event in rest if "error" in event]
    reasons = [
        choice["finish_reason"]
        for event in rest
        for choice in event.get("choices", ())
        if choice["finish_reason"]
    ]
    if errors:
        assert (errors, done, reasons) == ([events[-1]], [], []), "something follows the error"
    else:
        assert (done, reasons) == ([len(events) - 1], ["stop"])
    text = "".join(delta.get("content") or "" for delta in gateway_support.deltas(rest))
    usages = [event["usage"] for event in rest if event.get("usage")]
    return Piece(text, bool(done), errors, usages[-1] if usages else None)


def _check_openai(document: Any, words: Words, retry_after: int | None) -> None:
    (error,) = document.values()
    assert set(document) == {"error"}
    assert set(error) == {"message", "type", "param", "code"}
    assert error["message"]
    assert (error["type"], error["code"]) == (words.type, words.code)


# ---- Responses


def _responses(answer: Any) -> Piece:
    assert answer["status"] == "completed"
    text = "".join(
        part["text"]
        for item in answer["output"]
        if item["type"] == "message"
        for part in item["content"]
    )
    return Piece(text, answer["error"] is None, (), answer["usage"])


def _responses_stream(said: str) -> Piece:
    events = responses_support.read_events(said)
    types = responses_support.types(events)
    text = "".join(event["delta"] for event in events if event["type"].endswith("text.delta"))
    errors = [event for event in events if event["type"] == "error"]
    ends = [kind for kind in types if kind in ("completed", "incomplete", "failed")]
    usage = None
    if errors:
        # The event that the SDKs raise, and then the response as it has become.
        assert (types[-2:], ends) == (["error", "failed"], ["failed"])
        assert events[-1]["response"]["status"] == "failed"
        assert events[-1]["response"]["error"]["message"] == errors[-1]["message"]
    elif ends == ["incomplete"]:
        # This wire's own way to say that a filter has stopped the answer.
        assert types[-1] == "incomplete"
        errors = [events[-1]]
    else:
        assert (types[-1], ends) == ("completed", ["completed"])
        usage = events[-1]["response"]["usage"]
        assert _responses(events[-1]["response"]).text == text
    return Piece(text, ends == ["completed"], errors, usage)


def _check_responses(document: Any, words: Words, retry_after: int | None) -> None:
    if document.get("type") == "response.incomplete":
        assert document["response"]["status"] == "incomplete"
        assert document["response"]["incomplete_details"] == {"reason": words.code}
        return
    if document.get("type") == "error":
        assert document["code"] == words.code
        document = {"error": document["error"]}
    _check_openai(document, words, retry_after)


# ---- Messages


def _messages(answer: Any) -> Piece:
    text = "".join(block["text"] for block in answer["content"] if block["type"] == "text")
    return Piece(text, answer["stop_reason"] == "end_turn", (), answer["usage"])


def _messages_stream(said: str) -> Piece:
    events = anthropic_support.read_events(said)
    types = [event["type"] for event in events]
    assert types[0] == "message_start"
    text = "".join(
        event["delta"].get("text", "") for event in events if event["type"] == "content_block_delta"
    )
    errors = [event for event in events if event["type"] == "error"]
    usage = None
    if errors:
        assert errors == [events[-1]], "something follows the error"
        assert not {"message_delta", "message_stop"} & set(types)
    else:
        assert types[-2:] == ["message_delta", "message_stop"]
        assert events[-2]["delta"]["stop_reason"] == "end_turn"
        usage = events[-2]["usage"]
    return Piece(text, types.count("message_stop") == 1, errors, usage)


def _check_messages(document: Any, words: Words, retry_after: int | None) -> None:
    assert set(document) == {"type", "error", "request_id"}
    assert (document["type"], document["error"]["type"]) == ("error", words.anthropic)
    assert document["error"]["message"]


# ---- MCP sampling


def _sampling(answer: Any) -> Piece:
    content = answer["content"]
    assert content["type"] == "text"
    return Piece(content["text"], answer["stopReason"] == "endTurn", (), answer["usage"])


def _sampling_stream(said: str) -> Piece:
    events = read_sse(said)
    *chunks, (name, last) = events
    assert {each for each, _ in chunks} <= {"chunk"}, "something follows the end"
    assert [data["seq"] for _, data in chunks] == list(range(len(chunks)))
    text = "".join(data["content"].get("text", "") for _, data in chunks)
    if name == "error":
        return Piece(text, False, [last], None)
    assert name == "complete"
    result = _sampling(last)
    assert result.text == text
    return result


def _check_sampling(document: Any, words: Words, retry_after: int | None) -> None:
    assert set(document) == {"error"}
    error = document["error"]
    assert set(error) == {"code", "message", "data"}
    assert (error["code"], error["data"].get("reason")) == (words.mcp, words.code)
    assert error["data"]["status"] == words.status
    if retry_after is not None:
        assert 0 < error["data"]["retryAfter"] <= retry_after


# ---- The tool at /mcp


def _tool(answer: Any) -> Piece:
    return Piece(answer["text"], answer["stop_reason"] == "endTurn", (), answer["usage"])


def _check_tool(document: Any, words: Words, retry_after: int | None) -> None:
    (content,) = document["content"]
    assert content["type"] == "text"
    assert content["text"]
    assert "Traceback" not in content["text"]


# ---- Embeddings


def _vectors(answer: Any) -> Piece:
    """The right vectors count as the whole text."""
    right = [item["embedding"] for item in answer["data"]] == [list(vector_of(PROMPT, None))]
    return Piece(WHOLE if right else "", right, (), answer["usage"])


def _no_stream(said: str) -> Piece:
    raise AssertionError("this is no event stream")


_TURNS = {"messages": [{"role": "user", "content": PROMPT}], "max_tokens": 99}
DOORS: Mapping[str, Door] = {
    door.name: door
    for door in (
        Door(
            "chat",
            "/v1/chat/completions",
            lambda: dict(_TURNS),
            _chat,
            _chat_stream,
            _check_openai,
        ),
        Door(
            "responses",
            "/v1/responses",
            lambda: {"input": PROMPT, "max_output_tokens": 99},
            _responses,
            _responses_stream,
            _check_responses,
        ),
        Door(
            "messages",
            "/v1/messages",
            lambda: dict(_TURNS),
            _messages,
            _messages_stream,
            _check_messages,
        ),
        Door(
            "sampling",
            "/v1/sampling/createMessage",
            lambda: params(PROMPT, maxTokens=99),
            _sampling,
            _sampling_stream,
            _check_sampling,
        ),
        SocketDoor(
            "ws",
            "/v1/sampling/ws",
            lambda: params(PROMPT, maxTokens=99),
            _sampling,
            _no_stream,
            _check_sampling,
            has_headers=False,
        ),
        ToolDoor(
            "mcp",
            "/mcp",
            lambda: {"prompt": PROMPT, "max_tokens": 99},
            _tool,
            _no_stream,
            _check_tool,
            has_headers=False,
        ),
        Door(
            "embeddings",
            "/v1/embeddings",
            lambda: {"input": PROMPT},
            _vectors,
            _no_stream,
            _check_openai,
        ),
    )
}
