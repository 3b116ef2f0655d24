"""`/admin/v1/approvals`, and the doors for sampling that ask before they answer."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator
from typing import Any

import httpx
import msgspec
import pytest
from websockets.asyncio.client import connect

from penstock import Text
from penstock.contract.approval import Decision, Estimate, Review
from penstock.contract.exchange import Metadata, Result, SamplingRequest
from penstock.engine.engine import Engine
from penstock.mcp.host.queue import ApprovalQueue
from penstock.server.admin.approvals import ApprovalDesk
from penstock.server.app import answer_about_approvals
from penstock.server.process.peers import Siblings
from penstock.testing import FakeProvider
from tests.support.keyed import bearer, keyed_engine
from tests.unit.server.admin_listening import listening
from tests.unit.server.admin_support import Admin
from tests.unit.server.gateway_support import running_gateway
from tests.unit.server.sampling_support import CREATE, SOCKET, SamplingSocket, params, read_sse


@contextlib.asynccontextmanager
async def asking(model: FakeProvider | None = None, **settings: Any) -> AsyncGenerator[Admin]:
    """A gateway whose doors for sampling ask, unless told otherwise."""
    engine, texts = keyed_engine(model, ci={})
    sampling = engine.config.sampling.model_copy(update={"approval": "ask", **settings})
    engine.config = engine.config.model_copy(update={"sampling": sampling})
    async with running_gateway(engine) as gateway:
        yield Admin(gateway, texts)


async def waiting(admin: Admin, number: int = 1) -> list[dict[str, Any]]:
    """What waits, once there are so many."""
    while True:
        found = (await admin.get("approvals"))["approvals"]
        if len(found) == number:
            return found


def sample(admin: Admin, *messages: Any, **fields: Any) -> asyncio.Task[httpx.Response]:
    """A caller asks, and waits."""
    return asyncio.create_task(
        admin.gateway.client.post(
            CREATE, json=params(*messages, **fields), headers=bearer(admin.texts["ci"])
        )
    )


async def test_what_waits_is_listed_and_approved() -> None:
    model = FakeProvider(["Fine."])
    async with asking(model) as admin:
        assert await admin.get("approvals") == {"approvals": []}
        tool = {"name": "weather", "inputSchema": {"type": "object"}}
        asked = sample(admin, "How are you?", tools=[tool])
        (found,) = await waiting(admin)
        assert model.requests == []
        expected = {
            "stage": "request",
            "server": None,
            "claims": None,
            "key": "ci",
            "model": None,
            "max_tokens": 100,
            "tools": ["weather"],
            "prompt": "How are you?",
            "answer": None,
        }
        assert {name: found[name] for name in expected} == expected
        assert found["expires"] - found["asked"] == pytest.approx(300)
        assert found["tokens"] > 0
        assert found["cost_nanos"] > 100 * 1_000_000
        detail = await admin.get(f"approvals/{found['id']}")
        assert detail["info"] == found
        assert detail["params"]["messages"][0]["content"][0]["text"] == "How are you?"
        order = {"decision": "approve"}
        done = await admin.send("POST", f"approvals/{found['id']}", order)
        assert done == {"id": found["id"], "decision": "approve"}
        assert (await asked).json()["content"]["text"] == "Fine."
        error = await admin.error("POST", f"approvals/{found['id']}", 404, json=order)
        assert "decided" in error["message"]
        assert await admin.get("approvals") == {"approvals": []}


async def test_what_waits_and_what_becomes_of_it_is_told_as_it_happens() -> None:
    async with asking() as admin, listening(admin) as events:
        denied = sample(admin, "a secret")
        (found,) = await waiting(admin)
        await admin.send("POST", f"approvals/{found['id']}", {"decision": "deny", "reason": "no"})
        await denied
        approved = sample(admin)
        (other,) = await waiting(admin)
        await admin.send("POST", f"approvals/{other['id']}", {"decision": "approve"})
        await approved
        given_up = sample(admin)
        (last,) = await waiting(admin)
        given_up.cancel()
        told: list[dict[str, Any]] = []
        while len(told) < 6:
            name, data, _ = await anext(events)
            if name.startswith("approval."):
                told.append({"name": name, **data})
    begun, ended = told[::2], told[1::2]
    assert [each["id"] for each in begun] == [found["id"], other["id"], last["id"]]
    assert [each["id"] for each in ended] == [found["id"], other["id"], last["id"]]
    assert {(each["stage"], each["key"], each["server"]) for each in begun} == {
        ("request", "ci", None)
    }
    assert [(each["outcome"], each["reason"]) for each in ended] == [
        ("denied", "no"),
        ("approved", ""),
        ("gone", ""),
    ]
    assert "secret" not in str(told)


async def test_a_request_is_denied_with_a_reason() -> None:
    model = FakeProvider()
    async with asking(model) as admin:
        asked = sample(admin)
        (found,) = await waiting(admin)
        order = {"decision": "deny", "reason": "not on Sundays"}
        await admin.send("POST", f"approvals/{found['id']}", order)
        answer = await asked
        assert answer.status_code == 403
        error = answer.json()["error"]
        assert error["code"] == -1
        assert "not on Sundays" in error["message"]
        assert model.requests == []
        (record,) = (await admin.get("requests", state="ended"))["requests"]
        assert record["error"] == "SamplingRejected"


async def test_a_request_is_edited() -> None:
    model = FakeProvider()
    async with asking(model) as admin:
        asked = sample(admin, "Tell me all.", systemPrompt="Be frank.")
        (found,) = await waiting(admin)
        changes = {"systemPrompt": None, "maxTokens": 7}
        order = {"decision": "edit", "params": changes}
        await admin.send("POST", f"approvals/{found['id']}", order)
        assert (await asked).status_code == 200
    seen = model.requests[0]
    assert (seen.system_prompt, seen.max_tokens) == (None, 7)
    assert seen.messages[0].text == "Tell me all."


@pytest.mark.parametrize(
    ("order", "param"),
    [
        ({"decision": "edit"}, "params"),
        ({"decision": "approve", "params": {"maxTokens": 3}}, "params"),
        ({"decision": "deny", "text": "no"}, "text"),
        ({"decision": "edit", "params": {}, "text": "no"}, "text"),
        ({"decision": "approve", "reason": "because"}, "reason"),
        ({"decision": "edit", "params": {"maxTokens": "many"}}, "maxTokens"),
        ({"decision": "edit", "params": {"temperature": 99}}, "temperature"),
        ({"decision": "edit", "params": {"messages": []}}, "messages"),
        ({"decision": "perhaps"}, "decision"),
        ({}, "body"),
    ],
)
async def test_an_order_that_does_not_fit_changes_nothing(
    order: dict[str, Any], param: str
) -> None:
    async with asking() as admin:
        asked = sample(admin)
        (found,) = await waiting(admin)
        error = await admin.error("POST", f"approvals/{found['id']}", 400, json=order)
        assert error["param"] == param
        assert await waiting(admin) == [found]
        await admin.send("POST", f"approvals/{found['id']}", {"decision": "deny"})
        await asked


async def test_silence_is_a_no() -> None:
    async with asking(approval_timeout_s=0.01) as admin:
        answer = await sample(admin)
        assert answer.status_code == 403
        assert "no decision" in answer.json()["error"]["message"]


async def test_too_many_are_refused_at_once() -> None:
    async with asking(max_waiting=1) as admin:
        first = sample(admin)
        (found,) = await waiting(admin)
        second = await sample(admin)
        assert second.status_code == 403
        assert "others wait" in second.json()["error"]["message"]
        await admin.send("POST", f"approvals/{found['id']}", {"decision": "approve"})
        assert (await first).status_code == 200


async def test_a_caller_who_goes_away_takes_the_request_along() -> None:
    async with asking() as admin:
        asked = sample(admin)
        await waiting(admin)
        asked.cancel()
        await asyncio.gather(asked, return_exceptions=True)
        await waiting(admin, 0)


async def test_a_request_that_waits_can_be_cancelled() -> None:
    async with asking() as admin:
        asked = sample(admin)
        await waiting(admin)
        (running,) = (await admin.get("requests", state="running"))["requests"]
        await admin.send("DELETE", f"requests/{running['request_id']}", status=204)
        assert (await asked).status_code == 499
        await waiting(admin, 0)


async def test_a_stream_waits_before_its_first_event() -> None:
    async with asking(FakeProvider(["Fine."])) as admin:
        asked = sample(admin, stream=True)
        (found,) = await waiting(admin)
        await admin.send("POST", f"approvals/{found['id']}", {"decision": "approve"})
        events = read_sse((await asked).text)
    assert [name for name, _ in events] == ["chunk", "complete"]


async def test_the_socket_asks_too() -> None:
    async with asking(FakeProvider(["Fine."])) as admin:
        url = f"ws://{admin.gateway.host}:{admin.gateway.port}{SOCKET}"
        async with connect(url, additional_headers=bearer(admin.texts["ci"])) as connection:
            socket = SamplingSocket(connection)
            await socket.send(type="createMessage", id=1, params=params())
            (found,) = await waiting(admin)
            await admin.send("POST", f"approvals/{found['id']}", {"decision": "deny"})
            answer = json.loads(await connection.recv())
    assert (answer["type"], answer["error"]["code"]) == ("error", -1)


@pytest.mark.parametrize(("mode", "status"), [("never", 403), ("always", 200), ("policy", 200)])
async def test_where_nobody_is_asked(mode: str, status: int) -> None:
    async with asking(approval=mode) as admin:
        assert (await sample(admin)).status_code == status
        # The other doors are not for sampling.
        assert (await admin.chat()).status_code == 200


async def test_waiting_is_nobodys_latency() -> None:
    """Neither does it use up the request's own limit."""
    async with asking() as admin:
        asked = sample(admin, timeout=3.0)
        (found,) = await waiting(admin)
        await asyncio.sleep(3.1)  # longer than the limit; nothing is waited for
        await admin.send("POST", f"approvals/{found['id']}", {"decision": "approve"})
        answer = (await asked).json()
    assert answer["_metadata"]["latency_ms"] < 3000


async def test_answers_of_hosts_are_edited_by_their_words(tmp_path: Any) -> None:
    """Of a queue that a host of MCP servers has filled, and of another worker."""
    queue, mine = ApprovalQueue(), ApprovalQueue()
    request = SamplingRequest.from_mcp(params())
    metadata = Metadata(provider="fake", model="echo", request_id="r", latency_ms=1)
    answer = Result((Text("The secret."),), "echo", "endTurn", metadata)
    review = Review(
        request=request, estimate=Estimate(1, None), server="docs", claims="D", answer=answer
    )
    deciding = asyncio.create_task(queue(review))
    theirs, ours = Siblings(tmp_path, 0, 2), Siblings(tmp_path, 1, 2)
    answer_about_approvals(theirs, queue)
    engine, _ = keyed_engine()
    desk = ApprovalDesk(mine, ours)
    async with engine, theirs, ours:
        (found,) = (await desk.approvals(engine, _call())).approvals
        assert (found.stage, found.server, found.answer) == ("answer", "docs", "The secret.")
        path = {"id": found.id}
        assert (await desk.approval(engine, _call(path))).text == "The secret."
        order = {"decision": "edit", "text": "Nothing."}
        await desk.decide_approval(engine, _call(path, order))
    assert await deciding == Decision(approved=True, content=(Text("Nothing."),))


def _call(path: dict[str, str] | None = None, body: dict[str, str] | None = None) -> Any:
    from penstock.server.admin.requests import ApprovalOrder, ApprovalPath

    class Call:
        pass

    call: Any = Call()
    call.path = None if path is None else msgspec.convert(path, ApprovalPath)
    call.body = None if body is None else msgspec.convert(body, ApprovalOrder)
    return call


def test_an_engine_has_the_policy_of_its_configuration() -> None:
    engine: Engine = keyed_engine()[0]
    assert engine.sampling_policy.approval == "policy"
