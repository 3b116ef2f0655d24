"""The HTTP client against servers that send exactly what a test says, and fail as it says."""

import asyncio
import gzip
import sys
import traceback
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from penstock import __version__
from penstock.contract.errors import (
    ConfigurationError,
    MalformedResponse,
    PenstockError,
    ProviderTimeout,
    ProviderUnavailable,
)
from penstock.providers.http.response import StreamingResponse
from penstock.providers.http.transport import HttpTransport, TransportSettings
from penstock.providers.wire.dialect import WireCall
from tests.support.loops import pass_time, timeless
from tests.support.raw import (
    CHUNKED_HEAD,
    HOST,
    LAST_CHUNK,
    OK_HEAD,
    Handler,
    Peer,
    RawServer,
    answering,
    chunk,
    read_to_their_end,
    settle,
    unused_port,
    whole,
)

CALL = WireCall("/", b'{"a":1}')
KEY = "sk-very-secret"
HEADERS = {"authorization": f"Bearer {KEY}"}
IMPATIENT = TransportSettings(idle_timeout_s=0.2)


@pytest.fixture
async def transport() -> AsyncGenerator[HttpTransport]:
    async with HttpTransport() as transport:
        yield transport


async def read_all(response: StreamingResponse) -> bytes:
    pieces: list[bytes] = []
    while piece := await response.read(5):
        pieces.append(piece)
    return b"".join(pieces)


def everything_said(error: BaseException) -> str:
    """All that a log, a traceback or a debugger would show of an error."""
    shown = "".join(traceback.format_exception(error))
    link: BaseException | None = error
    while link is not None:
        shown += f" {link} {link!r}"
        link = link.__cause__
    return shown


# What is sent, and what comes back


async def test_a_request_is_sent_as_it_was_given(transport: HttpTransport) -> None:
    async with RawServer(answering(whole(b"[1]", headers="X-Thing: a\r\n"))) as server:
        call = WireCall("/", b'{"a":1}', headers={"x-dialect": "d"})
        response = await transport.request(server.url + "/v1/x?y=1", call, HEADERS)
    assert (response.status, response.body) == (200, b"[1]")
    assert response.headers["x-thing"] == "a"
    (request,) = server.requests
    assert request.line == "POST /v1/x?y=1 HTTP/1.1"
    assert request.body == b'{"a":1}'
    assert request.headers["authorization"] == f"Bearer {KEY}"
    assert request.headers["x-dialect"] == "d"
    assert request.headers["user-agent"] == f"penstock/{__version__}"


@pytest.mark.parametrize(
    ("written", "sent"),
    [
        ("", "/"),
        ("/v1//x/", "/v1//x/"),
        ("/m/a%3Ab%2Fc%20d:e@f", "/m/a%3Ab%2Fc%20d:e@f"),
        ("/m/%61%7E~+*", "/m/%61%7E~+*"),
        ("/m?a=%3A+b&c=/?", "/m?a=%3A+b&c=/?"),
        ("/m x/\xe9?q=\xe9 b", "/m%20x/%C3%A9?q=%C3%A9%20b"),
    ],
)
async def test_a_path_goes_out_as_it_is_written_for_it_may_be_signed(
    transport: HttpTransport, written: str, sent: str
) -> None:
    async with RawServer(answering(whole())) as server:
        await transport.request(server.url + written, CALL, {})
    assert server.requests[0].line == f"POST {sent} HTTP/1.1"


async def test_a_get_has_no_body(transport: HttpTransport) -> None:
    async with RawServer(answering(whole())) as server:
        await transport.request(server.url, WireCall("/", method="GET"), {})
    (request,) = server.requests
    assert request.line == "GET / HTTP/1.1"
    assert request.body == b""


@pytest.mark.parametrize("status", ["400 Bad Request", "429 Slow", "500 Oops", "204 Nothing"])
async def test_every_status_is_an_answer(transport: HttpTransport, status: str) -> None:
    body = b"" if status.startswith("204") else b"why"
    async with RawServer(answering(whole(body, status=status))) as server:
        response = await transport.request(server.url, CALL, {})
    assert (response.status, response.body) == (int(status[:3]), body)


async def test_a_redirect_is_not_followed(transport: HttpTransport) -> None:
    async with RawServer(answering(whole())) as elsewhere:
        moved = whole(status="307 Moved", headers=f"location: {elsewhere.url}\r\n")
        async with RawServer(answering(moved)) as server:
            response = await transport.request(server.url, CALL, HEADERS)
    assert response.status == 307
    assert elsewhere.connections == 0


async def test_no_cookie_is_kept(transport: HttpTransport) -> None:
    async with RawServer(answering(whole(headers="set-cookie: a=b\r\n"))) as server:
        for _ in range(2):
            await transport.request(server.url, CALL, {})
    assert all("cookie" not in request.headers for request in server.requests)


async def test_no_password_file_is_read(
    transport: HttpTransport, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in (".netrc", "netrc"):
        (tmp_path / name).write_text(f"machine {HOST} login me password secret\n")
        (tmp_path / name).chmod(0o600)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    async with RawServer(answering(whole())) as server:
        await transport.request(server.url, CALL, {})
    assert "authorization" not in server.requests[0].headers


async def test_a_compressed_answer_is_unpacked(transport: HttpTransport) -> None:
    packed = gzip.compress(b'{"text": "hello"}')
    async with RawServer(answering(whole(packed, headers="content-encoding: gzip\r\n"))) as server:
        response = await transport.request(server.url, CALL, {})
    assert response.body == b'{"text": "hello"}'
    assert "gzip" in server.requests[0].headers["accept-encoding"]


async def test_a_body_without_a_length_ends_with_its_connection(transport: HttpTransport) -> None:
    async def answer(peer: Peer) -> None:
        await peer.request()
        await peer.send(OK_HEAD + b"\r\nabc")

    async with RawServer(answer) as server:
        assert (await transport.request(server.url, CALL, {})).body == b"abc"


async def test_a_stream_is_read_as_it_arrives(transport: HttpTransport) -> None:
    go_on = asyncio.Event()

    async def answer(peer: Peer) -> None:
        await peer.request()
        await peer.send(CHUNKED_HEAD + chunk(b"one"))
        await go_on.wait()
        await peer.send(chunk(b"two") + LAST_CHUNK)

    async with RawServer(answer) as server, transport.open(server.url, CALL, {}) as response:
        assert response.status == 200
        assert await response.read(5) == b"one"
        go_on.set()
        assert await response.read(5) == b"two"
        assert await response.read(5) == b""
        assert await response.read(5) == b""


# Connections


async def test_connections_are_used_again(transport: HttpTransport) -> None:
    async with RawServer(answering(whole())) as server:
        for _ in range(5):
            await transport.request(server.url, CALL, {})
        for _ in range(3):
            async with transport.open(server.url, CALL, {}) as response:
                assert await read_all(response) == b"{}"
    assert server.connections == 1
    assert len(server.requests) == 8


async def test_a_server_that_closes_without_saying_so_is_called_on_a_new_connection(
    transport: HttpTransport,
) -> None:
    async def answer_once(peer: Peer) -> None:
        await peer.request()
        await peer.send(whole())

    async with RawServer(answer_once) as server:
        for number in range(20):
            await transport.request(server.url, WireCall("/", b"%d" % number), {})
    assert [request.body for request in server.requests] == [b"%d" % n for n in range(20)]


async def test_an_unfinished_body_costs_its_connection_at_once(transport: HttpTransport) -> None:
    gone = asyncio.Event()

    async def answer(peer: Peer) -> None:
        await peer.request()
        await peer.send(CHUNKED_HEAD + chunk(b"one"))
        await peer.gone()
        gone.set()

    async with RawServer(answer) as server:
        async with transport.open(server.url, CALL, {}) as response:
            assert await response.read(5) == b"one"
        async with asyncio.timeout(30):
            await gone.wait()
        async with transport.open(server.url, CALL, {}):
            pass
    assert server.connections == 2


async def test_an_error_while_reading_cuts_the_connection(transport: HttpTransport) -> None:
    gone = asyncio.Event()

    async def answer(peer: Peer) -> None:
        await peer.request()
        await peer.send(CHUNKED_HEAD + chunk(b"one"))
        await peer.gone()
        gone.set()

    async with RawServer(answer) as server:
        with pytest.raises(ZeroDivisionError):
            async with transport.open(server.url, CALL, {}):
                raise ZeroDivisionError
        async with asyncio.timeout(30):
            await gone.wait()


async def test_a_cancelled_call_cuts_the_connection(transport: HttpTransport) -> None:
    asked, gone = asyncio.Event(), asyncio.Event()

    async def answer(peer: Peer) -> None:
        await peer.request()
        asked.set()
        await peer.gone()
        gone.set()

    async with RawServer(answer) as server:
        task = asyncio.create_task(transport.request(server.url, CALL, {}))
        await asked.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        async with asyncio.timeout(30):
            await gone.wait()


async def test_a_stream_whose_reader_has_it_all_gives_its_connection_back(
    transport: HttpTransport,
) -> None:
    left, ended = asyncio.Event(), asyncio.Event()

    async def answer(peer: Peer) -> None:
        while await peer.request():
            await peer.send(CHUNKED_HEAD + chunk(b"the end"))
            await left.wait()
            await peer.send(LAST_CHUNK)
            ended.set()

    async with RawServer(answer) as server:
        async with transport.open(server.url, CALL, {}) as response:
            assert await response.read(5) == b"the end"
            response.said_all = True
        left.set()
        await ended.wait()
        await read_to_their_end()
        assert (await transport.request(server.url, CALL, {})).body == b"the end"
    assert server.connections == 1


async def test_a_body_that_never_ends_is_cut_within_about_a_second(
    transport: HttpTransport,
) -> None:
    gone = asyncio.Event()

    async def answer(peer: Peer) -> None:
        await peer.request()
        await peer.send(CHUNKED_HEAD + chunk(b"the end"))
        # It is not silent either: it goes on with what looks like pings.
        watch = asyncio.create_task(peer.gone())
        while not watch.done():
            await peer.send(chunk(b": ping\n\n"))
            await asyncio.wait([watch], timeout=0.05)
        gone.set()

    async with RawServer(answer) as server:
        loop = asyncio.get_running_loop()
        async with transport.open(server.url, CALL, {}) as response:
            await response.read(5)
            response.said_all = True
            started = loop.time()
        assert not gone.is_set(), "the caller need not wait for it"
        async with asyncio.timeout(30):
            await gone.wait()
        assert loop.time() - started > 0.8


@timeless
async def test_the_end_of_a_body_has_a_second() -> None:
    gone = asyncio.Event()

    async def answer(peer: Peer) -> None:
        await peer.request()
        await peer.send(CHUNKED_HEAD + chunk(b"the end"))
        await peer.gone()
        gone.set()

    async with RawServer(answer) as server, HttpTransport() as transport:
        async with transport.open(server.url, CALL, {}) as response:
            await response.read(5)
            response.said_all = True
        await pass_time(0.9)
        assert not gone.is_set()
        await pass_time(0.2)
        await gone.wait()


async def test_closing_ends_what_is_still_being_read_to_its_end() -> None:
    gone = asyncio.Event()

    async def answer(peer: Peer) -> None:
        await peer.request()
        await peer.send(CHUNKED_HEAD + chunk(b"the end"))
        await peer.gone()
        gone.set()

    async with RawServer(answer) as server:
        transport = HttpTransport()
        async with transport.open(server.url, CALL, {}) as response:
            await response.read(5)
            response.said_all = True
        await transport.aclose()
        # By itself it would be read on for a second, and by then be closed as well.
        assert not [task for task in asyncio.all_tasks() if "drain" in repr(task)]
        async with asyncio.timeout(30):
            await gone.wait()


async def test_a_broken_end_after_everything_was_said_is_nobodys_concern(
    transport: HttpTransport,
) -> None:
    async def answer(peer: Peer) -> None:
        await peer.request()
        await peer.send(CHUNKED_HEAD + chunk(b"the end"))
        peer.reset()

    async with RawServer(answer) as server, transport.open(server.url, CALL, {}) as response:
        await response.read(5)
        response.said_all = True


async def test_a_transport_can_be_closed_twice_and_used_again() -> None:
    transport = HttpTransport()
    await transport.aclose()
    async with RawServer(answering(whole())) as server:
        await transport.request(server.url, CALL, {})
        await transport.aclose()
        await transport.aclose()
        await transport.request(server.url, CALL, {})
        await transport.aclose()
    assert server.connections == 2


async def test_many_streams_at_once(transport: HttpTransport) -> None:
    everybody = asyncio.Barrier(100)

    async def answer(peer: Peer) -> None:
        request = await peer.request()
        assert request is not None
        await peer.send(CHUNKED_HEAD + chunk(b"<" + request.body))
        await everybody.wait()
        await peer.send(chunk(request.body + b">") + LAST_CHUNK)

    async def talk(number: int) -> bytes:
        call = WireCall("/", b"%d" % number)
        async with transport.open(server.url, call, {}) as response:
            return await read_all(response)

    async with RawServer(answer) as server:
        said = await asyncio.gather(*(talk(number) for number in range(100)))
    assert said == [b"<%d%d>" % (number, number) for number in range(100)]


# Limits of time and size


async def test_a_server_that_does_not_answer_is_given_up() -> None:
    async def stay_silent(peer: Peer) -> None:
        await peer.request()
        await peer.gone()

    settings = TransportSettings(response_timeout_s=0.2)
    async with RawServer(stay_silent) as server, HttpTransport(settings) as transport:
        with pytest.raises(ProviderTimeout) as caught:
            await transport.request(server.url + "/v1/x", CALL, HEADERS)
    assert str(caught.value) == f"{server.url}/v1/x sent no response within 0.2 s"


async def test_a_server_that_does_not_shake_hands_is_given_up() -> None:
    async def stay_silent(peer: Peer) -> None:
        await peer.gone()

    slow = TransportSettings(connect_timeout_s=0.2, response_timeout_s=30)
    async with RawServer(stay_silent) as server, HttpTransport(slow) as transport:
        address = f"https://{HOST}:{server.port}"
        with pytest.raises(ProviderTimeout) as caught:
            await transport.request(address, CALL, HEADERS)
    assert str(caught.value) == f"no connection to {address} within 0.2 s"


async def test_a_body_that_falls_silent_is_given_up() -> None:
    async def stop_halfway(peer: Peer) -> None:
        await peer.request()
        await peer.send(OK_HEAD + b"content-length: 10\r\n\r\nhalf")
        await peer.gone()

    async with RawServer(stop_halfway) as server, HttpTransport(IMPATIENT) as transport:
        with pytest.raises(ProviderTimeout) as caught:
            await transport.request(server.url, CALL, HEADERS)
    assert str(caught.value) == f"{server.url} was silent for 0.2 s"
    assert not caught.value.retryable


@timeless
async def test_a_slow_body_is_not_given_up_as_long_as_something_comes() -> None:
    async def drip(peer: Peer) -> None:
        await peer.request()
        await peer.send(CHUNKED_HEAD)
        for _ in range(8):
            await pass_time(0.1)
            await peer.send(chunk(b"x"))
        await peer.send(LAST_CHUNK)

    async with RawServer(drip) as server, HttpTransport(IMPATIENT) as transport:
        assert (await transport.request(server.url, CALL, {})).body == b"x" * 8


async def test_a_body_that_never_ends_is_given_up_though_something_always_comes() -> None:
    async def drip(peer: Peer) -> None:
        await peer.request()
        await peer.send(CHUNKED_HEAD)
        while True:
            await peer.send(chunk(b"x"))
            await asyncio.sleep(0.01)

    settings = TransportSettings(body_timeout_s=0.2)
    async with RawServer(drip) as server, HttpTransport(settings) as transport:
        with pytest.raises(ProviderTimeout) as caught:
            await transport.request(server.url, CALL, HEADERS)
    assert str(caught.value) == (
        f"{server.url} did not send its whole answer within 0.2 s; "
        "raise body_timeout_s if that is right"
    )
    assert not caught.value.retryable


async def test_a_flood_that_never_ends_is_given_up_though_it_never_pauses() -> None:
    async def flood(peer: Peer) -> None:
        await peer.request()
        await peer.send(CHUNKED_HEAD)
        while True:
            await peer.send(chunk(b"x" * 1000))

    settings = TransportSettings(body_timeout_s=0.2, max_response_bytes=sys.maxsize)
    async with RawServer(flood) as server, HttpTransport(settings) as transport:
        with pytest.raises(ProviderTimeout, match="whole answer within"):
            await transport.request(server.url, CALL, HEADERS)


@timeless
async def test_a_slow_consumer_is_not_the_providers_fault() -> None:
    reading, rested = asyncio.Event(), asyncio.Event()

    async def answer(peer: Peer) -> None:
        await peer.request()
        await peer.send(CHUNKED_HEAD)
        await reading.wait()
        await peer.send(chunk(b"one"))
        await rested.wait()
        await peer.send(chunk(b"two") + LAST_CHUNK)

    async with (
        RawServer(answer) as server,
        HttpTransport() as transport,
        transport.open(server.url, CALL, {}) as response,
    ):
        for sent, data in ((reading, b"one"), (rested, b"two")):
            coming = asyncio.create_task(response.read(0.1))
            await pass_time(0.05)
            sent.set()
            assert await coming == data
            await pass_time(0.2)  # longer than the server may be silent


async def test_the_timer_follows_reads_of_any_length() -> None:
    reading = asyncio.Event()

    async def answer(peer: Peer) -> None:
        await peer.request()
        await peer.send(CHUNKED_HEAD)
        await reading.wait()
        await peer.send(chunk(b"one"))
        await peer.gone()

    async with (
        RawServer(answer) as server,
        HttpTransport() as transport,
        transport.open(server.url, CALL, {}) as response,
    ):
        loop = asyncio.get_running_loop()
        loop.call_later(0.01, reading.set)
        assert await response.read(60) == b"one"
        started = loop.time()
        with pytest.raises(ProviderTimeout, match=r"silent for 0\.05 s"):
            await response.read(0.05)
        assert 0.04 < loop.time() - started < 30


@pytest.mark.parametrize(
    "answer",
    [
        answering(whole(b"x" * 1001)),
        answering(CHUNKED_HEAD + chunk(b"x" * 600) + chunk(b"x" * 600) + LAST_CHUNK),
        answering(whole(gzip.compress(b"x" * 1_000_000), headers="content-encoding: gzip\r\n")),
    ],
    ids=["length", "chunks", "gzip"],
)
async def test_an_answer_that_is_too_large_is_refused(answer: Handler) -> None:
    settings = TransportSettings(max_response_bytes=1000)
    async with RawServer(answer) as server, HttpTransport(settings) as transport:
        with pytest.raises(MalformedResponse, match="more than 1000 bytes; raise max_response"):
            await transport.request(server.url, CALL, HEADERS)


async def test_an_answer_of_just_the_limit_is_taken() -> None:
    exact = TransportSettings(max_response_bytes=1000)
    async with (
        RawServer(answering(whole(b"x" * 1000))) as server,
        HttpTransport(exact) as transport,
    ):
        assert len((await transport.request(server.url, CALL, {})).body) == 1000


# What goes wrong, in Penstock's own words


def sending(data: bytes, *, reset: bool = False) -> Handler:
    async def send(peer: Peer) -> None:
        await peer.request()
        await peer.send(data)
        if reset:
            peer.reset()

    return send


async def hang_up(peer: Peer) -> None:
    await peer.request()


@pytest.mark.parametrize(
    ("handler", "kind", "message"),
    [
        (hang_up, ProviderUnavailable, "closed the connection instead of answering"),
        (sending(b"", reset=True), ProviderUnavailable, "failed: Connection reset by peer"),
        (sending(b"HTTP/1.1 200 OK\r\nfoo: "), ProviderUnavailable, "closed the connection"),
        (sending(b"SSH-2.0-OpenSSH_9.2\r\n"), MalformedResponse, "does not speak HTTP"),
        (
            sending(OK_HEAD + b"x: " + b"a" * 100_000 + b"\r\n\r\n"),
            MalformedResponse,
            "does not speak HTTP",
        ),
        (sending(CHUNKED_HEAD + b"ZZ\r\n"), MalformedResponse, "does not speak HTTP"),
        (sending(OK_HEAD + b"content-length: 9\r\n\r\nhalf"), ProviderUnavailable, "broke off"),
        (sending(CHUNKED_HEAD + chunk(b"half")), ProviderUnavailable, "broke off"),
        (
            sending(whole(b"no gzip at all", headers="content-encoding: gzip\r\n")),
            ProviderUnavailable,
            "broke off",
        ),
    ],
)
async def test_a_broken_answer_is_the_providers_failure(
    handler: Handler, kind: type[PenstockError], message: str, transport: HttpTransport
) -> None:
    async with RawServer(handler) as server:
        with pytest.raises(ProviderUnavailable) as caught:
            await transport.request(server.url + "/v1", CALL, HEADERS)
    assert type(caught.value) is kind
    assert caught.value.retryable
    assert message in str(caught.value)
    assert f"{server.url}/v1" in str(caught.value)
    assert KEY not in everything_said(caught.value)


async def test_a_reset_in_mid_body_is_an_interruption(transport: HttpTransport) -> None:
    read = asyncio.Event()

    async def reset_halfway(peer: Peer) -> None:
        await peer.request()
        await peer.send(CHUNKED_HEAD + chunk(b"half"))
        await read.wait()
        peer.reset()

    async with (
        RawServer(reset_halfway) as server,
        transport.open(server.url, CALL, HEADERS) as response,
    ):
        assert await response.read(5) == b"half"
        read.set()
        for _ in range(2):
            with pytest.raises(ProviderUnavailable, match="broke off"):
                await response.read(5)


async def test_what_arrived_before_a_break_is_not_lost_on_a_slow_consumer(
    transport: HttpTransport,
) -> None:
    left = asyncio.Event()

    async def send_and_hang_up(peer: Peer) -> None:
        await peer.request()
        await peer.send(CHUNKED_HEAD + chunk(b"one"))
        await peer.send(chunk(b"two"))
        peer.writer.close()
        left.set()

    async with (
        RawServer(send_and_hang_up) as server,
        transport.open(server.url, CALL, HEADERS) as response,
    ):
        await left.wait()
        await settle()  # the break has been noticed, too
        assert await response.read(5) == b"onetwo"
        with pytest.raises(ProviderUnavailable, match="broke off"):
            await response.read(5)


async def test_a_server_that_is_not_there_is_named_with_the_remedy(
    transport: HttpTransport,
) -> None:
    address = f"http://{HOST}:{await unused_port()}"
    with pytest.raises(ProviderUnavailable) as caught:
        await transport.request(address + "/v1/x", CALL, HEADERS)
    assert str(caught.value).startswith(f"cannot connect to {address}/v1/x: ")
    assert str(caught.value).endswith("; is the server running and the url right?")
    assert caught.value.retryable
    assert caught.value.__cause__ is not None
    assert KEY not in everything_said(caught.value)


@pytest.mark.parametrize("url", ["ftp://x/", "localhost:80", "http://", "http://host:99999/"])
async def test_an_address_that_is_none_is_a_mistake_in_the_settings(
    url: str, transport: HttpTransport
) -> None:
    with pytest.raises(ConfigurationError, match="is not an http or https address"):
        await transport.request(url, CALL, HEADERS)


@pytest.mark.parametrize("header", [{"x": "a\nb"}, {"x": f"{KEY}\r\ny: z"}, {"x\n": "a"}])
async def test_a_header_that_cannot_be_sent_is_a_mistake_in_the_settings(
    header: dict[str, str], transport: HttpTransport
) -> None:
    async with RawServer(answering(whole())) as server:
        with pytest.raises(ConfigurationError, match="cannot be called") as caught:
            await transport.request(server.url, CALL, header)
    assert server.requests == []
    assert KEY not in everything_said(caught.value)


async def test_credentials_in_an_address_are_not_shown(transport: HttpTransport) -> None:
    address = f"{HOST}:{await unused_port()}"
    with pytest.raises(ProviderUnavailable, match=f"http://{address}/v1: ") as caught:
        await transport.request(f"http://me:{KEY}@{address}/v1?key={KEY}", CALL, {})
    assert KEY not in str(caught.value)


def test_a_whole_answer_gets_time_for_its_tokens_but_not_for_ever() -> None:
    settings = TransportSettings(response_timeout_s=60, slowest_tokens_per_s=20)
    assert settings.whole_answer_s(1) == 60.05
    assert settings.whole_answer_s(2000) == 160
    assert settings.whole_answer_s(10**9) == 600
    patient = TransportSettings(response_timeout_s=900)
    assert patient.whole_answer_s(2000) == 900
