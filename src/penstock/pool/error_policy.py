"""What an error means for the request, and what it says about the target."""

from __future__ import annotations

from typing import Literal, TypeAlias

from penstock.contract.errors import (
    AuthenticationFailed,
    ConfigurationError,
    ContentRejected,
    ContextLengthExceeded,
    InvalidRequest,
    ModelNotFound,
    PenstockError,
    ProviderUnavailable,
    RateLimited,
    RequestCancelled,
    ToolFailed,
    UnsupportedOption,
)
from penstock.contract.exchange import Reply, SamplingRequest
from penstock.contract.messages import Reasoning, Text

Blame: TypeAlias = Literal["none", "failure", "shun"]


def may_fail_over(error: PenstockError) -> bool:
    """Whether another target could do better: not with a bad request, nor around a filter."""
    if isinstance(error, ContextLengthExceeded | UnsupportedOption):
        return True
    return not isinstance(error, InvalidRequest | ContentRejected | RequestCancelled)


def may_continue(error: PenstockError) -> bool:
    """Whether an answer that broke off may be gone on with elsewhere."""
    return isinstance(error, ProviderUnavailable | RateLimited)


def is_empty(reply: Reply, request: SamplingRequest) -> bool:
    """Whether an answer that ended normally holds nothing, although the request asked for text.

    A stop sequence may end an answer at once, and so may the end of a text that the request begins.
    """
    if reply.stop_reason != "endTurn" or request.stop_sequences:
        return False
    if request.messages[-1].role == "assistant":
        return False
    return all(
        isinstance(part, Reasoning) or (isinstance(part, Text) and not part.text)
        for part in reply.content
    )


def blame_of(error: PenstockError) -> Blame:
    """What the target's breaker is told.

    Nothing, where the caller is at fault, or a limit of the model that another request keeps. A
    refused key, an empty account and a model that is not there will be refused again: such a target
    is shunned, which is to say asked last, so that whoever has no other hears the reason again.
    """
    if isinstance(error, AuthenticationFailed | ModelNotFound):
        return "shun"
    if isinstance(error, RateLimited):
        return "failure" if error.retryable else "shun"
    if isinstance(error, InvalidRequest | ContentRejected | ToolFailed | ConfigurationError):
        return "none"
    return "failure"
