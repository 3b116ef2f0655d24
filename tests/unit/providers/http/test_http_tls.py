"""Certificates are always verified; an authority of one's own is a setting."""

import ssl
from pathlib import Path

import pytest

from penstock.contract.errors import ConfigurationError, ProviderUnavailable
from penstock.providers.http.transport import HttpTransport, TransportSettings
from penstock.providers.wire.dialect import WireCall
from tests.support.raw import HOST, Peer, RawServer, answering, whole
from tests.support.tls import Authority, make_authority

CALL = WireCall("/", b"{}")


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return make_authority(tmp_path_factory.mktemp("tls"))


def trusting(authority: Authority) -> HttpTransport:
    return HttpTransport(TransportSettings(ca_file=str(authority.file)))


async def test_an_unknown_authority_is_refused_with_the_remedy(authority: Authority) -> None:
    async with (
        RawServer(answering(whole()), authority.server_context()) as server,
        HttpTransport() as transport,
    ):
        with pytest.raises(ProviderUnavailable) as caught:
            await transport.request(server.url, CALL, {"authorization": "Bearer sk-secret"})
    assert f"the TLS certificate of {server.url} cannot be verified: " in str(caught.value)
    assert str(caught.value).endswith("; give its authority in ca_file")
    assert not caught.value.retryable
    assert server.requests == []


async def test_a_given_authority_is_trusted(authority: Authority) -> None:
    async with (
        RawServer(answering(whole(b"hello")), authority.server_context()) as server,
        trusting(authority) as transport,
    ):
        for _ in range(3):
            assert (await transport.request(server.url, CALL, {})).body == b"hello"
    assert server.connections == 1


async def test_a_certificate_for_another_host_is_refused(authority: Authority) -> None:
    async with (
        RawServer(answering(whole()), authority.server_context("127.0.0.9")) as server,
        trusting(authority) as transport,
    ):
        with pytest.raises(ProviderUnavailable, match=r"cannot be verified.*mismatch"):
            await transport.request(server.url, CALL, {})


async def test_a_given_authority_is_trusted_instead_of_all_others(
    authority: Authority, tmp_path: Path
) -> None:
    other = make_authority(tmp_path)
    async with (
        RawServer(answering(whole()), other.server_context()) as server,
        trusting(authority) as transport,
    ):
        with pytest.raises(ProviderUnavailable, match="cannot be verified"):
            await transport.request(server.url, CALL, {})


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion:DeprecationWarning")
async def test_old_versions_of_tls_are_refused(authority: Authority) -> None:
    context = authority.server_context()
    context.minimum_version = ssl.TLSVersion.TLSv1
    context.maximum_version = ssl.TLSVersion.TLSv1_1
    async with RawServer(answering(whole()), context) as server, trusting(authority) as transport:
        with pytest.raises(ProviderUnavailable, match="cannot connect"):
            await transport.request(server.url, CALL, {})


async def test_a_server_that_speaks_no_tls_is_not_called_a_bad_certificate() -> None:
    async def complain(peer: Peer) -> None:
        await peer.send(whole(status="400 Bad Request"))
        await peer.gone()

    async with RawServer(complain) as server, HttpTransport() as transport:
        address = f"https://{HOST}:{server.port}"
        with pytest.raises(ProviderUnavailable) as caught:
            await transport.request(address, CALL, {})
    assert str(caught.value).startswith(f"cannot connect to {address}: ")
    assert "certificate" not in str(caught.value)


@pytest.mark.parametrize("content", [None, b"", b"this is no certificate"])
async def test_an_authority_that_cannot_be_used_is_named(
    content: bytes | None, tmp_path: Path
) -> None:
    file = tmp_path / "ca.pem"
    if content is not None:
        file.write_bytes(content)
    async with HttpTransport(TransportSettings(ca_file=str(file))) as transport:
        with pytest.raises(ConfigurationError, match=f"ca_file '{file}' cannot be used: ."):
            await transport.request(f"https://{HOST}:1", CALL, {})
