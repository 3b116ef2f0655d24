"""The requests that run, the last that ended, and no more of them than there is room for."""

import pytest

from penstock.telemetry.recent import RecentRequests, RunningRequest
from penstock.telemetry.records import (
    AttemptRecord,
    AttemptStarted,
    RequestRecord,
    RequestStarted,
)


def begun(name: str) -> RequestStarted:
    return RequestStarted(request_id=name, operation="chat", started=0.0)


def ended(name: str, error: BaseException | None = None) -> RequestRecord:
    return RequestRecord.of(begun(name), duration_s=1.0, error=error)


def trying(name: str, number: int) -> AttemptStarted:
    return AttemptStarted(request_id=name, number=number, provider="p", model="m", started=0.0)


def test_the_newest_come_first_and_the_oldest_go() -> None:
    recent = RecentRequests(kept=2)
    for name in ("a", "b", "c"):
        recent(ended(name))
    assert [record.request_id for record in recent.newest()] == ["c", "b"]
    assert recent.get("a") is None
    assert recent.get("b") == ended("b")


def test_an_id_that_comes_again_is_the_newer_one() -> None:
    recent = RecentRequests()
    recent(ended("a", LookupError()))
    recent(ended("b"))
    recent(ended("a"))
    assert recent.get("a") == ended("a")


def test_a_running_request_is_shown_with_what_it_has_tried() -> None:
    recent = RecentRequests()
    recent(begun("old"))
    recent(begun("new"))
    first = trying("old", 1)
    recent(first)
    done = AttemptRecord.of(first, duration_s=0.5, error=LookupError())
    recent(done)
    recent(trying("old", 2))
    assert [each.begun.request_id for each in recent.running()] == ["new", "old"]
    assert recent.get("old") == RunningRequest(begun("old"), (done,), (trying("old", 2),))
    recent(ended("old"))
    assert [each.begun.request_id for each in recent.running()] == ["new"]
    assert recent.get("old") == ended("old")


def test_what_began_before_the_subscription_is_kept_when_it_ends() -> None:
    recent = RecentRequests()
    recent(trying("early", 1))
    assert list(recent.running()) == []
    recent(ended("early"))
    assert [each.request_id for each in recent.newest()] == ["early"]


def test_it_may_be_changed_while_somebody_reads() -> None:
    recent = RecentRequests()
    recent(begun("a"))
    recent(ended("b"))
    reading, running = recent.newest(), recent.running()
    recent(ended("c"))
    recent(begun("d"))
    assert [each.request_id for each in reading] == ["b"]
    assert [each.begun.request_id for each in running] == ["d", "a"]


def test_there_must_be_room_for_one() -> None:
    with pytest.raises(ValueError, match="kept=0: give 1 or more"):
        RecentRequests(0)
