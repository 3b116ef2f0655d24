"""Whose tasks a request may see."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Final, TypeAlias

from mcp.client.streamable_http import MCP_SESSION_ID
from mcp.server.auth.middleware.auth_context import get_access_token
from mcp.server.auth.provider import principal_components

from penstock.mcp.tasks.wire import RequestContext, is_modern

Owner: TypeAlias = Callable[[RequestContext], str]
STRANGERS: Final = "strangers"
"""All clients over HTTP that nothing tells apart: each knows its tasks by their ids, and so none is
told the ids of all."""


def default_owner(ctx: RequestContext) -> str:
    """Whoever was authorised; else the session; else the one name of all who have none.

    On standard input and output there is one client. Over HTTP without authorisation, in the modern
    era and where a server keeps no sessions, the unguessable id of a task is the only key to it, as
    the standard allows.
    """
    if (token := get_access_token()) is not None:
        return f"principal:{json.dumps(principal_components(token))}"
    headers = getattr(ctx.request, "headers", None)
    if headers is None:
        return "anyone"
    if not is_modern(ctx) and (session := headers.get(MCP_SESSION_ID)):
        return f"session:{session}"
    return STRANGERS
