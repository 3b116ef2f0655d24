"""A killed process loses nothing: what was answered is in the ledger, and nothing stays blocked.

`python bench/ledger_kill.py` does the same 200 times.
"""

import random
from pathlib import Path

import pytest

from tests.support.ledger_kill import kill_and_look

ROUNDS = 8


@pytest.mark.timeout(180)
async def test_a_process_killed_under_load_loses_nothing(tmp_path: Path) -> None:
    seed = random.randrange(10**6)
    answered = 0
    for number in range(ROUNDS):
        found = await kill_and_look(tmp_path / "x.db", seed + number)
        assert not found.problems, (seed + number, found.problems[:5])
        assert found.answered
        answered += found.answered
    assert answered > ROUNDS
