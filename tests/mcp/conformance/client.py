"""The client that the conformance suite runs: `client.py SOCKET` waits there for `launch.py`.

It does what a host does: signs in where it must, looks at the tools, calls them, and answers what
it is asked. The suite starts dozens of clients at once, each of which would import everything
anew; so one process imports it, and has a child for each.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import sys
import traceback
from collections.abc import Awaitable, Callable, Mapping
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx2
import mcp_types as types
from mcp import Client
from mcp.client import ClientRequestContext
from mcp.client.auth import AuthorizationCodeResult, OAuthClientProvider
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import OAuthClientInformationFull, OAuthClientMetadata, OAuthToken
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import AnyUrl

from penstock.mcp import TaskClient, sampling_callback
from penstock.testing import FakeProvider, engine_with

REDIRECT = "http://localhost:3030/callback"
ABOUT_US = "https://conformance-test.local/client-metadata.json"
SECONDS = 30.0


class Storage:
    """Tokens and registration, in memory."""

    def __init__(self, registered: OAuthClientInformationFull | None) -> None:
        self._tokens: OAuthToken | None = None
        self._registered = registered

    async def get_tokens(self) -> OAuthToken | None:
        return self._tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self._tokens = tokens

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return self._registered

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self._registered = client_info


class Browser:
    """The user who says yes: the server's answer to the address is the way back."""

    def __init__(self) -> None:
        self._back = ""

    async def open(self, url: str) -> None:
        async with httpx2.AsyncClient(timeout=SECONDS) as client:
            answer = await client.get(url, follow_redirects=False)
        self._back = answer.headers["location"]

    async def came_back(self) -> AuthorizationCodeResult:
        said = {key: values[0] for key, values in parse_qs(urlsplit(self._back).query).items()}
        return AuthorizationCodeResult(
            code=said["code"], state=said.get("state"), iss=said.get("iss")
        )


def sign_in(url: str, context: Mapping[str, Any]) -> OAuthClientProvider:
    """With the registration that the scenario gives us, or with one of our own."""
    registered = None
    if "client_id" in context:
        registered = OAuthClientInformationFull(
            client_id=context["client_id"],
            client_secret=context.get("client_secret"),
            redirect_uris=[AnyUrl(REDIRECT)],
            issuer=context.get("issuer"),
            token_endpoint_auth_method="client_secret_basic",
        )
    browser = Browser()
    about = OAuthClientMetadata(
        client_name="penstock-conformance",
        redirect_uris=[AnyUrl(REDIRECT)],
        grant_types=["authorization_code", "refresh_token"],
        response_types=["code"],
    )
    return OAuthClientProvider(
        url, about, Storage(registered), browser.open, browser.came_back, ABOUT_US
    )


async def fill_in(
    context: ClientRequestContext, params: types.ElicitRequestParams
) -> types.ElicitResult:
    """A form with its defaults, and with something where there is none."""
    schema: dict[str, Any] = getattr(params, "requested_schema", {})
    fields: dict[str, Any] = schema.get("properties", {})
    filler = {"boolean": True, "integer": 1, "number": 1.0}
    content: dict[str, Any] = {
        name: field.get("default", filler.get(field.get("type"), "text"))
        for name, field in fields.items()
    }
    return types.ElicitResult(action="accept", content=content)


async def call_each(client: Client) -> None:
    """Call what is listed, with arguments that fit."""
    for tool in (await client.list_tools()).tools:
        properties: dict[str, Any] = tool.input_schema.get("properties", {})
        filler = {"boolean": True, "integer": 1, "number": 1}
        needed: list[str] = tool.input_schema.get("required", [])
        given = {name: filler.get(properties[name].get("type"), "text") for name in needed}
        await client.call_tool(tool.name, given)


async def use_everything(client: Client) -> None:
    """Each method that has a name in its header."""
    await call_each(client)
    for resource in (await client.list_resources()).resources:
        await client.read_resource(str(resource.uri))
    for prompt in (await client.list_prompts()).prompts:
        await client.get_prompt(prompt.name)


async def give_back_the_schema(client: Client) -> None:
    """Send one tool's schema to the other, as it came."""
    tools = (await client.list_tools()).tools
    rich = next(tool for tool in tools if tool.name == "json_schema_2020_12_tool")
    echo = next(tool for tool in tools if tool.name != rich.name)
    await client.call_tool(echo.name, {"schema": rich.input_schema})


async def only_look(client: Client) -> None:
    """List the tools."""
    await client.list_tools()


STEPS: Mapping[str, Callable[[Client], Awaitable[None]]] = {
    "initialize": only_look,
    "json-schema-ref-no-deref": only_look,
    "json-schema-2020-12-preservation": give_back_the_schema,
    "http-standard-headers": use_everything,
}


async def main(url: str, scenario: str, version: str, context: dict[str, Any]) -> None:
    """Do what the scenario is about; the context has what it tells clients."""
    auth = sign_in(url, context) if scenario.startswith("auth/") else None
    async with (
        engine_with(FakeProvider(["An answer."])) as engine,
        httpx2.AsyncClient(auth=auth, timeout=SECONDS, follow_redirects=True) as http,
        Client(
            streamable_http_client(url, http_client=http),
            mode="auto" if version in MODERN_PROTOCOL_VERSIONS else "legacy",
            elicitation_callback=fill_in,
            extensions=[TaskClient()],
            **sampling_callback(engine, approval="always", tools=True).options,
        ) as client,
    ):
        calls: list[dict[str, Any]] | None = context.get("toolCalls")
        if calls is None:
            await STEPS.get(scenario, call_each)(client)
            return
        await client.list_tools()
        for call in calls:
            await client.call_tool(call["name"], call["arguments"])


def serve(path: str) -> None:
    """A child for each that connects; it is told what to do in one line, and says how it ended."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the children
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(path)
        listening.listen(128)
        while True:
            asking, _ = listening.accept()
            with asking:
                if os.fork() == 0:
                    asking.sendall(_outcome(asking).encode())
                    os._exit(0)


def _outcome(asking: socket.socket) -> str:
    told: dict[str, str] = json.loads(asking.makefile().readline())
    context: dict[str, Any] = json.loads(told["context"] or "{}")
    try:
        asyncio.run(main(told["url"], told["scenario"], told["version"], context))
    except BaseException:  # noqa: BLE001 - whatever it is, the suite shall show it
        return traceback.format_exc()
    return ""


if __name__ == "__main__":
    serve(sys.argv[1])
