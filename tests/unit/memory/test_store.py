"""What is kept of requests, in which order it is given again, and who may say what."""

import logging
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.contract.errors import ConfigurationError, InvalidRequest
from penstock.contract.ports import Target
from penstock.routing.learning.features import FeatureMaker
from penstock.routing.learning.router import LearnedRouter
from penstock.routing.outcomes.outcome import Logged, Outcome, Quality, Source
from penstock.routing.outcomes.ports import Counts, Served
from penstock.routing.outcomes.sqlite import SqliteOutcomes
from tests.unit.memory.support import LOGGED, MADE_BY, A, B, all_events, features, label, served


@pytest.fixture
def store(tmp_path: Path) -> Any:
    opened = SqliteOutcomes(tmp_path / "x.db")
    yield opened
    opened.close()


def test_before_anything_is_kept_there_is_no_file(store: SqliteOutcomes) -> None:
    assert store.counts() == Counts()
    assert store.events().found == ()
    assert store.find("r") == ()
    assert not store.path.exists()


def test_a_served_request_teaches_time_and_cost_and_a_label_teaches_quality(
    store: SqliteOutcomes,
) -> None:
    store.served(served("r", 3))
    store.labelled(label("r", 0.75))
    store.flush()
    first, second = all_events(store)
    assert (first.model, first.own, first.outcome.quality) == ("m", True, None)
    assert (first.outcome.cost_usd, first.outcome.latency_ms) == (0.005, 120.5)
    assert (first.outcome.first_token_ms, first.outcome.output_tokens) == (20.25, 34)
    told = second.outcome
    assert told.quality is not None
    assert (told.quality.score, told.quality.source) == (0.75, Source.FEEDBACK)
    assert np.array_equal(told.features, features(3))
    assert (told.logged, told.given, told.key, told.target) == (LOGGED, False, "ci", A)
    assert (told.cost_usd, told.latency_ms, told.output_tokens) == (None, None, None)


def test_what_is_read_again_teaches_a_router_the_same(store: SqliteOutcomes) -> None:
    at_once, later = LearnedRouter(FeatureMaker()), LearnedRouter(FeatureMaker())
    for number in range(60):
        target, quality = ((A, Quality(1.0)), (B, Quality(0.0)))[number % 2]
        one = served(f"r{number}", number, target=target)
        store.served(one)
        store.labelled(label(f"r{number}", quality.score))
        known: dict[str, Any] = {
            "target": target,
            "prompt_tokens": 12,
            "features": features(number),
            "key": "ci",
        }
        at_once.learn(Outcome(**known, cost_usd=0.005, latency_ms=120.5))
        at_once.learn(Outcome(**known, quality=quality, logged=LOGGED))
    store.flush()
    for event in all_events(store, most=7):
        later.learn(event.outcome)
    decided = later.explain(features(4), 12, [B, A])
    assert decided == at_once.explain(features(4), 12, [B, A])
    assert decided.best.target == A
    assert later.verdict() == at_once.verdict()


def test_pages_meet_without_gap_or_overlap(store: SqliteOutcomes) -> None:
    for number in range(10):
        store.served(served(f"r{number}"))
        store.labelled(label(f"r{number}"))
    store.flush()
    whole = [event.seq for event in all_events(store)]
    assert len(whole) == 20
    assert whole == sorted(set(whole))
    assert [event.seq for event in all_events(store, most=3)] == whole
    assert [event.seq for event in all_events(store, after=whole[4])] == whole[5:]


def test_of_one_source_the_latest_label_counts_and_sources_stand_side_by_side(
    store: SqliteOutcomes,
) -> None:
    store.served(served("r"))
    store.labelled(label("r", 1.0, source=Source.VALIDATION))
    store.labelled(label("r", 0.2))
    store.labelled(label("r", 0.9))
    (found,) = store.find("r")
    assert [(each.quality.source, each.quality.score) for each in found.labels] == [
        (Source.VALIDATION, 1.0),
        (Source.FEEDBACK, 0.9),
    ]
    assert len(all_events(store)) == 3


def test_a_label_that_is_given_again_is_no_event_and_a_changed_one_is_the_same_label(
    store: SqliteOutcomes,
) -> None:
    store.served(served("r"))
    store.labelled(label("r", 0.2))
    store.flush()
    before = all_events(store)
    store.labelled(msgspec.structs.replace(label("r", 0.2), key="another", at=77.0))
    store.flush()
    assert all_events(store, after=before[-1].seq) == []
    (found,) = store.find("r")
    assert [(each.key, each.at) for each in found.labels] == [("another", 77.0)]
    store.labelled(label("r", 0.9))
    store.flush()
    (changed,) = all_events(store, after=before[-1].seq)
    assert changed.outcome.label == before[-1].outcome.label is not None
    assert changed.outcome.quality == Quality(0.9)


def test_a_spoilt_score_is_passed_over(store: SqliteOutcomes) -> None:
    store.served(served("r"))
    store.labelled(label("r", 0.2))
    store.flush()
    with closing(sqlite3.connect(store.path)) as connection, connection:
        connection.execute("UPDATE routing_labels SET score = 9e999")
    assert [event.outcome.quality for event in all_events(store)] == [None]


def test_a_label_goes_to_the_target_that_answered(store: SqliteOutcomes) -> None:
    store.served(served("r", target=A, ok=False, error="RateLimited", features=None))
    store.served(served("r", target=B))
    store.labelled(label("r"))
    failed, answered = store.find("r")
    assert (failed.labels, failed.served.error) == ((), "RateLimited")
    assert [each.target for each in answered.labels] == [B]
    assert not failed.takes_label_of("ci", isolated=False)


def test_with_isolation_only_the_owner_may_say_how_good_it_was(store: SqliteOutcomes) -> None:
    store.served(served("r", key="mine"))
    store.labelled(label("r", key="other"), isolated=True)
    store.labelled(label("r", key=None), isolated=True)
    (found,) = store.find("r")
    assert found.labels == ()
    assert store.refused == 2
    assert found.takes_label_of("mine", isolated=True)
    assert not found.takes_label_of("other", isolated=True)
    store.labelled(label("r", key="mine"), isolated=True)
    store.labelled(label("r", key="other", source=Source.JUDGE))
    assert len(store.find("r")[0].labels) == 2


def test_a_label_waits_for_the_outcome_that_another_process_is_about_to_write(
    store: SqliteOutcomes,
) -> None:
    store.labelled(label("r", 0.5))
    store.flush()
    other = SqliteOutcomes(store.path)
    other.served(served("r"))
    other.close()
    assert [each.quality.score for each in store.find("r")[0].labels] == [0.5]


def test_a_label_of_a_request_that_nobody_knows_is_dropped(tmp_path: Path) -> None:
    store = SqliteOutcomes(tmp_path / "x.db", patience_s=0)
    store.labelled(label("r"))
    store.flush()
    assert store.refused == 1
    store.close()
    waiting = SqliteOutcomes(tmp_path / "x.db")
    waiting.labelled(label("r"))
    waiting.close()
    assert (waiting.refused, waiting.counts().labels) == (1, 0)


@pytest.mark.parametrize("score", [-0.1, 1.1, float("nan")])
def test_a_score_that_is_none_is_refused(store: SqliteOutcomes, score: float) -> None:
    with pytest.raises(InvalidRequest, match=r"score: .* is not a score; give a number from 0"):
        store.labelled(label("r", score))


def test_labels_with_features_of_another_maker_are_left_out(store: SqliteOutcomes) -> None:
    store.served(served("r", made_by="2:other"))
    store.labelled(label("r"))
    store.flush()
    page = store.events(made_by=MADE_BY)
    assert [event.outcome.quality for event in page.found] == [None]
    assert page.cursor == 2
    assert len(store.events(made_by="2:other").found) == 2


def test_a_replay_gives_the_newest_events_of_each_model(tmp_path: Path) -> None:
    store = SqliteOutcomes(tmp_path / "x.db", replayed=5)
    store.served(served("rare", model="rare"))
    for number in range(20):
        store.served(served(f"r{number}"))
        store.labelled(label(f"r{number}"))
    store.flush()
    found = all_events(store, most=2)
    assert [event.model for event in found] == ["rare", *["m"] * 5]
    assert [event.seq for event in found] == [1, 37, 38, 39, 40, 41]
    store.close()


def test_the_oldest_outcomes_go_with_all_that_belongs_to_them(tmp_path: Path) -> None:
    store = SqliteOutcomes(tmp_path / "x.db", keep=10, keep_in_all=14)
    for number in range(30):
        store.served(served(f"r{number}", model="often"))
        store.labelled(label(f"r{number}"))
    for number in range(6):
        store.served(served(f"s{number}", model="rare"))
    store.flush()
    store.prune()
    assert store.counts() == Counts(outcomes=14, labels=8, features=14)
    assert store.find("r21") == []
    assert store.find("r22")
    assert store.prune() == 0
    store.close()


def test_the_writer_prunes_by_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.routing.outcomes.writer.PRUNED_EVERY", 20)
    store = SqliteOutcomes(tmp_path / "x.db", keep=10)
    for _ in range(3):
        for number in range(20):
            store.served(served(f"r{number}"))
        store.flush()
    assert store.counts().outcomes == 10
    store.close()


def test_what_does_not_fit_into_the_queue_is_dropped_with_one_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    # The first write takes the thread to a file that is locked, so that nothing leaves the queue.
    path = tmp_path / "x.db"
    store = SqliteOutcomes(path, most_waiting=3)
    store.served(served("first"))
    store.flush()
    lock = sqlite3.connect(path, isolation_level=None)
    lock.execute("BEGIN IMMEDIATE")
    for number in range(2000):
        store.served(served(f"r{number}"))
    dropped = store.dropped
    lock.execute("ROLLBACK")
    lock.close()
    store.close()
    assert dropped > 1000
    assert store.counts().outcomes == 2001 - dropped
    assert [each.levelno for each in caplog.records] == [logging.WARNING]
    assert "takes no more outcomes: 3 wait already" in caplog.text


def test_after_the_end_nothing_is_taken(store: SqliteOutcomes) -> None:
    store.served(served("r"))
    store.close()
    store.served(served("late"))
    store.flush()
    assert (store.dropped, store.counts().outcomes) == (1, 1)


def test_a_row_that_cannot_be_written_does_not_take_others_with_it(
    store: SqliteOutcomes, caplog: pytest.LogCaptureFixture
) -> None:
    store.served(served("one"))
    store.served(served("huge", cost_nanos=2**70))
    store.served(served("half \ud800"))
    store.served(served("two"))
    store.flush()
    assert (store.lost, store.counts().outcomes) == (2, 2)
    assert "an outcome cannot be kept" in caplog.text


def test_a_file_that_is_no_database_gives_one_error_and_stops_nobody(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "x.db"
    path.write_bytes(b"this is no database" * 100)
    store = SqliteOutcomes(path)
    for number in range(3):
        store.served(served(f"r{number}"))
        store.flush()
    assert store.lost == 3
    assert [each.levelno for each in caplog.records] == [logging.WARNING]
    assert f"the memory of routing {path} is damaged or is not an SQLite database" in caplog.text
    for question in (store.counts, store.events, lambda: store.forget(key="x")):
        with pytest.raises(ConfigurationError, match="restore it from a backup, or move it away"):
            question()
    store.close()
    assert path.read_bytes() == b"this is no database" * 100


def test_writing_goes_on_when_the_file_works_again(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    path.write_bytes(b"this is no database" * 100)
    store = SqliteOutcomes(path)
    store.served(served("lost"))
    store.flush()
    path.unlink()
    store.served(served("kept"))
    store.close()
    assert (store.lost, store.counts().outcomes) == (1, 1)


def test_a_file_of_a_newer_penstock_is_left_alone(store: SqliteOutcomes) -> None:
    store.served(served("r"))
    store.flush()
    with sqlite3.connect(store.path) as connection:
        connection.execute("UPDATE routing_meta SET value = 99 WHERE name = 'version'")
    connection.close()
    with pytest.raises(ConfigurationError, match="has version 99, and this Penstock knows"):
        store.counts()


numbers = st.floats(0, 1e6, width=64)
targets = st.builds(Target, st.text(min_size=1, max_size=5), st.text(min_size=1, max_size=9))
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
outcomes = st.fixed_dictionaries(
    {
        "request_id": texts,
        "model": texts,
        "target": targets,
        "at": numbers,
        "prompt_tokens": st.integers(0, 2**40),
        "key": st.none() | texts,
        "features": st.none() | st.integers(0, 99).map(features),
        "made_by": st.just(MADE_BY),
        "output_tokens": st.none() | st.integers(0, 2**40),
        "cost_nanos": st.none() | st.integers(0, 2**62),
        "latency_ms": st.none() | numbers,
        "first_token_ms": st.none() | numbers,
        "ok": st.booleans(),
        "error": st.none() | texts,
        "logged": st.none()
        | st.builds(
            Logged,
            tick=st.integers(0, 2**40),
            propensity=st.floats(0, 1),
            learned=targets,
            static=targets,
            predicted=st.tuples(numbers, numbers, numbers),
            spent=st.tuples(numbers, numbers, numbers),
            intelligence=st.floats(0, 1),
        ),
        # Without text and features, there is nothing of which it could be known who made it.
        "prompt": texts,
    }
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(outcomes)
def test_what_is_kept_comes_back_as_it_was(tmp_path: Path, fields: dict[str, Any]) -> None:
    one = Served(**fields)
    store = SqliteOutcomes(tmp_path / "x.db")
    store.served(one)
    found = store.find(one.request_id)[-1].served
    store.close()
    assert (found.features is None) == (one.features is None)
    assert one.features is None or np.array_equal(found.features, one.features)  # pyright: ignore[reportArgumentType]
    replace = msgspec.structs.replace
    assert replace(found, features=None) == replace(one, features=None)
