"""The body of one HTTP response, read piece by piece with a limit on every silence."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Callable, Mapping

from penstock.contract.errors import MalformedResponse, ProviderTimeout, ProviderUnavailable
from penstock.providers.http.byte_limit import ERROR_BYTES, ByteAllowance
from penstock.providers.http.connect import Route
from penstock.providers.http.connection import Connection, NotHttp
from penstock.providers.http.error_words import say

_UNPACKED_AT_ONCE = 256 * 1024
_FIRST_ERROR = 400
_ZLIB_OR_GZIP = zlib.MAX_WBITS + 32


class StreamingResponse:
    """A response whose body is read piece by piece."""

    __slots__ = (
        "_begun",
        "_connection",
        "_give_back",
        "_packed",
        "_route",
        "_unpacker",
        "headers",
        "said_all",
        "status",
    )

    def __init__(
        self,
        connection: Connection,
        give_back: Callable[[Connection, Route], object],
        route: Route,
    ) -> None:
        """Take over a response whose headers have arrived."""
        self._connection = connection
        self._give_back = give_back
        self._route = route
        self.status = connection.status
        self.headers: Mapping[str, str] = connection.headers
        """By their names in lower case."""
        self._packed = b""
        self._begun = False
        packing = self.headers.get("content-encoding", "identity").lower()
        self._unpacker = (
            zlib.decompressobj(_ZLIB_OR_GZIP) if packing in ("gzip", "deflate", "x-gzip") else None
        )
        self.said_all = False
        """Set by a reader that has its last event: what may still follow is only the body's end."""

    async def read(self, timeout: float) -> bytes:
        """The next bytes, as many as there are; empty at the end of the body.

        Raises ProviderTimeout after `timeout` seconds of silence and ProviderUnavailable when the
        connection ends too early.
        """
        unpacker = self._unpacker
        if unpacker is None:
            return self._connection.ready() or await self._arriving(timeout)
        clock = asyncio.get_running_loop().time
        deadline, empty = clock() + timeout, 0
        while packed := self._packed or await self._arriving(timeout):
            if unpacker.eof:
                # zlib would keep these bytes, however many there are.
                raise MalformedResponse(
                    f"{self._route.shown} sent bytes after the end of its compressed body"
                )
            try:
                # A little of it at a time, for much may be packed into little.
                data = unpacker.decompress(packed, _UNPACKED_AT_ONCE)
            except zlib.error as error:
                raise self._broken(error) from error
            self._begun = True
            self._packed = unpacker.unconsumed_tail
            if data:
                return data
            # Compressed blocks may be empty, and a run of them without end is never silent.
            empty += len(packed)
            if empty > _UNPACKED_AT_ONCE:
                raise MalformedResponse(
                    f"{self._route.shown} sent a compressed body without data in it"
                )
            if clock() >= deadline:
                raise ProviderTimeout(f"{self._route.shown} sent no data for {timeout:g} s")
        if self._begun and not unpacker.eof:
            raise MalformedResponse(f"{self._route.shown} sent a compressed body without its end")
        return b""

    async def _arriving(self, timeout: float) -> bytes:
        try:
            return await self._connection.read(timeout)
        except TimeoutError as error:
            address = self._route.shown
            raise ProviderTimeout(f"{address} was silent for {timeout:g} s") from error
        except (OSError, NotHttp) as error:
            raise self._broken(error) from error

    def _broken(self, error: Exception) -> ProviderUnavailable:
        return ProviderUnavailable(f"the connection to {self._route.shown} broke off: {say(error)}")

    async def body(
        self,
        timeout: float,
        whole_within: float,
        allowance: ByteAllowance,
        on_alive: Callable[[], None] | None = None,
    ) -> bytes:
        """The rest of the body; raises MalformedResponse when it is larger than `allowance`.

        Of the body of an error only the first `ERROR_BYTES` are read.
        Raises ProviderTimeout when it is not all there `whole_within` seconds from now: a body that
        comes a byte at a time is never silent, and may never end. `on_alive` is called for each
        piece.
        """
        if self.ended and self._unpacker is None and not self._packed:
            # The usual case: it came with the headers.
            return self._fitting(self._connection.ready(), allowance)
        clock = asyncio.get_running_loop().time
        deadline = clock() + whole_within
        pieces: list[bytes] = []
        size = 0
        while piece := await self._read_before(deadline, timeout, whole_within):
            pieces.append(self._fitting(piece, allowance))
            size += len(piece)
            if on_alive is not None:
                on_alive()
            if self.status >= _FIRST_ERROR and size >= ERROR_BYTES:
                break
        return b"".join(pieces)

    def _fitting(self, piece: bytes, allowance: ByteAllowance) -> bytes:
        if self.status >= _FIRST_ERROR:
            return piece[:ERROR_BYTES]
        allowance.take(len(piece), self._route.shown)
        return piece

    @property
    def address(self) -> str:
        """The provider's address, as messages name it."""
        return self._route.shown

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
            f"{self._route.shown} did not send its whole answer within {whole_within:g} s; "
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
        return self._connection.ended

    def close(self) -> None:
        """Give the connection back, or cut it when the body is not at its end."""
        self._give_back(self._connection, self._route)
