"""Tasks as each era writes them; nothing here reads or waits."""

from __future__ import annotations

import base64
import binascii
from datetime import UTC, datetime
from typing import Any, Final, TypeAlias, cast

import msgspec
from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    MISSING_REQUIRED_CLIENT_CAPABILITY,
)
from mcp_types.version import LATEST_HANDSHAKE_VERSION, MODERN_PROTOCOL_VERSIONS

from penstock.contract.errors import shown
from penstock.mcp.tasks.ports import Position
from penstock.mcp.tasks.records import JSON, TaskLimits, TaskRecord, TooManyTasks

RequestContext: TypeAlias = ServerRequestContext[Any, Any]
EXTENSION: Final = "io.modelcontextprotocol/tasks"
RELATED_TASK: Final = "io.modelcontextprotocol/related-task"
LEGACY_TASKS_VERSION: Final = LATEST_HANDSHAKE_VERSION
"""The only revision that has tasks of its own: those before had none, those after the extension."""
TASK_CANCELLED: Final = -32000
TASK_LIMIT: Final = -32001
"""From the range that the standard leaves to implementations."""
_LATEST: Final = 2**63
"""No store keeps a moment behind this one."""
LEGACY_CAPABILITY: Final[JSON] = {"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}}


def is_modern(ctx: RequestContext) -> bool:
    """Whether the client speaks a revision that has the extension."""
    return ctx.protocol_version in MODERN_PROTOCOL_VERSIONS


def declares_tasks(ctx: RequestContext) -> bool:
    """Whether this very request says that its sender understands tasks of the modern era."""
    capabilities = ctx.session.client_capabilities
    return capabilities is not None and EXTENSION in (capabilities.extensions or {})


def legacy_task(task: TaskRecord) -> JSON:
    """`Task` of 2025-11-25, for which a tool that reports an error has failed."""
    tool_error = task.result is not None and bool(task.result.get("isError"))
    status = "failed" if tool_error else task.status
    written: JSON = {
        "taskId": task.id,
        "status": status,
        "createdAt": _moment(task.created),
        "lastUpdatedAt": _moment(task.updated),
        "ttl": task.ttl_ms,
        "pollInterval": task.poll_ms,
    }
    message = task.message or ("the tool reported an error" if tool_error else "")
    return written | ({"statusMessage": message} if message else {})


def legacy_result(task: TaskRecord) -> JSON:
    """What the call has come to, for `tasks/result`; raises the error that it has ended with."""
    related = {"taskId": task.id}
    if task.result is not None:
        meta: JSON = task.result.get("_meta") or {}
        return {**task.result, "_meta": {**meta, RELATED_TASK: related}}
    if task.status == "cancelled":
        raise MCPError(TASK_CANCELLED, task.message, {"_meta": {RELATED_TASK: related}})
    error = task.error or {}
    raise MCPError(error["code"], error["message"], error.get("data"))


def modern_task(task: TaskRecord) -> JSON:
    """`Task` of the extension, without what depends on its status."""
    written: JSON = {
        "taskId": task.id,
        "status": task.status,
        "createdAt": _moment(task.created),
        "lastUpdatedAt": _moment(task.updated),
        "ttlMs": task.ttl_ms,
        "pollIntervalMs": task.poll_ms,
    }
    return written | ({"statusMessage": task.message} if task.message else {})


def detailed_task(task: TaskRecord) -> JSON:
    """`DetailedTask` of the extension: with the result, the error or the open questions."""
    written = modern_task(task)
    match task.status:
        case "completed":
            written["result"] = task.result
        case "failed":
            written["error"] = task.error
        case "input_required":
            written["inputRequests"] = task.questions
        case _:
            pass
    return written


def read_ttl(task: Any, limits: TaskLimits) -> int:
    """The time that a client asks for in `task.ttl`, or gets without asking, in milliseconds."""
    if not isinstance(task, dict):
        raise MCPError(INVALID_PARAMS, f"task is {shown(task)}: give an object, as in {{}}")
    asked: Any = cast(JSON, task).get("ttl")
    if asked is None:
        return limits.ttl_ms
    if isinstance(asked, bool) or not isinstance(asked, int | float) or not asked >= 1:
        raise MCPError(
            INVALID_PARAMS,
            f"task.ttl is {shown(asked)}: give a number of milliseconds from 1 up, or leave it out",
        )
    return int(min(asked, limits.most_ttl_ms))


def write_cursor(task: TaskRecord) -> str:
    """The position behind this task, for the client to give back."""
    return base64.urlsafe_b64encode(msgspec.json.encode((task.created, task.id))).decode()


def read_cursor(cursor: str | None) -> Position | None:
    """Where the page begins; raises -32602 for a cursor that was not written here."""
    if cursor is None:
        return None
    try:
        moment, id = msgspec.json.decode(base64.urlsafe_b64decode(cursor.encode()), type=Position)
        if not 0 <= moment < _LATEST:
            raise ValueError(moment)
        return moment, id
    except (binascii.Error, ValueError, RecursionError, msgspec.MsgspecError) as error:
        raise MCPError(
            INVALID_PARAMS,
            f"cursor {cursor!r} is none: give back the nextCursor of the page before, or none",
        ) from error


def unknown_task(id: str) -> MCPError:
    """The same for an id that never was, one that has expired and one of somebody else."""
    return MCPError(
        INVALID_PARAMS,
        f"taskId {id!r} is unknown here: the task never was, has expired, or is not yours",
    )


def nobody_known() -> MCPError:
    """For a list of tasks where the client cannot be told from others, whose tasks it would see."""
    return MCPError(
        METHOD_NOT_FOUND,
        "tasks/list is not for clients that nothing tells apart: keep the ids of your tasks; the "
        "server can ask for authorisation, keep sessions, or give Tasks an `owner`",
    )


def missing_extension(what: str) -> MCPError:
    """For a client that did not say that it understands tasks."""
    return MCPError(
        MISSING_REQUIRED_CLIENT_CAPABILITY,
        f"{what} needs the client capability extensions[{EXTENSION!r}]: declare it",
        {"requiredCapabilities": {"extensions": {EXTENSION: {}}}},
    )


def wrong_use(tool: str, support: str) -> MCPError:
    """For a call as a task that the tool does not know, or a plain one that it refuses."""
    told = {
        "forbidden": "cannot be called as a task: leave `task` out",
        "required": 'can only be called as a task: give `task`, as in {"task": {}}',
    }[support]
    return MCPError(METHOD_NOT_FOUND, f"the tool {tool!r} {told}")


def store_failed() -> MCPError:
    """For everybody else than the people who run the server: they have the log."""
    return MCPError(INTERNAL_ERROR, "the task store cannot be used: the server's log says why")


def too_many(error: TooManyTasks) -> MCPError:
    """For a client that has as many tasks as it may have."""
    return MCPError(TASK_LIMIT, str(error), {"limit": error.limit, "maximum": error.most})


def leaves_no_room(error: MCPError) -> bool:
    """Whether the client has as many tasks as are kept for it, ended ones among them."""
    data: Any = error.error.data
    return error.error.code == TASK_LIMIT and data["limit"] == "kept"


def _moment(milliseconds: int) -> str:
    moment = datetime.fromtimestamp(milliseconds / 1000, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
