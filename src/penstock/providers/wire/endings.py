"""What the reason of an answer's end means for its reply; the reasons are in `stop_reasons`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import structs

from penstock.contract.checks.lengths import NAME, cut
from penstock.contract.errors import ContentRejected, MalformedResponse, ProviderUnavailable
from penstock.contract.exchange import Reply, StopReason
from penstock.contract.messages import Content, ToolUse
from penstock.providers.wire.error_text import shown
from penstock.providers.wire.stop_reasons import Meaning, meaning_of

_OURS = frozenset({"endTurn", "stopSequence", "maxTokens", "toolUse"})
NO_REASON = "missing"
"""The `stop_detail` of an answer whose provider gave no reason."""

_STOP_REASONS: Mapping[Meaning, StopReason] = {
    "end": "endTurn",
    "stop_sequence": "stopSequence",
    "max_tokens": "maxTokens",
    "tool_use": "toolUse",
    # A pause that cannot be resumed leaves an answer that is cut off.
    "resume": "maxTokens",
    "none": "endTurn",
}


def check_ending(reason: str | None, *, partial: str, said: str = "") -> None:
    """Raise the error that this reason stands for; `said` is the provider's explanation of it."""
    meaning = meaning_of(reason)
    if meaning not in ("filter", "error", "malformed"):
        return
    text = shown(f"{reason}: {said}" if said else str(reason))
    if meaning == "filter":
        raise ContentRejected(f"the provider stopped the answer: {text}", partial=partial)
    if meaning == "malformed":
        raise MalformedResponse(f"the provider could not read the model's own output: {text}")
    raise ProviderUnavailable(f"the provider broke off the answer: {text}")


def is_cut(reason: str | None) -> bool:
    """Whether a limit cut the answer off, so that a tool call at its end may be incomplete."""
    return meaning_of(reason) in ("max_tokens", "resume")


def stop_reason(reason: str | None, content: Sequence[Content]) -> StopReason:
    """The stop reason of a reply; an unknown reason stays as it is.

    Tool calls count more than the reason, which some services leave at `stop`. Raises
    MalformedResponse if the reason announces a tool call and there is none.
    """
    if any(isinstance(part, ToolUse) for part in content):
        return "toolUse"
    meaning = meaning_of(reason)
    if meaning == "tool_use":
        raise MalformedResponse("the answer stopped for a tool and names none")
    return str(reason) if meaning is None else _STOP_REASONS[meaning]


def stop_detail(reason: str | None) -> str | None:
    """The reason by its name if it is unknown, `missing` if there is none, else None."""
    meaning = meaning_of(reason)
    if meaning is None:
        return cut(str(reason), NAME)
    return NO_REASON if meaning == "none" else None


def check_reply(reply: Reply) -> Reply:
    """Read the stop reason of a reply by the table, if it is still in the provider's own words.

    Raises the error that the reason stands for. A paused answer has no reason and stays as it is.
    """
    reason = reply.stop_reason
    if not reason or reason in _OURS or reply.stop_detail is not None:
        return reply
    check_ending(reason, partial=reply.text)
    return structs.replace(
        reply, stop_reason=stop_reason(reason, reply.content), stop_detail=stop_detail(reason)
    )
