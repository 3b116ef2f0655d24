"""HTTP under attack: smuggled requests, tricks with paths and methods, endless everything.

Every answer here is read to its last byte: what came is either one whole answer for each request
that the gateway took for one, or a closed connection.
"""

from __future__ import annotations

import asyncio
import gzip
from contextlib import suppress

import pytest

from penstock.testing import FakeProvider, FakeReply
from tests.security.attack import BODY, Target, as_json, in_chunks, under_attack
from tests.support.keyed import bearer
from tests.unit.server.gateway_support import CHAT, until

pytestmark = pytest.mark.timeout(60)
POST = f"POST {CHAT} HTTP/1.1"
MODELS = "GET /v1/models HTTP/1.1"
TE = b"transfer-encoding: chunked"
CLOSE = b"connection: close"


def hidden(target: Target) -> bytes:
    """A request that nobody must take for one: it stands inside of another."""
    return target.head("GET /v1/models HTTP/1.1", CLOSE, b"")


# What two servers may understand differently is refused, and nothing behind it is looked at.
SMUGGLED: dict[str, tuple[list[bytes], bytes]] = {
    "length, then chunked": ([b"content-length: 4", TE], b"0\r\n\r\n"),
    "chunked, then length": ([TE, b"content-length: 4"], b"0\r\n\r\n"),
    "two lengths": ([b"content-length: 2", b"content-length: 9"], b"{}"),
    "one length twice": ([b"content-length: 2", b"content-length: 2"], b"{}"),
    "a list of lengths": ([b"content-length: 2, 2"], b"{}"),
    "a length with a sign": ([b"content-length: +2"], b"{}"),
    "a negative length": ([b"content-length: -2"], b"{}"),
    "a hexadecimal length": ([b"content-length: 0x2"], b"{}"),
    "a length beyond 64 bits": ([b"content-length: 99999999999999999999999"], b"{}"),
    "a space before the colon": ([b"content-length : 2"], b"{}"),
    "a folded line": ([b"x-a: b", b" content-length: 2"], b"{}"),
    "a folded length": ([b"content-length:", b" 2"], b"{}"),
    "a bare CR": ([b"x-a: b\rcontent-length: 2"], b"{}"),
    "a bare LF": ([b"x-a: b\ncontent-length: 2"], b"{}"),
    "a zero byte": ([b"x-a: b\0c"], b""),
    "a header without a name": ([b": b"], b""),
    "a line without a colon": ([b"content-length"], b""),
    "another coding": ([b"transfer-encoding: xchunked"], b"0\r\n\r\n"),
    "chunked is not the last": ([b"transfer-encoding: chunked, identity"], b"0\r\n\r\n"),
    "two codings": ([TE, b"transfer-encoding: identity"], b"0\r\n\r\n"),
    "a coding behind a tab": ([b"transfer-encoding: \x0bchunked"], b"0\r\n\r\n"),
    "a chunk beyond 64 bits": ([TE], b"fffffffffffffffff\r\n{}\r\n0\r\n\r\n"),
    "a negative chunk": ([TE], b"-2\r\n{}\r\n0\r\n\r\n"),
    "a chunk in another notation": ([TE], b"0x2\r\n{}\r\n0\r\n\r\n"),
    "an extension ended by LF": ([TE], b"2;a\n{}\r\n0\r\n\r\n"),
    "a chunk that is longer than it says": ([TE], b"1\r\n{}\r\n0\r\n\r\n"),
}


@pytest.mark.parametrize("name", SMUGGLED)
async def test_a_request_within_a_request(name: str, caplog: pytest.LogCaptureFixture) -> None:
    lines, body = SMUGGLED[name]
    async with under_attack(caplog) as target:
        sent = target.head(POST, *lines, b"") + body + hidden(target)
        assert await target.send(sent) == [400]
        # In pieces it is no better: the head may then have been answered before.
        head, _, rest = sent.partition(b"\r\n\r\n")
        assert set(await target.send(head, b"\r\n\r\n", rest)) <= {400}
        assert target.fake.requests == []


async def test_a_body_is_never_taken_for_a_request(caplog: pytest.LogCaptureFixture) -> None:
    async with under_attack(caplog) as target:
        inside = hidden(target)
        size = b"content-length: %d" % len(inside)
        for key in (True, False):
            head = target.head(POST, size, CLOSE, b"", key=key)
            assert await target.send(head + inside) == [400 if key else 401]
            head = target.head(POST, TE, CLOSE, b"", key=key)
            assert await target.send(head + in_chunks(inside, (3, 7))) == [400 if key else 401]
        # A door that reads no body leaves none for the next request to begin with.
        head = target.head(MODELS, size, b"")
        assert await target.send(head + inside + target.head(MODELS, CLOSE, b"", key=False)) == [
            200,
            401,
        ]


async def test_a_key_opens_the_door_for_one_request_alone(caplog: pytest.LogCaptureFixture) -> None:
    async with under_attack(caplog) as target:
        good, bad = target.head(MODELS, b""), target.head(MODELS, b"", key=False)
        last = target.head(MODELS, CLOSE, b"", key=False)
        assert await target.send(good + bad + good + last) == [200, 401, 200, 401]
        assert await target.send(bad + good + last) == [401, 200, 401]


async def test_a_key_behind_the_body_opens_nothing(caplog: pytest.LogCaptureFixture) -> None:
    async with under_attack(caplog) as target:
        body = in_chunks(as_json(BODY))[:-2]
        head = target.head(POST, TE, CLOSE, b"trailer: authorization", b"", key=False)
        assert await target.send(head + body + target.key + b"\r\n") == [401]
        # Nor does what stands there change what the head has said.
        head = target.head(POST, TE, CLOSE, b"")
        other = b"authorization: Bearer wrong\r\nhost: evil\r\n\r\n"
        assert await target.send(head + body + other) == [200]
        assert len(target.fake.requests) == 1


@pytest.mark.parametrize("endless", [b"x-a: ", b"x-a: b\r\n", b""])
async def test_trailers_without_end_are_not_kept(
    endless: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    filler = endless or b"x-a: b\r\n"
    async with under_attack(caplog) as target:
        head = target.head(POST, TE, b"") + b"2\r\n{}\r\n0\r\n" + endless
        piece = (b"a" if filler == b"x-a: " else filler) * 2048
        # It is refused long before all of it is there; its words may be lost while we write on.
        assert await target.send(head, *[piece] * 256) in ([], [400], [431])


async def test_extensions_of_chunks_without_end_are_not_read(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with under_attack(caplog) as target:
        head = target.head(POST, TE, b"") + b"2;"
        assert await target.send(head, *[b"a" * 16_384] * 16) in ([], [431])
        # Short ones mean nothing.
        body = b"%x;name=value\r\n%b\r\n0\r\n\r\n" % (len(as_json(BODY)), as_json(BODY))
        assert await target.send(target.head(POST, TE, CLOSE, b"") + body) == [200]


async def test_requests_without_end_are_not_collected(caplog: pytest.LogCaptureFixture) -> None:
    # The first is never answered, and so the others wait.
    async with under_attack(caplog, fake=FakeProvider([FakeReply(text="x", delay_s=60)])) as target:
        first = target.head(POST, b"content-length: %d" % len(as_json(BODY)), b"") + as_json(BODY)
        flood = target.head("GET /health HTTP/1.1", b"", key=False) * 300
        assert await target.send(first, flood, asked=1) == []
        # So many as a client sends at once are all answered.
        some = target.head("GET /health HTTP/1.1", b"", key=False) * 200
        last = target.head(MODELS, CLOSE, b"")
        assert await target.send(some + last) == [200] * 201


async def test_nonsense_does_not_stand_in_the_middle_of_an_answer(
    caplog: pytest.LogCaptureFixture,
) -> None:
    body = as_json({**BODY, "stream": True})
    slow = FakeReply(text="a b", delay_s=60)
    fake = FakeProvider([slow, slow])
    async with under_attack(caplog, fake=fake) as target:
        gateway = target.gateway
        request = target.head(POST, b"content-length: %d" % len(body), b"") + body
        # Neither before it begins nor while it is being said.
        assert await target.send(request, b"NONSENSE\r\n\r\n", asked=1) == []
        reader, writer = await asyncio.open_connection(gateway.host, gateway.port)
        writer.write(request)
        await until(lambda: len(fake.requests) == 2)
        writer.write(b"\0\0\0\0")
        with suppress(ConnectionError):
            assert b"400" not in await asyncio.wait_for(reader.read(), 30)
        writer.close()


@pytest.mark.parametrize("line", ["upgrade: h2c", "upgrade: TLS/1.2", "upgrade: foo/1"])
async def test_another_protocol_is_answered_in_this_one(
    line: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with under_attack(caplog) as target:
        upgrade = target.head(MODELS, b"connection: upgrade", line.encode(), b"")
        assert await target.send(upgrade + hidden(target)) == [200]
        assert await target.send(upgrade + b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n") == [200]
        body = as_json(BODY)
        size = b"content-length: %d" % len(body)
        late = target.head(POST, b"connection: upgrade", line.encode(), size, b"", key=False)
        assert await target.send(late, body, hidden(target)) == [401]


async def test_a_handshake_behind_an_open_request(caplog: pytest.LogCaptureFixture) -> None:
    async with under_attack(caplog, fake=FakeProvider([FakeReply(text="x", delay_s=60)])) as target:
        first = target.head(POST, b"content-length: %d" % len(as_json(BODY)), b"") + as_json(BODY)
        second = target.head(
            "GET /v1/sampling/ws HTTP/1.1",
            *(b"connection: upgrade", b"upgrade: websocket", b"sec-websocket-version: 13"),
            *(b"sec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==", b""),
        )
        assert await target.send(first, second, asked=1) == []


# Each of these is nothing, or what it is without the trick; none is more than that.
PATHS = [
    *("//v1/models", "/v1//models", "/./v1/models", "/v1/../v1/models", "/v1/%2e%2e/v1/models"),
    *("/V1/models", "/v1/models;x=1", "/v1/models%00", "/v1/models%0d%0a", "/v1/models%20"),
    *("/health/../v1/models", "/health;/v1/models", "/health%2f..%2fv1/models", "/health/"),
    *("/%2e%2e/v1/models", "/%c0%ae%c0%ae/v1/models", "/%u002e/v1/models", "/v1\\models"),
]
ADMIN_PATHS = [
    *("/admin", "/admin/", "/admin/v1/keys", "/%61dmin/v1/keys", "/admin%2fv1%2fkeys", "/admin?x"),
    *("/admin/%2e%2e/v1/models", "/admin/../v1/models", "http://x/admin/v1/keys", "/admin#x"),
]
NOT_ADMIN = [
    *("/Admin/v1/keys", "/ADMIN", "//admin/v1/keys", "/./admin", "/x/../admin/v1/keys"),
    *("/%2fadmin", "/admin;x", "/admin%00", "/admin.json", "/\\admin", "/v1/models/../../admin"),
    *("/%2e%2e/admin/v1/keys", "/health/../admin", "/admin%20", "/%2561dmin"),
]


@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
async def test_tricks_with_paths(method: str, caplog: pytest.LogCaptureFixture) -> None:
    async with under_attack(caplog) as target:
        for path in (*PATHS, *NOT_ADMIN):
            line = f"{method} {path} HTTP/1.1"
            assert await target.send(target.head(line, CLOSE, b"", key=False)) == [401], path
            assert await target.send(target.head(line, CLOSE, b"")) in ([404], [405]), path
        for path in ADMIN_PATHS:
            line = f"{method} {path} HTTP/1.1"
            assert await target.send(target.head(line, CLOSE, b"", key=False)) == [401], path
            assert await target.send(target.head(line, CLOSE, b"")) == [403], path


async def test_other_forms_of_targets_and_methods(caplog: pytest.LogCaptureFixture) -> None:
    # With a key and without.
    lines = {
        "GET http://evil.example/v1/models HTTP/1.1": ([200], [401]),
        "GET evil.example:443 HTTP/1.1": ([400], [400]),
        "GET v1/models HTTP/1.1": ([400], [400]),
        "OPTIONS * HTTP/1.1": ([404], [401]),
        "CONNECT evil.example:443 HTTP/1.1": ([400], [400]),
        "CONNECT /v1/models HTTP/1.1": ([405], [401]),
        "TRACE /v1/models HTTP/1.1": ([405], [401]),
        "PROPFIND /v1/models HTTP/1.1": ([405], [401]),
        "NONSENSE /v1/models HTTP/1.1": ([400], [400]),
        "get /v1/models HTTP/1.1": ([400], [400]),
        "GET /v1/models HTTP/1.0": ([200], [401]),
        "GET /v1/models HTTP/1.2": ([400], [400]),
        "GET /v1/models HTTP/3.0": ([400], [400]),
        "GET /v1/models HTTP/1.1 HTTP/1.1": ([400], [400]),
        "GET  /v1/models  HTTP/1.1": ([200], [401]),
        "GET /v1/modèls HTTP/1.1": ([400], [400]),
    }
    async with under_attack(caplog) as target:
        for line, (known, unknown) in lines.items():
            assert await target.send(target.head(line, CLOSE, b"")) == known, line
            assert await target.send(target.head(line, CLOSE, b"", key=False)) == unknown, line
        # Before there were versions there were no headers, and so there is no key.
        assert await target.send(b"GET /v1/models\r\n\r\n") == [401]
        assert await target.send(bytes.fromhex("16030100a5010000a10303") + bytes(160)) == [400]


async def test_what_was_traced_is_not_told(caplog: pytest.LogCaptureFixture) -> None:
    async with under_attack(caplog) as target:
        answer = await target.raw(
            target.head("TRACE /health HTTP/1.1", b"cookie: secret-cookie", CLOSE, b"")
        )
        assert b"secret-cookie" not in answer


@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize("key", [False, True])
async def test_endless_bodies(chunked: bool, key: bool, caplog: pytest.LogCaptureFixture) -> None:
    async with under_attack(caplog) as target:
        target.gateway.app.max_request_bytes = 10_000
        how = TE if chunked else b"content-length: 1000000000000"
        piece = (b"4000\r\n%b\r\n" if chunked else b"%b") % (b" " * 16_384)
        sent = target.head(POST, how, CLOSE, b"", key=key)
        # The gateway may close while we still write, and then its words are lost.
        assert await target.send(sent, *[piece] * 64) in ([413 if key else 401], [])
        assert target.fake.requests == []


async def test_packed_bodies_are_not_unpacked(caplog: pytest.LogCaptureFixture) -> None:
    async with under_attack(caplog) as target:
        bomb = gzip.compress(bytes(50_000_000))
        for name in ("gzip", "deflate", "br", "zstd", "gzip, gzip"):
            headers = {**bearer(target.texts["one"]), "content-encoding": name}
            answer = await target.gateway.client.post(CHAT, content=bomb, headers=headers)
            assert answer.status_code in (400, 415)
            assert target.fake.requests == []
