"""The last requests, and no more of them than there is room for."""

import pytest

from penstock.telemetry.recent import RecentRequests
from penstock.telemetry.records import RequestRecord, RequestStarted


def ended(name: str, error: BaseException | None = None) -> RequestRecord:
    begun = RequestStarted(request_id=name, operation="chat", started=0.0)
    return RequestRecord.of(begun, duration_s=1.0, error=error)


def test_the_newest_come_first_and_the_oldest_go() -> None:
    recent = RecentRequests(kept=2)
    for name in ("a", "b", "c"):
        recent(ended(name))
    assert [record.request_id for record in recent.newest()] == ["c", "b"]
    assert recent.get("a") is None
    assert recent.get("b") == ended("b")


def test_an_id_that_comes_again_is_the_newest() -> None:
    recent = RecentRequests(kept=2)
    for name in ("a", "b", "a", "c"):
        recent(ended(name))
    assert [record.request_id for record in recent.newest()] == ["c", "a"]


def test_only_those_are_shown_that_ended_so() -> None:
    recent = RecentRequests()
    recent(ended("good"))
    recent(ended("bad", LookupError()))
    recent(RequestStarted(request_id="running", operation="chat", started=0.0))
    assert [record.request_id for record in recent.newest("failed")] == ["bad"]
    assert [record.request_id for record in recent.newest("ok")] == ["good"]


def test_there_must_be_room_for_one() -> None:
    with pytest.raises(ValueError, match="kept=0: give 1 or more"):
        RecentRequests(0)
