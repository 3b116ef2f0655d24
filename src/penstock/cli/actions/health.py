"""The work of `penstock health`: one request to the gateway on this machine."""

from __future__ import annotations

import http.client
import json

from penstock.cli.setup.gateway_address import connection_to, url_of
from penstock.cli.ui import terminal
from penstock.config.server import ServerConfig
from penstock.contract.errors import PenstockError

_MOST_READ = 65_536


def check(
    server: ServerConfig, *, port: int | None, ready: bool, timeout: float, as_json: bool
) -> None:
    """Print what the gateway says; raises PenstockError when it is not well."""
    path = "/ready" if ready else "/health"
    address = url_of(server, port)
    url = address + path
    connection = connection_to(address, server, timeout)
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
