"""The words that the layers share."""

import pytest

from penstock.contract.events import Cancelled, Chunk, Finished, ReasoningDelta, ToolUseDelta
from penstock.contract.exchange import Reply, Usage
from penstock.contract.ports import Attempt, ModelInfo, Target


def test_a_target_is_shown_as_it_is_configured() -> None:
    assert str(Target("openrouter", "meta/llama-3")) == "openrouter/meta/llama-3"


@pytest.mark.parametrize(
    "value",
    [
        Target("p", "m"),
        ModelInfo("m"),
        Attempt(Target("p", "m"), 1),
        Chunk("a"),
        ReasoningDelta("a"),
        ToolUseDelta(0),
        Finished(Reply((), "m", "endTurn", Usage())),
    ],
)
def test_values_of_the_ports_are_frozen(value: object) -> None:
    field = next(iter(type(value).__annotations__))
    with pytest.raises(AttributeError):
        setattr(value, field, None)


def test_two_cancellations_are_the_same_event() -> None:
    assert Cancelled() == Cancelled()
