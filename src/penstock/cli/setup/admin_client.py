"""Calls of the admin API of the gateway that runs with this configuration."""

from __future__ import annotations

import http.client
import json
import os
import ssl
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from penstock.cli.setup.gateway_address import connection_to, url_of
from penstock.config.server import ServerConfig
from penstock.config.settings import Config
from penstock.contract.errors import ConfigurationError, InvalidRequest, PenstockError

ADMIN_KEY = "PENSTOCK_ADMIN_KEY"
_BASE = "/admin/v1"
_TIMEOUT_S = 30.0
_MOST_READ = 64 * 1024 * 1024
_NOT_FOUND = 404


class NoGateway(PenstockError):
    """No gateway answers."""


class UnknownThing(InvalidRequest):
    """The gateway knows nothing of this name."""


class AdminClient:
    """One gateway, and the key of its administrator."""

    def __init__(self, config: Config, url: str | None = None) -> None:
        """`url` is the address of another gateway than that of the configuration.

        Raises ConfigurationError without an admin key.
        """
        self._server: ServerConfig = config.server
        self.url = url_of(config.server) if url is None else url.rstrip("/")
        parts = urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigurationError(
                f"--url: {self.url!r} is not an address; write it as http://127.0.0.1:8400"
            )
        key = config.server.admin_key
        # One that is given for another address must not be sent there by accident.
        text = os.environ.get(ADMIN_KEY, "").strip() if url is not None else ""
        self._key = text or ("" if key is None else key.get_secret_value())
        if not self._key:
            raise ConfigurationError(
                'this command takes the admin key: write admin_key = "${PENSTOCK_ADMIN_KEY}" below '
                "[server] in the configuration of the gateway, and set that variable to 16 or more "
                "characters"
            )

    def get(self, path: str, **query: object) -> Any:
        """What the gateway knows."""
        given = {name: _text(value) for name, value in query.items() if value is not None}
        return self.call("GET", path + ("?" + urlencode(given) if given else ""))

    def call(self, method: str, path: str, body: Mapping[str, object] | None = None) -> Any:
        """The JSON of the answer; None where it has none.

        Raises NoGateway, UnknownThing, InvalidRequest, or PenstockError with what the gateway says.
        """
        content = None if body is None else json.dumps(body).encode()
        headers = {"authorization": f"Bearer {self._key}", "accept": "application/json"}
        if content is not None:
            headers["content-type"] = "application/json"
        try:
            connection = connection_to(self.url, self._server, _TIMEOUT_S)
            try:
                connection.request(method, _BASE + "/" + path, content, headers)
                response = connection.getresponse()
                status, data = response.status, response.read(_MOST_READ)
            finally:
                connection.close()
        except (OSError, ssl.SSLError, http.client.HTTPException) as error:
            raise NoGateway(
                f"no gateway answers at {self.url}: {error}; start it with `penstock serve`, or "
                "give the address of the one that runs with --url"
            ) from error
        if status < http.HTTPStatus.BAD_REQUEST:
            return json.loads(data) if data else None
        raise self._failed(status, data)

    def _failed(self, status: int, data: bytes) -> PenstockError:
        try:
            said = str(json.loads(data)["error"]["message"])
        except (ValueError, KeyError, TypeError):
            return PenstockError(f"{self.url} answers {status}, but not as a Penstock gateway")
        if status in (http.HTTPStatus.UNAUTHORIZED, http.HTTPStatus.FORBIDDEN):
            return ConfigurationError(
                f"the gateway at {self.url} refuses the admin key: {said}; start it and run this "
                "command with the same configuration and environment"
            )
        if status == _NOT_FOUND:
            return UnknownThing(said)
        if status < http.HTTPStatus.INTERNAL_SERVER_ERROR:
            return InvalidRequest(said)
        return PenstockError(f"the gateway at {self.url} answers {status}: {said}")


def name_in_path(name: str) -> str:
    """A name as a piece of a path."""
    return quote(name, safe="")


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
