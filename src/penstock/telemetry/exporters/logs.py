"""One line for each request that has ended, for people or for machines.

Lines hold what a `RequestRecord` holds: names, numbers, outcomes, and error texts if they
are kept.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from functools import lru_cache
from typing import Any, Literal, TextIO, TypeAlias

import msgspec

from penstock.contract.checks.lengths import MESSAGE, cut
from penstock.telemetry.error_text import mask_keys
from penstock.telemetry.records import AttemptRecord, Record, RequestRecord

LogForm: TypeAlias = Literal["console", "json"]
LOGGER = "penstock.requests"
_FIELDS = "penstock_fields"
_LONGEST_TRACE = 4 * MESSAGE
_LONGEST_REASON = 160
"""Characters of an error's text in a line for people; the JSON line has all of it."""
_LEVELS = {"ok": logging.INFO, "cancelled": logging.INFO, "failed": logging.WARNING}


class RequestLog:
    """A subscriber that logs each request when it has ended."""

    def __init__(self, logger: logging.Logger | None = None) -> None:
        """To this logger, or to `penstock.requests`."""
        self._logger = logger or logging.getLogger(LOGGER)

    def __call__(self, record: Record) -> None:
        """Log it, if it is the end of a request."""
        if not isinstance(record, RequestRecord):
            return
        level = _LEVELS[record.outcome]
        if self._logger.isEnabledFor(level):
            self._logger.handle(_RequestLine(self._logger.name, level, _fields_of(record)))


class _RequestLine(logging.LogRecord):
    """A record of one request, which comes from no line of any file.

    A usual one looks for its file, thread and process, and its maker for whoever called it: that
    takes longer than everything else that is done for the line.
    """

    def __init__(self, name: str, level: int, fields: dict[str, Any]) -> None:
        # Not that of the class above. All that a formatter may ask for is here; what is None may
        # be so in any record.
        self.name = name
        self.msg = "%s"
        self.args = (_Told(fields),)
        self.levelname = logging.getLevelName(level)
        self.levelno = level
        self.pathname = self.filename = self.module = self.funcName = ""
        self.lineno = 0
        self.exc_info = self.exc_text = self.stack_info = None
        self.created = now = time.time()
        self.msecs = float(int((now - int(now)) * 1000))
        self.relativeCreated = now * 1000
        self.thread = self.threadName = self.process = self.processName = self.taskName = None
        self.penstock_fields = fields


class JsonLines(logging.Formatter):
    """Each record of any logger as one JSON object."""

    def format(self, record: logging.LogRecord) -> str:
        """One line, whatever is in it."""
        line: dict[str, Any] = {
            "at": _moment(record.created, record.msecs),
            "level": record.levelname.lower(),
            "logger": record.name,
        }
        fields: dict[str, Any] | None = getattr(record, _FIELDS, None)
        line |= fields if fields is not None else {"message": cut(record.getMessage(), MESSAGE)}
        if record.exc_info:
            line["exception"] = cut(self.formatException(record.exc_info), _LONGEST_TRACE)
        text = msgspec.json.encode(line, enc_hook=repr).decode()
        # Some readers take more than one character for the end of a line, and terminals obey some.
        if text.isprintable():
            return text
        return json.dumps(json.loads(text)).replace("\x7f", "\\u007f")


class ConsoleLines(logging.Formatter):
    """Each record as a line that people read."""

    def format(self, record: logging.LogRecord) -> str:
        """The time of day, the level where it matters, and what is said."""
        clock = time.strftime("%H:%M:%S", time.localtime(record.created))
        level = "" if record.levelno <= logging.INFO else f"{record.levelname} "
        lines = f"{clock} {level}{_one_line(cut(record.getMessage(), MESSAGE))}"
        if not record.exc_info:
            return lines
        return f"{lines}\n{cut(self.formatException(record.exc_info), _LONGEST_TRACE)}"


def log_to(stream: TextIO | None, form: LogForm, level: int = logging.INFO) -> logging.Handler:
    """Write everything that Penstock logs to this stream, in this form; returns the handler."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonLines() if form == "json" else ConsoleLines())
    logger = logging.getLogger("penstock")
    logger.addHandler(handler)
    logger.setLevel(level)
    return handler


class _Told:
    """Fields as a line for people, made when somebody reads it."""

    __slots__ = ("_fields",)

    def __init__(self, fields: dict[str, Any]) -> None:
        self._fields = fields

    def __str__(self) -> str:
        told = self._fields
        where = f"{told['provider']}/{told['upstream_model']}" if "provider" in told else "-"
        parts = [
            told["operation"],
            f"{told.get('model', 'default')} -> {where}",
            told.get("error", told["outcome"]),
            f"{told['duration_ms']} ms",
        ]
        if told["attempts"] > 1:
            parts.append(f"{told['attempts']} attempts")
        if "input_tokens" in told or "output_tokens" in told:
            mark = " (estimated: implausible counts)" if "implausible_usage" in told else ""
            counts = f"{told.get('input_tokens', 0)}+{told.get('output_tokens', 0)} tokens"
            parts.append(counts + mark)
        if told.get("cost_usd"):
            parts.append(f"${told['cost_usd']:.6f}")
        if "adapted" in told:
            parts.append(f"adapted {', '.join(told['adapted'])}")
        if "key" in told:
            parts.append(f"key {told['key']}")
        if "error_text" in told:
            parts.append(cut(told["error_text"], _LONGEST_REASON))
        return "  ".join([*parts, told["request_id"]])


def _fields_of(record: RequestRecord) -> dict[str, Any]:
    usage = record.usage
    fields = {
        "request_id": record.request_id,
        "operation": record.operation,
        "model": record.requested_model and _name(record.requested_model),
        "key": record.key,
        "provider": record.provider,
        "upstream_model": record.model,
        "outcome": record.outcome,
        "error": record.error,
        "error_text": record.error_text,
        "stream": record.stream or None,
        "attempts": len(record.attempts),
        "failed_attempts": [_failure(each) for each in record.attempts if each.error] or None,
        "duration_ms": round(record.duration_s * 1000),
        "first_token_ms": (
            None if record.first_token_s is None else round(record.first_token_s * 1000)
        ),
        "input_tokens": usage and usage.input_tokens,
        "output_tokens": usage and usage.output_tokens,
        "continued_by": record.continued_by,
        "adapted": list(map(str, record.adapted)) or None,
        "implausible_usage": True if usage and usage.implausible else None,
        "cost_usd": None if record.cost_nanos is None else record.cost_nanos / 1e9,
    }
    return {name: value for name, value in fields.items() if value is not None}


def _failure(record: AttemptRecord) -> dict[str, Any]:
    fields = {
        "target": f"{record.provider}/{record.model}",
        "status": record.status,
        "error": record.error,
        "error_text": record.error_text,
        "duration_ms": round(record.duration_s * 1000),
    }
    return {name: value for name, value in fields.items() if value is not None}


def _name(said: str) -> str:
    """The name of a model, short, and without a key that a caller has put in its place."""
    return cut(mask_keys(said))


def _moment(created: float, msecs: float) -> str:
    return f"{_second(int(created))}.{int(msecs):03d}Z"


@lru_cache(maxsize=4)
def _second(at: int) -> str:
    """Many lines are written in the same second."""
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(at))


def _one_line(text: str) -> str:
    """A caller chooses the names of models: no name may forge a line of the log."""
    return text if text.isprintable() else text.encode("unicode_escape").decode("ascii")
