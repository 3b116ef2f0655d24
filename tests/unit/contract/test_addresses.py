"""Hosts that hand out a machine's own secrets, in every form in which a client would take them."""

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.contract.checks.addresses import forbidden, is_private, is_public

LINK_LOCAL = "is a link-local address, where clouds keep their metadata services"
METADATA = "is the metadata service of a cloud"


@pytest.mark.parametrize(
    "host",
    [
        "169.254.169.254",
        "169.254.0.1",
        "169.254.169.254.",
        "2852039166",  # the same in one number
        "0xa9fea9fe",
        "0XA9.0xfe.0xA9.0xfe",
        "0251.0376.0251.0376",
        "169.254.43518",
        "[fe80::1]",
        "fe80::1%eth0",
        "febf::1",
        "::ffff:169.254.169.254",
        "[::ffff:a9fe:a9fe]",
        "64:ff9b::a9fe:a9fe",
        "2002:a9fe:a9fe::1",
        "::169.254.169.254",
        "１６９.２５４.１６９.２５４",  # noqa: RUF001
        "169。254。169。254",
    ],
)
def test_link_local_addresses(host: str) -> None:
    assert forbidden(host) == LINK_LOCAL


@pytest.mark.parametrize(
    "host",
    [
        "metadata.google.internal",
        "Metadata.Google.Internal.",
        "metadata",
        "metadata.goog",
        "instance-data.ec2.internal",
        "metadata.azure.internal",
        "fd00:ec2::254",
        "[fd00:0ec2:0::0254]",
        "fd20:ce::254",
        "100.100.100.200",
        "192.0.0.192",
    ],
)
def test_metadata_services(host: str) -> None:
    assert forbidden(host) == METADATA


@pytest.mark.parametrize(
    "host",
    [
        "mcp.example.com",
        "localhost",
        "127.0.0.1",
        "10.0.0.1",
        "169.253.255.255",
        "169.255.0.0",
        "[::1]",
        "fec0::1",
        "fd00:ec2::255",
        "2002:a9ff::1",
        "metadata.example.com",
        "0x",
        "1.2.3.4.5",
        "999999999999",
        "",
        "%",
    ],
)
def test_others_are_nobodys_business(host: str) -> None:
    assert forbidden(host) is None


@given(st.integers(0, 2**16 - 1))
def test_no_link_local_address_passes_in_any_form(low: int) -> None:
    number = (169 << 24) + (254 << 16) + low
    address = ipaddress.IPv4Address(number)
    forms = (str(address), str(number), hex(number), f"::ffff:{address}", f"64:ff9b::{address}")
    assert {forbidden(form) for form in forms} <= {LINK_LOCAL}


@given(st.text())
def test_any_text_has_an_answer(host: str) -> None:
    assert forbidden(host) in (None, LINK_LOCAL, METADATA)


@pytest.mark.parametrize(
    ("url", "public"),
    [
        ("https://mcp.example.com/mcp", True),
        ("HTTPS://MCP.Example.COM:8443", True),
        ("https://8.8.8.8/mcp", True),
        ("https://[2606:4700::1111]/mcp", True),
        ("http://mcp.example.com/mcp", False),  # not by TLS
        ("ws://mcp.example.com/mcp", False),
        ("https://localhost/mcp", False),
        ("https://intranet/mcp", False),
        ("https://mcp.corp.internal/mcp", False),
        ("https://mcp.local./mcp", False),
        ("https://LAPTOP.LAN/mcp", False),
        ("https://127.0.0.1:9/mcp", False),
        ("https://127.1/mcp", False),
        ("https://0x7f000001/mcp", False),
        ("https://10.0.0.8/mcp", False),
        ("https://192.168.1.4/mcp", False),
        ("https://100.64.0.1/mcp", False),
        ("https://169.254.169.254/mcp", False),
        ("https://[::1]/mcp", False),
        ("https://[fd00::1]/mcp", False),
        ("https://[::ffff:10.0.0.1]/mcp", False),
        ("https://", False),
        ("https://[::1/mcp", False),
        ("", False),
    ],
)
def test_others_are_sent_to_public_addresses_only(url: str, public: bool) -> None:
    assert is_public(url) is public


@pytest.mark.parametrize(
    ("url", "private"),
    [
        ("http://127.0.0.1:8000/v1", True),
        ("http://localhost:8080/v1", True),
        ("http://[::1]:8080/v1", True),
        ("https://10.1.2.3/v1", True),
        ("http://gpu-box/v1", True),
        ("http://gpu.lan:8000/v1", True),
        ("http://api.example.com/v1", False),  # not by TLS, but not ours
        ("https://8.8.8.8/v1", False),
        ("https://api.openai.com/v1", False),
        ("https://[::1/v1", False),
        ("", False),
    ],
)
def test_what_stands_in_our_own_network(url: str, private: bool) -> None:
    assert is_private(url) is private
