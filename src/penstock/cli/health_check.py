"""The work of `penstock health`: one request to the gateway on this machine."""

from __future__ import annotations

import http.client
import ipaddress
import json
import ssl

from penstock.cli import terminal
from penstock.config.server import ServerConfig
from penstock.contract.errors import PenstockError

_MOST_READ = 65_536


def check(
    server: ServerConfig, *, port: int | None, ready: bool, timeout: float, as_json: bool
) -> None:
    """Print what the gateway says; raises PenstockError when it is not well."""
    path = "/ready" if ready else "/health"
    scheme = "http" if server.tls_certificate is None else "https"
    host, port = _reached(server.host), server.port if port is None else port
    url = f"{scheme}://{host}:{port}{path}"
    connection = _connection(server, host.strip("[]"), port, timeout)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        status, body = response.status, response.read(_MOST_READ)
    except (OSError, http.client.HTTPException) as error:
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise PenstockError(
            f"no gateway answers at {url} ({reason.lower()}); start one with `penstock serve`"
        ) from error
    finally:
        connection.close()
    said = body.decode("utf-8", "replace").strip()
    if status != http.HTTPStatus.OK:
        raise PenstockError(f"{url} answers {status}: {said}")
    try:
        document = json.loads(said)
        status_word = str(document["status"])
    except (ValueError, KeyError, TypeError) as error:
        raise PenstockError(f"{url} answers, but not as a Penstock gateway") from error
    if as_json:
        terminal.print_json(document)
    else:
        print(f"{url}: {terminal.visible(status_word)}")


def _reached(host: str) -> str:
    """Where a gateway that listens here is reached from its own machine."""
    try:
        address = ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return host
    if address.is_unspecified:
        return "127.0.0.1"
    return f"[{address}]" if address.version == 6 else str(address)


def _connection(
    server: ServerConfig, host: str, port: int, timeout: float
) -> http.client.HTTPConnection:
    if server.tls_certificate is None:
        return http.client.HTTPConnection(host, port, timeout=timeout)
    # Exactly the configured certificate: its name need not be that of this machine.
    context = ssl.create_default_context(cafile=server.tls_certificate)
    context.check_hostname = False
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    return http.client.HTTPSConnection(host, port, timeout=timeout, context=context)
