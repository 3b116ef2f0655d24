"""The body of one HTTP response, read piece by piece with a limit on every silence."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import aiohttp

from penstock.contract.errors import MalformedResponse, ProviderTimeout, ProviderUnavailable
from penstock.providers.failures import say


class Watchdog:
    """Wakes a reader that has waited for too long, with one timer for the whole stream.

    The timer is moved only when it fires, because a timer made for each read would cost more than
    the read itself.
    """

    __slots__ = ("_content", "_deadline", "_handle", "_loop")

    def __init__(self, content: aiohttp.StreamReader) -> None:
        """Watch over reads of this body."""
        self._content = content
        self._loop = asyncio.get_running_loop()
        self._deadline: float | None = None
        self._handle: asyncio.TimerHandle | None = None

    def arm(self, seconds: float) -> None:
        """A read begins that may take this long."""
        self._deadline = deadline = self._loop.time() + seconds
        if self._handle is None or self._handle.when() > deadline:
            self._schedule(deadline)

    def disarm(self) -> None:
        """The read is over; a slow consumer is not the provider's fault."""
        self._deadline = None

    def close(self) -> None:
        """Forget the timer."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _schedule(self, when: float) -> None:
        self.close()
        self._handle = self._loop.call_at(when, self._fire)

    def _fire(self) -> None:
        self._handle = None
        if self._deadline is None:
            return
        if self._loop.time() < self._deadline:
            self._schedule(self._deadline)
            return
        self._content.set_exception(TimeoutError())


class StreamingResponse:
    """A response whose body is read piece by piece."""

    __slots__ = (
        "_content",
        "_limit",
        "_response",
        "_url",
        "_watchdog",
        "headers",
        "said_all",
        "status",
    )

    def __init__(self, response: aiohttp.ClientResponse, url: str, limit: int) -> None:
        """Take over a response whose headers have arrived."""
        self._response = response
        self._content = response.content
        self._limit = limit
        self._url = url
        self._watchdog = Watchdog(response.content)
        self.status = response.status
        self.headers: Mapping[str, str] = response.headers
        """Found by their names in any case."""
        self.said_all = False
        """Set by a reader that has its last event: what may still follow is only the body's end."""

    async def read(self, timeout: float) -> bytes:
        """The next bytes, as many as there are; empty at the end of the body.

        Raises ProviderTimeout after `timeout` seconds of silence and ProviderUnavailable when the
        connection ends too early.
        """
        content = self._content
        broken = content.exception()
        ready = content.read_nowait(-1) if broken is None else self._arrived(broken)
        if ready or self.ended:
            return ready
        self._watchdog.arm(timeout)
        try:
            return await content.readany()
        except TimeoutError as error:
            raise ProviderTimeout(f"{self._url} was silent for {timeout:g} s") from error
        except aiohttp.ClientError as error:
            raise ProviderUnavailable(
                f"the connection to {self._url} broke off: {say(error)}"
            ) from error
        finally:
            self._watchdog.disarm()

    def _arrived(self, broken: BaseException) -> bytes:
        """What came before the connection broke; aiohttp tells of the break first."""
        content: Any = self._content
        content.set_exception(None)
        try:
            return content.read_nowait(-1)
        finally:
            content.set_exception(broken)

    async def body(self, timeout: float, whole_within: float) -> bytes:
        """The rest of the body, up to the size limit.

        Raises ProviderTimeout when it is not all there `whole_within` seconds from now: a body that
        comes a byte at a time is never silent, and may never end.
        """
        clock = asyncio.get_running_loop().time
        deadline = clock() + whole_within
        pieces: list[bytes] = []
        size = 0
        while piece := await self._read_before(deadline, timeout, whole_within):
            size += len(piece)
            if size > self._limit:
                raise MalformedResponse(
                    f"{self._url} sent more than {self._limit} bytes; "
                    "raise max_response_bytes if that is right"
                )
            pieces.append(piece)
        return b"".join(pieces)

    async def _read_before(self, deadline: float, timeout: float, whole_within: float) -> bytes:
        clock = asyncio.get_running_loop().time
        left = deadline - clock()
        try:
            piece = await self.read(min(timeout, max(0.0, left)))
        except ProviderTimeout as error:
            if left >= timeout:
                raise
            raise self._late(whole_within) from error.__cause__
        # A flood leaves the reader no silence in which its timer could fire.
        if piece and clock() >= deadline:
            raise self._late(whole_within)
        return piece

    def _late(self, whole_within: float) -> ProviderTimeout:
        return ProviderTimeout(
            f"{self._url} did not send its whole answer within {whole_within:g} s; "
            "raise body_timeout_s if that is right"
        )

    async def drain(self, timeout: float) -> None:
        """Read on to the end of the body so that the connection lives on, but for no longer."""
        try:
            async with asyncio.timeout(timeout):
                while await self.read(timeout):
                    pass
        except (ProviderUnavailable, TimeoutError):
            pass

    @property
    def ended(self) -> bool:
        """Whether the body has come to its proper end."""
        return self._content.is_eof() and self._content.exception() is None

    def close(self) -> None:
        """Give the connection back, or cut it when the body is not at its end."""
        self._watchdog.close()
        if self.ended:
            self._response.release()
        else:
            self._response.close()
