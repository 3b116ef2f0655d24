"""Whether the tokens of a request take long to be counted."""

from __future__ import annotations

from penstock.contract.exchange import AnyRequest, EmbeddingRequest, SamplingRequest
from penstock.contract.messages import Content, Text, ToolResult

LONG = 262_144
"""Characters above which the texts of a request are counted in a thread, and not on a loop."""
_PART, _TOOL = 100, 1_000
"""What a part or a tool counts for, however short it is."""


def is_long(request: AnyRequest) -> bool:
    """Whether to count in a thread; a recording is not read for it, whatever its length."""
    if isinstance(request, EmbeddingRequest):
        return sum(map(len, request.texts)) > LONG
    if not isinstance(request, SamplingRequest):
        return False
    size = len(request.system_prompt or "") + _TOOL * len(request.tools)
    for message in request.messages:
        for part in message.content:
            size += len(part.text) if isinstance(part, Text) else _size(part)
    return size > LONG


def _size(part: Content) -> int:
    if not isinstance(part, ToolResult):
        return _PART
    return _PART + sum(len(each.text) for each in part.content if isinstance(each, Text))
