"""The OpenAI Responses door: `POST /v1/responses`, without any state on this side."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import msgspec

from penstock.contract.errors import InvalidRequest, Problem
from penstock.engine.engine import Engine
from penstock.server.answer_headers import facts, stream_facts
from penstock.server.dispatch import Route, Routes
from penstock.server.doors.adapting import adapting
from penstock.server.doors.mcp_servers import with_permitted_servers
from penstock.server.doors.openai_chat.endpoint import room
from penstock.server.doors.openai_responses import (
    decode as responses_decode,
)
from penstock.server.doors.openai_responses import (
    encode as responses_encode,
)
from penstock.server.doors.openai_responses.decode import ResponsesCall
from penstock.server.doors.openai_responses.events import EventEncoder, error_event
from penstock.server.doors.openai_tools import in_callers_places
from penstock.server.doors.permitted_fields import require_permitted_fields
from penstock.server.doors.tool_loop import follow, rounds_of
from penstock.server.errors import Failure, OpenAIErrors
from penstock.server.exchange import Exchange, forward

_NAMES: Mapping[str, str] = {
    "audio": "input",
    "images": "input",
    "images by url": "input",
    "max_tokens": "max_output_tokens",
    "mcp_tools": "tools",
    "messages": "input",
    "output_schema": "text.format",
    "parallel_tools": "parallel_tool_calls",
    "reasoning_level": "reasoning.effort",
    "system_prompt": "instructions",
}


class ResponsesErrors(OpenAIErrors):
    """OpenAI's shape, with this wire's names of parameters and its event for a broken stream."""

    names = _NAMES

    def event(self, failure: Failure) -> bytes:
        """The event `error`; no `response.completed` follows."""
        return error_event(failure, None, self.param(failure))


RESPONSES_ERRORS = ResponsesErrors()


async def responses(engine: Engine, exchange: Exchange) -> None:
    """`POST /v1/responses`."""
    call = await exchange.decoded(responses_decode.decode, partial(room, engine))
    request = adapting(call.request, engine, exchange.headers)
    call = msgspec.structs.replace(call, request=request)
    try:
        call = with_permitted_servers(call, engine, exchange)
        await require_permitted_fields(call.request, engine, exchange)
        rounds = rounds_of(engine, call.request, exchange.caller)
        if call.stream:
            await (
                _stream(engine, exchange, call)
                if rounds is None
                else follow(exchange, rounds, lambda id, model: EventEncoder(id, model, call.echo))
            )
            return
        if rounds is None:
            result = await engine.create_message(call.request, caller=exchange.caller)
        else:
            result = await rounds.whole()
    except InvalidRequest as error:
        told = in_callers_words(error, call)
        if told is error:
            raise
        raise told from error
    await exchange.reply(responses_encode.encode(result, call.echo), facts(result.metadata))


async def _stream(engine: Engine, exchange: Exchange, call: ResponsesCall) -> None:
    handle = await engine.create_message_stream(call.request, caller=exchange.caller)
    async with handle:
        encoder = EventEncoder(handle.request_id, handle.attempt.target.model, call.echo)
        await exchange.begin_stream(stream_facts(handle.request_id, handle.attempt))
        await forward(exchange, handle, encoder)


def in_callers_words(error: InvalidRequest, call: ResponsesCall) -> InvalidRequest:
    """The error with the wire's own paths: items for messages, and this wire's names."""
    if type(error) is not InvalidRequest or not error.problems:
        return error
    from_provider = error.provider is not None
    told = InvalidRequest.of(
        [
            Problem(_path(problem.path, call, from_provider=from_provider), problem.message)
            for problem in error.problems
        ]
    )
    told.located(
        provider=error.provider,
        model=error.model,
        request_id=error.request_id,
        metadata=error.metadata,
    )
    return told


def _path(path: str, call: ResponsesCall, *, from_provider: bool) -> str:
    place = call.dialogue.place(path, without_system=from_provider)
    if place is not None:
        return place
    place = in_callers_places(path, call.tool_places)
    if place != path:
        return place
    first, separator, rest = path.partition("[")
    return _NAMES.get(first, first) + separator + rest


ROUTES: Routes = {("POST", "/v1/responses"): Route(responses, RESPONSES_ERRORS)}
