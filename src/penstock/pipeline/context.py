"""Attach what `includeContext` asks for; a request that cannot have it is refused by name."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import msgspec

from penstock.contract.context import (
    CONTEXT_TIMEOUT_S,
    ContextProvider,
    ContextQuery,
    ContextResource,
    with_context,
)
from penstock.contract.errors import InvalidRequest, PenstockError, Problem, PromptContextFailed
from penstock.contract.exchange import SamplingRequest
from penstock.contract.requests import Caller
from penstock.pipeline.limits import Limits
from penstock.pipeline.validate import validated

_HEAD = "Resources, added because the request asked for context:"
_NONE = Problem(
    "include_context",
    "no context is configured; leave it out, or have `[sampling.context.servers.NAME]` configured",
)


class ContextStage:
    """The stage between validating a request and approving it."""

    def __init__(
        self, provider: ContextProvider | None, timeout_s: float = CONTEXT_TIMEOUT_S
    ) -> None:
        """Without a provider no request may ask for context."""
        self.provider = provider
        self.timeout_s = timeout_s

    async def validated(self, request: SamplingRequest, limits: Limits) -> SamplingRequest:
        """The request within its limits; raises InvalidRequest with every problem."""
        if request.include_context == "none" or self.provider is not None:
            return await validated(request, limits)
        try:
            await validated(request, limits)
        except InvalidRequest as error:
            raise InvalidRequest.of([*error.problems, _NONE]) from error
        raise InvalidRequest.of([_NONE])

    async def attached(
        self, request: SamplingRequest, caller: Caller, limits: Limits
    ) -> SamplingRequest:
        """The valid request with its context, which must be within the limits too."""
        if request.include_context == "none" or self.provider is None:
            return request
        query = ContextQuery(request.include_context, request, caller.key)
        resources = await self._given(self.provider, query)
        request = with_context(request, resources, _HEAD)
        return await validated(msgspec.structs.replace(request, include_context="none"), limits)

    async def _given(
        self, provider: ContextProvider, query: ContextQuery
    ) -> Sequence[ContextResource]:
        clock = asyncio.timeout(self.timeout_s)
        try:
            async with clock:
                given = await provider(query)
            return [_resource(each) for each in given]
        except PenstockError:
            raise
        except TimeoutError as error:
            if not clock.expired():
                raise PromptContextFailed("the provider of context failed: TimeoutError") from error
            raise PromptContextFailed(
                f"the provider of context gave nothing within {self.timeout_s:g} s"
            ) from error
        except Exception as error:
            # What it says may be for nobody but the operator; the cause has it.
            kind = type(error).__name__
            raise PromptContextFailed(f"the provider of context failed: {kind}") from error


def _resource(given: object) -> ContextResource:
    if isinstance(given, ContextResource):
        return given
    if isinstance(given, str):
        return ContextResource(given)
    kind = type(given).__name__
    raise PromptContextFailed(
        f"the provider of context gave a value of type {kind}; give text or ContextResource"
    )
