"""Who calls: a bearer token, or AWS credentials by which botocore signs every request.

botocore is the extra `bedrock`; it is imported when the first request is signed. It finds the
credentials where all AWS tools do: the environment, the profile's files, SSO, a container's or an
instance's role. Those that expire are refreshed by it.
"""

from __future__ import annotations

import contextvars
import logging
from collections.abc import Mapping
from functools import lru_cache
from importlib import import_module
from typing import Any, Protocol, cast

from penstock.contract.errors import AuthenticationFailed, ConfigurationError
from penstock.providers.bedrock.address import is_amazon, profile, signing_region
from penstock.providers.credentials import Secret, key_from_environment
from penstock.providers.dialect import Options, Signer, WireCall

SERVICE = "bedrock"
TOKEN_VARIABLE = "AWS_BEARER_TOKEN_BEDROCK"  # noqa: S105 - the variable's name
_REMEDY = (
    f"set {TOKEN_VARIABLE}, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or a profile "
    "(AWS_PROFILE, or profile in the provider's table)"
)
_CONTENT_TYPE = {"content-type": "application/json"}

_signing: contextvars.ContextVar[bool] = contextvars.ContextVar("penstock_signing", default=False)


class _Frozen(Protocol):
    access_key: str
    secret_key: str
    token: str | None


class _Credentials(Protocol):
    def get_frozen_credentials(self) -> _Frozen: ...


def bearer(token: str) -> Mapping[str, str]:
    """The header that carries a bearer token."""
    return {"authorization": f"Bearer {token}"}


def signer(key: Secret | None, options: Options) -> Signer:
    """Signs calls: with the given token, the environment's, or AWS credentials.

    The token of the environment belongs to Amazon and is sent nowhere else. Credentials are looked
    for at the first call, which raises AuthenticationFailed when there are none, and
    ConfigurationError when botocore is not installed.
    """
    name = profile(options)

    def sign(call: WireCall, url: str) -> Mapping[str, str]:
        token = key
        if token is None and is_amazon(url):
            token = key_from_environment((TOKEN_VARIABLE,))
        if token is not None:
            return bearer(token.reveal())
        return _signature(find(), call, url, signing_region(url, options))

    @lru_cache(1)
    def find() -> _Credentials:
        return _find_credentials(name)

    return sign


def _signature(
    credentials: _Credentials, call: WireCall, url: str, region: str
) -> Mapping[str, str]:
    botocore = _botocore()
    try:
        frozen = credentials.get_frozen_credentials()
    except botocore.exceptions.BotoCoreError as error:
        raise _unusable(error) from error
    request = botocore.awsrequest.AWSRequest(
        method=call.method,
        url=url,
        data=call.body or b"",
        headers={**_CONTENT_TYPE, **call.headers},
    )
    quiet = _signing.set(True)
    try:
        botocore.auth.SigV4Auth(frozen, SERVICE, region).add_auth(request)
    finally:
        _signing.reset(quiet)
    return {name.lower(): value for name, value in request.headers.items()}


def _find_credentials(name: str | None) -> _Credentials:
    botocore = _botocore()
    try:
        found = botocore.session.Session(profile=name).get_credentials()
    except botocore.exceptions.BotoCoreError as error:
        raise _unusable(error) from error
    if found is None:
        raise AuthenticationFailed(f"there are no AWS credentials: {_REMEDY}")
    return cast(_Credentials, found)


def _unusable(error: Exception) -> AuthenticationFailed:
    # By its kind only: what a credential process has printed may be anything.
    return AuthenticationFailed(
        f"the AWS credentials cannot be used ({type(error).__name__}): {_REMEDY}"
    )


@lru_cache(1)
def _botocore() -> Any:
    try:
        package = import_module("botocore")
        for module in ("auth", "awsrequest", "exceptions", "session"):
            import_module(f"botocore.{module}")
    except ImportError as error:
        raise ConfigurationError(
            "Bedrock's signatures need botocore, which is not installed: "
            f"pip install 'penstock[bedrock]'; or set {TOKEN_VARIABLE}"
        ) from error
    logging.getLogger("botocore.auth").addFilter(_not_ours)
    return package


def _not_ours(record: logging.LogRecord) -> bool:
    """Keep signatures and session tokens out of the debug log, of our own calls only."""
    return not _signing.get()
