"""The Anthropic door: messages, and the count of their tokens."""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Iterable

import msgspec

from penstock.contract.errors import InvalidRequest
from penstock.engine.engine import Engine
from penstock.server.answer_headers import facts, header_value, stream_facts
from penstock.server.dispatch import Route, Routes
from penstock.server.doors.adapting import adapting
from penstock.server.doors.anthropic import decode as anthropic_decode
from penstock.server.doors.anthropic import encode as anthropic_encode
from penstock.server.doors.anthropic.decode import MessagesCall
from penstock.server.doors.anthropic.errors import ANTHROPIC_ERRORS
from penstock.server.doors.permitted_fields import require_permitted_fields
from penstock.server.exchange import Exchange, Header, forward


async def messages(engine: Engine, exchange: Exchange) -> None:
    """`POST /v1/messages`."""
    call = await exchange.decoded(anthropic_decode.decode)
    request = adapting(call.request, engine, exchange.headers)
    call = msgspec.structs.replace(call, request=request)
    await require_permitted_fields(call.request, engine, exchange)
    with _in_callers_words(call):
        if call.stream:
            await _stream(engine, exchange, call)
            return
        result = await engine.create_message(call.request, caller=exchange.caller)
        body = anthropic_encode.encode(result, call.request.stop_sequences)
        await exchange.reply(body, _named(facts(result.metadata), result.request_id))


async def _stream(engine: Engine, exchange: Exchange, call: MessagesCall) -> None:
    handle = await engine.create_message_stream(call.request, caller=exchange.caller)
    async with handle:
        encoder = anthropic_encode.EventEncoder(
            handle.request_id, handle.attempt.target.model, call.request.stop_sequences
        )
        headers = stream_facts(handle.request_id, handle.attempt)
        await exchange.begin_stream(_named(headers, handle.request_id))
        await forward(exchange, handle, encoder)


async def count_tokens(engine: Engine, exchange: Exchange) -> None:
    """`POST /v1/messages/count_tokens`."""
    call = await exchange.decoded(anthropic_decode.decode_prompt)
    request = adapting(call.request, engine, exchange.headers)
    call = msgspec.structs.replace(call, request=request)
    exchange.require(call.request.model)
    with _in_callers_words(call):
        count = await engine.count_tokens(call.request, caller=exchange.caller)
    headers = [
        (b"x-penstock-provider", header_value(count.provider)),
        (b"x-penstock-model", header_value(count.model)),
        (b"x-penstock-estimated", b"true" if count.estimated else b"false"),
    ]
    await exchange.reply(msgspec.json.encode({"input_tokens": count.tokens}), headers)


def _named(headers: Iterable[Header], request_id: str) -> list[Header]:
    """With the request's id under the name that Anthropic's clients look for."""
    return [*headers, (b"request-id", request_id.encode())]


@contextlib.contextmanager
def _in_callers_words(call: MessagesCall) -> Generator[None]:
    try:
        yield
    except InvalidRequest as error:
        told = call.conversation.in_callers_words(error)
        if told is error:
            raise
        raise told from error


ROUTES: Routes = {
    ("POST", "/v1/messages"): Route(messages, ANTHROPIC_ERRORS),
    ("POST", "/v1/messages/count_tokens"): Route(count_tokens, ANTHROPIC_ERRORS),
}
