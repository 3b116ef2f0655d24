"""Where records are told, and who listens.

A subscriber is a function of one record. It is called in the request's own task, so it must be
quick; what it raises is logged once and goes no further.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
from collections.abc import Callable, Generator, MutableMapping
from contextlib import AbstractContextManager
from contextvars import ContextVar
from typing import Protocol, TypeAlias, TypeVar, runtime_checkable

from penstock.telemetry.records import (
    AttemptRecord,
    AttemptStarted,
    Happening,
    Record,
    RequestContent,
    RequestRecord,
    RequestStarted,
)

T = TypeVar("T")
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
    __slots__ = ("callback", "content", "failures", "inject")

    def __init__(self, callback: Subscriber, content: bool) -> None:
        self.callback = callback
        # Asked once, for to ask whether an object fits a protocol takes longer than most calls.
        self.inject = callback.inject if isinstance(callback, Injects) else None
        self.content = content
        self.failures = 0


class Hooks:
    """Tells subscribers what happens, each record once, in the order of their subscription."""

    __slots__ = ("_subscriptions", "wants_content")

    wants_content: bool
    """Whether anybody asked for `RequestContent`; without it none need be made."""

    def __init__(self) -> None:
        """Nobody listens yet."""
        # Replaced and never changed, so that subscribing is safe while a record is told.
        self._subscriptions: tuple[_Subscription, ...] = ()
        self.wants_content = False

    @property
    def active(self) -> bool:
        """Whether anybody listens; a record that nobody hears need not be made."""
        return bool(self._subscriptions)

    def subscribe(self, callback: Subscriber, *, content: bool = False) -> Callable[[], None]:
        """Call this with every record from now on; returns what ends it, safe to call twice.

        One that `Injects` is asked for headers too, before each call of a provider.

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
        subscription = _Subscription(callback, content)
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
                self._guarded(subscription, subscription.inject, headers)
        return headers

    @contextlib.contextmanager
    def _attempting(self, record: AttemptStarted) -> Generator[None]:
        self._tell(record)
        token = _attempt.set((record, self))
        try:
            yield
        finally:
            _attempt.reset(token)

    def _set(self, subscriptions: tuple[_Subscription, ...]) -> None:
        self._subscriptions = subscriptions
        self.wants_content = any(one.content for one in subscriptions)

    def _tell(self, record: Record) -> None:
        of_content = isinstance(record, RequestContent)
        for subscription in self._subscriptions:
            if subscription.content or not of_content:
                self._guarded(subscription, subscription.callback, record)

    @staticmethod
    def _guarded(subscription: _Subscription, call: Callable[[T], None], told: T) -> None:
        try:
            call(told)
        except (Exception, asyncio.CancelledError):  # noqa: BLE001 - requests outlive watchers
            subscription.failures += 1
            if subscription.failures == 1:
                _log.exception(
                    "the telemetry subscriber %r failed; it goes on being called, and its "
                    "further failures are not logged",
                    subscription.callback,
                )
