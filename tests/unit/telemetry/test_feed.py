"""A feed: many listeners, one ring, and nobody who is slow holds up anybody."""

import asyncio

import pytest

from penstock.telemetry.feed import Feed, Heard
from penstock.telemetry.hooks import Hooks
from penstock.telemetry.records import RequestStarted

PATIENCE_S = 20.0


def record(number: int) -> RequestStarted:
    return RequestStarted(request_id=f"req_{number}", operation="chat", started=0.0)


def names(heard: Heard | None) -> list[str]:
    assert heard is not None
    told = (each.record for each in heard.told)
    return [each.request_id for each in told if isinstance(each, RequestStarted)]


async def test_a_listener_hears_what_comes_after_it() -> None:
    feed = Feed()
    feed(record(1))
    with feed.listen() as listener:
        feed(record(2))
        feed(record(3))
        assert names(await listener.next(PATIENCE_S)) == ["req_2", "req_3"]
        waiting = asyncio.create_task(listener.next(PATIENCE_S))
        await asyncio.sleep(0)
        feed(record(4))
        assert names(await waiting) == ["req_4"]


async def test_the_slow_lose_the_oldest_and_are_told_how_many() -> None:
    feed = Feed(kept=2)
    with feed.listen() as slow, feed.listen() as quick:
        for number in range(5):
            feed(record(number))
            assert names(await quick.next(PATIENCE_S)) == [f"req_{number}"]
        heard = await slow.next(PATIENCE_S)
    assert heard is not None
    assert (names(heard), heard.missed) == (["req_3", "req_4"], 3)


async def test_one_whose_connection_broke_goes_on_where_it_was() -> None:
    feed, hooks = Feed(), Hooks()
    feed.follow(hooks)
    with feed.listen() as first:
        hooks.started(record(1))
        heard = await first.next(PATIENCE_S)
    assert heard is not None
    # Nobody listens, and somebody may come back.
    hooks.started(record(2))
    with feed.listen(after=heard.told[-1].number) as again:
        assert names(await again.next(PATIENCE_S)) == ["req_2"]


async def test_while_nobody_listens_nothing_is_told_to_it() -> None:
    feed, hooks = Feed(linger_s=0.0), Hooks()
    feed.follow(hooks)
    assert not hooks.active
    with feed.listen() as listener:
        assert hooks.active
        late = Hooks()
        feed.follow(late)
        late.started(record(1))
        heard = await listener.next(PATIENCE_S)
        assert names(heard) == ["req_1"]
    assert heard is not None
    async with asyncio.timeout(PATIENCE_S):
        while hooks.active or late.active:  # noqa: ASYNC110 - a timer of the loop tells nobody
            await asyncio.sleep(0)
    # Who comes back after that is told that something is missing.
    with feed.listen(after=heard.told[-1].number) as again:
        hooks.started(record(3))
        heard = await again.next(PATIENCE_S)
        assert heard is not None
        assert (names(heard), heard.missed) == (["req_3"], 1)


@pytest.mark.parametrize("number", [-1, 99])
async def test_a_number_of_another_process_means_from_now_on(number: int) -> None:
    feed = Feed()
    feed(record(1))
    with feed.listen(after=number) as listener:
        feed(record(2))
        assert names(await listener.next(PATIENCE_S)) == ["req_2"]


async def test_after_some_patience_there_is_nothing() -> None:
    with Feed().listen() as listener:
        assert await listener.next(0.001) == Heard([], 0)


async def test_closing_ends_those_who_listen_after_what_they_have_not_heard() -> None:
    feed = Feed()
    with feed.listen() as behind, feed.listen() as waiting:
        task = asyncio.create_task(waiting.next(PATIENCE_S))
        await asyncio.sleep(0)
        feed.close()
        assert await task is None
        feed(record(1))
        assert names(await behind.next(PATIENCE_S)) == ["req_1"]
        assert await behind.next(PATIENCE_S) is None


def test_there_must_be_room_for_one() -> None:
    with pytest.raises(ValueError, match="kept=0: give 1 or more"):
        Feed(0)
