"""An engine on providers that break, and what a caller of it gets in the end."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import pytest

import penstock
from penstock import (
    AllTargetsFailed,
    Chunk,
    Complete,
    Config,
    Engine,
    Error,
    PenstockError,
    Result,
)
from tests.faults.server import FaultServer
from tests.support.wire.anthropic import Anthropic
from tests.support.wire.bedrock import Bedrock
from tests.support.wire.dialect import WireDialect
from tests.support.wire.gemini import Gemini
from tests.support.wire.ollama import Ollama
from tests.support.wire.openai_chat import OpenAIChat
from tests.support.wire.openai_responses import OpenAIResponses

LIMIT_S = 0.4
"""How long a silent provider is waited for here."""
AMPLE_S = 20.0
"""A limit that is not meant to be met, on however busy a machine."""
DIALECTS: dict[str, WireDialect] = {
    "openai": OpenAIResponses(),
    "openai-chat": OpenAIChat(),
    "anthropic": Anthropic(),
    "gemini": Gemini(),
    "bedrock": Bedrock(),
    "ollama": Ollama(),
}


_LIMITS = (
    *("request_timeout_s", "body_timeout_s", "first_token_timeout_s"),
    *("stream_idle_timeout_s", "keep_alive_timeout_s"),
)


def _limits_met(model: str) -> tuple[str, ...]:
    """The limits that end this fault, if time does."""
    way, *how = model.rpartition("@")[2].split(".")
    if way == "silence":
        return ("request_timeout_s",)
    if way not in ("stall", "drip", "flood"):
        return ()
    begun = how[-1].isdigit() and how[-1] != "0"
    silence = ("stream_idle_timeout_s",) if begun else ("first_token_timeout_s", "body_timeout_s")
    return silence if way == "stall" else (*silence, "keep_alive_timeout_s")


def limits_for(models: Iterable[str], short_s: float = LIMIT_S) -> dict[str, Any]:
    """The pool's limits: short where one of these faults is to meet them, else ample."""
    met = dict.fromkeys((limit for model in models for limit in _limits_met(model)), short_s)
    return {"slowest_tokens_per_s": 1e6, **dict.fromkeys(_LIMITS, AMPLE_S), **met}


def providers_on(
    server: FaultServer, models: Iterable[str], kind: str, caller: str = ""
) -> tuple[dict[str, Any], list[str]]:
    """A provider for each of these models, and the targets in their order.

    A `caller` is known to the server by this name, and has providers that nobody else asks.
    """
    providers: dict[str, Any] = {}
    targets: list[str] = []
    for name, model in zip(("primary", "second", "third"), models, strict=False):
        prefill, _, model_there = model.rpartition("@")
        # Of the Chat kinds only this one is known to go on with the beginning of an answer.
        spoken = "llamacpp" if prefill == "prefill" else kind
        provider = f"{name}-{caller}" if caller else name
        providers[provider] = {
            "kind": spoken,
            "url": server.url,
            "auth_token": "k",
            "headers": {"x-caller": caller} if caller else {},
        }
        targets.append(f"{provider}/{model_there}")
    return providers, targets


@asynccontextmanager
async def engine_on(
    server: FaultServer,
    *models: str,
    kind: str = "openai-chat",
    pool: Mapping[str, Any] | None = None,
) -> AsyncGenerator[Engine]:
    """The model `m` tries these, the first at `primary`, the others at `second`, `third`, ..."""
    providers, targets = providers_on(server, models, kind)
    config = Config.model_validate(
        {
            "providers": providers,
            "models": {"m": {"targets": targets}},
            "pool": {**limits_for(models), **(pool or {})},
        }
    )
    async with penstock.open(config) as engine:
        yield engine


class Got(NamedTuple):
    """What a caller has in the end."""

    text: str
    result: Result | None
    error: PenstockError | None

    @property
    def cause(self) -> PenstockError | None:
        """The error of the last target, when all were tried."""
        error = self.error
        return error.attempts[-1] if isinstance(error, AllTargetsFailed) else error


async def whole(engine: Engine, *, model: str = "m", timeout: float | None = None) -> Got:
    try:
        result = await engine.create_message("Say it.", max_tokens=99, model=model, timeout=timeout)
    except PenstockError as error:
        return Got("", None, error)
    return Got(result.text, result, None)


async def streamed(engine: Engine, *, model: str = "m", timeout: float | None = None) -> Got:
    pieces: list[str] = []
    result: Result | None = None
    error: PenstockError | None = None
    ends = 0
    try:
        async with await engine.create_message_stream(
            "Say it.", max_tokens=99, model=model, timeout=timeout
        ) as stream:
            async for event in stream:
                if isinstance(event, Chunk):
                    pieces.append(event.text)
                elif isinstance(event, Complete):
                    result, ends = event.result, ends + 1
                elif isinstance(event, Error):
                    error, ends = event.error, ends + 1
        assert ends == 1
    except PenstockError as failed:
        error = failed
    return Got("".join(pieces), result, error)


Ask = Callable[..., Awaitable[Got]]
BOTH = pytest.mark.parametrize("ask", [whole, streamed])
