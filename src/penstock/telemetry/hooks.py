"""Where records are told, and who listens.

A subscriber is a function of one record. It is called in the request's own task, so it must be
quick; what it raises is logged once and goes no further.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
from collections.abc import Callable, MutableMapping
from contextlib import AbstractContextManager
from contextvars import ContextVar
from typing import Protocol, TypeAlias, runtime_checkable

from penstock.telemetry.records import (
    AttemptRecord,
    AttemptStarted,
    Happening,
    Record,
    RequestContent,
    RequestRecord,
    RequestStarted,
)

Subscriber: TypeAlias = Callable[[Record], None]

_log = logging.getLogger(__name__)
_NOBODY: AbstractContextManager[None] = contextlib.nullcontext()
_attempt: ContextVar[tuple[AttemptStarted, Hooks] | None] = ContextVar(
    "penstock_attempt", default=None
)


def current_attempt() -> AttemptStarted | None:
    """The attempt on whose behalf this task calls a provider, if it does."""
    current = _attempt.get()
    return current[0] if current is not None else None


def trace_headers() -> dict[str, str]:
    """The headers by which subscribers follow the running attempt to the provider, if any do."""
    current = _attempt.get()
    return {} if current is None else current[1].trace_headers()


@runtime_checkable
class Injects(Protocol):
    """A subscriber that follows attempts to their providers."""

    def inject(self, headers: MutableMapping[str, str]) -> None:
        """Add the headers of the running attempt."""
        ...


class _Subscription:
    __slots__ = ("callback", "content", "failures", "inject", "only")

    def __init__(
        self, callback: Subscriber, content: bool, only: tuple[type[Record], ...] | None
    ) -> None:
        self.callback = callback
        self.only = only
        # Asked once, for to ask whether an object fits a protocol takes longer than most calls.
        self.inject = callback.inject if isinstance(callback, Injects) else None
        self.content = content
        self.failures = 0

    def wants(self, kind: type[Record]) -> bool:
        if issubclass(kind, RequestContent) and not self.content:
            return False
        return self.only is None or issubclass(kind, self.only)

    def failed(self) -> None:
        """It is being handled."""
        self.failures += 1
        if self.failures == 1:
            _log.exception(
                "the telemetry subscriber %r failed; it goes on being called, and its "
                "further failures are not logged",
                self.callback,
            )


class Hooks:
    """Tells subscribers what happens, each record once, in the order of their subscription."""

    __slots__ = ("_subscriptions", "_wanting", "keep_error_text", "wants_content")

    wants_content: bool
    """Whether anybody asked for `RequestContent`; without it none need be made."""

    def __init__(self) -> None:
        """Nobody listens yet."""
        # Replaced and never changed, so that subscribing is safe while a record is told.
        self._subscriptions: tuple[_Subscription, ...] = ()
        self._wanting: dict[type[Record], tuple[_Subscription, ...]] = {}
        self.wants_content = False
        self.keep_error_text = False
        """Whether records hold what providers say about failures."""

    @property
    def active(self) -> bool:
        """Whether anybody listens; a record that nobody hears need not be made."""
        return bool(self._subscriptions)

    def subscribe(
        self,
        callback: Subscriber,
        *,
        content: bool = False,
        only: tuple[type[Record], ...] | None = None,
    ) -> Callable[[], None]:
        """Call this with every record from now on; returns what ends it, safe to call twice.

        With `only` it is called with records of these kinds and no others. One that `Injects` is
        asked for headers too, before each call of a provider.

        `content=True` asks for what was said as well, as `RequestContent`. Raises TypeError for a
        coroutine function, whose work nobody would await.
        """
        if inspect.iscoroutinefunction(callback) or inspect.iscoroutinefunction(
            getattr(callback, "__call__", None)  # noqa: B004 - its kind is asked for, not whether
        ):
            raise TypeError(
                f"{callback!r} is asynchronous, and subscribers are called, not awaited: "
                "put the record into a queue that a task of yours reads"
            )
        subscription = _Subscription(callback, content, only)
        self._set((*self._subscriptions, subscription))

        def unsubscribe() -> None:
            self._set(tuple(one for one in self._subscriptions if one is not subscription))

        return unsubscribe

    def started(self, record: RequestStarted) -> None:
        """A request has come in."""
        if self._subscriptions:
            self._tell(record)

    def attempting(self, record: AttemptStarted) -> AbstractContextManager[None]:
        """A block that calls this target; in it `current_attempt()` is this one.

        For a stream it ends with the first event. The block must be entered and left by the same
        task, so it belongs into a coroutine, not into a generator that yields within it.
        """
        return self._attempting(record) if self._subscriptions else _NOBODY

    def attempt(self, record: AttemptRecord) -> None:
        """A target has been tried."""
        if self._subscriptions:
            self._tell(record)

    def content(self, record: RequestContent) -> None:
        """What was said; to be told before `finished`, when `wants_content`."""
        if self.wants_content:
            self._tell(record)

    def finished(self, record: RequestRecord) -> None:
        """A request has ended, however it did."""
        if self._subscriptions:
            self._tell(record)

    def happened(self, record: Happening) -> None:
        """Something that belongs to no single request."""
        if self._subscriptions:
            self._tell(record)

    def trace_headers(self) -> dict[str, str]:
        """What the subscribers that inject want to be sent along with the running attempt."""
        headers: dict[str, str] = {}
        for subscription in self._subscriptions:
            if subscription.inject is not None:
                try:
                    subscription.inject(headers)
                except (Exception, asyncio.CancelledError):  # noqa: BLE001 - as below
                    subscription.failed()
        return headers

    def _set(self, subscriptions: tuple[_Subscription, ...]) -> None:
        self._subscriptions = subscriptions
        self._wanting = {}
        self.wants_content = any(one.content for one in subscriptions)

    def _tell(self, record: Record) -> None:
        kind = type(record)
        wanting = self._wanting.get(kind)
        if wanting is None:
            wanting = tuple(one for one in self._subscriptions if one.wants(kind))
            self._wanting[kind] = wanting
        for subscription in wanting:
            try:
                subscription.callback(record)
            except (Exception, asyncio.CancelledError):  # noqa: BLE001 - requests outlive watchers
                subscription.failed()

    def _attempting(self, record: AttemptStarted) -> AbstractContextManager[None]:
        self._tell(record)
        return _Attempting(record, self)


class _Attempting:
    __slots__ = ("_current", "_token")

    def __init__(self, record: AttemptStarted, hooks: Hooks) -> None:
        self._current = (record, hooks)

    def __enter__(self) -> None:
        self._token = _attempt.set(self._current)

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        _attempt.reset(self._token)
