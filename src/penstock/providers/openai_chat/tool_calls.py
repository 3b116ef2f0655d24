"""Which tool call a piece of a stream belongs to."""

from __future__ import annotations

import re
import secrets

from penstock.streaming.assemble import check_tool_calls

_NOT_IN_IDS = re.compile(r"[^A-Za-z0-9_-]")


def call_id(response_id: str | None, slot: int) -> str:
    """An id for a call that came without one; unique over the rounds of a conversation."""
    scope = _NOT_IN_IDS.sub("", response_id or "")[-16:] or secrets.token_hex(8)
    return f"call_{scope}_{slot}"


class _Call:
    __slots__ = ("named", "sent_id")

    def __init__(self, sent_id: str) -> None:
        self.sent_id = sent_id
        self.named = False


class CallPlaces:
    """Tells which call a piece belongs to, from whatever of index, id and name the server sends."""

    __slots__ = ("_by_id", "_by_index", "_calls")

    def __init__(self) -> None:
        """Know no call yet."""
        self._calls: list[_Call] = []
        self._by_index: dict[int, int] = {}
        self._by_id: dict[str, int] = {}
        """The first call of each id, also of the empty one."""

    def place(
        self, index: int | None, id: str, name: str, response_id: str | None
    ) -> tuple[int, str, str]:
        """The number of the call, with the id if it begins here and the name if that is news."""
        slot = self._find(index, id, name)
        new_id = ""
        if slot is None:
            slot = len(self._calls)
            check_tool_calls(slot + 1)
            # Two calls of one id could not be told apart by their results.
            new_id = id if id and id not in self._by_id else call_id(response_id, slot)
            self._calls.append(_Call(id))
            self._by_id.setdefault(id, slot)
        if index is not None:
            self._by_index[index] = slot
        call = self._calls[slot]
        new_name = "" if call.named else name
        call.named = call.named or bool(name)
        return slot, new_id, new_name

    def _find(self, index: int | None, id: str, name: str) -> int | None:
        calls = self._calls
        if index is not None:
            slot = self._by_index.get(index)
            if slot is None or not (id and name):
                return slot
            # Some servers give every call the index 0: another id with a name is another call.
            return slot if calls[slot].sent_id in ("", id) else None
        if id:
            return self._by_id.get(id)
        return len(calls) - 1 if calls and not name else None
