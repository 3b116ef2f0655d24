"""What the HTTP client's own errors mean, in Penstock's words, without a key or a password."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.contract.errors import MalformedResponse, PenstockError, ProviderUnavailable

if TYPE_CHECKING:
    import aiohttp


def unreachable(url: str, proxy: str | None, error: Exception) -> PenstockError:
    """The error for a call that brought no response; `error` is the client's own."""
    import aiohttp

    address = shown(url)
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return ProviderUnavailable(
            f"the TLS certificate of {address} cannot be verified: {say(error.certificate_error)}; "
            "give its authority in ca_file",
            retryable=False,
        )
    if isinstance(error, aiohttp.ClientConnectorError):
        reason = say(error.os_error)
        if isinstance(error, aiohttp.ClientProxyConnectionError):
            return ProviderUnavailable(
                f"cannot connect to the proxy {shown(proxy or '')}: {reason}"
            )
        return ProviderUnavailable(
            f"cannot connect to {address}: {reason}; is the server running and the url right?"
        )
    if isinstance(error, aiohttp.ServerDisconnectedError):
        return ProviderUnavailable(f"{address} closed the connection instead of answering")
    return ProviderUnavailable(f"the connection to {address} failed: {say(error)}")


def misspoken(
    url: str, proxy: str | None, error: aiohttp.ClientResponseError
) -> ProviderUnavailable:
    """The error for a response that is no HTTP, or that a proxy gave in the server's place."""
    import aiohttp

    if isinstance(error, aiohttp.ClientHttpProxyError):
        return ProviderUnavailable(
            f"the proxy {shown(proxy or '')} refused with {error.status} {error.message}"
        )
    return MalformedResponse(f"{shown(url)} does not speak HTTP: {error.message}")


def shown(url: str) -> str:
    """The address without what may be secret in it: credentials and the query."""
    scheme, separator, rest = url.partition("?")[0].partition("://")
    host, slash, path = rest.partition("/")
    return f"{scheme}{separator}{host.rpartition('@')[2]}{slash}{path}"


def say(error: BaseException) -> str:
    """The system's words for an error where there are any, else the error's own."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) or type(error).__name__
