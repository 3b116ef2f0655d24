"""A task as it is kept, and every way in which it changes: values in, values out.

```
working <-> input_required
   |             |
   +------+------+
          v
completed | failed | cancelled     final: nothing changes them
```

`failed` is for errors of the protocol; a tool that reports an error has completed. The legacy era
calls that `failed` too, which is a matter of its wire.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

import msgspec

Status: TypeAlias = Literal["working", "input_required", "completed", "failed", "cancelled"]
JSON: TypeAlias = dict[str, Any]
OPEN: frozenset[Status] = frozenset({"working", "input_required"})
INTERNAL_ERROR = -32603
STOPPED = "the server stopped before the task had ended; nothing of its result was kept"


class TaskRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One task; moments are milliseconds since 1970."""

    id: str
    owner: str
    tool: str
    runner: str
    """The process that does the work."""
    created: int
    updated: int
    ttl_ms: int
    poll_ms: int
    status: Status = "working"
    message: str = ""
    result: JSON | None = None
    error: JSON | None = None
    questions: dict[str, JSON] = {}
    """What the client is asked for, by key, and has not answered."""
    answers: dict[str, JSON] = {}
    """What it has answered: `{"result": ...}` or `{"error": ...}`."""

    @property
    def is_open(self) -> bool:
        """Whether it can still change."""
        return self.status in OPEN

    @property
    def expires(self) -> int:
        """From then on nobody is told of it."""
        return self.created + self.ttl_ms


class TaskLimits(msgspec.Struct, frozen=True, kw_only=True):
    """What one client may have; a client is whoever `owner` of `Tasks` says it is."""

    running: int = 32
    """So many tasks at a time that have not ended."""
    kept: int = 1_000
    """So many tasks with those that have ended and are still kept."""
    ttl_ms: int = 3_600_000
    """How long a task is kept from its creation, unless the client asks for another time."""
    most_ttl_ms: int = 86_400_000
    """The longest time that a client gets."""
    poll_ms: int = 500
    """How often clients are asked to look."""
    result_bytes: int = 16 * 2**20
    """The largest result that is kept; a larger one fails the task."""


class TooManyTasks(Exception):
    """The client has as many tasks as it may have; `limit` is the field of TaskLimits."""

    def __init__(self, limit: Literal["running", "kept"], most: int) -> None:
        """The message names the limit and what to do."""
        what, remedy = {
            "running": ("that have not ended", "wait for one, or cancel one"),
            "kept": ("that are kept", "wait until one expires, or ask for a shorter ttl"),
        }[limit]
        super().__init__(f"{most} tasks {what} is the most a client may have: {remedy}")
        self.limit = limit
        self.most = most


def new_id() -> str:
    """192 random bits: whoever has no other name is known by it."""
    return secrets.token_urlsafe(24)


def completed(task: TaskRecord, now: int, result: JSON) -> TaskRecord | None:
    """With its result; None when it had ended before."""
    return _ended(task, now, "completed", result=result)


def failed(task: TaskRecord, now: int, error: JSON) -> TaskRecord | None:
    """With the JSON-RPC error; None when it had ended before."""
    return _ended(task, now, "failed", error=error, message=str(error.get("message", "")))


def stopped(task: TaskRecord, now: int) -> TaskRecord | None:
    """Its process ended before it did."""
    return failed(task, now, {"code": INTERNAL_ERROR, "message": STOPPED})


def cancelled(task: TaskRecord, now: int, reason: str) -> TaskRecord | None:
    """None when it had ended before."""
    return _ended(task, now, "cancelled", message=reason)


def asked(task: TaskRecord, now: int, questions: Mapping[str, JSON]) -> TaskRecord | None:
    """Waiting for the client; None when it had ended before."""
    if not task.is_open:
        return None
    return msgspec.structs.replace(
        task, status="input_required", updated=now, questions={**task.questions, **questions}
    )


def answered(task: TaskRecord, now: int, answers: Mapping[str, JSON]) -> TaskRecord | None:
    """With these answers, as far as they were asked for; None when none of them was."""
    known = {key: answer for key, answer in answers.items() if key in task.questions}
    if not known or not task.is_open:
        return None
    left = {key: question for key, question in task.questions.items() if key not in known}
    return msgspec.structs.replace(
        task,
        status="input_required" if left else "working",
        updated=now,
        questions=left,
        answers={**task.answers, **known},
    )


def withdrawn(task: TaskRecord, now: int, keys: frozenset[str]) -> TaskRecord | None:
    """Without these questions and their answers: whoever asked has them, or has gone."""
    if not task.is_open:
        return None
    left = {key: question for key, question in task.questions.items() if key not in keys}
    return msgspec.structs.replace(
        task,
        status="input_required" if left else "working",
        updated=now,
        questions=left,
        answers={key: answer for key, answer in task.answers.items() if key not in keys},
    )


def _ended(
    task: TaskRecord,
    now: int,
    status: Status,
    *,
    result: JSON | None = None,
    error: JSON | None = None,
    message: str = "",
) -> TaskRecord | None:
    if not task.is_open:
        return None
    return msgspec.structs.replace(
        task,
        status=status,
        updated=now,
        message=message,
        result=result,
        error=error,
        questions={},
        answers={},
    )
