"""Who calls: a bearer token, or AWS credentials by which botocore signs every request.

botocore is the extra `bedrock`; it is imported when the first request is signed. It finds the
credentials where all AWS tools do: the environment, the profile's files, SSO, a container's or an
instance's role. Those that expire are refreshed by it. Finding and refreshing may read files, run
programs and call other services, so both happen in a thread.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import threading
from collections.abc import Callable, Mapping
from functools import lru_cache
from importlib import import_module
from typing import Any, Protocol, cast

from penstock.contract.errors import AuthenticationFailed, ConfigurationError
from penstock.providers.bedrock.address import is_amazon, profile, signing_region
from penstock.providers.credentials import Secret, key_from_environment
from penstock.providers.wire.dialect import Options, Signer, WireCall

SERVICE = "bedrock"
TOKEN_VARIABLE = "AWS_BEARER_TOKEN_BEDROCK"  # noqa: S105 - the variable's name
_REMEDY = (
    f"set {TOKEN_VARIABLE}, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or a profile "
    "(AWS_PROFILE, or profile in the provider's table)"
)

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
    keys = _Keys(profile(options))

    async def sign(call: WireCall, url: str, headers: Mapping[str, str]) -> Mapping[str, str]:
        token = key
        if token is None and is_amazon(url):
            token = key_from_environment((TOKEN_VARIABLE,))
        if token is not None:
            return bearer(token.reveal())
        return _signature(await keys.fresh(), call, url, headers, signing_region(url, options))

    return sign


class _Keys:
    """The AWS credentials of one provider."""

    def __init__(self, name: str | None) -> None:
        """Of the profile of this name; nothing is looked for yet."""
        self._name = name
        self._found: _Credentials | None = None
        self._finding = threading.Lock()

    async def fresh(self) -> _Frozen:
        """At once, unless they must first be found or refreshed."""
        if self._found is None or _is_stale(self._found):
            return await asyncio.to_thread(self._renewed)
        return _frozen(self._found)

    def _renewed(self) -> _Frozen:
        with self._finding:
            self._found = self._found or _find_credentials(self._name)
        return _frozen(self._found)


def _is_stale(credentials: _Credentials) -> bool:
    # Only those that expire have the method.
    refresh_needed: Callable[[], bool] | None = getattr(credentials, "refresh_needed", None)
    return refresh_needed is not None and refresh_needed()


def _frozen(credentials: _Credentials) -> _Frozen:
    try:
        return credentials.get_frozen_credentials()
    except _botocore().exceptions.BotoCoreError as error:
        raise _unusable(error) from error


def _signature(
    frozen: _Frozen, call: WireCall, url: str, headers: Mapping[str, str], region: str
) -> Mapping[str, str]:
    botocore = _botocore()
    request = botocore.awsrequest.AWSRequest(
        method=call.method,
        url=url,
        data=call.body or b"",
        headers={name: value for name, value in headers.items() if _must_be_signed(name)},
    )
    quiet = _signing.set(True)
    try:
        botocore.auth.SigV4Auth(frozen, SERVICE, region).add_auth(request)
    finally:
        _signing.reset(quiet)
    return {name.lower(): value for name, value in request.headers.items()}


def _must_be_signed(name: str) -> bool:
    """Amazon wants these signed; any other header may be changed or added on the way."""
    return name in ("content-type", "host") or name.startswith("x-amz-")


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
