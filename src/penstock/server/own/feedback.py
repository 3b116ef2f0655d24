"""`POST /v1/feedback`: how good an answer was, from those who know."""

from __future__ import annotations

from typing import Annotated

import msgspec

from penstock.contract.errors import InvalidRequest
from penstock.engine.engine import Engine
from penstock.engine.feedback import FeedbackSource
from penstock.server.dispatch import Route, Routes
from penstock.server.errors import Failure, HttpProblem
from penstock.server.exchange import Exchange
from penstock.server.typed_endpoints import read_body

PATH = "/v1/feedback"


class Feedback(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What is said about one answer."""

    request_id: Annotated[
        str,
        msgspec.Meta(
            min_length=1, max_length=200, description="The header `x-request-id` of the answer."
        ),
    ]
    score: Annotated[float, msgspec.Meta(ge=0, le=1, description="0 is useless, 1 is perfect.")]
    source: Annotated[
        FeedbackSource,
        msgspec.Meta(
            description="Who knows it: a person or program that was asked, a check, another model, "
            "or the caller by asking again."
        ),
    ] = "feedback"


async def feedback(engine: Engine, exchange: Exchange) -> None:
    """Keep it; 404 for a request that is not remembered."""
    said = await read_body(exchange, Feedback)
    try:
        await engine.record_feedback(
            said.request_id, score=said.score, source=said.source, caller=exchange.caller
        )
    except InvalidRequest as error:
        # All else has been checked above.
        failure = Failure(404, error.message, code="not_found", param="request_id")
        raise HttpProblem(failure) from error
    await exchange.reply_nothing()


ROUTES: Routes = {("POST", PATH): Route(feedback)}
