"""One HTTP call with the standard library: what a server says when nobody interprets it."""

from __future__ import annotations

import contextlib
import http.client
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol
from urllib.parse import urlsplit

_SECONDS = 30


class Server(Protocol):
    """Where to call, and with what key."""

    @property
    def url(self) -> str:
        """Its address, without any API's path."""
        ...

    @property
    def key(self) -> str:
        """The only key that it takes."""
        ...


@dataclass(frozen=True, slots=True)
class Answer:
    """A response; header names are lower-case."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        """The body as JSON."""
        return json.loads(self.body)


def call(server: Server, path: str, body: object = None, method: str | None = None) -> Answer:
    """The response to this body, or to a GET; it blocks for a moment, which is nobody's loss."""
    place = urlsplit(server.url)
    assert place.hostname is not None
    connection = http.client.HTTPConnection(place.hostname, place.port, timeout=_SECONDS)
    with contextlib.closing(connection):
        headers = {"content-type": "application/json", "authorization": f"Bearer {server.key}"}
        text = None if body is None else json.dumps(body)
        connection.request(method or ("GET" if text is None else "POST"), path, text, headers)
        response = connection.getresponse()
        found = {name.lower(): value for name, value in response.getheaders()}
        return Answer(response.status, found, response.read())


def is_up(port: int, host: str) -> bool:
    """Whether `/health` says so."""
    connection = http.client.HTTPConnection(host, port, timeout=1)
    with contextlib.closing(connection):
        try:
            connection.request("GET", "/health")
            return connection.getresponse().status == 200
        except OSError:
            return False
