"""Long work as a task, in both eras of MCP: see `Tasks` for servers, `run_task` for clients."""

from __future__ import annotations

from penstock.mcp.tasks.client import (
    TaskClient,
    TaskError,
    TaskHandle,
    TaskState,
    resume_task,
    run_task,
    start_task,
)
from penstock.mcp.tasks.extension import Tasks
from penstock.mcp.tasks.ports import TaskStore
from penstock.mcp.tasks.records import TaskLimits, TaskRecord, TooManyTasks
from penstock.mcp.tasks.sqlite import SqliteTasks

__all__ = [
    "SqliteTasks",
    "TaskClient",
    "TaskError",
    "TaskHandle",
    "TaskLimits",
    "TaskRecord",
    "TaskState",
    "TaskStore",
    "Tasks",
    "TooManyTasks",
    "resume_task",
    "run_task",
    "start_task",
]
