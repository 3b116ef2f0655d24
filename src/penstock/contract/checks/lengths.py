"""Length limits of texts that callers and providers choose.

A text that Penstock keeps, logs, labels or sends as a header has one of these limits. An identifier
of a caller that is too long is refused; any other text is cut and ends in `MARK`.
"""

from __future__ import annotations

NAME = 256
"""Characters of a name: a model, a tool, an id, a reason."""
URL = 8192
"""Characters of an address. `urlsplit` caches what it parses, so a longer one is not parsed."""
HEADER_VALUE = 8192
"""Characters of a header that a caller has sent to an MCP server."""
TRACE_STATE = 2048
"""Characters of the header `tracestate`; the standard asks for 512."""
MESSAGE = 10_000
"""Characters of an error message, or of a line of the log."""
PROBLEM = 1_000
"""Characters of one of the problems in an error message."""
MARK = "…"
"""The last character of a text that was cut."""


def cut(text: str, limit: int = NAME) -> str:
    """Return the text, cut to so many characters."""
    return text if len(text) <= limit else text[: limit - len(MARK)] + MARK


def too_long(text: str, limit: int = NAME) -> str | None:
    """Return what is wrong with the length of this text, or None."""
    if len(text) <= limit:
        return None
    return f"has {len(text)} characters; at most {limit} are allowed"
