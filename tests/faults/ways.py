"""The ways in which the provider answers, by the first part of the model's name."""

from __future__ import annotations

import asyncio
import gzip
import time
import zlib
from collections.abc import Awaitable, Callable
from email.utils import formatdate
from functools import cache
from itertools import takewhile

from tests.faults.answer import JSON, WORDS, Answer, Packer
from tests.faults.inband import INBAND, renamed
from tests.support.wire.bedrock import frames
from tests.support.wire.scenario import Failure
from tests.support.wire.seen import Seen

Way = Callable[[Answer, str], Awaitable[bool]]

WAYS: dict[str, Way] = {}
HTML = b"<html><body><h1>502 Bad Gateway</h1></body></html>"
BOMB_BYTES = 128 * 1024 * 1024
"""What the bomb unpacks to."""
_BLOCK = b"x" * 65536
_PINGS, _PING_PAUSE_S = 10, 0.25
_GZIP = {"content-encoding": "gzip"}


def way(function: Way) -> Way:
    """Known by its name, with hyphens."""
    WAYS[function.__name__.strip("_").replace("_", "-")] = function
    return function


# ---- whole and right


@way
async def healthy(answer: Answer, _: str) -> bool:
    """Goes on with what was begun, if anything was."""
    return await answer.say()


@way
async def other(answer: Answer, _: str) -> bool:
    """Another answer than everybody else's."""
    return await answer.say([word.upper() for word in WORDS])


@way
async def follows(answer: Answer, how: str) -> bool:
    """Continues in other words where it is told to: `repeating` the last words first, or `bare`."""
    words = [word.upper() for word in WORDS]
    if not isinstance(answer.seen, Seen) or len(answer.seen.messages) == 1:
        return await answer.say(words)
    if answer.begun:
        return await answer.say(words[len(answer.begun.split()) :])
    said, told = (message.text for message in answer.seen.messages[-2:])
    repeated = told.partition("last words are:\n\n")[2].partition("\n\n")[0]
    rest = words[len(said.split()) :]
    return await answer.say(rest if how == "bare" else [repeated, " ", *rest])


@way
async def no_prefill(answer: Answer, _: str) -> bool:
    """Takes no beginning of an answer, and says so."""
    return await (answer.refuse(Failure("bad_request")) if answer.begun else answer.say())


@way
async def no_turns(answer: Answer, _: str) -> bool:
    """Takes a single turn only."""
    turns = len(answer.seen.messages) if isinstance(answer.seen, Seen) else 1
    return await (answer.refuse(Failure("bad_request")) if turns > 1 else answer.say())


# ---- what an answer says of its end


@way
async def empty(answer: Answer, _: str) -> bool:
    """Ends well, and says nothing."""
    return await answer.say([])


@way
async def ended(answer: Answer, reason: str) -> bool:
    """All of the text, and this reason for its end."""
    return await _with_reason(answer, reason)


@way
async def no_reason(answer: Answer, _: str) -> bool:
    """All of the text, an end, and no reason for it."""
    return await _with_reason(answer, None)


async def _with_reason(answer: Answer, reason: str | None) -> bool:
    if not answer.streamed:
        return await answer.send(200, renamed(answer, answer.body(), reason), JSON)
    await answer.begin()
    for frame in answer.frames():
        await answer.chunk(frame.data if frame.piece else renamed(answer, frame.data, reason))
    return await answer.end()


@way
async def kept_alive(answer: Answer, after: str) -> bool:
    """So many pieces, pings for some seconds, the rest; or blank lines before a whole answer."""
    if not answer.streamed:
        return await _blank_lines(answer)
    ping = answer.dialect.ping()
    assert ping is not None
    before = answer.until(int(after))
    await answer.begin()
    await answer.play(before)
    for _ in range(_PINGS):
        await asyncio.sleep(_PING_PAUSE_S)
        await answer.chunk(ping.data)
    await answer.play(answer.frames()[len(before) :])
    return await answer.end()


async def _blank_lines(answer: Answer) -> bool:
    await answer.begin("application/json")
    for _ in range(_PINGS):
        await asyncio.sleep(_PING_PAUSE_S)
        await answer.chunk(b"\n")
    await answer.chunk(answer.body())
    return await answer.end()


# ---- refusals


@way
async def _429(answer: Answer, form: str) -> bool:
    if answer.number > 1 and form not in ("long", "forever"):
        return await answer.say()
    headers = {
        "seconds": {"retry-after": "1"},
        "later": {"retry-after": "9"},
        "ms": {"retry-after-ms": "120"},
        "date": {"retry-after": formatdate(time.time() + 2, usegmt=True)},
        "long": {"retry-after": "3600"},
        "forever": {},
    }[form]
    return await answer.refuse(Failure("rate_limit"), headers)


@way
async def _500(answer: Answer, form: str) -> bool:
    if answer.number > 1 and form == "once":
        return await answer.say()
    return await answer.refuse(Failure("server_error"))


@way
async def refused(answer: Answer, kind: str) -> bool:
    """`refused.KIND`, as the provider reports such a failure."""
    kinds = {
        "overloaded": Failure("overloaded"),
        "authentication": Failure("authentication"),
        "context": Failure("context_length"),
        "filter": Failure("content_filter"),
        "bad": Failure("bad_request"),
    }
    return await answer.refuse(kinds[kind])


@way
async def html(answer: Answer, status: str) -> bool:
    """A proxy's page."""
    return await answer.send(int(status), HTML, {"content-type": "text/html"})


@way
async def error_in_200(answer: Answer, _: str) -> bool:
    """The body of an error under a good status, and no stream where one was asked for."""
    body = answer.dialect.error(Failure("overloaded"), answer.seen).body
    return await answer.send(200, body, JSON)


@way
async def inband(answer: Answer, how: str) -> bool:
    """`inband.NAME.PLACE`: inside a good answer, `first` of all or after so many pieces."""
    name, _, place = how.partition(".")
    error = INBAND[name]
    if not answer.streamed:
        return await answer.send(200, error.whole(answer), JSON)
    await answer.begin()
    if place != "first":
        await answer.play(answer.until(int(place)))
    await answer.chunk(error.event(answer))
    return await answer.end()


# ---- the wire itself


@way
async def reset(answer: Answer, _: str) -> bool:
    return await answer.abort(reset=True)


@way
async def silence(answer: Answer, _: str) -> bool:
    return await answer.hush()


@way
async def cut(answer: Answer, after: str) -> bool:
    """The connection ends in the middle of the body."""
    if not answer.streamed:
        body = answer.body()
        await answer.head(200, {**JSON, "content-length": str(len(body))})
        answer.writer.write(body[:-10])
        await answer.writer.drain()
        return await answer.abort()
    await answer.begin()
    await answer.play(answer.until(int(after)))
    return await answer.abort()


@way
async def cut_call(answer: Answer, how: str) -> bool:
    """Five words, and then a tool call that is cut, or `whole` and without what ends the stream."""
    await answer.begin()
    await answer.play(answer.call_frames(whole=how == "whole"))
    return await answer.abort()


@way
async def ends(answer: Answer, after: str) -> bool:
    """The body ends well, the stream does not."""
    await answer.begin()
    await answer.play(answer.until(int(after)))
    return await answer.end()


@way
async def stall(answer: Answer, after: str) -> bool:
    """Headers and so many pieces, and then nothing."""
    if not answer.streamed:
        body = answer.body()
        await answer.head(200, {**JSON, "content-length": str(len(body))})
        answer.writer.write(body[:-10])
        await answer.writer.drain()
        return await answer.hush()
    await answer.begin()
    await answer.play(answer.until(int(after)))
    return await answer.hush()


@way
async def malformed(answer: Answer, how: str) -> bool:
    """One event that cannot be read, among good ones; `prefix`: its field is damaged."""
    if not answer.streamed:
        return await answer.send(200, answer.body()[:-10], JSON)
    before = answer.until(20)
    await answer.begin()
    if how == "prefix":
        lost = answer.until(21)[len(before) :]
        rest = answer.frames()[len(before) + len(lost) :]
        await answer.play(before)
        for frame in lost:
            await answer.chunk(frame.data.replace(b"data:", b"ata:"))
        await answer.play(rest)
        return await answer.end()
    await answer.play([*before, answer.dialect.malformed_event(), *answer.frames()[len(before) :]])
    return await answer.end()


@way
async def no_terminal(answer: Answer, _: str) -> bool:
    """All of the text, and nothing that says that it was all."""
    await answer.begin()
    await answer.play(takewhile(lambda frame: not frame.terminal, answer.frames()))
    return await answer.end()


@way
async def no_done(answer: Answer, _: str) -> bool:
    """Without what follows the terminal event: `[DONE]`, or the usage."""
    frames = answer.frames()
    last = next(at for at, frame in enumerate(frames) if frame.terminal)
    await answer.begin()
    await answer.play(frames[: last + 1])
    return await answer.end()


@way
async def no_end(answer: Answer, _: str) -> bool:
    """Everything is said, and the body does not end."""
    await answer.begin()
    await answer.play(answer.frames())
    return await answer.hush()


@way
async def swapped(answer: Answer, _: str) -> bool:
    """A whole answer where a stream was asked for, and the other way round."""
    if answer.streamed:
        return await answer.send(200, answer.body(), JSON)
    await answer.begin()
    await answer.play(answer.frames())
    return await answer.end()


@way
async def mislabelled(answer: Answer, _: str) -> bool:
    """The right answer under another name."""
    if not answer.streamed:
        return await answer.send(200, answer.body(), {"content-type": "text/plain"})
    await answer.begin("text/plain")
    await answer.play(answer.frames())
    return await answer.end()


# ---- compressed


@way
async def zipped(answer: Answer, how: str) -> bool:
    """Compressed, whether the caller takes it or not; `cut` after half of it, or `false`."""
    if not answer.streamed:
        body = gzip.compress(answer.body())
        body = {"": body, "cut": body[: len(body) // 2], "false": answer.body()}[how]
        return await answer.send(200, body, {**JSON, **_GZIP})
    await answer.begin(content_encoding="gzip")
    if how != "false":
        answer.packer = Packer()
    await answer.play(answer.until(40) if how == "cut" else answer.frames())
    return await answer.abort() if how == "cut" else await answer.end()


@cache
def packed_bomb() -> bytes:
    """Made once, for that takes longer than a provider is waited for."""
    packer = zlib.compressobj(wbits=31)
    packed = [packer.compress(_BLOCK) for _ in range(BOMB_BYTES // len(_BLOCK))]
    return b"".join(packed) + packer.flush()


@way
async def bomb(answer: Answer, how: str) -> bool:
    """A little that unpacks to very much: an answer, or the page of an `error`."""
    body = packed_bomb()
    if how == "error":
        return await answer.send(500, body, {**JSON, **_GZIP})
    if not answer.streamed:
        return await answer.send(200, body, {**JSON, **_GZIP})
    await answer.begin(content_encoding="gzip")
    await answer.chunk(body)
    return await answer.end()


# ---- without end


@way
async def drip(answer: Answer, how: str) -> bool:
    """`drip.WHAT`, or in a stream `drip.WHAT.AFTER`: a little at a time, for ever."""
    return await answer.drip(await _endless(answer, how))


@way
async def flood(answer: Answer, how: str) -> bool:
    """`flood.WHAT`, or in a stream `flood.WHAT.AFTER`: as much as is read, for ever."""
    data = await _endless(answer, how)
    return await answer.drip(data * (len(_BLOCK) // len(data)), pause_s=0.0)


def _half_event(event: bytes) -> bytes:
    if event.startswith((b"data: ", b"event: ", b"{")):
        return event[:12]
    # A binary message says how long it is.
    return frames.event("contentBlockDelta", b"x" * 15_000_000)[:12]


async def _endless(answer: Answer, how: str) -> bytes:
    """Begins the answer, and gives what then comes for ever."""
    what, _, after = how.partition(".")
    if not answer.streamed:
        await answer.begin("application/json")
        if what == "text":
            await answer.chunk(answer.body()[:-10])
        return {"text": b"x", "blank": b" ", "lines": b"\n"}[what]
    await answer.begin()
    await answer.play(answer.until(int(after or 0)))
    if what == "event":
        # The beginning of one event of this wire, whose end never comes.
        await answer.chunk(_half_event(answer.until(1)[-1].data))
        return b"x"
    if what == "ping":
        ping = answer.dialect.ping()
        assert ping is not None
        return ping.data
    return {"blank": b" ", "lines": b"\n", "comment": b": on and on\n\n"}[what]
