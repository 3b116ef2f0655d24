"""MCP for both sides: tools of servers, sampling, tools that stream, tasks; extra `mcp`.

The names are imported when they are first used: what a gateway needs of this package needs no MCP.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.contract.approval import Decision, Estimate, Review
    from penstock.mcp.asking.extension import Sampling
    from penstock.mcp.asking.sample import once, sample
    from penstock.mcp.asking.state import Spent, SpentInFile
    from penstock.mcp.host.callback import SamplingCallback, SamplingHost, sampling_callback
    from penstock.mcp.host.context import ContextLimits
    from penstock.mcp.host.policy import SamplingPolicy, ServerRule
    from penstock.mcp.host.queue import ApprovalQueue
    from penstock.mcp.host.terminal import TerminalApprover
    from penstock.mcp.resumption.events import SqliteEvents
    from penstock.mcp.resumption.log import EventLimits
    from penstock.mcp.streaming.chunks import Chunks
    from penstock.mcp.streaming.client import ToolChunk, ToolStream, stream_tool
    from penstock.mcp.streaming.extension import StreamingTools
    from penstock.mcp.streaming.streams import StreamState
    from penstock.mcp.streaming.tools import streamed
    from penstock.mcp.streaming.watching import cancel_stream, get_stream, watch_stream
    from penstock.mcp.tasks.client import TaskClient, TaskError, resume_task, run_task, start_task
    from penstock.mcp.tasks.extension import Tasks
    from penstock.mcp.tasks.records import TaskLimits
    from penstock.mcp.tasks.sqlite import SqliteTasks
    from penstock.mcp.tools import ToolAdapter

_LAZY = {
    "ApprovalQueue": "penstock.mcp.host.queue",
    "Chunks": "penstock.mcp.streaming.chunks",
    "ContextLimits": "penstock.mcp.host.context",
    "Decision": "penstock.contract.approval",
    "Estimate": "penstock.contract.approval",
    "EventLimits": "penstock.mcp.resumption.log",
    "Review": "penstock.contract.approval",
    "Sampling": "penstock.mcp.asking.extension",
    "SamplingCallback": "penstock.mcp.host.callback",
    "SamplingHost": "penstock.mcp.host.callback",
    "SamplingPolicy": "penstock.mcp.host.policy",
    "ServerRule": "penstock.mcp.host.policy",
    "Spent": "penstock.mcp.asking.state",
    "SpentInFile": "penstock.mcp.asking.state",
    "SqliteEvents": "penstock.mcp.resumption.events",
    "SqliteTasks": "penstock.mcp.tasks.sqlite",
    "StreamState": "penstock.mcp.streaming.streams",
    "StreamingTools": "penstock.mcp.streaming.extension",
    "TaskClient": "penstock.mcp.tasks.client",
    "TaskError": "penstock.mcp.tasks.client",
    "TaskLimits": "penstock.mcp.tasks.records",
    "Tasks": "penstock.mcp.tasks.extension",
    "TerminalApprover": "penstock.mcp.host.terminal",
    "ToolAdapter": "penstock.mcp.tools",
    "ToolChunk": "penstock.mcp.streaming.client",
    "ToolStream": "penstock.mcp.streaming.client",
    "cancel_stream": "penstock.mcp.streaming.watching",
    "get_stream": "penstock.mcp.streaming.watching",
    "once": "penstock.mcp.asking.sample",
    "resume_task": "penstock.mcp.tasks.client",
    "run_task": "penstock.mcp.tasks.client",
    "sample": "penstock.mcp.asking.sample",
    "sampling_callback": "penstock.mcp.host.callback",
    "start_task": "penstock.mcp.tasks.client",
    "stream_tool": "penstock.mcp.streaming.client",
    "streamed": "penstock.mcp.streaming.tools",
    "watch_stream": "penstock.mcp.streaming.watching",
}

__all__ = [
    "ApprovalQueue",
    "Chunks",
    "ContextLimits",
    "Decision",
    "Estimate",
    "EventLimits",
    "Review",
    "Sampling",
    "SamplingCallback",
    "SamplingHost",
    "SamplingPolicy",
    "ServerRule",
    "Spent",
    "SpentInFile",
    "SqliteEvents",
    "SqliteTasks",
    "StreamState",
    "StreamingTools",
    "TaskClient",
    "TaskError",
    "TaskLimits",
    "Tasks",
    "TerminalApprover",
    "ToolAdapter",
    "ToolChunk",
    "ToolStream",
    "cancel_stream",
    "get_stream",
    "once",
    "resume_task",
    "run_task",
    "sample",
    "sampling_callback",
    "start_task",
    "stream_tool",
    "streamed",
    "watch_stream",
]


if not TYPE_CHECKING:  # a type checker would take any misspelt name for one of these

    def __getattr__(name: str) -> Any:
        if name not in _LAZY:
            raise AttributeError(f"module 'penstock.mcp' has no attribute {name!r}")
        value = getattr(importlib.import_module(_LAZY[name]), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return __all__
