"""A text that a caller or a provider chooses costs a bounded amount, however long it is.

Every text of every endpoint and of every dialect's answers is replaced by a long one, in turn. What
is left of a request afterwards is measured: in memory, in the log, in the ledger, in the headers of
its answer and in `/metrics`. `make fuzz` sends each a hundred times.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import io
import json
import logging
import os
import sqlite3
import tracemalloc
from base64 import b64encode
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from penstock.config.settings import Config
from penstock.contract.errors import PenstockError
from penstock.contract.messages import Audio
from penstock.engine.engine import Engine
from penstock.keys.records import hash_of, new_text
from penstock.mcp.connections import MOST_KNOWN
from penstock.mcp.host.queue import ApprovalQueue
from penstock.server.admin.api import BASE
from penstock.server.admin.api import endpoints as admin_endpoints
from penstock.server.process.peers import Siblings
from penstock.server.typed_endpoints import Nothing
from penstock.telemetry.exporters.logs import log_to
from penstock.telemetry.feed import Feed
from penstock.telemetry.recent import RecentRequests
from penstock.tokens.upper import upper
from tests.security.long_texts import event_variants, variants
from tests.security.retained import BODIES, MCP_RESULTS, MCP_SERVER, MESSAGES
from tests.support.keyed import ADMIN, bearer
from tests.support.raw import Peer, RawServer, settle, whole
from tests.support.sound import wav
from tests.support.wire.anthropic import Anthropic
from tests.support.wire.bedrock import Bedrock
from tests.support.wire.dialect import TranscribingDialect, WireDialect
from tests.support.wire.gemini import Gemini
from tests.support.wire.ollama import Ollama
from tests.support.wire.openai_chat import OpenAIChat
from tests.support.wire.openai_responses import OpenAIResponses
from tests.support.wire.scenario import Call, Failure, FailureKind, Scenario
from tests.support.wire.seen import Seen, SeenEmbedding
from tests.unit.server.gateway_support import CHAT, Gateway, chat_body, running_gateway
from tests.unit.server.sampling_support import SOCKET

SEARCHING = os.environ.get("HYPOTHESIS_PROFILE") == "search"
TIMES = 100 if SEARCHING else 1
LONG = "x" * (1_000_000 if SEARCHING else 400_000)
LONG_HEADER = "x" * 30_000
"""The head of a request may have 64 kB."""

KEPT_BYTES = 100_000
RECORD_BYTES = 4_000
"""Memory that so many requests may leave behind: each its record, and nothing of its text."""
OPEN_CONNECTION_BYTES = 3 * len(LONG)
SERVER_BYTES = 40_000
"""What a connection to an MCP server keeps while it is open, and each server that is remembered."""
AT_ONCE = 50
"""Rows that are measured together: what they may leave behind is less than one long text."""
LOGGED_CHARACTERS = 12_000
STORED_CHARACTERS = 2_000
HEAD_BYTES = 6_000
ERROR_BYTES = 40_000
LIST_BYTES = 1_000_000

DIALECTS: Mapping[str, WireDialect] = {
    "openai-chat": OpenAIChat(),
    "openai-responses": OpenAIResponses(),
    "anthropic": Anthropic(),
    "gemini": Gemini(),
    "bedrock": Bedrock(),
    "ollama": Ollama(),
}
ANSWER = Scenario(
    text=("Hello",),
    reasoning=("Hm",),
    calls=(Call.of("call_1", "look", {"what": "tides"}, 1),),
    stop="tool_use",
)
FAILURES: Sequence[FailureKind] = ("rate_limit", "bad_request", "unknown_model", "server_error")
PROVIDER_HEADERS = (
    *("retry-after", "retry-after-ms", "x-ratelimit-reset-requests", "x-request-id", "request-id"),
    *("x-amzn-requestid", "x-amzn-errortype", "x-amz-retry-after", "openai-model", "set-cookie"),
)

MCP_CALL = Scenario(calls=(Call.of("call_1", "search", {}, 1),), stop="tool_use")
RECORDED = b64encode(wav()).decode()
RECORDING = "a recording"
"""In the place of a path: the Python API."""
NAMED_SERVER = "a server that is named"
"""In the place of a path: a chat completion with the MCP server of this test."""
CHECK = "/admin/v1/providers?check=true"
WITH_BODY = ("POST", "PUT", "PATCH")
CALLER_HEADERS = (
    *("x-request-id", "user-agent", "traceparent", "tracestate", "origin", "host", "accept"),
    *("idempotency-key", "mcp-session-id", "mcp-protocol-version", "last-event-id"),
    *("anthropic-version", "anthropic-beta", "openai-organization", "content-type", "x-api-key"),
)
PATHS = (
    *("/{}", "/v1/{}", "/v1/models/{}", "/v1/requests/{}", "/admin/v1/requests/{}"),
    *("/admin/v1/requests?model={}", "/admin/v1/ledger?request_id={}", "/admin/v1/{}"),
    *("/admin/v1/usage?by=tag:{}", "/admin/v1/keys/{}", "/v1/models?{}=1"),
)


class Row(NamedTuple):
    """One long text: where it is, and the request with it."""

    name: str
    path: str
    body: bytes | None = None
    headers: Mapping[str, str] = {}
    upstream: bytes | None = None
    """What the provider answers; None: what it always answers."""
    method: str = "POST"
    """Of a request with a body."""
    mcp: Mapping[str, Any] = MCP_RESULTS
    """What an MCP server answers."""


class Answer(NamedTuple):
    """What came back."""

    status: int
    head: bytes
    body: bytes


@dataclass
class Site:
    """A gateway with all dialects behind it, and what is measured of it."""

    gateway: Gateway
    upstream: RawServer
    answer: dict[str, bytes]
    key: str
    log: io.StringIO
    mcp: Mapping[str, Any] = field(default_factory=lambda: MCP_RESULTS)
    rounds: int = 0
    servers: int = 0

    async def send(self, row: Row) -> Answer:
        """One request on a connection of its own, by a client that keeps nothing."""
        self.answer["next"] = row.upstream or self.answer["usual"]
        self.mcp, self.rounds = row.mcp, 0
        if row.path == NAMED_SERVER:
            self.servers += 1
            # Another address each time, because a connection is used again.
            url = f"{self.upstream.url}/mcp/{self.servers}"
            server = {**MCP_SERVER, "server_url": url}
            body = json.dumps(chat_body(model="openai-chat/m", tools=[server])).encode()
            row = row._replace(path=CHAT, body=body)
            self.answer["next"] = self.answer["text"]
        if row.path == SOCKET:
            return await self._converse(row)
        if row.path == RECORDING:
            return await self._transcribe(row)
        headers = {
            "host": "localhost",
            **bearer(ADMIN if row.path.startswith("/admin") else self.key),
            "content-type": "application/json",
            "accept": "application/json, text/event-stream",
            **row.headers,
            "connection": "close",
        }
        method, body = ("GET", b"") if row.body is None else (row.method, row.body)
        if body:
            headers["content-length"] = str(len(body))
        lines = [f"{method} {row.path} HTTP/1.1", *(f"{name}: {headers[name]}" for name in headers)]
        host, port = self.gateway.host, self.gateway.port
        reader, writer = await asyncio.open_connection(host, port, limit=4 * len(LONG))
        try:
            writer.write("\r\n".join(lines).encode() + b"\r\n\r\n" + body)
            await writer.drain()
            head, _, said = (await reader.read(-1)).partition(b"\r\n\r\n")
        finally:
            writer.close()
            await writer.wait_closed()
        self.upstream.requests.clear()
        return Answer(int(head.split()[1]), head, said)

    async def _converse(self, row: Row) -> Answer:
        """One message over the WebSocket, and what comes back up to the end of its request."""
        said = b""
        headers = bearer(self.key)
        address = f"ws://{self.gateway.host}:{self.gateway.port}{row.path}"
        async with connect(address, additional_headers=headers, max_size=None) as connection:
            await connection.send((row.body or b"").decode())
            await connection.send('{"type": "ping", "id": "last"}')
            try:
                while b'"last"' not in said or (b'"chunk"' in said and b'"complete"' not in said):
                    received = await connection.recv()
                    said = received if isinstance(received, bytes) else received.encode()
            except ConnectionClosed as error:
                said = str(error).encode()
        # Each message is an error's size at most: none of these requests asks for a long text.
        return Answer(400, b"", said)

    async def _transcribe(self, row: Row) -> Answer:
        """A recording that only the Python API takes."""
        with contextlib.suppress(PenstockError):
            audio = Audio(data=RECORDED, mime_type="audio/wav")
            await self.gateway.engine.transcribe(audio, model=(row.body or b"").decode())
        return Answer(200, b"", b"")

    async def play(self, peer: Peer) -> None:
        """The provider, and at /mcp the MCP server."""
        while (request := await peer.request()) is not None:
            if "/mcp/" in request.line:
                await peer.send(mcp_answer(request.body, self.mcp))
                del request
                continue
            self.rounds += 1
            called = self.mcp is not MCP_RESULTS and self.rounds == 1
            await peer.send(self.answer["call" if called else "next"])
            # What this provider keeps is not what the gateway keeps.
            del request

    async def problems(self, rows: Sequence[Row], times: int, *, last: Row) -> list[str]:
        """What is too large of what these requests leave behind.

        The text of the most recent request may stay until the next one: both measurements come
        directly after the request `last`.
        """
        found: list[str] = []
        await self.send(last)
        await at_rest()
        before = tracemalloc.get_traced_memory()[0]
        for row in rows:
            for _ in range(times):
                answer = await self.send(row)
                found += answer_problems(row, answer)
                del answer
            if (logged := self.log.tell()) > LOGGED_CHARACTERS * times:
                found.append(f"{row.name}: {logged} characters logged")
            self.log.seek(0)
            self.log.truncate()
        await self.send(last)
        await at_rest()
        kept = tracemalloc.get_traced_memory()[0] - before
        allowed = KEPT_BYTES + RECORD_BYTES * len(rows) * times
        if last.path == NAMED_SERVER:
            allowed += OPEN_CONNECTION_BYTES + SERVER_BYTES * min(len(rows) * times, MOST_KNOWN)
        if kept > allowed:
            found.append(f"{rows[0].name}: {kept} bytes kept")
        return found


def config(url: str, folder: Path, key: str) -> Config:
    """Every dialect at this address, a key, and a ledger."""
    return Config.model_validate(
        {
            "server": {"admin_key": ADMIN, "mcp_servers": ["*"]},
            "storage": {"url": f"sqlite:///{folder}/ledger.db"},
            "providers": {
                name: {"kind": name, "url": url + dialect.base_path, "auth_token": "secret"}
                for name, dialect in DIALECTS.items()
            },
            "limits": {"max_mcp_connections": 1, "max_mcp_connections_per_key": 1},
            "pool": {"retries": 0, "breaker_failures": 1_000_000},
            "models": {"default": {"targets": ["openai-chat/m"]}},
            "budgets": {"all": {"limit_usd": 1000.0, "hard": False}},
            "keys": {"ci": {"hash": hash_of(key)}},
        }
    )


@contextlib.asynccontextmanager
async def running_site(folder: Path) -> AsyncGenerator[Site]:
    """A gateway on this test's loop."""
    key, log = new_text(), io.StringIO()
    usual = whole(DIALECTS["openai-chat"].answer(ANSWER, SEEN))
    call = whole(DIALECTS["openai-chat"].answer(MCP_CALL, SEEN))
    text = whole(DIALECTS["openai-chat"].answer(Scenario(text=("Hello",)), SEEN))
    answer = {"usual": usual, "next": usual, "call": call, "text": text}
    sites: list[Site] = []

    async def play(peer: Peer) -> None:
        await sites[0].play(peer)

    root, handler = logging.getLogger(), log_to(log, "json")
    # Those of pytest keep every record, and with an error all that its frames hold.
    theirs, root.handlers[:] = root.handlers[:], [logging.StreamHandler(log)]
    try:
        async with RawServer(play) as upstream:
            engine = Engine(config(upstream.url, folder, key), model_files=False, keep_books=True)
            async with running_gateway(engine) as gateway:
                site = Site(gateway, upstream, answer, key, log)
                sites.append(site)
                made = json.dumps({**BODIES["POST /admin/v1/keys"], "name": "made"}).encode()
                assert (await site.send(Row("", "/admin/v1/keys", made))).status == 201
                yield site
    finally:
        root.handlers[:] = theirs
        logging.getLogger("penstock").removeHandler(handler)


SEEN = Seen(model="m", stream=False, messages=(), extra={"include_usage": True})


def provider_rows(name: str) -> Iterator[Row]:
    """Every text of this dialect's answers, streams, errors and headers."""
    dialect = DIALECTS[name]

    def asked(place: str, answer: bytes, *, stream: bool = False) -> Row:
        body = chat_body(model=f"{name}/m", max_tokens=10, stream=stream)
        return Row(
            f"{name} {place}",
            CHAT,
            json.dumps(body).encode(),
            {},
            answer,
        )

    good = dialect.answer(ANSWER, SEEN)
    kind = "content-type: application/json\r\n"
    for each in variants(_json(good), LONG):
        yield asked(f"answer {each.place}", whole(each.body, headers=kind))
    events = [frame.data for frame in dialect.stream(ANSWER, SEEN)]
    for each in event_variants(events, LONG):
        streamed = whole(each.body, headers=f"content-type: {dialect.stream_type}\r\n")
        yield asked(f"stream {each.place}", streamed, stream=True)
    for failure in FAILURES:
        bad = dialect.error(Failure(failure), None)
        for each in variants(_json(bad.body), LONG):
            yield asked(f"{failure} {each.place}", whole(each.body, status=f"{bad.status} X"))
    bad = dialect.error(Failure("rate_limit"), None)
    for filler in "x9":
        lines = "".join(f"{name}: {filler * 5000}\r\n" for name in PROVIDER_HEADERS)
        yield asked(f"headers of {filler}", whole(good, headers=kind + lines))
        yield asked(f"headers of {filler}, 429", whole(bad.body, status="429 X", headers=lines))
    for each in variants(_json(dialect.models()), LONG):
        answer = whole(each.body, headers=kind)
        yield Row(f"{name} models {each.place}", CHECK, None, {}, answer)
    if dialect.batch_limit is not None:
        body = json.dumps({"model": f"{name}/m", "input": ["Hi"]}).encode()
        for each in variants(_json(dialect.vectors(SeenEmbedding(model="m", texts=("Hi",)))), LONG):
            answer = whole(each.body, headers=kind)
            yield Row(f"{name} vectors {each.place}", "/v1/embeddings", body, {}, answer)
    if isinstance(dialect, TranscribingDialect):
        for each in variants(_json(dialect.transcript(ANSWER)), LONG):
            answer = whole(each.body, headers=kind)
            model = f"{name}/m".encode()
            yield Row(f"{name} transcript {each.place}", RECORDING, model, {}, answer)


def caller_rows(endpoint: str) -> Iterator[Row]:
    """Every text of this endpoint's body."""
    method, _, path = endpoint.partition(" ")
    for each in variants(BODIES[endpoint], LONG):
        yield Row(f"{endpoint} {each.place}", path.partition("?")[0], each.body, method=method)


def socket_rows() -> Iterator[Row]:
    """Every text of the messages over the WebSocket."""
    for kind, message in MESSAGES.items():
        for each in variants(message, LONG):
            yield Row(f"WebSocket {kind} {each.place}", SOCKET, each.body)


def mcp_rows() -> Iterator[Row]:
    """Every text of an MCP server that a request names."""
    for each in variants(MCP_RESULTS, LONG):
        yield Row(f"MCP server {each.place}", NAMED_SERVER, b"{}", mcp=_json(each.body))


def mcp_answer(body: bytes, results: Mapping[str, Any]) -> bytes:
    """The answer to this message, from the results by method."""
    message = json.loads(body)
    if "id" not in message:
        return whole(b"", status="202 Accepted")
    answer: dict[str, Any] = {"jsonrpc": "2.0", "id": message["id"]}
    if message["method"] in results:
        answer["result"] = results[message["method"]]
    else:
        answer["error"] = {"code": -32601, "message": "there is no such method"}
    return whole(json.dumps(answer).encode(), headers="content-type: application/json\r\n")


def head_rows() -> Iterator[Row]:
    """Headers, paths and queries."""
    body = json.dumps(BODIES["POST /v1/sampling/createMessage"]).encode()
    for header in CALLER_HEADERS:
        for path in ("/v1/sampling/createMessage", "/mcp"):
            yield Row(f"header {header}", path, body, {header: LONG_HEADER})
    for path in PATHS:
        yield Row(f"path {path}", path.format(LONG_HEADER))


def _json(body: bytes) -> Any:
    return json.loads(body)


GROUPS: Mapping[str, Callable[[], Iterator[Row]]] = {
    **{f"provider-{name}": partial(provider_rows, name) for name in DIALECTS},
    **{f"caller-{path}": partial(caller_rows, path) for path in BODIES},
    "caller-heads": head_rows,
    "caller-socket": socket_rows,
    "mcp-server": mcp_rows,
}


async def test_each_endpoint_with_a_body_is_in_the_list(tmp_path: Path) -> None:
    """A new one has to be added to `BODIES`."""
    async with running_site(tmp_path) as site:
        routes = site.gateway.app.routes
        keyring = site.gateway.gate.keys
    taken = {
        f"{method} {path}" for method, path in routes if method in WITH_BODY and "*" not in path
    }
    prefixes = {path for method, path in routes if method in WITH_BODY and "*" in path}
    assert prefixes == {f"{BASE}/*"}
    known = admin_endpoints(RecentRequests(), Feed(), keyring, Siblings(), ApprovalQueue())
    for each in known:
        if each.body is not Nothing:
            filled = each.template.replace("{name}", "made").replace("{id}", "some-id")
            taken.add(f"{each.method} {filled}")
    assert {each.partition("?")[0] for each in BODIES} == taken


@pytest.mark.hypothesis  # so that `make fuzz` runs it, too
@pytest.mark.parametrize("group", GROUPS)
async def test_a_long_text_costs_a_bounded_amount(group: str, tmp_path: Path) -> None:
    too_much: list[str] = []
    async with running_site(tmp_path) as site:
        rows = list(GROUPS[group]())
        # What is made once is made before, as is the vocabulary of upper bounds.
        upper("word " * 1000)
        for row in (*plain_rows(group, rows), rows[0]):
            await site.send(row)
        tracemalloc.start()
        try:
            for start in range(0, len(rows), AT_ONCE):
                found = await site.problems(rows[start : start + AT_ONCE], TIMES, last=rows[0])
                if found:
                    # Again, one by one, to name the text.
                    for row in rows[start : start + AT_ONCE]:
                        found += await site.problems([row], 1, last=rows[0])
                too_much += found
        finally:
            tracemalloc.stop()
        for path in ("/metrics", "/ready", "/admin/v1/requests", "/admin/v1/usage?by=model"):
            answer = await site.send(Row(path, path))
            size = len(answer.body)
            # A list of models for another dialect is a failed health check.
            assert answer.status == 200 or path == "/ready", answer.body
            if size > LIST_BYTES:
                too_much.append(f"{path}: {size} bytes")
    too_much += stored_problems(tmp_path)
    assert not too_much, "\n".join(too_much)


async def at_rest() -> None:
    """Let the last tasks end, and the event loop forget timers that were cancelled."""
    await settle()
    loop = asyncio.get_running_loop()
    for _ in range(1000):
        loop.call_later(3600, lambda: None).cancel()
    await settle()
    gc.collect()


def plain_rows(group: str, rows: Sequence[Row]) -> Iterator[Row]:
    """A request for each endpoint of these rows, without a long text where there is a body."""
    own = BODIES.get(group.removeprefix("caller-"))
    for row in {(row.method, row.path): row for row in rows}.values():
        body = own or BODIES.get(f"{row.method} {row.path}")
        yield row if body is None else row._replace(body=json.dumps(body).encode(), upstream=None)


def stored_problems(folder: Path) -> Iterator[str]:
    """What is too long in the databases of this folder."""
    for file in folder.rglob("*.db"):
        with contextlib.closing(sqlite3.connect(file)) as connection:
            tables = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
            for (table,) in tables.fetchall():
                columns = connection.execute(f"PRAGMA table_info({table})").fetchall()
                longest = ", ".join(f'max(length("{each[1]}"))' for each in columns)
                found = connection.execute(f"SELECT {longest} FROM {table}").fetchone()
                for column, size in zip(columns, found, strict=True):
                    if (size or 0) > STORED_CHARACTERS:
                        yield f"{file.name}, {table}.{column[1]}: {size} characters"


def answer_problems(row: Row, answer: Answer) -> Iterator[str]:
    """What is too long in this answer; the text of a good one is what was asked for."""
    if len(answer.head) > HEAD_BYTES:
        yield f"{row.name}: {len(answer.head)} bytes of headers"
    if answer.status != 200 and len(answer.body) > ERROR_BYTES:
        yield f"{row.name}: {len(answer.body)} bytes of error {answer.status}"
