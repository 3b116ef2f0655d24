"""Answers that the provider pauses (`pause_turn`) and goes on with when it is asked again."""

from __future__ import annotations

import msgspec

from penstock.contract.exchange import Reply, SamplingRequest
from penstock.contract.messages import Message

PAUSED = "pause_turn"
_RESUMED = {"resumed": True}


def resume(request: SamplingRequest, reply: Reply) -> SamplingRequest | None:
    """The same request with what was said so far as its last turn; None for an answer that ended.

    A paused answer is one whose reply has no stop reason.
    """
    if reply.stop_reason or reply.response_status != PAUSED:
        return None
    if not reply.content:
        return request
    said = reply.content
    messages = request.messages
    if messages and is_resumed(messages[-1]):
        # The second pause of one turn: it is still one turn.
        said = (*messages[-1].content, *said)
        messages = messages[:-1]
    turn = Message("assistant", said, meta=_RESUMED)
    return msgspec.structs.replace(request, messages=(*messages, turn))


def is_resumed(message: Message) -> bool:
    """Whether this turn is a paused answer, which every model takes back as the last turn."""
    return message.role == "assistant" and message.meta == _RESUMED
