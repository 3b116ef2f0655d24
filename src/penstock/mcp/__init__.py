"""MCP: tools of servers for the generators here, and answers to their sampling; extra `mcp`.

The names are imported when they are first used: what a gateway needs of this package needs no MCP.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.contract.approval import Decision, Estimate, Review
    from penstock.mcp.host.callback import SamplingCallback, SamplingHost, sampling_callback
    from penstock.mcp.host.context import ContextLimits
    from penstock.mcp.host.policy import SamplingPolicy, ServerRule
    from penstock.mcp.host.queue import ApprovalQueue
    from penstock.mcp.host.terminal import TerminalApprover
    from penstock.mcp.tools import ToolAdapter

_PLACES = {
    "ApprovalQueue": "penstock.mcp.host.queue",
    "ContextLimits": "penstock.mcp.host.context",
    "Decision": "penstock.contract.approval",
    "Estimate": "penstock.contract.approval",
    "Review": "penstock.contract.approval",
    "SamplingCallback": "penstock.mcp.host.callback",
    "SamplingHost": "penstock.mcp.host.callback",
    "SamplingPolicy": "penstock.mcp.host.policy",
    "ServerRule": "penstock.mcp.host.policy",
    "TerminalApprover": "penstock.mcp.host.terminal",
    "ToolAdapter": "penstock.mcp.tools",
    "sampling_callback": "penstock.mcp.host.callback",
}

__all__ = [
    "ApprovalQueue",
    "ContextLimits",
    "Decision",
    "Estimate",
    "Review",
    "SamplingCallback",
    "SamplingHost",
    "SamplingPolicy",
    "ServerRule",
    "TerminalApprover",
    "ToolAdapter",
    "sampling_callback",
]


if not TYPE_CHECKING:  # a type checker would take any misspelt name for one of these

    def __getattr__(name: str) -> Any:
        if name not in _PLACES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = globals()[name] = getattr(importlib.import_module(_PLACES[name]), name)
        return value
