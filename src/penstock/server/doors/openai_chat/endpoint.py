"""The OpenAI door: chat completions, embeddings, the list of models; and `/health` beside it."""

from __future__ import annotations

import time
from functools import partial
from typing import Any

import msgspec

from penstock._version import __version__
from penstock.contract.errors import ConfigurationError, InvalidRequest, ModelNotFound
from penstock.engine.engine import Engine
from penstock.server.answer_headers import facts, stream_facts
from penstock.server.dispatch import Route, Routes
from penstock.server.doors.adapting import adapting
from penstock.server.doors.anthropic import models as anthropic_models
from penstock.server.doors.mcp_servers import with_permitted_servers
from penstock.server.doors.openai_chat import (
    decode as openai_chat_decode,
)
from penstock.server.doors.openai_chat import (
    embeddings as openai_embeddings,
)
from penstock.server.doors.openai_chat import (
    encode as openai_chat_encode,
)
from penstock.server.doors.openai_chat.decode import ChatCall
from penstock.server.doors.openai_chat.encode import ChunkEncoder
from penstock.server.doors.openai_chat.messages import in_callers_numbers
from penstock.server.doors.permitted_fields import require_permitted_fields
from penstock.server.doors.tool_loop import follow, rounds_of
from penstock.server.exchange import Exchange, forward

UNKNOWN_MODEL_TOKENS = 4096
"""What an answer may have when neither the caller nor the model's profile says."""
KNOWN_MODEL_TOKENS = 16_384
"""What an answer may have at most when only the model's profile says."""

_HEALTH = msgspec.json.encode({"status": "ok", "version": __version__})
_MODELS = "/v1/models"
_STARTED = int(time.time())


async def health(engine: Engine, exchange: Exchange) -> None:
    """Whether the process is alive."""
    await exchange.reply(_HEALTH)


async def chat_completions(engine: Engine, exchange: Exchange) -> None:
    """`POST /v1/chat/completions`."""
    call = await exchange.decoded(openai_chat_decode.decode, partial(room, engine))
    request = adapting(call.request, engine, exchange.headers)
    call = msgspec.structs.replace(call, request=request)
    try:
        call = with_permitted_servers(call, engine, exchange)
        await require_permitted_fields(call.request, engine, exchange)
        # Who is not told of the calls of MCP servers cannot send them back either.
        rounds = rounds_of(engine, call.request, exchange.caller, tells_calls=False)
        if call.stream:
            await (
                _stream(engine, exchange, call)
                if rounds is None
                else follow(exchange, rounds, lambda id, model: _encoder(call, id, model))
            )
            return
        if rounds is None:
            result = await engine.create_message(call.request, caller=exchange.caller)
        else:
            result = await rounds.whole()
    except InvalidRequest as error:
        told = in_callers_numbers(error, call.request.messages, call.tool_places)
        if told is error:
            raise
        raise told from error
    await exchange.reply(openai_chat_encode.encode(result), facts(result.metadata))


async def _stream(engine: Engine, exchange: Exchange, call: ChatCall) -> None:
    handle = await engine.create_message_stream(call.request, caller=exchange.caller)
    async with handle:
        encoder = _encoder(call, handle.request_id, handle.attempt.target.model)
        await exchange.begin_stream(stream_facts(handle.request_id, handle.attempt))
        await forward(exchange, handle, encoder)


def _encoder(call: ChatCall, request_id: str, model: str) -> ChunkEncoder:
    return ChunkEncoder(request_id, model, include_usage=call.include_usage)


async def embeddings(engine: Engine, exchange: Exchange) -> None:
    """`POST /v1/embeddings`."""
    call = await exchange.decoded(openai_embeddings.decode)
    request = call.request
    result = await engine.embed(
        request.texts,
        model=request.model,
        dimensions=request.dimensions,
        caller=exchange.caller,
    )
    body = openai_embeddings.encode(result, as_base64=call.base64)
    await exchange.reply(body, facts(result.metadata))


async def models(engine: Engine, exchange: Exchange) -> None:
    """`GET /v1/models`: what the configuration names and the key may use, aliases first.

    In the caller's dialect.
    """
    data = [_model(name, "penstock") for name in engine.config.models]
    targets = [target for model in engine.config.models.values() for target in model.targets]
    data += [_model(target, target.partition("/")[0]) for target in dict.fromkeys(targets)]
    data = [each for each in data if exchange.may_use(each["id"])]
    if anthropic_models.VERSION in exchange.headers:
        await exchange.reply(anthropic_models.encode_models([each["id"] for each in data]))
        return
    await exchange.reply(msgspec.json.encode({"object": "list", "data": data}))


async def model(engine: Engine, exchange: Exchange) -> None:
    """`GET /v1/models/{name}`: any name that a request may use."""
    name = exchange.path.removeprefix(f"{_MODELS}/")
    if not name:
        raise ModelNotFound("the path names no model")
    exchange.require(name)
    target = engine.targets(name)[0]
    if anthropic_models.VERSION in exchange.headers:
        await exchange.reply(anthropic_models.encode_model(name))
        return
    owner = "penstock" if name in engine.config.models else target.provider
    await exchange.reply(msgspec.json.encode(_model(name, owner)))


def room(engine: Engine, model: str | None) -> int:
    """How many tokens an answer may have when the caller does not say."""
    target = engine.targets(model)[0]
    try:
        able = engine.provider(target.provider).capabilities(target.model)
    except ConfigurationError:
        # The next target may do; if none does, the call itself will tell.
        return UNKNOWN_MODEL_TOKENS
    tokens = UNKNOWN_MODEL_TOKENS
    if able.max_output is not None:
        tokens = min(able.max_output, KNOWN_MODEL_TOKENS)
    return tokens if able.context_window is None else min(tokens, able.context_window // 2)


def _model(name: str, owner: str) -> dict[str, Any]:
    return {"id": name, "object": "model", "created": _STARTED, "owned_by": owner}


ROUTES: Routes = {
    ("GET", "/health"): Route(health, needs="nothing"),
    ("POST", "/v1/chat/completions"): Route(chat_completions),
    ("POST", "/v1/embeddings"): Route(embeddings),
    ("GET", _MODELS): Route(models),
    ("GET", f"{_MODELS}/*"): Route(model),
}
