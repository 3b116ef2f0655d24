"""What requests would cost: `POST /v1/estimate` for a key itself, and for administrators."""

from __future__ import annotations

from collections.abc import Collection
from functools import partial

import msgspec

from penstock.contract.errors import InvalidRequest, Problem
from penstock.contract.estimates import RequestEstimate, TargetEstimate
from penstock.contract.exchange import SamplingRequest
from penstock.contract.messages import user
from penstock.contract.metadata import Usage
from penstock.contract.requests import Caller
from penstock.engine.engine import Engine
from penstock.keys.admin import balances_of
from penstock.keys.keyring import Keyring
from penstock.keys.policy import KeyTerms
from penstock.server.admin.requests import EstimateOrder, UsageOrder
from penstock.server.admin.responses import (
    BudgetVerdictInfo,
    EstimateAnswer,
    RecordedAnswer,
    TargetEstimateInfo,
)
from penstock.server.dispatch import Route, Routes
from penstock.server.doors.openai_chat import decode as openai_chat_decode
from penstock.server.doors.openai_chat.endpoint import room
from penstock.server.doors.openai_chat.messages import in_callers_numbers
from penstock.server.errors import Failure, HttpProblem
from penstock.server.exchange import Exchange
from penstock.server.typed_endpoints import Call, Nothing

PATH = "/v1/estimate"
_WHOLE = ("prompt", "max_tokens", "model", "system_prompt")


async def estimate(engine: Engine, exchange: Exchange) -> None:
    """`POST /v1/estimate`: the body is one of `POST /v1/chat/completions`, and no model is called.

    It is for the caller's own key: its models, its tags, and the budgets that cover it. A key that
    is limited to some models sees amounts of its own budgets only.
    """
    call = await exchange.decoded(openai_chat_decode.decode, partial(room, engine))
    try:
        found = await engine.estimate(call.request, caller=exchange.caller)
    except InvalidRequest as error:
        raise in_callers_numbers(error, call.request.messages, call.tool_places) from error
    own = await _own_budgets(engine, exchange)
    await exchange.reply(msgspec.json.encode(estimate_answer(found, own)))


async def _own_budgets(engine: Engine, exchange: Exchange) -> frozenset[str] | None:
    """The budgets whose amounts the caller may see; None: those of all."""
    access = exchange.access
    if access is None or access.operator or access.terms is None:
        return None
    balances = balances_of(access.terms.key, await engine.budgets())
    return frozenset(each.budget.name for each in balances)


class Accounting:
    """The part of the admin API that asks for a key, or counts for one."""

    def __init__(self, keyring: Keyring) -> None:
        """The keys that this gateway asks for."""
        self._keyring = keyring

    async def estimate(
        self, engine: Engine, call: Call[Nothing, Nothing, EstimateOrder]
    ) -> EstimateAnswer:
        """What a request would cost at each target, and what each budget would decide; no call."""
        order = call.body
        caller = Caller(tags=order.tags)
        if order.key and (terms := self._named(order.key)):
            caller = msgspec.structs.replace(terms.caller, tags={**order.tags, **terms.caller.tags})
        return estimate_answer(await engine.estimate(_request(engine, order), caller=caller))

    async def record_usage(
        self, engine: Engine, call: Call[Nothing, Nothing, UsageOrder]
    ) -> RecordedAnswer:
        """Count a call that was made elsewhere: in the ledger, the budgets and routing."""
        order, caller = call.body, None
        if order.key and (terms := self._named(order.key)):
            caller = terms.caller
        counts = msgspec.to_builtins(order.usage)
        recorded = await engine.record_usage(
            order.target,
            Usage(**counts),
            tags=order.tags,
            latency_s=order.latency_s or None,
            quality=None if isinstance(order.quality, msgspec.UnsetType) else order.quality,
            prompt=order.prompt,
            caller=caller,
        )
        return RecordedAnswer(
            recorded.request_id,
            recorded.provider,
            recorded.model,
            recorded.cost_nanos,
            recorded.price_source,
            list(recorded.overdrawn),
        )

    def _named(self, name: str) -> KeyTerms:
        found = self._keyring.named(name)
        if found is None:
            said = f"there is no key {name!r}; GET /admin/v1/keys lists those that there are"
            raise HttpProblem(Failure(404, said, code="not_found", param="key"))
        return found


def estimate_answer(found: RequestEstimate, own: Collection[str] | None = None) -> EstimateAnswer:
    """An estimate as the HTTP API gives it, with amounts of these budgets, or of all."""
    targets = [_target(each, own) for each in found.targets]
    return EstimateAnswer(found.model, found.fits, targets)


def _target(each: TargetEstimate, own: Collection[str] | None) -> TargetEstimateInfo:
    verdicts = [BudgetVerdictInfo.of(verdict) for verdict in each.budgets]
    return TargetEstimateInfo(
        target=f"{each.provider}/{each.model}",
        available=each.available,
        fits=each.fits,
        input_tokens=each.input_tokens,
        output_tokens=each.output_tokens,
        max_input_tokens=each.max_input_tokens,
        max_output_tokens=each.max_output_tokens,
        expected_nanos=each.expected_nanos,
        worst_nanos=each.worst_nanos,
        price_source=each.price_source,
        budgets=[
            verdict if own is None or verdict.budget in own else verdict.without_amounts()
            for verdict in verdicts
        ],
    )


def _request(engine: Engine, order: EstimateOrder) -> SamplingRequest:
    if isinstance(order.request, msgspec.UnsetType):
        if isinstance(order.prompt, msgspec.UnsetType):
            raise InvalidRequest.of(
                [Problem("prompt", "it is missing; give a text, or `request` in its place")]
            )
        model = order.model or None
        limit = order.max_tokens
        return SamplingRequest(
            messages=(user(order.prompt),),
            max_tokens=room(engine, model) if isinstance(limit, msgspec.UnsetType) else limit,
            model=model,
            system_prompt=order.system_prompt or None,
        )
    both = [name for name in _WHOLE if not isinstance(getattr(order, name), msgspec.UnsetType)]
    if both:
        raise InvalidRequest.of(
            Problem(name, "`request` says it; leave one of the two out") for name in both
        )
    call = openai_chat_decode.decode(msgspec.json.encode(order.request), partial(room, engine))
    return call.request


ROUTES: Routes = {("POST", PATH): Route(estimate)}
