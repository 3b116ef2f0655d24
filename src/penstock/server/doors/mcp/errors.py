"""How the MCP door words a failure that comes before the protocol: as a JSON-RPC error.

What goes wrong inside a message is told by the protocol itself, and in a tool by the tool's result.
"""

from __future__ import annotations

import msgspec

from penstock.server.doors.sampling.errors import document
from penstock.server.errors import Failure


class MCPErrors:
    """`{"jsonrpc": "2.0", "id": null, "error": {"code", "message", "data"}}`."""

    def body(self, failure: Failure) -> bytes:
        """The JSON body of an error response."""
        return msgspec.json.encode({"jsonrpc": "2.0", "id": None, "error": document(failure)})

    def event(self, failure: Failure) -> bytes:
        """The last event of a stream that is broken off."""
        return b"event: message\ndata: " + self.body(failure) + b"\n\n"


MCP_ERRORS = MCPErrors()
