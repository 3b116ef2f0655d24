"""The blocks of one answer, whether they come whole or in pieces.

Two blocks of thinking may follow one another, each with a signature of its own, so blocks are kept
apart by their index.
"""

from __future__ import annotations

import base64
import binascii
from typing import TypeAlias

from penstock.contract.messages import Content, Reasoning, Text
from penstock.streaming.assemble import CallBuffer, Parts


class TextBlock:
    """Text in pieces."""

    __slots__ = ("pieces",)

    def __init__(self) -> None:
        """Start empty."""
        self.pieces: list[str] = []

    def build(self) -> Content | None:
        """The part; nothing where there is no text."""
        text = "".join(self.pieces)
        return Text(text) if text else None


class ThinkingBlock:
    """Thinking in pieces, or what is not to be seen of it."""

    __slots__ = ("pieces", "redacted", "signature", "signed")

    def __init__(self) -> None:
        """Start empty."""
        self.pieces: list[str] = []
        self.redacted: list[str] = []
        self.signature: list[str] = []
        self.signed = False
        """Whether the stream's reader has the whole part."""

    def build(self) -> Reasoning:
        """The part, with its signature or its encrypted form unchanged."""
        if self.redacted:
            return Reasoning(signature=_joined_base64(self.redacted), redacted=True)
        return Reasoning("".join(self.pieces), signature="".join(self.signature) or None)


AnyBlock: TypeAlias = TextBlock | ThinkingBlock | CallBuffer


class Blocks:
    """The blocks so far, by index and in the order in which each began."""

    __slots__ = ("_parts", "by_index", "calls")

    def __init__(self) -> None:
        """Start empty."""
        self._parts: Parts[AnyBlock] = Parts()
        self.by_index: dict[int, AnyBlock] = {}
        self.calls = 0

    def text(self, index: int) -> TextBlock | None:
        """The text at this index, begun if it is new; None where something else is."""
        block = self.by_index.get(index) or self._begin(index, TextBlock())
        return block if isinstance(block, TextBlock) else None

    def thinking(self, index: int) -> ThinkingBlock | None:
        """The thinking at this index, begun if it is new; None where something else is."""
        block = self.by_index.get(index) or self._begin(index, ThinkingBlock())
        return block if isinstance(block, ThinkingBlock) else None

    def begin_call(self, index: int, id: str, name: str) -> CallBuffer:
        """A new call at this index."""
        block = CallBuffer(self.calls, id, name)
        self.calls += 1
        self._begin(index, block)
        return block

    def _begin(self, index: int, block: AnyBlock) -> AnyBlock:
        self._parts.append(block)
        self.by_index[index] = block
        return block

    @property
    def partial_text(self) -> str:
        """All text so far."""
        blocks = self.by_index.values()
        return "".join("".join(block.pieces) for block in blocks if isinstance(block, TextBlock))

    def content(self, *, cut: bool) -> tuple[Content, ...]:
        """The finished parts; raises MalformedResponse when a call's arguments are not JSON.

        `cut` says that the answer ran out of tokens: a call that it broke off at its end is left
        out.
        """
        blocks = list(self.by_index.values())
        if cut and blocks and isinstance(blocks[-1], CallBuffer) and blocks[-1].broken:
            blocks.pop()
        return tuple(part for block in blocks if (part := block.build()) is not None)


def _joined_base64(pieces: list[str]) -> str:
    if len(pieces) == 1:
        return pieces[0]
    try:
        return base64.b64encode(b"".join(map(base64.b64decode, pieces))).decode()
    except (binascii.Error, ValueError):
        return "".join(pieces)
