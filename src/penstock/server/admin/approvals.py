"""The part of the admin API that is about requests which wait for approval."""

from __future__ import annotations

from typing import Any, Literal

import msgspec
from msgspec import UNSET

from penstock.contract.approval import Decision
from penstock.contract.errors import InvalidRequest, Problem
from penstock.contract.exchange import SamplingRequest
from penstock.contract.messages import JSONObject, Text, join_text
from penstock.engine.build.pool import limits_of
from penstock.engine.engine import Engine
from penstock.mcp.host.queue import ApprovalQueue, Waiting
from penstock.mcp.host.review import edited, params_of, told
from penstock.pipeline.validate import validate
from penstock.server.admin.requests import ApprovalOrder, ApprovalPath
from penstock.server.admin.responses import Answer
from penstock.server.errors import Failure, HttpProblem
from penstock.server.process.peers import Question, Siblings
from penstock.server.typed_endpoints import Call, Nothing

_MOST_SHOWN = 2000
"""Characters of a text in a list; one by itself is told whole."""


class ApprovalInfo(Answer):
    """A request, or its answer, that waits for a decision; long texts are cut."""

    id: str
    stage: Literal["request", "answer"]
    server: str | None
    """The MCP server that asks, by the host's own name for it."""
    claims: str | None
    """What the server calls itself."""
    key: str | None
    """The key of a caller of the gateway."""
    asked: float
    expires: float
    """When it is denied without a decision."""
    model: str | None
    max_tokens: int
    tokens: int
    """About so many are read."""
    cost_nanos: int | None
    """The most that it may cost; null without a known price."""
    tools: list[str]
    prompt: str
    """The last message."""
    answer: str | None


class ApprovalList(Answer):
    """What waits in all workers, the oldest first."""

    approvals: list[ApprovalInfo]


class ApprovalDetail(Answer):
    """One of them, whole: `params` are MCP's, and `text` is that of the answer."""

    info: ApprovalInfo
    params: dict[str, Any]
    text: str | None


class ApprovalOutcome(Answer):
    """What was decided."""

    id: str
    decision: Literal["approve", "deny", "edit"]


class ApprovalDesk:
    """Lists what waits, and takes decisions, of all workers."""

    def __init__(self, queue: ApprovalQueue, siblings: Siblings) -> None:
        """What waits here, and where else to look."""
        self._queue = queue
        self._siblings = siblings

    async def approvals(
        self, engine: Engine, call: Call[Nothing, Nothing, Nothing]
    ) -> ApprovalList:
        """The sampling requests and answers that wait for a decision, the oldest first."""
        lists = [approval_list(self._queue)]
        lists += [
            msgspec.convert(each, ApprovalList)
            for each in await self._siblings.ask(Question.APPROVALS)
        ]
        every = [each for part in lists for each in part.approvals]
        return ApprovalList(sorted(every, key=lambda each: each.asked))

    async def approval(
        self, engine: Engine, call: Call[ApprovalPath, Nothing, Nothing]
    ) -> ApprovalDetail:
        """One of them with the whole request, as MCP's params, and the whole text of an answer."""
        return await self._find(call.path.id)

    async def decide_approval(
        self, engine: Engine, call: Call[ApprovalPath, Nothing, ApprovalOrder]
    ) -> ApprovalOutcome:
        """Approve or deny it, or approve it changed: a request by `params`, an answer by `text`."""
        identifier, order = call.path.id, call.body
        found = await self._find(identifier)
        _check(order, found, engine)
        asked = [identifier, msgspec.to_builtins(order)]
        if not decide(self._queue, identifier, order) and not any(
            await self._siblings.ask(Question.DECIDE, asked)
        ):
            raise _gone(identifier)
        return ApprovalOutcome(identifier, order.decision)

    async def _find(self, identifier: str) -> ApprovalDetail:
        found = approval_detail(self._queue, identifier)
        if found is not None:
            return found
        for answer in await self._siblings.ask(Question.APPROVAL, identifier):
            if answer:
                return msgspec.convert(answer, ApprovalDetail)
        raise _gone(identifier)


def approval_list(queue: ApprovalQueue) -> ApprovalList:
    """What waits in this process."""
    return ApprovalList([_info(each) for each in queue.waiting()])


def approval_detail(queue: ApprovalQueue, identifier: str) -> ApprovalDetail | None:
    """One that waits in this process; None when there is none."""
    found = queue.get(identifier)
    if found is None:
        return None
    answer = found.review.answer
    text = None if answer is None else join_text(answer.content)
    return ApprovalDetail(_info(found), params_of(found.review.request), text)


def decide(queue: ApprovalQueue, identifier: str, order: ApprovalOrder) -> bool:
    """Whether it waited in this process, and is decided so."""
    found = queue.get(identifier)
    if found is None:
        return False
    if order.decision == "deny":
        return queue.decide(identifier, Decision.deny(order.reason))
    answer, request, content = found.review.answer, None, None
    if order.params is not UNSET:
        request = edited(found.review.request, order.params)
    if order.text is not UNSET and answer is not None:
        # Only the words are edited; what else is in the answer stays.
        kept = tuple(part for part in answer.content if not isinstance(part, Text))
        content = (Text(order.text), *kept)
    return queue.decide(identifier, Decision(approved=True, request=request, content=content))


def _check(order: ApprovalOrder, found: ApprovalDetail, engine: Engine) -> None:
    """Raise InvalidRequest for an order that does not fit what waits."""
    stage = found.info.stage
    field, other = ("params", "text") if stage == "request" else ("text", "params")
    given = {"params": order.params, "text": order.text}
    problems: list[Problem] = []
    if order.decision == "edit":
        if given[field] is UNSET:
            problems.append(Problem(field, f"it is missing; an {stage} is edited by it"))
    elif given[field] is not UNSET:
        problems.append(Problem(field, f"it goes with `edit`, not with `{order.decision}`"))
    if given[other] is not UNSET:
        problems.append(Problem(other, f"there is none to edit: this is the stage `{stage}`"))
    if order.reason and order.decision != "deny":
        problems.append(Problem("reason", f"it goes with `deny`, not with `{order.decision}`"))
    if problems:
        raise InvalidRequest.of(problems)
    if order.params is not UNSET:
        _check_params(found.params, order.params, engine)


def _check_params(params: JSONObject, changes: JSONObject, engine: Engine) -> None:
    request = edited(SamplingRequest.from_mcp(params), changes)
    validate(request, limits_of(engine.config))


def _info(waiting: Waiting) -> ApprovalInfo:
    review = waiting.review
    request, answer = review.request, review.answer
    last = request.messages[-1]
    return ApprovalInfo(
        id=waiting.id,
        stage=review.stage,
        server=review.server or None,
        claims=review.claims,
        key=review.key,
        asked=waiting.asked,
        expires=waiting.expires,
        model=request.model,
        max_tokens=request.max_tokens,
        tokens=review.estimate.tokens,
        cost_nanos=review.estimate.cost_nanos,
        tools=[tool.name for tool in request.tools],
        prompt="\n".join(map(told, last.content))[:_MOST_SHOWN],
        answer=None if answer is None else join_text(answer.content)[:_MOST_SHOWN],
    )


def _gone(identifier: str) -> HttpProblem:
    return HttpProblem(
        Failure(
            404,
            f"nothing of the id {identifier!r} waits: it is decided, it timed out, or its "
            "caller has gone",
            code="not_found",
        )
    )
