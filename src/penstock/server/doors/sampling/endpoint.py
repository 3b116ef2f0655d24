"""The sampling door over HTTP: MCP's params in, its result out, whole or as events."""

from __future__ import annotations

import contextlib
from functools import partial

from penstock.contract.errors import InvalidRequest, Problem
from penstock.contract.requests import Caller
from penstock.engine.build.pool import limits_of
from penstock.engine.engine import Engine
from penstock.pipeline.registry import id_problem
from penstock.server.answer_headers import facts, stream_facts
from penstock.server.dispatch import Route, Routes
from penstock.server.doors.adapting import adapting
from penstock.server.doors.sampling.approvals import Approvals
from penstock.server.doors.sampling.decode import SamplingCall, in_callers_words, read_body
from penstock.server.doors.sampling.encode import EventFrames, StreamEncoder, encode
from penstock.server.doors.sampling.errors import SAMPLING_ERRORS
from penstock.server.doors.sampling.websocket import PATH
from penstock.server.errors import Failure, HttpProblem
from penstock.server.exchange import REQUEST_ID, Exchange
from penstock.server.process.peers import Question, Siblings

_REQUESTS = "/v1/requests"


class CreateMessage:
    """`POST /v1/sampling/createMessage`."""

    def __init__(self, approvals: Approvals) -> None:
        """Who is asked before a request is made."""
        self._approvals = approvals

    async def __call__(self, engine: Engine, exchange: Exchange) -> None:
        """Answer whole, or as events."""
        exchange.request_id = _callers_id(exchange)
        call = await exchange.decoded(partial(read_body, limits_of(engine.config)))
        call = call._replace(request=adapting(call.request, engine, exchange.headers))
        caller = self._approvals.caller(engine, exchange.caller)
        try:
            if call.stream:
                await _stream(engine, exchange, call, caller)
            else:
                result = await engine.create_message(
                    call.request, request_id=exchange.request_id, caller=caller
                )
                await exchange.reply(encode(result), facts(result.metadata))
        except InvalidRequest as error:
            told = in_callers_words(error, REQUEST_ID.decode(), call.paths)
            if told is error:
                raise
            raise told from error


async def _stream(
    engine: Engine, exchange: Exchange, call: SamplingCall, caller: Caller | None
) -> None:
    handle = await engine.create_message_stream(
        call.request, request_id=exchange.request_id, caller=caller
    )
    async with handle:
        encoder = StreamEncoder(EventFrames(handle.request_id))
        await exchange.begin_stream(stream_facts(handle.request_id, handle.attempt))
        async with contextlib.aclosing(handle.batches()) as batches:
            async for batch in batches:
                data = b"".join(encoder.encode(batch))
                if encoder.ended:
                    await exchange.end(data, last=batch[-1])
                    break
                if data:
                    await exchange.write(data)


class Cancel:
    """`DELETE /v1/requests/{request_id}`: stops a running request of any door, and any worker.

    204 when it was stopped; 404 when nothing of this id runs: it never did, or has ended.
    """

    def __init__(self, siblings: Siblings) -> None:
        """These may have the request."""
        self._siblings = siblings

    async def __call__(self, engine: Engine, exchange: Exchange) -> None:
        """Here, or else where it runs."""
        request_id = exchange.path.removeprefix(f"{_REQUESTS}/")
        stopped = await engine.cancel_request(request_id, key=exchange.sees)
        if not stopped and not any(
            await self._siblings.ask(Question.CANCEL, [request_id, exchange.sees])
        ):
            raise HttpProblem(
                Failure(
                    404,
                    f"no request {request_id!r} runs; it has ended, or the id is another",
                    code="request_not_found",
                )
            )
        await exchange.reply_nothing()


async def needs_websocket(engine: Engine, exchange: Exchange) -> None:
    """The socket's path, asked for in plain HTTP."""
    raise HttpProblem(
        Failure(
            426,
            f"{PATH} is a WebSocket; connect to it with ws://, or use "
            "POST /v1/sampling/createMessage",
            code="upgrade_required",
            headers=((b"upgrade", b"websocket"), (b"connection", b"upgrade")),
        )
    )


def _callers_id(exchange: Exchange) -> str | None:
    given = exchange.headers.get(REQUEST_ID)
    if given is None:
        return None
    request_id = given.decode("latin-1")
    if problem := id_problem(request_id):
        raise InvalidRequest.of([Problem(REQUEST_ID.decode(), problem)])
    return request_id


def routes(siblings: Siblings, approvals: Approvals) -> Routes:
    """The paths of this door, in front of one worker of several; `approvals` says who is asked."""
    return {
        ("POST", "/v1/sampling/createMessage"): Route(CreateMessage(approvals), SAMPLING_ERRORS),
        ("GET", PATH): Route(needs_websocket, SAMPLING_ERRORS),
        ("DELETE", f"{_REQUESTS}/*"): Route(Cancel(siblings)),
    }
