"""A stream that outlives its target: what broke off is gone on with by the next one.

Where the next model goes on with an assistant's turn, it is given what was said so far. Where it
does not, it answers anew, and what the caller has read already is skipped, as long as it is the
same to the letter. Where it is not, the caller gets one clear error, and never a torn answer for a
whole one. Calls of tools are not gone on with: half a call cannot be matched with another.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from itertools import chain
from typing import Literal, TypeAlias

import msgspec

from penstock.contract.errors import (
    InvalidRequest,
    MalformedResponse,
    PenstockError,
    StreamInterrupted,
)
from penstock.contract.events import (
    Chunk,
    Finished,
    ProviderEvent,
    ReasoningDelta,
    ToolUseDelta,
)
from penstock.contract.exchange import Reply, SamplingRequest
from penstock.contract.messages import Content, Text, assistant
from penstock.contract.ports import Attempt, OpenStream, ProviderStream, Trail
from penstock.pool.asking import Asking
from penstock.pool.hedging import race
from penstock.pool.judge import may_continue
from penstock.pool.run import Run, Ticket
from penstock.tokens import estimate_text, family_of

MidStream: TypeAlias = Literal["continue", "error"]
_Begun: TypeAlias = tuple[Sequence[ProviderEvent], ProviderStream]


class Continuation:
    """The events of one request, whichever targets they come from."""

    def __init__(self, run: Run[SamplingRequest], trail: Trail, policy: MidStream) -> None:
        """Nothing is asked before the events are read."""
        self._run = run
        self._trail = trail
        self._policy: MidStream = policy
        self._ticket: Ticket[SamplingRequest] | None = None
        self._said: list[str] = []
        """The text that the caller has from the present target; mostly the list of its ticket."""
        self._earlier: list[str] = []
        """The text that the caller has from targets before it."""
        self._torn = False
        """Whether something was delivered that nobody can go on with."""
        self._thought = False
        self._opened: OpenStream | None = None
        self._attempt: Attempt | None = None

    async def opened(self, batches: ProviderStream) -> OpenStream:
        """The stream once its first event is there; raises when there will be none."""
        first = await anext(batches, None)
        if first is None or self._attempt is None:
            raise self._run.exhausted()
        self._opened = OpenStream(self._attempt, _resume(first, batches))
        return self._opened

    async def events(self) -> ProviderStream:
        """Batches of events; the last event of all is `Finished`."""
        anew = False
        while (ticket := await self._run.next()) is not None:
            follow = self._follow(ticket, anew=anew)
            anew = False
            asked = ticket
            try:
                asked, stream = await self._fastest(ticket, follow)
                async with contextlib.aclosing(stream) as batches:
                    async for batch in batches:
                        told = self._told(batch, follow, asked)
                        self._attempt = asked.attempt
                        if self._opened is not None:
                            self._opened.attempt = asked.attempt
                        if told:
                            yield told
                return
            except PenstockError as error:
                if follow.prefilled and isinstance(error, InvalidRequest):
                    # It does not take the beginning of an answer after all.
                    asked.permit.ignore()
                    self._run.once_more()
                    anew = True
                    continue
                self._broken(asked, error, follow)
        raise self._end()

    async def _fastest(
        self, ticket: Ticket[SamplingRequest], follow: _Follow
    ) -> tuple[Ticket[SamplingRequest], ProviderStream]:
        """The stream of this target, or of another when it is late and nothing was said yet."""
        late_s = self._run.late_after(ticket.state.first_tokens)
        if late_s is None or follow.is_second:
            return ticket, self._ask(ticket, follow.request)

        async def begin(asked: Ticket[SamplingRequest]) -> _Begun:
            stream = self._ask(asked, asked.request)
            return await anext(stream), stream

        asked, (first, stream) = await race(self._run, ticket, late_s, begin, _close)
        return asked, _resume(first, stream)

    async def _ask(
        self, ticket: Ticket[SamplingRequest], request: SamplingRequest
    ) -> ProviderStream:
        """What this one target says; the end of it is told when the call has been given back."""
        last: Sequence[ProviderEvent] = ()
        async with Asking(ticket, self._run.caller, self._trail) as asking:
            stream = ticket.provider.stream(ticket.attempt.target.model, request)
            async with contextlib.aclosing(stream) as batches:
                batch = await _first_of(asking, batches)
                most = ticket.most_characters
                while batch is not None:
                    if batch and isinstance(final := batch[-1], Finished):
                        asking.counted(final.reply)
                        last = batch
                        break
                    if batch:
                        yield batch
                    if ticket.characters > most:
                        ticket.too_long = True
                        raise _too_long(ticket, most)
                    batch = await anext(batches, None)
                else:
                    raise StreamInterrupted("the stream ended without its terminal event")
        yield last

    def _follow(self, ticket: Ticket[SamplingRequest], *, anew: bool) -> _Follow:
        said = self._text()
        if not said:
            return _Follow(ticket.request, thinks_silently=self._thought)
        if not ticket.able.prefill or anew:
            return _Follow(ticket.request, skip=said)
        # APIs refuse a beginning that ends in white space, so that is expected back.
        begun = said.rstrip()
        messages = (*ticket.request.messages, assistant(begun))
        spent = estimate_text(begun, family_of(ticket.attempt.target.model))
        request = msgspec.structs.replace(
            ticket.request,
            messages=messages,
            max_tokens=max(1, ticket.request.max_tokens - spent),
        )
        return _Follow(request, begun=said, tail=said[len(begun) :])

    def _told(
        self,
        batch: Sequence[ProviderEvent],
        follow: _Follow,
        ticket: Ticket[SamplingRequest],
    ) -> Sequence[ProviderEvent]:
        if ticket is not self._ticket:
            self._attend(ticket, follow)
        if follow.plain and (texts := _only_texts(batch)):
            # Most batches of most streams.
            ticket.characters += sum(map(len, texts))
            ticket.text += texts
            if self._said is not ticket.text:
                self._said += texts
            last = batch[-1]
            if isinstance(last, Finished) and follow.is_second:
                return [*batch[:-1], Finished(self._whole(last.reply, follow))]
            return batch
        told: list[ProviderEvent] = []
        for event in batch:
            if isinstance(event, Finished):
                told.append(Finished(self._whole(event.reply, follow)))
            elif isinstance(event, Chunk):
                ticket.characters += len(event.text)
                ticket.text.append(event.text)
                if text := follow.rest_of(event.text):
                    if self._said is not ticket.text:
                        self._said.append(text)
                    told.append(Chunk(text) if text != event.text else event)
            elif isinstance(event, ReasoningDelta):
                ticket.characters += len(event.text)
                ticket.hidden.append(event.text)
                # What was thought before is not thought again aloud.
                if not follow.thinks_silently:
                    self._thought = True
                    told.append(event)
            else:
                if follow.skip:
                    raise follow.differs()
                self._torn = True
                told.append(event)
                if isinstance(event, ToolUseDelta):
                    ticket.characters += len(event.arguments)
                    ticket.hidden.append(event.arguments)
        return told

    def _attend(self, ticket: Ticket[SamplingRequest], follow: _Follow) -> None:
        """Record what this ticket delivers from now on."""
        self._earlier += self._said
        self._ticket = ticket
        # Its own list where all of its text reaches the caller, so that the text is kept once.
        self._said = ticket.text if follow.plain else []

    def _text(self) -> str:
        """All text that the caller has."""
        return "".join(chain(self._earlier, self._said))

    def _whole(self, reply: Reply, follow: _Follow) -> Reply:
        if follow.skip:
            raise follow.differs()
        if not follow.is_second:
            return reply
        if follow.prefilled and not self._fits_its_schema(reply, follow.request):
            self._torn = True
            raise follow.differs()
        if not follow.begun:
            return reply
        content = _with_text(self._text(), reply.content)
        return msgspec.structs.replace(reply, content=content)

    def _fits_its_schema(self, reply: Reply, request: SamplingRequest) -> bool:
        """Whether both halves are one JSON: some schema modes begin at `{`, whatever was said."""
        if request.output_schema is None or request.tools or reply.stop_reason == "maxTokens":
            return True
        try:
            msgspec.json.decode(self._text())
        except (msgspec.DecodeError, RecursionError):
            return False
        return True

    def _broken(
        self, ticket: Ticket[SamplingRequest], error: PenstockError, follow: _Follow
    ) -> None:
        """Take note, and raise the error unless somebody else may go on."""
        said = self._text()
        if not (said or self._torn):
            self._run.failed(ticket, error)
            return
        if isinstance(error, StreamInterrupted):
            error.partial = said
        # One that answers well, only not as the first one did, would do so again.
        self._run.failed(ticket, error, in_mid_answer=True, retry=not follow.differed)
        if self._policy == "error" or self._torn or ticket.too_long or not may_continue(error):
            raise error

    def _end(self) -> PenstockError:
        """The caller has read a part: the error that broke it off says so, with the part."""
        said = self._text()
        last = self._run.exhausted()
        if not said or last is self._run.failures[-1][1]:
            return last
        error = StreamInterrupted(
            f"the stream broke off, and nobody went on: {last}",
            partial=said,
            provider=last.provider,
            model=last.model,
        )
        error.__cause__ = last
        return error


class _Follow:
    """How a target takes part: as the first, with what was said so far, or anew."""

    __slots__ = (
        "begun",
        "differed",
        "is_second",
        "prefilled",
        "request",
        "skip",
        "tail",
        "thinks_silently",
    )

    def __init__(
        self,
        request: SamplingRequest,
        *,
        begun: str = "",
        tail: str = "",
        skip: str = "",
        thinks_silently: bool = False,
    ) -> None:
        self.request = request
        self.begun = begun
        self.tail = tail
        self.skip = skip
        self.prefilled = bool(begun)
        self.is_second = bool(begun or skip)
        self.thinks_silently = thinks_silently or self.is_second
        self.differed = False

    @property
    def plain(self) -> bool:
        """Whether every text is new to the caller."""
        return not (self.tail or self.skip)

    def rest_of(self, text: str) -> str:
        """The part of the text that the caller has not read; raises when it is another answer."""
        if self.tail:
            # In as many pieces as it likes.
            while self.tail and text.startswith(self.tail[0]):
                self.tail, text = self.tail[1:], text[1:]
            if text:
                self.tail = ""
            return text
        if not self.skip:
            return text
        if self.skip.startswith(text):
            self.skip = self.skip[len(text) :]
            return ""
        if text.startswith(self.skip):
            rest, self.skip = text[len(self.skip) :], ""
            return rest
        raise self.differs()

    def differs(self) -> StreamInterrupted:
        """The error for another answer, which is no failure of its target."""
        self.differed = True
        return StreamInterrupted("the stream broke off, and the next answer is another one")


def _too_long(ticket: Ticket[SamplingRequest], most: int) -> MalformedResponse:
    return MalformedResponse(
        f"the answer has more than {most} characters, and its limit is "
        f"{ticket.request.max_tokens} tokens: the stream was cut",
        retryable=False,
    )


def _only_texts(batch: Sequence[ProviderEvent]) -> list[str]:
    """The texts of a batch that is nothing else but the end; none when one of them is empty."""
    texts = [event.text for event in batch if type(event) is Chunk]
    others = len(batch) - len(texts)
    if others and not (others == 1 and isinstance(batch[-1], Finished)):
        return []
    return texts if all(texts) else []


def _with_text(text: str, content: tuple[Content, ...]) -> tuple[Content, ...]:
    """The content with all its text as one part, where the first stood."""
    parts: list[Content] = []
    placed = False
    for part in content:
        if not isinstance(part, Text):
            parts.append(part)
        elif not placed:
            parts.append(Text(text))
            placed = True
    return tuple(parts if placed else [Text(text), *parts])


async def _first_of(
    asking: Asking[SamplingRequest], batches: ProviderStream
) -> Sequence[ProviderEvent] | None:
    """The first batch; a coroutine of its own, for the block may not last beyond a yield."""
    with asking.calling(), asking.telling():
        while (first := await anext(batches, None)) is not None and not first:
            pass
    if first:
        asking.first_token()
    return first


async def _resume(first: Sequence[ProviderEvent], rest: ProviderStream) -> ProviderStream:
    async with contextlib.aclosing(rest):
        yield first
        async for events in rest:
            yield events


async def _close(begun: _Begun) -> None:
    await begun[1].aclose()
