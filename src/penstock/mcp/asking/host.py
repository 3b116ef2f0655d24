"""Who answers a call's questions: the client's host, in either era, or our own engine."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator, Mapping
from typing import Any, Protocol, cast

import mcp_types
import msgspec
import pydantic
from mcp.server.mcpserver import Context
from mcp.shared.exceptions import MCPError
from mcp.shared.message import ServerMessageMetadata

from penstock.contract.checks.lengths import cut
from penstock.contract.errors import (
    Advice,
    InvalidRequest,
    MalformedResponse,
    PenstockError,
    Problem,
    ProviderTimeout,
    ProviderUnavailable,
    SamplingRejected,
    UnsupportedOption,
    first_problems,
)
from penstock.contract.events import Complete, StreamEvent
from penstock.contract.exchange import Result, SamplingRequest
from penstock.contract.messages import JSONObject
from penstock.generators.tool_loop import Ask
from penstock.mcp.asking.calls import Call
from penstock.mcp.asking.params import HOST, params_of, result_of
from penstock.mcp.asking.state import digest
from penstock.mcp.host.results import KINDS
from penstock.pipeline.limits import STANDARD
from penstock.pipeline.validate import validated

USER_REJECTED = -1
"""The code of the standard for a user who said no."""
_LONGEST_PAUSE_S = 31 * 86_400.0
"""A longer `retryAfter` is left out, as is one that is no number."""


class Answering(Protocol):
    """What `sample` needs of an engine."""

    async def create_message(self, messages: SamplingRequest, /) -> Result:
        """The whole answer."""
        ...


def lacking(ctx: Context[Any, Any], call: Call, *, tools: bool) -> str | None:
    """Which capability the client does not have for this; None when its host can be asked."""
    declared = ctx.client_capabilities
    sampling = declared.sampling if declared is not None else None
    if sampling is None:
        return "sampling"
    if tools and sampling.tools is None:
        return "sampling.tools"
    if not call.modern and not ctx.session.can_send_request:
        # Without a session there is no way back to the client.
        return "sampling"
    return None


def host(ctx: Context[Any, Any], call: Call) -> Ask:
    """Asks the client's host."""

    async def ask(request: SamplingRequest) -> AsyncGenerator[StreamEvent, None]:
        given = await validated(request, STANDARD)
        checked = _contextual(ctx, given)
        params = params_of(checked, ctx.session.protocol_version)
        if call.modern:
            answer = call.answer(params)
        else:
            answer = await _request(ctx, params, request.timeout)
        yield Complete(result_of(answer, checked, dropped=_dropped(given, checked)))

    return ask


def engine_of(engine: Answering, call: Call) -> Ask:
    """Asks our own engine, and not again for what it has answered in an earlier round."""

    async def ask(request: SamplingRequest) -> AsyncGenerator[StreamEvent, None]:
        async def answered() -> Any:
            return msgspec.to_builtins(await engine.create_message(request))

        asked = msgspec.structs.replace(request, timeout=None)
        name = f"engine:{digest(msgspec.to_builtins(asked))}"
        yield Complete(msgspec.convert(await call.remembered(name, answered), Result))

    return ask


def _contextual(ctx: Context[Any, Any], request: SamplingRequest) -> SamplingRequest:
    """The request for this host; raises UnsupportedOption for context that it does not gather."""
    declared = ctx.client_capabilities
    sampling = declared.sampling if declared is not None else None
    if request.include_context == "none" or (sampling is not None and sampling.context is not None):
        return request
    if request.ignore_invalid_options:
        return msgspec.structs.replace(request, include_context="none")
    raise UnsupportedOption(
        "the client has not declared sampling.context; leave include_context out",
        options=["include_context"],
        provider=HOST,
        model=request.model or "",
        advice=[Advice.IGNORE_OPTIONS],
    )


def _dropped(given: SamplingRequest, asked: SamplingRequest) -> tuple[str, ...]:
    return () if given.include_context == asked.include_context else ("include_context",)


async def _request(ctx: Context[Any, Any], params: JSONObject, timeout: float | None) -> JSONObject:
    """What the host answers over the stream of the call that asks."""
    try:
        answer = await ctx.session.send_request(
            mcp_types.CreateMessageRequest(
                params=mcp_types.CreateMessageRequestParams.model_validate(params)
            ),
            mcp_types.CreateMessageResultWithTools,
            request_read_timeout_seconds=timeout,
            metadata=ServerMessageMetadata(related_request_id=ctx.request_id),
        )
    except MCPError as error:
        raise _refused(error) from error
    except pydantic.ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(map(str, first["loc"]))
        raise MalformedResponse(
            f"the host's answer breaks the protocol in {place}: {first['msg']}", provider=HOST
        ) from error
    return answer.model_dump(by_alias=True, mode="json", exclude_none=True)


def _refused(error: MCPError) -> PenstockError:
    """The host's error as one of ours, with its reason and the pause that it asks for."""
    given: object = error.data
    data: Mapping[str, Any] = cast("Mapping[str, Any]", given) if isinstance(given, dict) else {}
    reason = data.get("reason")
    refused = _refusal(error, data, reason if isinstance(reason, str) else None)
    refused.located(provider=HOST)
    refused.reason = cut(reason) if isinstance(reason, str) else None
    pause, retryable = data.get("retryAfter"), data.get("retryable")
    if (
        not isinstance(pause, bool)
        and isinstance(pause, int | float)
        and 0 <= pause <= _LONGEST_PAUSE_S
    ):
        refused.retry_after = float(pause)
    if isinstance(retryable, bool):
        refused.retryable = retryable
    return refused


def _refusal(error: MCPError, data: Mapping[str, Any], reason: str | None) -> PenstockError:
    said = f"{error.message} ({error.code})"
    kind = KINDS.get(reason or "")
    if error.code == USER_REJECTED:
        return SamplingRejected(f"the user of the host refused: {said}")
    if error.code == mcp_types.INVALID_PARAMS:
        kind = kind if kind is not None and issubclass(kind, InvalidRequest) else InvalidRequest
        problems = first_problems(_problems(data.get("problems")))
        return kind(f"the host does not take the request: {said}", problems=problems)
    if error.code == mcp_types.REQUEST_TIMEOUT:
        return ProviderTimeout(f"the host did not answer in time: {said}")
    if kind is not None:
        return kind(f"the host refused: {said}")
    return ProviderUnavailable(f"the host cannot answer: {said}", retryable=False)


def _problems(given: object) -> Iterator[Problem]:
    for each in cast("list[Any]", given) if isinstance(given, list) else ():
        match each:
            case {"path": str(path), "message": str(message)}:
                yield Problem(path, message)
            case _:
                pass
