"""Addresses and errors in words, without a key or a password."""

from __future__ import annotations


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
