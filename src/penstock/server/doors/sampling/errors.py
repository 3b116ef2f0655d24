"""How the sampling door words a failure: as JSON-RPC does, with MCP's codes.

```
-1       SamplingRejected
-32700   what came is not JSON
-32600   what came is not a message of this door, or the request is not for this path
-32602   InvalidRequest  UnsupportedOption  ContextLengthExceeded  ModelNotFound
-32603   whatever has the status 500
-32800   RequestCancelled, where it is an error and no event of its own
-32000   everything else: the provider failed, refused, or there is too much to do
```

`data.reason` tells the last ones apart, and is the `code` of the same error at the OpenAI door.
`data.usage` and `data._metadata` have what is known of the request, under the keys of a result.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from penstock.contract.mcp.sampling import mcp_path, write_extras
from penstock.server.errors import Failure, HttpProblem

REJECTED = -1
PARSE_ERROR = -32700
INVALID_REQUEST = -32600
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603
CANCELLED = -32800
FAILED = -32000

_CODES: Mapping[str | None, int] = {
    None: INVALID_PARAMS,
    "context_length_exceeded": INVALID_PARAMS,
    "invalid_message": INVALID_REQUEST,
    "method_not_allowed": INVALID_REQUEST,
    "model_not_found": INVALID_PARAMS,
    "not_found": INVALID_REQUEST,
    "not_local": INVALID_REQUEST,
    "parse_error": PARSE_ERROR,
    "request_cancelled": CANCELLED,
    "request_too_large": INVALID_REQUEST,
    "sampling_rejected": REJECTED,
    "unsupported_parameter": INVALID_PARAMS,
    "upgrade_required": INVALID_REQUEST,
}


def document(failure: Failure) -> dict[str, Any]:
    """`{"code", "message", "data"}`: the error itself, whatever it is wrapped in."""
    fallback = INTERNAL_ERROR if failure.status == 500 else FAILED
    data: dict[str, Any] = {
        "problems": [
            {"path": mcp_path(each.path), "message": each.message} for each in failure.problems
        ],
        "status": failure.status,
        "retryable": failure.retryable,
    }
    if failure.code is not None:
        data["reason"] = failure.code
    if failure.retry_after is not None:
        data["retryAfter"] = failure.retry_after
    if failure.metadata is not None:
        data |= write_extras(failure.metadata)
    return {
        "code": _CODES.get(failure.code, fallback),
        "message": failure.message,
        "data": data,
    }


class SamplingErrors:
    """`{"error": {"code", "message", "data"}}`."""

    def body(self, failure: Failure) -> bytes:
        """The JSON body of an error response."""
        return msgspec.json.encode({"error": document(failure)})

    def event(self, failure: Failure) -> bytes:
        """The event `error`, which ends a stream."""
        return b"event: error\ndata: " + self.body(failure) + b"\n\n"


SAMPLING_ERRORS = SamplingErrors()


def not_json(error: Exception, what: str) -> HttpProblem:
    """The error for bytes that are no JSON."""
    return HttpProblem(Failure(400, f"{what} is not JSON: {error}", code="parse_error"))
