"""Refuses every connection and name lookup beyond this machine, in this process.

CPython's own sockets report to an audit hook, whatever code uses them, but only once a name given
to them is resolved; so their methods are wrapped too. uvloop connects and resolves in C and reports
nothing, so its loop's entry points are wrapped as well.
"""

import asyncio
import functools
import ipaddress
import socket
import sys
from collections.abc import Callable, Coroutine
from typing import Any, cast

LOCAL_NAMES = frozenset({"", "localhost", "localhost.localdomain", "ip6-localhost"})
INTERNET = frozenset({socket.AF_INET, socket.AF_INET6})
CONNECTING = frozenset({"socket.connect", "socket.sendto", "socket.sendmsg"})
RESOLVING = frozenset({"socket.getaddrinfo", "socket.gethostbyname", "socket.gethostbyaddr"})


class NetworkAccessRefusedError(AssertionError):
    """A test tried to leave this machine.

    An AssertionError, because code under test that catches OSError must not swallow it.
    """

    def __init__(self, action: str, address: object) -> None:
        super().__init__(f"tests may only use loopback, refused to {action} {address!r}")


def is_local(host: object) -> bool:
    """Whether `host` is a loopback or wildcard address, this machine's name, or no name at all."""
    if host is None:
        return True
    if isinstance(host, bytes):
        host = host.decode("idna")
    if not isinstance(host, str):
        return False
    if host.lower() in LOCAL_NAMES or host == socket.gethostname():
        return True
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return False
    return address.is_loopback or address.is_unspecified


def refuse_distant_address(address: object) -> None:
    """Raise unless `address`, as given to connect, stays on this machine."""
    if isinstance(address, tuple):
        parts = cast("tuple[object, ...]", address)
        if parts and not is_local(parts[0]):
            raise NetworkAccessRefusedError("connect to", parts)


def refuse_distant_name(host: object) -> None:
    """Raise unless looking up `host` needs no name server."""
    if not is_local(host):
        raise NetworkAccessRefusedError("look up", host)


def _audit(event: str, arguments: tuple[Any, ...]) -> None:
    if event in CONNECTING:
        sock, address = arguments[0], arguments[1]
        if sock.family in INTERNET:
            refuse_distant_address(address)
    elif event in RESOLVING:
        refuse_distant_name(arguments[0])


def _guard_socket_method(name: str) -> None:
    method: Callable[..., Any] = getattr(socket.socket, name)

    @functools.wraps(method)
    def guarded(sock: socket.socket, *args: Any) -> Any:
        if sock.family in INTERNET:
            refuse_distant_address(args[-1])
        return method(sock, *args)

    setattr(socket.socket, name, guarded)


_Method = Callable[..., Coroutine[Any, Any, Any]]


def _guarded(method: _Method, check: Callable[..., None]) -> _Method:
    @functools.wraps(method)
    async def guarded(loop: asyncio.AbstractEventLoop, *args: Any, **options: Any) -> Any:
        check(*args, **options)
        return await method(loop, *args, **options)

    return guarded


def _check_connection(
    _factory: object, host: object = None, *_args: object, **_options: object
) -> None:
    refuse_distant_name(host)


def _check_datagram(
    _factory: object,
    local_addr: object = None,
    remote_addr: object = None,
    **_options: object,
) -> None:
    refuse_distant_address(remote_addr)


def _check_sock_connect(_sock: object, address: object) -> None:
    refuse_distant_address(address)


def _check_lookup(host: object, *_args: object, **_options: object) -> None:
    refuse_distant_name(host)


def _guard_uvloop() -> None:
    try:
        import uvloop
    except ImportError:
        return
    checks: dict[str, Callable[..., None]] = {
        "create_connection": _check_connection,
        "create_datagram_endpoint": _check_datagram,
        "sock_connect": _check_sock_connect,
        "getaddrinfo": _check_lookup,
    }
    for name, check in checks.items():
        setattr(uvloop.Loop, name, _guarded(getattr(uvloop.Loop, name), check))


@functools.cache
def install_network_guard() -> None:
    """Guard this process for the rest of its life; an audit hook cannot be removed."""
    for name in ("connect", "connect_ex", "sendto"):
        _guard_socket_method(name)
    _guard_uvloop()
    sys.addaudithook(_audit)
