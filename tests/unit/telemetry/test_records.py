"""Records say how something ended, and nothing of what was said."""

import asyncio

import msgspec
import pytest

from penstock.contract.adaptation import Adaptation
from penstock.contract.errors import (
    AllTargetsFailed,
    PenstockError,
    ProviderTimeout,
    RateLimited,
    RequestCancelled,
)
from penstock.contract.exchange import Usage
from penstock.telemetry.records import (
    AttemptRecord,
    AttemptStarted,
    Outcome,
    RequestRecord,
    RequestStarted,
    has_answered,
    outcome_of,
)
from tests.support.telemetry import ATTEMPT, ATTEMPTED, FINISHED, STARTED, attempted

SECRET = "a text that nobody should read"


@pytest.mark.parametrize(
    ("error", "outcome", "name", "status", "retryable"),
    [
        (None, "ok", None, None, False),
        (RateLimited(SECRET, status=429), "failed", "RateLimited", 429, True),
        (RateLimited(SECRET, status=429, retryable=False), "failed", "RateLimited", 429, False),
        (ProviderTimeout(SECRET), "failed", "ProviderTimeout", None, False),
        (AllTargetsFailed(SECRET, attempts=()), "failed", "AllTargetsFailed", None, False),
        (ValueError(SECRET), "failed", "ValueError", None, False),
        (RequestCancelled(SECRET), "cancelled", None, None, False),
        (asyncio.CancelledError(SECRET), "cancelled", None, None, False),
        (GeneratorExit(SECRET), "cancelled", None, None, False),
    ],
)
def test_an_error_is_told_by_its_type_and_never_by_its_text(
    error: BaseException | None,
    outcome: Outcome,
    name: str | None,
    status: int | None,
    retryable: bool,
) -> None:
    attempt = AttemptRecord.of(ATTEMPT, duration_s=1.0, error=error)
    request = RequestRecord.of(STARTED, duration_s=2.0, error=error, attempts=(attempt,))
    assert (attempt.outcome, attempt.error) == (outcome, name)
    assert (attempt.status, attempt.retryable) == (status, retryable)
    assert (request.outcome, request.error) == (outcome, name)
    for record in (attempt, request):
        assert SECRET not in repr(record)
        assert SECRET.encode() not in msgspec.json.encode(record)


def test_every_error_of_ours_but_a_cancellation_is_a_failure() -> None:
    def tree(kind: type[PenstockError]) -> list[type[PenstockError]]:
        return [kind, *(one for below in kind.__subclasses__() for one in tree(below))]

    for kind in tree(PenstockError):
        cancelled = issubclass(kind, RequestCancelled)
        assert outcome_of(kind.__new__(kind)) == ("cancelled" if cancelled else "failed")


def test_the_end_repeats_what_the_beginning_said() -> None:
    usage = Usage(3, 2)
    attempt = AttemptRecord.of(
        ATTEMPT,
        duration_s=1.5,
        first_token_s=0.5,
        usage=usage,
        adapted=(
            Adaptation("temperature", "adapted"),
            Adaptation("stop_sequences", "emulated", "emulated"),
        ),
    )
    for name in AttemptStarted.__struct_fields__:
        assert getattr(attempt, name) == getattr(ATTEMPT, name)
    assert (attempt.first_token_s, attempt.usage) == (0.5, usage)
    assert attempt.dropped_options == ("temperature",)
    for name in set(RequestStarted.__struct_fields__) & set(RequestRecord.__struct_fields__):
        assert getattr(FINISHED, name) == getattr(STARTED, name)


def test_who_answered_is_the_last_attempt_unless_the_answer_says_otherwise() -> None:
    second = attempted(number=2, provider="claude", model="claude-5")
    record = RequestRecord.of(STARTED, duration_s=1.0, attempts=(ATTEMPTED, second))
    assert (record.provider, record.model) == ("claude", "claude-5")
    record = RequestRecord.of(
        STARTED, duration_s=1.0, attempts=(ATTEMPTED, second), model="claude-5-0101"
    )
    assert (record.provider, record.model) == ("claude", "claude-5-0101")
    nobody = RequestRecord.of(STARTED, duration_s=1.0)
    assert (nobody.provider, nobody.model) == (None, None)


@pytest.mark.parametrize("record", [STARTED, ATTEMPT, ATTEMPTED, FINISHED])
def test_records_are_frozen_and_survive_json(record: msgspec.Struct) -> None:
    with pytest.raises(AttributeError):
        setattr(record, "request_id", "another")  # noqa: B010 - the type checker refuses it too
    assert msgspec.json.decode(msgspec.json.encode(record), type=type(record)) == record


@pytest.mark.parametrize(
    ("outcome", "first_token_s", "answered"),
    [("ok", None, True), ("failed", None, False), ("cancelled", 0.1, True), ("failed", 0.1, True)],
)
def test_a_model_that_said_anything_has_answered(
    outcome: Outcome, first_token_s: float | None, answered: bool
) -> None:
    assert has_answered(attempted(outcome=outcome, first_token_s=first_token_s)) is answered
