"""Who calls, and where: tokens, signatures, regions."""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock import Config
from penstock.config.settings import ProviderConfig
from penstock.contract.errors import AuthenticationFailed, ConfigurationError
from penstock.providers.bedrock import DIALECT, address, credentials
from penstock.providers.credentials import Secret
from penstock.providers.http.transport import HttpTransport
from penstock.providers.registry import ProviderSettings, build
from penstock.providers.wire.dialect import WireCall

URL = "https://bedrock-runtime.us-east-1.amazonaws.com/model/m/converse"
ELSEWHERE = "http://127.0.0.1:4010/model/m/converse"
CALL = WireCall("/model/m/converse", b"{}")
SENT = {"content-type": "application/json"}
SECRET = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"
SESSION = "IQoJb3JpZ2luX2VjSESSION"


@pytest.fixture
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("AWS_SESSION_TOKEN", SESSION)


async def sign(url: str = URL, key: str | None = None, **options: Any) -> Mapping[str, str]:
    return await credentials.signer(Secret(key) if key else None, options)(CALL, url, SENT)


def scope(headers: Mapping[str, str]) -> list[str]:
    return headers["authorization"].partition("Credential=")[2].partition(",")[0].split("/")


@pytest.mark.usefixtures("keys")
async def test_credentials_of_the_environment_sign() -> None:
    headers = await sign()
    assert headers.keys() == {
        "authorization",
        "content-type",
        "x-amz-date",
        "x-amz-security-token",
    }
    assert headers["authorization"].startswith("AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/")
    assert "SignedHeaders=content-type;host;x-amz-date;x-amz-security-token," in str(headers)
    assert headers["x-amz-security-token"] == SESSION
    assert SECRET not in str(headers)


@pytest.mark.usefixtures("keys")
async def test_headers_of_amazon_are_signed_and_others_left_to_the_way() -> None:
    more = {"x-amz-guardrail": "g", "host": "front.test", "x-trace": "1", "accept": "*/*"}
    headers = await credentials.signer(None, {})(CALL, URL, {**SENT, **more})
    signed = "content-type;host;x-amz-date;x-amz-guardrail;x-amz-security-token"
    assert f"SignedHeaders={signed}," in headers["authorization"]
    assert (headers["x-amz-guardrail"], headers["host"]) == ("g", "front.test")
    assert not headers.keys() & {"x-trace", "accept"}


@pytest.mark.usefixtures("keys")
async def test_a_given_token_goes_before_credentials() -> None:
    assert (
        await sign(key="tok") == await sign(ELSEWHERE, key="tok") == {"authorization": "Bearer tok"}
    )


@pytest.mark.usefixtures("keys")
async def test_the_token_of_the_environment_goes_to_amazon_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AWS_BEARER_TOKEN_BEDROCK", "env-token")
    assert await sign() == {"authorization": "Bearer env-token"}
    for url in (ELSEWHERE, URL.replace("https", "http"), "https://evil.com/.amazonaws.com"):
        assert "env-token" not in str(await sign(url))


@pytest.mark.usefixtures("keys")
@pytest.mark.parametrize(
    ("url", "options", "region"),
    [
        (URL, {"region": "eu-west-1"}, "us-east-1"),
        ("https://bedrock.ap-south-1.amazonaws.com/foundation-models", {}, "ap-south-1"),
        ("https://bedrock-runtime-fips.us-gov-west-1.amazonaws.com/", {}, "us-gov-west-1"),
        ("https://vpce-1.bedrock-runtime.eu-west-3.vpce.amazonaws.com/", {}, "eu-west-3"),
        (ELSEWHERE, {"region": "eu-west-1"}, "eu-west-1"),
        (ELSEWHERE, {}, "us-east-1"),
    ],
)
async def test_the_host_names_the_region_of_a_signature(
    url: str, options: dict[str, str], region: str
) -> None:
    assert scope(await sign(url, **options))[2:] == [region, "bedrock", "aws4_request"]


async def test_a_profile_has_credentials_and_a_region(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, keys = tmp_path / "config", tmp_path / "credentials"
    config.write_text("[default]\nregion = eu-north-1\n[profile work]\nregion = eu-west-2\n")
    keys.write_text("[work]\naws_access_key_id = AKWORK\naws_secret_access_key = s\n")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(config))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(keys))
    assert address.region({}) == "eu-north-1"
    assert address.region({"profile": "work"}) == "eu-west-2"
    assert scope(await sign(ELSEWHERE, profile="work"))[:3:2] == ["AKWORK", "eu-west-2"]
    monkeypatch.setenv("AWS_PROFILE", "work")
    assert address.address({}) == "https://bedrock-runtime.eu-west-2.amazonaws.com"
    assert scope(await sign())[0] == "AKWORK"


def test_the_order_in_which_a_region_is_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    assert address.region({}) == "us-east-1"
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-1")
    assert address.region({}) == "eu-west-1"
    monkeypatch.setenv("AWS_REGION", "eu-west-2")
    assert address.region({}) == "eu-west-2"
    assert address.region({"region": "eu-west-3"}) == "eu-west-3"
    for wrong in ("evil.com/x", "europe", "eu-west-1.evil.com"):
        with pytest.raises(ConfigurationError, match="AWS region"):
            address.address({"region": wrong})


@pytest.mark.parametrize("text", ["nonsense", "[default", "[default]\nregion =\n", "\x00"])
def test_a_broken_file_is_no_region(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    file = tmp_path / "config"
    file.write_text(text)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(file))
    assert address.region({}) == "us-east-1"


async def test_without_credentials_the_first_call_says_what_to_do() -> None:
    with pytest.raises(
        AuthenticationFailed, match="AWS_BEARER_TOKEN_BEDROCK, or AWS_ACCESS_KEY_ID"
    ):
        await sign()
    with pytest.raises(AuthenticationFailed, match="ProfileNotFound"):
        await sign(profile="nobody")


async def test_half_a_credential_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
    with pytest.raises(AuthenticationFailed, match="PartialCredentialsError"):
        await sign()


async def test_a_provider_is_built_without_credentials() -> None:
    transport = HttpTransport()
    provider: Any = build(ProviderSettings("aws", "bedrock"), transport)
    assert provider.url == "https://bedrock-runtime.us-east-1.amazonaws.com"
    config = Config(providers={"aws": ProviderConfig(kind="bedrock", region="eu-west-1")})
    async with penstock.open(config) as engine:
        with pytest.raises(AuthenticationFailed) as caught:
            await engine.create_message("Hi", max_tokens=5, model="aws/amazon.nova-micro-v1:0")
    assert caught.value.provider == "aws"


async def test_without_botocore_the_error_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    credentials._botocore.cache_clear()  # pyright: ignore[reportPrivateUsage]
    monkeypatch.setitem(sys.modules, "botocore.auth", None)
    with pytest.raises(ConfigurationError, match=r"pip install 'penstock\[bedrock\]'"):
        await sign()
    assert await sign(key="tok") == {"authorization": "Bearer tok"}


@pytest.mark.usefixtures("keys")
async def test_a_signature_leaves_nothing_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        headers = await sign()
    assert "CanonicalRequest" not in caplog.text
    for secret in (SECRET, SESSION, headers["authorization"].rpartition("=")[2]):
        assert secret not in caplog.text


@pytest.mark.usefixtures("keys")
async def test_others_may_still_log_their_own_signatures(caplog: pytest.LogCaptureFixture) -> None:
    await sign()
    with caplog.at_level(logging.DEBUG, logger="botocore.auth"):
        logging.getLogger("botocore.auth").debug("of somebody else")
    assert "of somebody else" in caplog.text


class _Expiring:
    def __init__(self) -> None:
        self.calls = 0

    def get_frozen_credentials(self) -> Any:
        from botocore.credentials import ReadOnlyCredentials

        self.calls += 1
        return ReadOnlyCredentials(f"AK{self.calls}", "s", None)


async def test_credentials_are_found_once_and_frozen_anew_for_each_call(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Freezing is what refreshes those that expire."""
    found: list[str | None] = []
    expiring = _Expiring()

    def find(name: str | None) -> _Expiring:
        found.append(name)
        return expiring

    monkeypatch.setattr(credentials, "_find_credentials", find)
    signer = DIALECT.signer
    assert signer is not None
    signs = signer(None, {"profile": "work"})
    assert [scope(await signs(CALL, URL, {}))[0] for _ in range(2)] == ["AK1", "AK2"]
    assert found == ["work"]
