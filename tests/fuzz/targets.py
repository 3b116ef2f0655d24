"""What is fuzzed: one function for each parser of bytes that a caller, a provider or a file sends.

Each takes any bytes and raises nothing: the errors that a parser documents are expected, and any
other one is a finding. The first byte chooses where there is a choice: a dialect, an endpoint, or
how the rest is cut into reads.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar, cast

import mcp_types
import msgspec
from mcp.server.mcpserver.context import Context
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.mcpserver.tools import Tool

from penstock.config.load import describe_needs, parse
from penstock.config.trust import Contents
from penstock.contract.errors import ConfigurationError, MalformedResponse, PenstockError
from penstock.contract.exchange import SamplingRequest
from penstock.contract.messages import Audio, Image, Message, Text
from penstock.contract.ports import Target
from penstock.mcp.serving.tools import make_tools
from penstock.pipeline.limits import Limits
from penstock.pool.fit import admit
from penstock.providers import anthropic, bedrock, gemini, ollama, openai_chat, openai_responses
from penstock.providers.redaction.own_secrets import mask_bytes
from penstock.providers.redaction.text import without_keys
from penstock.providers.wire.dialect import Dialect
from penstock.providers.wire.event_stream import FRAMINGS, FrameDecoder
from penstock.server.admin.requests import Asked
from penstock.server.doors.anthropic import decode as anthropic_decode
from penstock.server.doors.mcp.calls import kind_of, new_session
from penstock.server.doors.openai_chat import (
    decode as openai_chat_decode,
)
from penstock.server.doors.openai_chat import (
    embeddings as openai_embeddings,
)
from penstock.server.doors.openai_responses import decode as responses_decode
from penstock.server.doors.sampling import decode as sampling_decode
from penstock.server.errors import HttpProblem
from penstock.server.own.feedback import Feedback
from penstock.server.typed_endpoints import decode_body
from penstock.streaming.eventstream import AWSEventStreamDecoder
from penstock.streaming.ndjson import NDJSONDecoder
from penstock.streaming.sse import SSEDecoder
from penstock.tokens.estimate import estimate_request, upper_tokens
from tests.fuzz.http_head import serve

Choice = TypeVar("Choice")
FuzzTarget = Callable[[bytes], None]
SECRET = "sk-proj-Ab12Cd34Ef56Gh78Ij90"
_EVENT_BYTES = 2_048
_STEPS = (1, 2, 3, 5, 8, 13, 64, 1_024)
_WIRES: Sequence[tuple[str, Dialect]] = (
    ("anthropic", anthropic.DIALECT),
    ("bedrock", bedrock.DIALECT),
    ("gemini", gemini.DIALECT),
    ("ollama", ollama.DIALECT),
    ("openai-chat", openai_chat.DIALECT),
    ("openai", openai_responses.DIALECT),
)
_DOORS: Sequence[Callable[[bytes], SamplingRequest | None]] = (
    lambda data: openai_chat_decode.decode(data, lambda model: 100).request,
    lambda data: responses_decode.decode(data, lambda model: 100).request,
    lambda data: anthropic_decode.decode(data).request,
    lambda data: anthropic_decode.decode_prompt(data).request,
    lambda data: sampling_decode.read_body(Limits(), data).request,
    lambda data: _without_request(openai_embeddings.decode(data)),
)
_ORDERS: Sequence[type[msgspec.Struct]] = (Feedback, *Asked.__subclasses__())
_MCP_TOOLS = make_tools()


def sse(data: bytes) -> None:
    """A stream of server-sent events, in pieces and whole."""
    _framed(lambda: SSEDecoder(_EVENT_BYTES), data)


def ndjson(data: bytes) -> None:
    """A stream of lines."""
    _framed(lambda: NDJSONDecoder(_EVENT_BYTES), data)


def eventstream(data: bytes) -> None:
    """A stream in AWS's framing."""
    _framed(lambda: AWSEventStreamDecoder(_EVENT_BYTES), data)


def answers(data: bytes) -> None:
    """The body of an answer or of an error, in each dialect."""
    _, dialect = _chosen(_WIRES, data)
    body = data[1:]
    readers: list[Callable[[], object]] = [
        lambda: dialect.decode(body, {}),
        lambda: dialect.models.decode(body),
    ]
    if (further := dialect.further) is not None:
        readers.append(lambda: further(body))
    if (embeddings := dialect.embeddings) is not None:
        readers.append(lambda: embeddings.decode(body, "m", {}))
    if (count := dialect.count) is not None:
        readers.append(lambda: count.decode(body))
    for read in readers:
        with contextlib.suppress(PenstockError):
            read()
    for status in (200, 400, 401, 429, 500):
        error = dialect.error(status, {}, body)
        assert len(str(error)) < 10_000


def streams(data: bytes) -> None:
    """A streamed answer, in each dialect."""
    _, dialect = _chosen(_WIRES, data)
    frames, decoder = FRAMINGS[dialect.framing].decoder(), dialect.stream_decoder({})
    with contextlib.suppress(PenstockError):
        for piece in _pieces(data[1:]):
            decoder.feed(frames.feed(piece))
        decoder.feed(frames.finish())
        decoder.finish()


def bodies(data: bytes) -> None:
    """The JSON of each endpoint, and on to the request of each provider."""
    decode = _chosen(_DOORS, data)
    request: SamplingRequest | None = None
    with contextlib.suppress(PenstockError, HttpProblem):
        request = decode(data[1:])
    if request is None:
        return
    for kind, dialect in _WIRES:
        profile = dialect.catalogue.profile(kind, "m", {})
        with contextlib.suppress(PenstockError):
            fitting = admit(request, profile.capabilities, Target(kind, "m")).request
            for stream in (False, True):
                call = dialect.encode("m", fitting, profile, stream)
                json.loads(call.body or b"{}")


def orders(data: bytes) -> None:
    """The bodies of `/v1/feedback` and of the admin API."""
    kind = _chosen(_ORDERS, data)
    with contextlib.suppress(PenstockError, HttpProblem):
        msgspec.json.encode(decode_body(kind, data[1:]))


def mcp(data: bytes) -> None:
    """A message at `/mcp`, and the arguments of the tools."""
    kind_of(data)
    new_session(data)
    try:
        message = mcp_types.jsonrpc_message_adapter.validate_json(data, by_name=False)
    except ValueError:
        return
    params = cast(object, getattr(message, "params", None))
    given = cast(dict[str, Any], params) if isinstance(params, dict) else {}
    arguments = given.get("arguments")
    if isinstance(arguments, dict):
        for tool in _MCP_TOOLS:
            asyncio.run(_checked(tool, cast(dict[str, Any], arguments)))


async def _checked(tool: Tool, arguments: dict[str, Any]) -> None:
    """Check the arguments; the tool itself ends at once, because it has no caller."""
    try:
        await tool.run(arguments, Context())
    except ToolError:
        pass
    except LookupError as error:
        # What a context variable without a value raises; its subclasses are findings.
        if type(error) is not LookupError:
            raise


def http(data: bytes) -> None:
    """A connection to the gateway."""
    serve(list(_pieces(data)))


def toml(data: bytes) -> None:
    """A configuration, and what of it needs trust."""
    with contextlib.suppress(ConfigurationError):
        parse(data.decode("utf-8", "replace"))
    with contextlib.suppress(ConfigurationError):
        describe_needs(Contents(data), "penstock.toml")


def tokens(data: bytes) -> None:
    """Counts of the tokens of texts and media."""
    text = data.decode("utf-8", "replace")
    encoded = b64encode(data).decode()
    parts = (
        Text(text),
        Image(data=encoded, mime_type="image/png"),
        Audio(data=encoded, mime_type="audio/wav"),
        Audio(data=text, mime_type="audio/ogg"),
    )
    for part in parts:
        request = SamplingRequest(messages=(Message("user", (part,)),), max_tokens=9)
        for model in ("gpt-6-luna", "claude-haiku-5-5", "m"):
            likely, most = estimate_request(request, model), upper_tokens(request, model)
            assert likely >= 0
            assert most >= 0


def redaction(data: bytes) -> None:
    """The text of an error."""
    text = data.decode("utf-8", "replace")
    once = without_keys(text, refused=bool(data[:1] == b"!"))
    assert without_keys(once) == once
    assert SECRET.encode() not in mask_bytes(data + SECRET.encode() + data, [SECRET])


TARGETS: Mapping[str, FuzzTarget] = {
    target.__name__: target
    for target in (
        *(answers, bodies, eventstream, http, mcp, ndjson, orders),
        *(redaction, sse, streams, tokens, toml),
    )
}


def _without_request(_: object) -> None:
    """For an endpoint whose requests are of another kind."""


def _framed(decoder: Callable[[], FrameDecoder], data: bytes) -> None:
    """However the bytes are cut, they are the same frames, or the same refusal."""
    pieces = list(_pieces(data))
    assert _frames(decoder(), pieces) == _frames(decoder(), [b"".join(pieces)])


def _frames(decoder: FrameDecoder, pieces: Sequence[bytes]) -> list[Any] | None:
    found: list[Any] = []
    try:
        for piece in pieces:
            found += decoder.feed(piece)
        return [*found, *decoder.finish()]
    except MalformedResponse:
        return None


def _pieces(data: bytes) -> Sequence[bytes]:
    step = _chosen(_STEPS, data)
    rest = data[1:]
    return [rest[at : at + step] for at in range(0, len(rest), step)]


def _chosen(choices: Sequence[Choice], data: bytes) -> Choice:
    return choices[(data[0] if data else 0) % len(choices)]
