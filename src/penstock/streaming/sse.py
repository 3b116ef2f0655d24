"""Server-sent events: the bytes of a `text/event-stream` body in, whole events out.

The rules are those of the WHATWG HTML standard, section 9.2. A model's answer is thousands of
events of one shape, so a read is first tried as a run of equal one-line or two-line events, which
takes a handful of passes in C over the whole read; any other read is read event by event and line
by line.

One thing is added to the standard, which ignores unknown fields: a line that is no comment, has no
known field and holds a `{` is a damaged line, such as `ata: {...}`. It raises `MalformedResponse`,
so that the words in it are not lost unnoticed.
"""

from __future__ import annotations

import msgspec

from penstock.contract.errors import MalformedResponse

# A byte is looked for by its number: bytes look for a number several times faster than for bytes.
_LF = 10
_CR = 13
_BOM = b"\xef\xbb\xbf"
_KNOWN_NAMES = 64
_NAME_BYTES = 64
_FIELDS = frozenset({b"data", b"event", b"id", b"retry"})
_SHOWN_BYTES = 80
# Python refuses to convert thousands of digits; no reconnection time is longer than this.
_RETRY_DIGITS = 18


class ServerSentEvent(msgspec.Struct, frozen=True, gc=False):
    """One dispatched event.

    `data` is left undecoded, ready for a JSON decoder. `id` is the last event id that the stream
    has set, here or earlier. `retry` is the reconnection time in milliseconds, on the first event
    that is dispatched with or after a `retry` field.
    """

    data: bytes
    event: str = "message"
    id: str = ""
    retry: int | None = None


class _Names(dict[bytes, str]):
    """Event names as text; the few names of a stream are decoded once."""

    def __missing__(self, raw: bytes) -> str:
        name = raw.decode("utf-8", "replace") or "message"
        if len(self) < _KNOWN_NAMES and len(raw) <= _NAME_BYTES:
            self[raw] = name
        return name


class SSEDecoder:
    """Turns the reads of one response body into events; make one decoder per stream.

    Lines may end in LF, CR LF or CR, and reads may be cut at any byte. An event that is larger than
    `max_event_bytes` (its lines as sent, line ends counted as one byte, without the blank line)
    raises `MalformedResponse`, whether or not it is complete; the decoder is of no use afterwards.
    """

    __slots__ = (
        "_after_cr",
        "_at_start",
        "_begun",
        "_damaged",
        "_held",
        "_id",
        "_max_event_bytes",
        "_names",
        "_retry",
    )

    def __init__(self, max_event_bytes: int = 16 * 1024 * 1024) -> None:
        """Expect the first byte of a body."""
        self._max_event_bytes = max_event_bytes
        # The incomplete event at the end of what was read, with LF line ends. A bytearray, because
        # it grows in place: an event that comes in many small reads costs no more than its size.
        self._held = bytearray()
        self._at_start = True
        self._after_cr = False
        self._id = ""
        self._retry: int | None = None
        self._names = _Names()
        self._begun = False
        # The first damaged line. It is reported after the events before it, and not before the
        # first event: a body without any event may be a bare error in JSON.
        self._damaged: bytes | None = None

    def feed(self, data: bytes) -> list[ServerSentEvent]:
        """Take the next read and return the events that it completes, in order.

        Raises MalformedResponse for a damaged line, after the events before it were returned.
        """
        if self._damaged is not None:
            self._check_damage()
        events = self._feed_with_cr(data) if _CR in data else self._feed(data)
        if self._damaged is not None and not events:
            self._check_damage()
        return events

    def _feed_with_cr(self, data: bytes) -> list[ServerSentEvent]:
        """Read what has CR LF line ends without rewriting them where whole events allow it."""
        events = self._crlf_events(data)
        if events is not None:
            return events
        start = data.find(b"\r\n\r\n") + 4
        end = data.rfind(b"\r\n\r\n") + 4
        if start >= end:
            return self._feed(data)
        # The ends belong to events that other reads have a part of; between them all are whole.
        events = self._feed(data[:start])
        between = data[start:end]
        whole = self._crlf_events(between)
        events += self._feed(between) if whole is None else whole
        return events + self._feed(data[end:])

    def _feed(self, data: bytes) -> list[ServerSentEvent]:
        if self._at_start or self._after_cr or _CR in data:
            data = self._normalised(data)
        held = self._held
        end = data.rfind(b"\n\n")
        if end >= 0:
            block = b"".join((held, data[:end])) if held else data[:end]
            tail = data[end + 2 :]
        elif data.startswith(b"\n") and held.endswith(b"\n"):
            block = bytes(held[:-1])
            tail = data[1:]
        else:
            # Blank lines before an event mean nothing, and must not count as part of it.
            held += data if held else data.lstrip(b"\n")
            self._check_held()
            return []
        if held:
            held.clear()
        if tail:
            held += tail
            self._check_held()
        if len(block) > self._max_event_bytes:
            self._check_block(block)
        return self._events(block)

    def finish(self) -> list[ServerSentEvent]:
        """Say that the body has ended, and return its last event if that is still outstanding.

        The standard drops an event that the end of the stream cuts off before its blank line. Some
        model servers close right after their last `data:` line, so it is returned here instead,
        whether or not the last line has a line end. If the connection broke in the middle of that
        line, then the data is cut too; the JSON decoder that reads it will notice.
        """
        block = bytes(self._held)
        self._held.clear()
        events = self._events(block) if block else []
        self._check_damage()
        return events

    def _crlf_events(self, data: bytes) -> list[ServerSentEvent] | None:
        """Read whole events of one `data: ` line each that end in CR LF, if the read is no more."""
        if (
            not data.startswith(b"data: ")
            or not data.endswith(b"\r\n\r\n")
            or self._held
            or self._after_cr
            or self._id
            or self._retry is not None
            or self._damaged is not None
            or len(data) > self._max_event_bytes
        ):
            return None
        body = data[6:-4]
        if _CR not in body and _LF not in body:
            self._at_start = False
            self._begun = True
            return [ServerSentEvent(body)]
        bodies = body.split(b"\r\n\r\ndata: ")
        # The counts prove that there is no line end but those between the events.
        if not body.count(b"\r") == body.count(b"\n") == 2 * len(bodies) - 2:
            return None
        self._at_start = False
        self._begun = True
        return list(map(ServerSentEvent, bodies))

    def _normalised(self, data: bytes) -> bytes:
        """Make every line end an LF and drop the byte order mark; both may be split by a read."""
        if not data:
            return data
        if self._after_cr:
            self._after_cr = False
            data = data.removeprefix(b"\n")
        if _CR in data:
            # The line ends at once; if an LF follows in the next read, it belongs to this CR.
            self._after_cr = data[-1] == _CR
            lines = data.splitlines()
            if data[-1] in (_CR, _LF):
                lines.append(b"")
            data = b"\n".join(lines)
        if self._at_start:
            data = bytes(self._held) + data
            self._held.clear()
            self._at_start = len(data) < len(_BOM) and _BOM.startswith(data)
            data = data.removeprefix(_BOM)
        return data

    def _events(self, block: bytes) -> list[ServerSentEvent]:
        """Read whole events; `block` has LF line ends only, and no blank line at its end."""
        if self._damaged is not None and self._begun:
            return []
        events = self._read_events(block)
        if events:
            self._begun = True
        return events

    def _read_events(self, block: bytes) -> list[ServerSentEvent]:
        if not self._id and self._retry is None and self._damaged is None:
            if block.startswith(b"data: "):
                if _LF not in block:
                    return [ServerSentEvent(block[6:])]
                bodies = block[6:].split(b"\n\ndata: ")
                # The count proves that there is no line end but those between the events.
                if block.count(b"\n") == 2 * len(bodies) - 2:
                    return list(map(ServerSentEvent, bodies))
            elif block.startswith(b"event: "):
                named = self._named_events(block)
                if named is not None:
                    return named
        events: list[ServerSentEvent] = []
        for lines in block.split(b"\n\n"):
            event = self._event(lines)
            if self._damaged is None:
                if event is not None:
                    events.append(event)
            elif self._begun or events or event is not None:
                # What follows is of no use without the words of the damaged line.
                self._begun = True
                break
        return events

    def _named_events(self, block: bytes) -> list[ServerSentEvent] | None:
        """Read a run of events that are one `event: ` and one `data: ` line each, if it is one."""
        names = self._names
        line_ends = block.count(b"\n")
        if line_ends == 1:
            name, found, body = block[7:].partition(b"\ndata: ")
            return [ServerSentEvent(body, names[name])] if found else None
        pairs = block[7:].split(b"\n\nevent: ")
        if line_ends != 3 * len(pairs) - 2:
            return None
        events = [
            ServerSentEvent(body, names[name])
            for name, found, body in [pair.partition(b"\ndata: ") for pair in pairs]
            if found
        ]
        # One event without data and one with two lines of it have the right count together.
        return events if len(events) == len(pairs) else None

    def _event(self, lines: bytes) -> ServerSentEvent | None:
        """Read the lines of one event by the letter of the standard."""
        name = b""
        data: list[bytes] = []
        for line in lines.split(b"\n"):
            field, _, value = line.partition(b":")
            if value.startswith(b" "):
                value = value[1:]
            if field == b"data":
                data.append(value)
            elif field == b"event":
                name = value
            elif field == b"id":
                if b"\0" not in value:
                    self._id = value.decode("utf-8", "replace")
            elif field == b"retry" and value.isdigit() and len(value) <= _RETRY_DIGITS:
                self._retry = int(value)
            elif field and field not in _FIELDS and b"{" in line:
                self._damaged = self._damaged or line
                return None
        if not data:
            return None
        retry, self._retry = self._retry, None
        return ServerSentEvent(b"\n".join(data), self._names[name], self._id, retry)

    def _check_damage(self) -> None:
        if self._damaged is not None and self._begun:
            shown = self._damaged[:_SHOWN_BYTES].decode("utf-8", "replace")
            raise MalformedResponse(f"a line of the stream is damaged: {shown!r}")

    def _check_held(self) -> None:
        held = self._held
        # A line end here may turn out to be the first half of the blank line.
        if len(held) - held.endswith(b"\n") > self._max_event_bytes:
            self._refuse()

    def _check_block(self, block: bytes) -> None:
        limit = self._max_event_bytes
        if any(len(lines.strip(b"\n")) > limit for lines in block.split(b"\n\n")):
            self._refuse()

    def _refuse(self) -> None:
        raise MalformedResponse(
            f"a server-sent event is larger than the limit of {self._max_event_bytes} bytes",
            retryable=False,
        )
