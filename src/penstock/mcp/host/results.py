"""What goes back to a server: an answer in the shape that it reads, or an error.

An error tells no more of the host than the server needs.

```
-1       SamplingRejected
-32602   InvalidRequest, as far as the request itself is at fault; the problems are in `data`
-32603   whatever was not foreseen
-32000   everything else; `data.reason` tells which
```
"""

from __future__ import annotations

from collections.abc import Mapping

from mcp_types import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    CreateMessageResult,
    CreateMessageResultWithTools,
    ErrorData,
)
from mcp_types.version import LATEST_HANDSHAKE_VERSION, is_version_at_least

from penstock.contract.errors import (
    BudgetExceeded,
    ContentRejected,
    ContextLengthExceeded,
    InvalidRequest,
    PenstockError,
    ProviderTimeout,
    RateLimited,
    RequestCancelled,
    SamplingRejected,
    UnsupportedOption,
)
from penstock.contract.exchange import Result
from penstock.contract.mcp.sampling import mcp_path, spelled_for_mcp

REJECTED = -1
FAILED = -32000
LISTS_SINCE = LATEST_HANDSHAKE_VERSION
"""The revision that brought tools, and with them answers of several blocks."""

_SAID: Mapping[type[PenstockError], tuple[int, str, str | None]] = {
    SamplingRejected: (REJECTED, "sampling_rejected", None),
    ContextLengthExceeded: (
        INVALID_PARAMS,
        "context_length_exceeded",
        "the prompt is longer than the model's window",
    ),
    ContentRejected: (FAILED, "content_filter", "the model refused to answer"),
    RateLimited: (FAILED, "rate_limit_exceeded", "the host's model has too much to do"),
    BudgetExceeded: (FAILED, "insufficient_quota", "the budget for this server is used up"),
    ProviderTimeout: (FAILED, "upstream_timeout", "the host's model did not answer in time"),
    RequestCancelled: (FAILED, "request_cancelled", "the request was cancelled"),
    PenstockError: (FAILED, "upstream_unavailable", "the host's model could not answer"),
}
"""The code, the reason and the words; None: the error's own, which are ours or the reviewer's."""
KINDS: Mapping[str, type[PenstockError]] = {
    reason: kind for kind, (_, reason, _) in _SAID.items() if kind is not PenstockError
}
"""What each reason stands for, for servers that get such an error."""


def error_of(error: PenstockError) -> ErrorData:
    """The error for a server: nothing of providers, their words, or how much money there is."""
    if isinstance(error, InvalidRequest) and error.problems and error.provider is None:
        told = spelled_for_mcp(error)
        problems = [{"path": each.path, "message": each.message} for each in told.problems]
        return ErrorData(code=INVALID_PARAMS, message=told.message, data={"problems": problems})
    if isinstance(error, UnsupportedOption):
        names = ", ".join(mcp_path(option) for option in error.options)
        words = f"the host's model does not support {names}: leave it out"
        return ErrorData(
            code=INVALID_PARAMS, message=words, data={"reason": "unsupported_parameter"}
        )
    code, reason, words = next(_SAID[kind] for kind in type(error).__mro__ if kind in _SAID)
    if words is None or _is_ours(error):
        words = error.message
    data: dict[str, object] = {"reason": reason, "retryable": error.retryable}
    if error.retry_after is not None:
        data["retryAfter"] = error.retry_after
    return ErrorData(code=code, message=words, data=data)


def internal_error() -> ErrorData:
    """The error for what nobody foresaw; the log has the rest."""
    return ErrorData(code=INTERNAL_ERROR, message="internal error of the host")


def takes_lists(version: str | None) -> bool:
    """Whether a peer of this revision knows tools, and answers of several blocks."""
    return version is not None and is_version_at_least(version, LISTS_SINCE)


def result_of(
    result: Result, *, several: bool
) -> CreateMessageResult | CreateMessageResultWithTools:
    """The answer; of `several` blocks only where the request makes its sender ready for them."""
    written = result.to_mcp(single=not several)
    kind = CreateMessageResultWithTools if several else CreateMessageResult
    return kind.model_validate(written)


def _is_ours(error: PenstockError) -> bool:
    """Whether the limit was the host's own, whose words name no provider."""
    return isinstance(error, RateLimited) and error.provider is None
