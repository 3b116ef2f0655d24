"""What travels with the caller: sealed in a reasoning item, and valid for that answer alone."""

import json
from typing import Any

from hypothesis import given

from penstock.contract.exchange import Metadata, Result
from penstock.contract.messages import Content, Reasoning, Text, ToolUse
from penstock.server.doors.openai_responses.decode import decode
from penstock.server.doors.openai_responses.encode import encode
from penstock.server.doors.openai_responses.state import is_sealed, seal, unseal
from tests.unit.server.responses_support import answers

ECHO = decode(b'{"input": "Hi"}', lambda _: 1).echo
SIGNED = Reasoning("Hm.", signature="s", origin="anthropic/a")
CALL = ToolUse("a", "f", {"x": 1}, meta={"gemini_signature": "g"})


def written(content: tuple[Content, ...]) -> list[Any]:
    """The items of this answer."""
    metadata = Metadata(provider="p", model="m", request_id="req_1", latency_ms=1)
    return json.loads(encode(Result(content, "m", "endTurn", metadata), ECHO))["output"]


def read(items: list[Any]) -> tuple[Content, ...]:
    """The assistant's turn, when these items are sent back."""
    body = {"input": [{"role": "user", "content": "Hi"}, *items]}
    messages = decode(json.dumps(body).encode(), lambda _: 1).request.messages
    return messages[1].content if len(messages) > 1 else ()


def test_an_answer_without_secrets_is_not_sealed() -> None:
    assert seal((Text("a"), Reasoning("b"), ToolUse("c", "f", {}))) is None


def test_a_signed_answer_comes_back_as_it_was() -> None:
    hidden = Reasoning(signature="r", redacted=True, origin="anthropic/a")
    answer = (SIGNED, hidden, Text("One "), Text("two", meta={"k": "v"}), CALL)
    items = written(answer)
    assert [item["type"] for item in items] == ["reasoning", "message", "function_call"]
    assert is_sealed(items[0]["encrypted_content"])
    assert read(items) == answer
    assert read([items[1], items[2], items[0]]) == answer


def test_a_seal_without_any_thinking_has_an_item_of_its_own() -> None:
    items = written((CALL,))
    assert [item["type"] for item in items] == ["function_call", "reasoning"]
    assert items[1]["summary"] == []
    assert read(items) == (CALL,)


def test_a_seal_does_not_fit_another_answer() -> None:
    items = written((SIGNED, Text("Yes."), CALL))
    plain = (Reasoning("Hm."), Text("No."), ToolUse("a", "f", {"x": 1}))
    items[1]["content"][0]["text"] = "No."
    assert read(items) == plain
    items = written((SIGNED, Text("Yes."), CALL))
    items[2]["arguments"] = '{"x":2}'
    assert read(items) == (Reasoning("Hm."), Text("Yes."), ToolUse("a", "f", {"x": 2}))
    items = written((SIGNED, Text("Yes."), CALL))
    assert read(items[:2]) == (Reasoning("Hm."), Text("Yes."))


def test_what_is_no_seal_is_not_believed() -> None:
    shown = (Text("x"),)
    for sealed in ("penstock.1.!", "penstock.1.AAAA", "penstock.1.W10=", "penstock.1.WzAsW11d"):
        assert unseal([sealed], shown) == shown
    sealed = seal((SIGNED,)) or ""
    assert unseal([sealed, sealed], (Reasoning("Hm."),)) == (Reasoning("Hm."),)


@given(answers())
def test_any_sealed_answer_comes_back_as_it_was(answer: tuple[Content, ...]) -> None:
    assert read(written(answer)) == answer
