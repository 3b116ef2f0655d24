"""What the line below an answer says of its end."""

from __future__ import annotations

import pytest

from penstock.cli.actions.ask import footer
from penstock.contract.exchange import Metadata, Result
from penstock.contract.messages import Text


@pytest.mark.parametrize(
    ("reason", "detail", "said"),
    [
        ("endTurn", None, "0.0 s"),
        ("endTurn", "missing", "0.0 s"),
        ("maxTokens", None, "cut off: raise --max-tokens for more"),
        (
            "of_tomorrow",
            "of_tomorrow",
            "may be cut off: the provider's stop reason is 'of_tomorrow'",
        ),
    ],
)
def test_how_it_ended(reason: str, detail: str | None, said: str) -> None:
    metadata = Metadata(provider="p", model="m", request_id="r", latency_ms=0, stop_detail=detail)
    assert footer(Result((Text("Hi"),), "m", reason, metadata)).split(" · ")[-1] == said


def test_who_finished_it_is_named() -> None:
    metadata = Metadata(
        provider="p", model="m", request_id="r", latency_ms=0, continued_by="second/m"
    )
    facts = footer(Result((Text("Hi"),), "m", "endTurn", metadata)).split(" · ")
    assert "continued by second/m after a broken stream" in facts
