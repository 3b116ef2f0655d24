"""What a streamed tool call looks like on the wire: how it is asked for, and what a chunk is.

A call is streamed when its params hold `"stream": true` or `{"chunkDelayMs": 100}`, when its
`_meta` holds the same under `dev.penstock/stream`, or when the client declares the extension
`dev.penstock/streaming` and gives a progress token. Each chunk is a `notifications/progress` whose
progress is its number, counted from 1:

    {"progressToken": 7, "progress": 1, "message": "Once",
     "_meta": {"dev.penstock/chunk": {"seq": 0, "content": {"type": "text", "text": "Once"}}}}
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS, ClientCapabilities, ProgressToken

EXTENSION = "dev.penstock/streaming"
"""The capability: under `extensions`, and in the legacy era under `experimental`."""
STREAM_KEY = "dev.penstock/stream"
"""In a request's `_meta` it asks for chunks, in a result's it says how many there were; and in the
notification before the first chunk it names the stream."""
CHUNK_KEY = "dev.penstock/chunk"
PROGRESS_KEY = "dev.penstock/progress"
"""What a tool reported itself, where the notification counts chunks."""
GET, WATCH, CANCEL = (f"dev.penstock/streams/{what}" for what in ("get", "watch", "cancel"))
"""The requests about a stream, by its id."""
LONGEST_DELAY_MS = 60_000

AnyRequest: TypeAlias = ServerRequestContext[Any, Any]


@dataclass(frozen=True, slots=True)
class Ask:
    """How a client wants its chunks."""

    delay_s: float = 0.0
    """At least so long between two chunks."""
    in_message: bool = False
    """The chunk comes whole in `message`, for a client that is told of nothing else."""
    by_field: bool = False
    """Asked for with the field `stream`: `chunk_num`, `data` and a token, if needed, come along."""


def asked(request: AnyRequest) -> Ask | None:
    """How this call is to be streamed, or None; raises MCPError for what is no way to ask."""
    params, meta = request.params or {}, _meta(request)
    if params.get("stream") is not None:
        return _read("stream", params["stream"], by_field=True)
    if meta.get(STREAM_KEY) is not None:
        return _read(f"_meta[{STREAM_KEY!r}]", meta[STREAM_KEY], by_field=False)
    if token_of(request) is not None and _declared(request.session.client_capabilities):
        return Ask()
    return None


def token_of(request: AnyRequest) -> ProgressToken | None:
    """The token under which the client wants to hear of progress."""
    return _meta(request).get("progress_token")


def _meta(request: AnyRequest) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", request.meta or {})


def _declared(capabilities: ClientCapabilities | None) -> bool:
    if capabilities is None:
        return False
    return EXTENSION in (capabilities.extensions or {}) or EXTENSION in (
        capabilities.experimental or {}
    )


def _read(where: str, value: object, *, by_field: bool) -> Ask | None:
    if value is True:
        return Ask(by_field=by_field)
    if value is False:
        return None
    if not isinstance(value, Mapping):
        raise _refusal(where, value, "true, false or an object")
    options = cast("Mapping[str, object]", value)
    delay = options.get("chunkDelayMs", 0)
    if (
        isinstance(delay, bool)
        or not isinstance(delay, int | float)
        or not 0 <= delay <= LONGEST_DELAY_MS
    ):
        raise _refusal(
            f"{where}.chunkDelayMs", delay, f"a number of milliseconds from 0 to {LONGEST_DELAY_MS}"
        )
    place = options.get("in", "meta")
    if place not in {"meta", "message"}:
        raise _refusal(f"{where}.in", place, "'meta' or 'message'")
    return Ask(delay / 1000, in_message=place == "message", by_field=by_field)


def _refusal(where: str, value: object, wanted: str) -> MCPError:
    return MCPError(code=INVALID_PARAMS, message=f"{where} is {value!r:.100}: it must be {wanted}")
