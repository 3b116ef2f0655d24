"""Newline-delimited JSON: the bytes of a body in, one JSON text per line out."""

from __future__ import annotations

from penstock.contract.errors import MalformedResponse


class NDJSONDecoder:
    """Turns the reads of one response body into lines; make one decoder per stream.

    Lines end in LF or CR LF, and reads may be cut at any byte. The lines come without surrounding
    white space, which JSON does not need, and blank ones are skipped. A line of more than
    `max_line_bytes` before its LF raises `MalformedResponse`, whether or not it is complete; the
    decoder is of no use afterwards.
    """

    __slots__ = ("_held", "_max_line_bytes")

    def __init__(self, max_line_bytes: int = 16 * 1024 * 1024) -> None:
        """Expect the first byte of a body."""
        self._max_line_bytes = max_line_bytes
        # The incomplete last line. A bytearray, because it grows in place: a line that comes in
        # many small reads costs no more than its size.
        self._held = bytearray()

    def feed(self, data: bytes) -> list[bytes]:
        """Take the next read and return the lines that it completes, in order."""
        held = self._held
        end = data.rfind(b"\n")
        if end < 0:
            held += data
            self._check(held)
            return []
        block = b"".join((held, data[:end])) if held else data[:end]
        held.clear()
        held += data[end + 1 :]
        self._check(held)
        lines = block.split(b"\n")
        if len(block) > self._max_line_bytes:
            self._check(max(lines, key=len))
        return [line for line in map(bytes.strip, lines) if line]

    def finish(self) -> list[bytes]:
        """Say that the body has ended, and return its last line if that had no line end.

        If the connection broke in the middle of that line, then it is cut; the JSON decoder that
        reads it will notice.
        """
        line = bytes(self._held).strip()
        self._held.clear()
        return [line] if line else []

    def _check(self, line: bytes | bytearray) -> None:
        if len(line) > self._max_line_bytes:
            raise MalformedResponse(
                f"a line of JSON is larger than the limit of {self._max_line_bytes} bytes",
                retryable=False,
            )
