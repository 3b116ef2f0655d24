"""A provider that is a dialect at an address: every provider behind HTTP is this one class."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from typing import TYPE_CHECKING, NoReturn

from msgspec import structs

from penstock.contract.calls import Call, current_calls
from penstock.contract.errors import (
    ContentRejected,
    InvalidRequest,
    MalformedResponse,
    PenstockError,
    StreamInterrupted,
)
from penstock.contract.events import Finished, ProviderEvent
from penstock.contract.exchange import (
    EmbeddingRequest,
    Reply,
    SamplingRequest,
    Transcript,
    TranscriptionRequest,
    Vectors,
)
from penstock.contract.options import Capabilities, Extra
from penstock.contract.ports import ModelInfo, ProviderStream
from penstock.providers.batches import embed_in_batches
from penstock.providers.credentials import Secret
from penstock.providers.http.byte_limit import (
    COUNT_BYTES,
    ERROR_BYTES,
    LIST_BYTES,
    VECTOR_BYTES,
    ByteAllowance,
)
from penstock.providers.http.transport import HttpTransport, TransportSettings, WireResponse
from penstock.providers.profiles import ModelProfile
from penstock.providers.redaction.own_secrets import mask_bytes, mask_error
from penstock.providers.signed_reasoning import legible, origin_of, stamped, stamped_events
from penstock.providers.unsupported import lacking
from penstock.providers.wire.dialect import Dialect, Options, PromptedTranscription, WireCall
from penstock.providers.wire.endings import check_reply
from penstock.providers.wire.event_stream import FRAMINGS, read_events
from penstock.providers.wire.multi_call import MAX_ROUNDS, after, endless, joined, without
from penstock.tokens import thinking_apart

if TYPE_CHECKING:
    from penstock.providers.http.response import StreamingResponse


_SIGNED_SECRETS = ("authorization", "x-amz-security-token")
"""What a signed call carries that nobody else may have."""
_NO_SUCH_PATH = (404, 405)
_READ_ON_LOOP = 4096
"""Bytes of the body of an error above which it is read and masked in a thread."""


class WireProvider:
    """Speaks one dialect to one address with one key."""

    def __init__(
        self,
        name: str,
        dialect: Dialect,
        transport: HttpTransport,
        *,
        kind: str,
        url: str,
        key: Secret | None = None,
        headers: Mapping[str, str] | None = None,
        options: Options | None = None,
        url_hint: str = "",
    ) -> None:
        """`url` is the base address that the dialect's paths are appended to.

        `url_hint` is what may be wrong with it, for the errors of paths that do not exist.
        """
        self.name = name
        self.url = url.rstrip("/")
        self._url_hint = url_hint
        self._dialect = dialect
        self._transport = transport
        self._options = options or {}
        # Callers make the names up, so the memory of them has a limit.
        self._profile: Callable[[str], ModelProfile] = lru_cache(1024)(
            partial(dialect.catalogue.profile, kind, options=self._options)
        )
        self._framing = FRAMINGS[dialect.framing]
        self._sign = dialect.signer(key, self._options) if dialect.signer else None
        given = {
            **(dialect.authorize(key.reveal()) if key and not self._sign else {}),
            **{name.lower(): value for name, value in (headers or {}).items()},
        }
        self._headers = {"content-type": "application/json", **given}
        # A key may stand in any header that was configured, so errors repeat none of them.
        self._secrets = (*given.values(), *([key.reveal()] if key else []))
        self._signed: Mapping[str, str] = {}

    def __repr__(self) -> str:
        """Without headers, for they hold the key."""
        return f"WireProvider({self.name!r}, {self._dialect.name!r}, {self.url!r})"

    def capabilities(self, model: str) -> Capabilities:
        """What the profiles know of this model."""
        return self._profile(model).capabilities

    async def generate(self, model: str, request: SamplingRequest) -> Reply:
        """The whole answer at once, however often the provider pauses."""
        profile = self._profile(model)
        origin = origin_of(self._dialect.name, self.name, profile)
        request = legible(request, origin)
        earlier: Reply | None = None
        calls = current_calls()
        allowance: ByteAllowance | None = None
        with self._located(model, request):
            for _ in range(MAX_ROUNDS):
                call = calls.begin(request)
                try:
                    wire_call = self._dialect.encode(model, request, profile, False)
                    allowance = allowance or self._allowance(model, request, wire_call)
                    patience_s = self._transport.settings.whole_answer_s(request.max_tokens)
                    response = await self._request(
                        wire_call, call, patience_s, allowance, on_alive=calls.alive
                    )
                except InvalidRequest as error:
                    request, earlier = self._relaxed(request, error, earlier)
                    continue
                with call:
                    reply = self._dialect.decode(response.body, response.headers)
                call.answered(reply)
                earlier = joined(earlier, reply)
                follow = self._dialect.resume and self._dialect.resume(request, reply)
                if not follow:
                    reply = check_reply(stamped(earlier, origin))
                    return self._with_extra(reply, request, response.body)
                request = follow
        raise endless(provider=self.name, model=model)

    def _with_extra(self, reply: Reply, request: SamplingRequest, body: bytes) -> Reply:
        """With what only a caller who speaks this dialect can make something of."""
        dialect = self._dialect
        if (
            request.extra is None
            or dialect.further is None
            or request.extra.dialect != dialect.name
        ):
            return reply
        fields = dialect.further(body)
        return structs.replace(reply, extra=Extra(dialect.name, fields)) if fields else reply

    async def stream(self, model: str, request: SamplingRequest) -> ProviderStream:
        """The answer while it is made, a batch of events a network read."""
        profile = self._profile(model)
        origin = origin_of(self._dialect.name, self.name, profile)
        request = legible(request, origin)
        earlier: Reply | None = None
        delivered = False
        settings = self._patient_settings(profile, request)
        calls = current_calls()
        allowance: ByteAllowance | None = None
        with self._located(model, request):
            for _ in range(MAX_ROUNDS):
                follow: SamplingRequest | None = None
                call = calls.begin(request)
                try:
                    wire_call = self._dialect.encode(model, request, profile, True)
                    allowance = allowance or self._allowance(model, request, wire_call, stream=True)
                    async with (
                        self._open(wire_call, call, allowance, settings) as response,
                        contextlib.aclosing(
                            self._events(response, allowance, settings, calls.alive)
                        ) as batches,
                    ):
                        with call:
                            async for batch in batches:
                                events = stamped_events(after(earlier, batch), origin)
                                if isinstance(last := batch[-1], Finished):
                                    call.answered(last.reply)
                                    if self._dialect.resume:
                                        follow = self._dialect.resume(request, last.reply)
                                    earlier = joined(earlier, last.reply)
                                    events = events[:-1]
                                    if not follow:
                                        reply = check_reply(stamped(earlier, origin))
                                        events = [*events, Finished(reply)]
                                if events:
                                    delivered = True
                                    yield events
                except InvalidRequest as error:
                    # What the caller has seen cannot be begun again.
                    if delivered:
                        raise
                    request, earlier = self._relaxed(request, error, earlier)
                    continue
                except (StreamInterrupted, ContentRejected) as error:
                    error.partial = (earlier.text if earlier else "") + error.partial
                    raise
                if follow is None:
                    return
                request = follow
        raise endless(provider=self.name, model=model)

    async def embed(self, model: str, request: EmbeddingRequest) -> Vectors:
        """All vectors, in as many calls as the wire's batch limit needs."""
        dialect = self._dialect.embeddings
        if dialect is None:
            raise lacking("embeddings", self.name, model)
        texts = min(len(request.texts), dialect.batch_limit(model))
        send = partial(self._request, most=COUNT_BYTES + texts * VECTOR_BYTES)
        with self._located(model):
            return await embed_in_batches(dialect, model, request, self._options, send)

    async def transcribe(self, model: str, request: TranscriptionRequest) -> Transcript:
        """The words of a recording, by a call of their own or by asking the model for them."""
        dialect = self._dialect.transcription
        if dialect is None:
            raise lacking("transcription", self.name, model)
        profile = self._profile(model)
        with self._located(model):
            if isinstance(dialect, PromptedTranscription):
                return dialect.read(await self.generate(model, dialect.ask(request, profile)))
            calls = current_calls()
            call = calls.begin(request)
            wire_call = dialect.encode(model, request, profile)
            response = await self._request(wire_call, call, most=LIST_BYTES, on_alive=calls.alive)
            with call:
                transcript = dialect.decode(response.body, response.headers)
            call.answered(transcript)
            return transcript

    async def models(self) -> Sequence[ModelInfo]:
        """The provider's model list."""
        listing = self._dialect.models
        with self._located():
            response = await self._request(listing.call(self.url, self._options), most=LIST_BYTES)
            return listing.decode(response.body)

    async def count_tokens(self, model: str, request: SamplingRequest) -> int | None:
        """The provider's own count of the prompt's tokens; None when it offers none."""
        count = self._dialect.count
        if count is None:
            return None
        profile = self._profile(model)
        request = legible(request, origin_of(self._dialect.name, self.name, profile))
        with self._located(model, request):
            call = count.encode(model, request, profile)
            if call is None:
                return None
            return count.decode((await self._request(call, most=COUNT_BYTES)).body)

    async def aclose(self) -> None:
        """The connections belong to the engine's transport; nothing else is open."""

    def _located(
        self, model: str | None = None, request: SamplingRequest | None = None
    ) -> _Located:
        return _Located(self, model, request)

    def sent_secrets(self) -> tuple[str, ...]:
        """What this provider has sent and nobody may read: its key, its headers, its signature."""
        signed = (self._signed.get(name, "") for name in _SIGNED_SECRETS)
        return (*self._secrets, *filter(None, signed))

    async def _failed(self, status: int, headers: Mapping[str, str], body: bytes) -> PenstockError:
        body = body[:ERROR_BYTES]
        if len(body) <= _READ_ON_LOOP:
            return self._read_error(status, headers, body)
        return await asyncio.to_thread(self._read_error, status, headers, body)

    def _read_error(self, status: int, headers: Mapping[str, str], body: bytes) -> PenstockError:
        error = self._dialect.error(status, headers, mask_bytes(body, self.sent_secrets()))
        if status in _NO_SUCH_PATH and self._url_hint:
            error.message += self._url_hint
            error.args = (error.message,)
        return error

    async def _authorized(
        self, call: WireCall, url: str, headers: dict[str, str]
    ) -> dict[str, str]:
        if self._sign is None:
            return headers
        self._signed = await self._sign(call, url, {**call.headers, **headers})
        return {**headers, **self._signed}

    def _relaxed(
        self, request: SamplingRequest, error: InvalidRequest, earlier: Reply | None
    ) -> tuple[SamplingRequest, Reply]:
        relaxed = self._dialect.relax and self._dialect.relax(request, error)
        if not relaxed:
            raise error
        request, option = relaxed
        return request, without(option, earlier)

    def _patient_settings(
        self, profile: ModelProfile, request: SamplingRequest
    ) -> TransportSettings:
        """The limits of a stream, with more time for a model that thinks first."""
        settings = self._transport.settings
        patience = profile.capabilities.patience(request.reasoning_level)
        if patience == 1:
            return settings
        silence_s = settings.first_token_timeout_s * patience
        return replace(
            settings,
            first_token_timeout_s=silence_s,
            response_timeout_s=max(settings.response_timeout_s, silence_s),
        )

    def _address(self, call: WireCall) -> str:
        return call.path if call.path.startswith("http") else self.url + call.path

    def _allowance(
        self, model: str, request: SamplingRequest, wire_call: WireCall, *, stream: bool = False
    ) -> ByteAllowance:
        tokens = request.max_tokens + thinking_apart(model)
        asked = len(wire_call.body or b"")
        return self._transport.settings.answer_allowance(tokens, asked, stream=stream)

    async def _request(
        self,
        wire_call: WireCall,
        call: Call | None = None,
        patience_s: float = 0.0,
        allowance: ByteAllowance | None = None,
        *,
        most: int | None = None,
        on_alive: Callable[[], None] | None = None,
    ) -> WireResponse:
        """`call` records how far it comes, where it is one that may cost something.

        The answer has at most the bytes of `allowance`; without one, at most `most`.
        """
        allowance = allowance or self._transport.settings.allowance(most)
        url = self._address(wire_call)
        headers = await self._authorized(wire_call, url, self._headers)
        sent = None if call is None else call.sent
        response = await self._transport.request(
            url, wire_call, headers, patience_s, sent, allowance=allowance, on_alive=on_alive
        )
        if response.status != 200:
            if call is not None:
                call.refused()
            raise await self._failed(response.status, response.headers, response.body)
        return response

    @contextlib.asynccontextmanager
    async def _open(
        self,
        wire_call: WireCall,
        call: Call,
        allowance: ByteAllowance,
        settings: TransportSettings,
    ) -> AsyncGenerator[StreamingResponse]:
        url = self._address(wire_call)
        accepted = {"accept": self._framing.content_type, "accept-encoding": "identity"}
        headers = await self._authorized(wire_call, url, {**self._headers, **accepted})
        patience_s = settings.response_timeout_s
        async with self._transport.open(url, wire_call, headers, call.sent, patience_s) as response:
            with call:
                await self._check_stream(response, call, allowance)
            yield response

    async def _check_stream(
        self, response: StreamingResponse, call: Call, allowance: ByteAllowance
    ) -> None:
        settings = self._transport.settings
        limits = settings.idle_timeout_s, settings.body_timeout_s, allowance
        if response.status != 200:
            call.refused()
            body = await response.body(*limits)
            raise await self._failed(response.status, response.headers, body)
        content_type = response.headers.get("content-type", "").lower()
        if content_type.startswith(("application/json", "text/html")):
            # An error inside a 200, or a proxy's page: never a stream, whatever the status says.
            body = await response.body(*limits)
            self._refuse(body, response.headers, content_type)

    def _events(
        self,
        response: StreamingResponse,
        allowance: ByteAllowance,
        settings: TransportSettings,
        on_alive: Callable[[], None],
    ) -> AsyncGenerator[Sequence[ProviderEvent], None]:
        return read_events(
            response,
            self._framing,
            self._dialect.stream_decoder(response.headers),
            settings,
            self._refuse,
            allowance=allowance,
            on_alive=on_alive,
        )

    def _refuse(self, body: bytes, headers: Mapping[str, str], what: str) -> NoReturn:
        self._dialect.decode(body, headers)
        raise MalformedResponse(f"a stream was asked for, but {what} came back")


class _Located:
    """Errors that leave this block name the provider and the model, and hold no secret."""

    # A class, because a generator in its place would cost every call more.
    __slots__ = ("_model", "_provider", "_request")

    def __init__(
        self, provider: WireProvider, model: str | None, request: SamplingRequest | None
    ) -> None:
        self._provider = provider
        self._model = model
        self._request = request

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, PenstockError):
            servers = self._request.mcp_tools if self._request is not None else ()
            told = [value for server in servers for value in server.http_headers.values()]
            mask_error(error, (*self._provider.sent_secrets(), *told))
            error.located(provider=self._provider.name, model=self._model)
