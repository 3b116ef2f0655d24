"""The proxy that the environment names is used, and its password stays secret."""

import base64
import traceback

import pytest

from penstock.contract.errors import ConfigurationError, ProviderUnavailable
from penstock.providers.http.proxies import proxy_for
from penstock.providers.http.transport import HttpTransport, TransportSettings
from penstock.providers.wire.dialect import WireCall
from tests.support.raw import HOST, Peer, RawServer, answering, tunnel, unused_port, whole
from tests.support.tls import make_authority

CALL = WireCall("/", b"{}")
KEY = "sk-secret"
PASSWORD = "proxy-secret"


async def forward(peer: Peer) -> None:
    """A forward proxy as simple as one can be: it answers itself, in the server's place."""
    while await peer.request():
        await peer.send(whole(b"by proxy"))


@pytest.mark.parametrize("variable", ["HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"])
async def test_plain_calls_go_through_the_proxy(
    variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with RawServer(forward) as proxy, HttpTransport() as transport:
        monkeypatch.setenv(variable, proxy.url)
        for _ in range(2):
            response = await transport.request("http://model.test:81/v1/x", CALL, {})
            assert response.body == b"by proxy"
    assert proxy.requests[0].line == "POST http://model.test:81/v1/x HTTP/1.1"
    assert proxy.requests[0].headers["host"] == "model.test:81"
    assert proxy.connections == 1


async def test_a_proxy_may_be_named_without_its_scheme(monkeypatch: pytest.MonkeyPatch) -> None:
    async with RawServer(forward) as proxy, HttpTransport() as transport:
        monkeypatch.setenv("HTTP_PROXY", f"{HOST}:{proxy.port}")
        assert (await transport.request("http://model.test/", CALL, {})).body == b"by proxy"


async def test_encrypted_calls_are_tunnelled_and_verified_end_to_end(
    monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    authority = make_authority(tmp_path_factory.mktemp("tls"))
    settings = TransportSettings(ca_file=str(authority.file))
    async with (
        RawServer(answering(whole(b"secret"))) as plain,
        RawServer(answering(whole(b"hello")), authority.server_context()) as server,
        RawServer(tunnel) as proxy,
    ):
        monkeypatch.setenv("HTTPS_PROXY", f"http://me:{PASSWORD}@{HOST}:{proxy.port}")
        async with HttpTransport(settings) as transport:
            headers = {"authorization": KEY}
            assert (await transport.request(server.url, CALL, headers)).body == b"hello"
            assert (await transport.request(plain.url, CALL, {})).body == b"secret"
    (connect,) = proxy.requests
    assert connect.line == f"CONNECT {HOST}:{server.port} HTTP/1.1"
    assert KEY not in str(connect)
    login = base64.b64encode(f"me:{PASSWORD}".encode()).decode()
    assert connect.headers["proxy-authorization"] == f"Basic {login}"
    assert "proxy-authorization" not in server.requests[0].headers


@pytest.mark.parametrize(
    ("exceptions", "bypassed"),
    [
        ("*", True),
        (HOST, True),
        ("other.test, 127.0.0.1 ", True),
        ("HOST:PORT", True),
        ("HOST:1", False),
        ("other.test", False),
        ("", False),
    ],
)
async def test_exceptions_from_the_proxy_are_honoured(
    exceptions: str, bypassed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        RawServer(forward) as proxy,
        RawServer(answering(whole(b"direct"))) as server,
        HttpTransport() as transport,
    ):
        monkeypatch.setenv("HTTP_PROXY", proxy.url)
        named = exceptions.replace("HOST", HOST).replace("PORT", str(server.port))
        monkeypatch.setenv("NO_PROXY", named)
        response = await transport.request(server.url, CALL, {})
    assert response.body == (b"direct" if bypassed else b"by proxy")


def test_exceptions_hold_for_subdomains(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy.test:3128")
    monkeypatch.setenv("NO_PROXY", ".internal.test,example.test")
    assert proxy_for("https://a.internal.test/v1") is None
    assert proxy_for("https://b.example.test:8443/v1") is None
    assert proxy_for("https://api.openai.com/v1") == "http://proxy.test:3128"
    assert proxy_for("http://api.openai.com/v1") is None


async def test_a_proxy_that_is_not_there_is_named_without_its_password(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    port = await unused_port()
    monkeypatch.setenv("HTTP_PROXY", f"http://me:{PASSWORD}@{HOST}:{port}")
    async with HttpTransport() as transport:
        with pytest.raises(ProviderUnavailable) as caught:
            await transport.request("http://model.test/v1", CALL, {})
    assert str(caught.value).startswith(f"cannot connect to the proxy http://{HOST}:{port}: ")
    assert PASSWORD not in "".join(traceback.format_exception(caught.value))


async def test_a_proxy_that_refuses_is_named_without_its_password(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    refusal = whole(b"", status="407 Proxy Authentication Required")
    async with RawServer(answering(refusal)) as proxy, HttpTransport() as transport:
        monkeypatch.setenv("HTTPS_PROXY", f"http://me:{PASSWORD}@{HOST}:{proxy.port}")
        with pytest.raises(ProviderUnavailable) as caught:
            await transport.request("https://model.test/v1", CALL, {"authorization": KEY})
    assert str(caught.value) == (
        f"the proxy {proxy.url} refused with 407 Proxy Authentication Required"
    )
    shown = "".join(traceback.format_exception(caught.value)) + repr(caught.value.__cause__)
    assert PASSWORD not in shown
    assert KEY not in shown


@pytest.mark.parametrize("kind", ["socks5", "socks4", "ftp"])
async def test_a_kind_of_proxy_that_is_not_supported_is_refused(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ALL_PROXY", f"{kind}://me:{PASSWORD}@{HOST}:1")
    async with HttpTransport() as transport:
        with pytest.raises(ConfigurationError) as caught:
            await transport.request("http://model.test/v1", CALL, {})
    assert str(caught.value) == (
        f"the proxy for http://model.test/v1 is of the kind {kind!r}; "
        "only http and https proxies are supported"
    )
