"""Streams that survive the failure of a target: the next one continues the answer.

There are three ways, in this order. A model that accepts prefill gets the delivered text as the
beginning of its turn. Any other gets it as an earlier turn, with the instruction to continue; what
it repeats is removed. An answer with a schema is generated again, and what was delivered is skipped
if it is the same. Where no way works, the stream ends in one error that holds the delivered text.
A tool call that was cut is never continued: half a call cannot be matched with another.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from itertools import chain
from typing import Literal, TypeAlias

import msgspec

from penstock.contract.errors import (
    BudgetExceeded,
    InvalidRequest,
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
from penstock.contract.messages import Message, assistant, user
from penstock.contract.ports import Attempt, OpenStream, ProviderStream, Trail
from penstock.pool.attempt import Asking
from penstock.pool.continuation.join import (
    RestartDiffers,
    TextJoin,
    continue_instruction,
    last_words,
    only_texts,
    with_text,
    without_common_start,
)
from penstock.pool.error_policy import may_continue
from penstock.pool.hedging import race
from penstock.pool.plan import Run, Ticket
from penstock.pool.stop_cut import StopCut, mark_cut
from penstock.pool.whole_answers import too_long
from penstock.tokens import estimate_text, family_of

MidStream: TypeAlias = Literal["continue", "restart_only", "error"]
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
        self._empty: tuple[Attempt, Sequence[ProviderEvent]] | None = None
        """The end of an empty answer in whose place another target is asked."""
        self._cut: StopCut | None = None
        """Enforces the stop sequences, once a target takes part that cannot."""

    async def opened(self, batches: ProviderStream) -> OpenStream:
        """The stream once its first event is there; raises when there will be none."""
        first = await anext(batches, None)
        if first is None or self._attempt is None:
            raise self._run.exhausted()
        self._opened = OpenStream(self._attempt, _resume(first, batches))
        return self._opened

    async def events(self) -> ProviderStream:
        """Batches of events; the last event of all is `Finished`."""
        refused, last = 0, None
        while (ticket := await self._run.next()) is not None:
            if ticket.attempt.target != last:
                refused, last = 0, ticket.attempt.target
            asked = ticket
            told: Sequence[ProviderEvent] = ()
            follow = _Follow(ticket.request, thinks_silently=self._thought)
            try:
                if self._text():
                    follow, refused = await self._continue_at(ticket, refused)
                asked, stream = await self._fastest(ticket, follow)
                async with contextlib.aclosing(stream) as batches:
                    async for batch in batches:
                        if self._is_replaced(batch, asked):
                            break
                        told = self._told(batch, follow, asked)
                        self._answered_by(follow.attempt_of(asked))
                        if self._cut is not None:
                            told = self._cut.cut(told)
                            if self._cut.is_hit:
                                if not isinstance(batch[-1], Finished):
                                    mark_cut(asked, self._cut)
                                break
                        if told:
                            yield told
                    else:
                        return
                if self._cut is not None and self._cut.is_hit:
                    # The call has been closed, and its bill is known.
                    yield [*told, Finished(self._cut.reply(asked))]
                    return
            except PenstockError as error:
                if self._empty is not None and not self._delivered:
                    self._run.noted(asked, error)
                    break
                if follow.has_another_way and isinstance(error, InvalidRequest):
                    # The model does not accept the conversation in this form.
                    asked.permit.ignore()
                    self._run.once_more()
                    refused += 1
                    continue
                refused = 0
                self._broken(asked, error, follow)
        if self._empty is None or self._delivered:
            raise self._end()
        attempt, end = self._empty
        self._answered_by(attempt)
        yield end

    def _is_replaced(self, batch: Sequence[ProviderEvent], ticket: Ticket[SamplingRequest]) -> bool:
        """Whether this is the end of an empty answer, and another target is asked once instead."""
        last = batch[-1]
        if not isinstance(last, Finished) or self._empty is not None or self._delivered:
            return False
        if not all(isinstance(event, ReasoningDelta) for event in batch[:-1]):
            return False
        if not self._run.may_replace(last.reply):
            return False
        self._empty = ticket.attempt, batch
        return True

    @property
    def _delivered(self) -> bool:
        """Whether the caller has a part of the answer."""
        return self._torn or bool(self._text())

    def _answered_by(self, attempt: Attempt) -> None:
        self._attempt = attempt
        if self._opened is not None:
            self._opened.attempt = attempt

    async def _fastest(
        self, ticket: Ticket[SamplingRequest], follow: _Follow
    ) -> tuple[Ticket[SamplingRequest], ProviderStream]:
        """The stream of this target, or of another when it is late and nothing was said yet."""
        late_s = self._run.late_after(ticket.first_tokens)
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
                batch = await asking.first_of(batches, self._run.silence_s(ticket))
                most = ticket.most_characters
                while batch is not None:
                    if batch and isinstance(final := batch[-1], Finished):
                        asking.counted(final.reply)
                        last = batch
                        break
                    if batch:
                        yield batch
                    if ticket.characters > most:
                        raise too_long(ticket)
                    batch = await anext(batches, None)
                else:
                    raise StreamInterrupted("the stream ended without its terminal event")
        yield last

    async def _continue_at(
        self, ticket: Ticket[SamplingRequest], refused: int
    ) -> tuple[_Follow, int]:
        """The first way to continue at this target that it has not refused, and its number."""
        said = self._text()
        ways = self._ways(ticket, said)
        while True:
            follow = ways[refused](ticket, said)
            follow.has_another_way = refused + 1 < len(ways)
            if not follow.joins:
                return follow, refused
            try:
                # The instruction was not part of the request that was reserved for.
                await self._trail.afford(ticket.attempt.target, follow.request)
            except BudgetExceeded:
                refused += 1
            else:
                return follow, refused

    def _ways(self, ticket: Ticket[SamplingRequest], said: str) -> Sequence[_Way]:
        ways: list[_Way] = []
        if self._policy == "continue":
            if ticket.able.prefill:
                ways.append(_prefilled)
            if ticket.request.output_schema is None and not said.isspace():
                ways.append(_instructed)
        return [*ways, _restarted]

    def _told(
        self,
        batch: Sequence[ProviderEvent],
        follow: _Follow,
        ticket: Ticket[SamplingRequest],
    ) -> Sequence[ProviderEvent]:
        if ticket is not self._ticket:
            self._attend(ticket, follow)
        if follow.plain and (texts := only_texts(batch)):
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
            if not isinstance(event, Chunk | ReasoningDelta) and (held := follow.held_back()):
                self._said.append(held)
                told.append(Chunk(held))
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
        # One that continues does not see a sequence that has begun in the text before.
        if self._cut is None and (ticket.stops or follow.is_second):
            stops = ticket.stops or ticket.request.stop_sequences
            self._cut = StopCut(stops, self._text()) if stops else None

    def _text(self) -> str:
        """All text that was said, with what is held back for a stop sequence."""
        return "".join(chain(self._earlier, self._said))

    def _read_text(self) -> str:
        """All text that the caller has."""
        said = self._text()
        return said if self._cut is None else said.removesuffix(self._cut.held)

    def _whole(self, reply: Reply, follow: _Follow) -> Reply:
        if follow.skip:
            raise follow.differs()
        if not follow.is_second:
            return reply
        if follow.prefilled and not self._fits_its_schema(reply, follow.request):
            self._torn = True
            raise follow.differs()
        if follow.restarted:
            return reply
        content = with_text(self._text(), reply.content)
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
        said = self._read_text()
        if not self._delivered:
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
        said = self._read_text()
        last = self._run.exhausted()
        if not said or last is self._run.failures[-1][1]:
            return last
        error = StreamInterrupted(
            f"the stream broke off, and no target continued it: {last}",
            partial=said,
            provider=last.provider,
            model=last.model,
        )
        error.__cause__ = last
        return error


class _Follow:
    """How a target takes part: as the first one, or continuing what was delivered."""

    __slots__ = (
        "_join",
        "_tail",
        "differed",
        "has_another_way",
        "is_second",
        "prefilled",
        "request",
        "restarted",
        "skip",
        "thinks_silently",
    )

    def __init__(
        self,
        request: SamplingRequest,
        *,
        prefilled: bool = False,
        tail: str = "",
        join: TextJoin | None = None,
        skip: str = "",
        thinks_silently: bool = False,
    ) -> None:
        self.request = request
        self.prefilled = prefilled
        self._tail = tail
        self._join = join
        self.skip = skip
        self.restarted = bool(skip)
        self.is_second = prefilled or self.restarted or join is not None
        self.has_another_way = False
        self.thinks_silently = thinks_silently or self.is_second
        self.differed = False

    @property
    def joins(self) -> bool:
        """Whether it is asked to continue, and what it repeats is removed."""
        return self._join is not None

    @property
    def plain(self) -> bool:
        """Whether every text is new to the caller."""
        return not (self._tail or self.skip or self._join)

    def attempt_of(self, ticket: Ticket[SamplingRequest]) -> Attempt:
        """The attempt, marked if it continues the answer of another one."""
        attempt = ticket.attempt
        return msgspec.structs.replace(attempt, continues=True) if self.is_second else attempt

    def rest_of(self, text: str) -> str:
        """The part of the text that the caller has not read; raises when it is another answer."""
        if self._join is not None:
            try:
                text = self._join.feed(text)
            except RestartDiffers:
                raise self.differs() from None
            if self._join.joined:
                self._join = None
            return text
        if self._tail:
            # In as many pieces as it likes.
            self._tail, text = without_common_start(self._tail, text)
            if text:
                self._tail = ""
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

    def held_back(self) -> str:
        """Text that was withheld, at the end of all text."""
        join, self._join = self._join, None
        try:
            return "" if join is None else join.finish()
        except RestartDiffers:
            raise self.differs() from None

    def differs(self) -> StreamInterrupted:
        """The error for another answer, which is no failure of its target."""
        self.differed = True
        return StreamInterrupted("the stream broke off, and the next answer is another one")


_Way: TypeAlias = Callable[[Ticket[SamplingRequest], str], _Follow]


def _prefilled(ticket: Ticket[SamplingRequest], said: str) -> _Follow:
    # APIs refuse a beginning that ends in white space, so that is expected back.
    begun = said.rstrip()
    request = _continued(ticket, (assistant(begun),), _tokens(ticket, begun))
    return _Follow(request, prefilled=True, tail=said[len(begun) :])


def _instructed(ticket: Ticket[SamplingRequest], said: str) -> _Follow:
    turns = (assistant(said.rstrip()), user(continue_instruction(said)))
    # It begins with the last words, which are not delivered again.
    spent = _tokens(ticket, said) - _tokens(ticket, last_words(said))
    request = _continued(ticket, turns, max(0, spent))
    return _Follow(request, join=TextJoin(said))


def _restarted(ticket: Ticket[SamplingRequest], said: str) -> _Follow:
    return _Follow(ticket.request, skip=said)


def _continued(
    ticket: Ticket[SamplingRequest], turns: tuple[Message, ...], spent: int
) -> SamplingRequest:
    """The request with these turns at its end, and so many tokens off its limit."""
    request = ticket.request
    return msgspec.structs.replace(
        request,
        messages=(*request.messages, *turns),
        max_tokens=max(1, request.max_tokens - spent),
    )


def _tokens(ticket: Ticket[SamplingRequest], text: str) -> int:
    return estimate_text(text, family_of(ticket.attempt.target.model))


async def _resume(first: Sequence[ProviderEvent], rest: ProviderStream) -> ProviderStream:
    async with contextlib.aclosing(rest):
        yield first
        async for events in rest:
            yield events


async def _close(begun: _Begun) -> None:
    await begun[1].aclose()
