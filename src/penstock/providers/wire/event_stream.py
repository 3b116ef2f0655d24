"""Reads the body of a stream: bytes into frames, frames into events, with a limit on silence."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

import msgspec

from penstock.contract.errors import (
    MalformedResponse,
    ProviderTimeout,
    ProviderUnavailable,
    StreamInterrupted,
)
from penstock.contract.events import Finished, ProviderEvent
from penstock.providers.http.byte_limit import ByteAllowance
from penstock.providers.wire.dialect import StreamDecoder
from penstock.streaming.eventstream import AWSEventStreamDecoder
from penstock.streaming.ndjson import NDJSONDecoder
from penstock.streaming.sse import SSEDecoder

if TYPE_CHECKING:
    from penstock.providers.http.response import StreamingResponse
    from penstock.providers.http.transport import TransportSettings

_HEAD_LIMIT = 64 * 1024


class FrameDecoder(Protocol):
    """Cuts a body into frames; see `penstock.streaming`."""

    def feed(self, data: bytes) -> Sequence[Any]:
        """The frames that these bytes complete."""
        ...

    def finish(self) -> Sequence[Any]:
        """What is left at the end of the body."""
        ...


@dataclass(frozen=True, slots=True)
class Framing:
    """How a dialect cuts its streams."""

    decoder: type[FrameDecoder]
    content_type: str
    bare_errors: bool = False
    """Whether servers are known to answer with an error that is in no frame at all."""


FRAMINGS: Mapping[str, Framing] = {
    "sse": Framing(SSEDecoder, "text/event-stream", bare_errors=True),
    "ndjson": Framing(NDJSONDecoder, "application/x-ndjson"),
    "eventstream": Framing(AWSEventStreamDecoder, "application/vnd.amazon.eventstream"),
}


async def read_events(
    response: StreamingResponse,
    framing: Framing,
    decoder: StreamDecoder,
    settings: TransportSettings,
    refuse: Callable[[bytes, Mapping[str, str], str], NoReturn],
    *,
    allowance: ByteAllowance,
    on_alive: Callable[[], None],
) -> AsyncGenerator[Sequence[ProviderEvent], None]:
    """A batch of events a network read; `refuse` raises what a body without frames stands for.

    `on_alive` is called for bytes that hold no event. Raises MalformedResponse when the body is
    larger than `allowance`.
    """
    frames = framing.decoder()
    clock = asyncio.get_running_loop().time
    # The body as long as it holds no frame: some servers answer a stream with a bare error.
    head = b"" if framing.bare_errors else None
    started = False
    broken: ProviderUnavailable | None = None
    limit = settings.first_token_timeout_s
    since = alive = clock()
    while True:
        # Bytes without an event, such as keep-alive comments, count as life for a limited time.
        longest = max(limit, settings.keep_alive_timeout_s)
        deadline = min(alive + limit, since + longest)
        try:
            data = await response.read(max(0.0, deadline - clock()))
        except ProviderTimeout:
            broken = _silence(deadline - since, kept_alive=alive > since)
            break
        except ProviderUnavailable as error:
            broken = error
            break
        if not data:
            break
        allowance.take(len(data), response.address)
        try:
            cut = frames.feed(data)
        except MalformedResponse as error:
            # A frame beyond the limit of bytes is refused as such; a broken one is an interruption.
            if not started or not error.retryable:
                raise
            broken = error
            break
        if head is not None:
            head = None if cut else head + data[: _HEAD_LIMIT - len(head)]
        if events := decoder.feed(cut):
            started = True
            response.said_all = isinstance(events[-1], Finished)
            yield events
            if response.said_all:
                return
            # An error that came behind these events is raised now and not with the next bytes.
            decoder.feed(())
            limit = settings.idle_timeout_s
            since = alive = clock()
            continue
        alive = clock()
        on_alive()
        if alive >= since + longest:
            # A flood of pings leaves the reader no silence in which its timer could fire.
            broken = _silence(longest, kept_alive=True)
            break
    if head and _is_json(head):
        refuse(head, response.headers, "JSON without events")
    if isinstance(broken, ProviderTimeout) and not started:
        raise broken
    yield _last_events(frames, decoder, broken)


def _is_json(body: bytes) -> bool:
    try:
        msgspec.json.decode(body)
    except (ValueError, RecursionError):
        return False
    return True


def _silence(waited_s: float, *, kept_alive: bool) -> ProviderTimeout:
    signals = ", only keep-alive signals" if kept_alive else ""
    return ProviderTimeout(f"no token came within {round(waited_s, 3):g} s{signals}")


def _last_events(
    frames: FrameDecoder, decoder: StreamDecoder, broken: ProviderUnavailable | None
) -> list[ProviderEvent]:
    # A connection that breaks after the terminal event has lost nothing.
    left: list[ProviderEvent] = []
    if broken is None:
        try:
            rest = frames.finish()
        except MalformedResponse as error:
            # A frame that the end of the body cuts off; what came before it is whole.
            broken = error
        else:
            left = decoder.feed(rest)
    try:
        return [*left, *decoder.finish()]
    except StreamInterrupted as error:
        if broken is not None and not broken.retryable:
            # A target that has fallen silent is not asked again, before the first token or later.
            error.retryable = False
        raise error from broken
