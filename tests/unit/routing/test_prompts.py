"""What a request is judged by."""

from __future__ import annotations

from penstock.contract.exchange import SamplingRequest
from penstock.contract.messages import Message, Text, assistant, user
from penstock.routing.learning.prompts import ENOUGH, asked_text


def _text(*messages: Message) -> str:
    asked = SamplingRequest(messages=messages, max_tokens=9, system_prompt="You are a pirate.")
    return asked_text(asked)


def test_the_last_question_alone_when_it_is_long() -> None:
    long = "Prove it. " * ENOUGH
    assert _text(user("Hello"), assistant("Hi"), user(long)) == long.strip()


def test_a_short_question_is_read_with_those_before_it() -> None:
    asked = (user("Prove Fermat's last theorem"), assistant("For n = 3: ..."), user("Go on"))
    assert _text(*asked) == "Prove Fermat's last theorem\nGo on"


def test_a_question_without_any_text_has_none() -> None:
    assert _text(Message("user", (Text("  "),))) == ""
