"""The benches that judge: what they find too much makes them fail, in words."""

import subprocess
import sys
from pathlib import Path

BENCH = Path(__file__).parents[2] / "bench"


def run(code: str) -> subprocess.CompletedProcess[str]:
    """As a bench does, with its neighbours to import."""
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=BENCH
    )


def test_a_bench_fails_with_a_sentence_for_each_claim_that_does_not_hold() -> None:
    done = run(
        "from _support import Claim, end_by\n"
        "end_by([Claim('tasks left', 2, 0), Claim('all well', 1, 1), Claim('no figure', "
        "float('nan'), 1)])"
    )
    assert done.returncode == 1
    assert done.stderr.splitlines() == [
        "This does not hold: tasks left: found 2, allowed 0",
        "This does not hold: no figure: found nan, allowed 1",
    ]


def test_a_bench_whose_claims_hold_ends_well() -> None:
    done = run("from _support import Claim, end_by\nend_by([Claim('all well', 1, 1)])")
    assert (done.returncode, done.stderr) == (0, "")


def test_growth_is_told_from_noise() -> None:
    done = run(
        "from _soak_memory import Slope\n"
        "wave = [(x * 1000, 10 * (-1) ** x) for x in range(20)]\n"
        "print(Slope.of(wave).surely)\n"
        "print(round(Slope.of([(x, y + x / 100) for x, y in wave]).surely, 1))"
    )
    flat, growing = map(float, done.stdout.split())
    assert flat == 0
    assert 5 < growing <= 10


def test_memory_that_is_kept_is_seen_from_every_side() -> None:
    done = run(
        "from _soak_memory import memory\n"
        "before = memory()\n"
        "small, large = [float(each) for each in range(100_000)], bytearray(b'x' * 30_000_000)\n"
        "after = memory()\n"
        "print(*(now - then for now, then in zip(after, before)))"
    )
    blocks, heap_kb, resident_kb = map(float, done.stdout.split())
    assert blocks >= 100_000
    # Only the GNU C library tells.
    assert heap_kb == 0 or heap_kb > 30_000
    assert resident_kb > 30_000


SAID = """
import json
from _gateway_load_client import Ask, judged

def event(text="", finish=None):
    choice = {"index": 0, "delta": {"content": text}, "finish_reason": finish}
    return b"data: %b\\n\\n" % json.dumps({"choices": [choice]}).encode()

first, second, end = event("n1:0 "), event("n1:1 "), event(finish="stop")
done, error = b"data: [DONE]\\n\\n", b'data: {"error": {"message": "gone"}}\\n\\n'
ask = Ask(pieces=2, stream=True)
"""


STREAMS = {
    "first + second + end + done": "right",
    "first + second + end": "cut",
    "first + second + done": "cut",
    "first": "cut",
    "b''": "cut",
    "first + error": "error in the stream",
    "first + error + done": "error in the stream",
    "first + error + end + done": "wrong",
    "error": "wrong",
    "second + error": "wrong",
    "second + first + end + done": "wrong",
    "first + end + done": "wrong",
    "first + second + second + end + done": "wrong",
}


def test_a_stream_under_load_is_judged_by_every_piece_and_its_end() -> None:
    judge = "\n".join(f"print(judged('n1', ask, 200, {stream}))" for stream in STREAMS)
    done = run(f"{SAID}\n{judge}")
    assert done.returncode == 0, done.stderr
    assert dict(zip(STREAMS, done.stdout.splitlines(), strict=True)) == STREAMS


def test_a_whole_answer_under_load_is_judged_by_what_was_asked_for() -> None:
    done = run(
        f"{SAID}\nsaid = json.dumps({{'choices': [{{'message': {{'content': 'n1:0 n1:1 '}}}}]}})\n"
        "for name, asked, status in (\n"
        "    ('n1', 200, 200), ('n2', 200, 200), ('n1', 200, 502), ('n1', 400, 400)\n"
        "):\n"
        "    print(judged(name, Ask(pieces=2, status=asked), status, said.encode()))"
    )
    assert done.stdout.split() == ["right", "wrong", "502", "right"], done.stderr


def test_an_unknown_part_of_the_load_is_refused_with_the_known_ones() -> None:
    done = run(
        "import sys, gateway_load\nsys.argv = ['x', '--only', 'kill,typo']\ngateway_load.main()"
    )
    assert done.returncode == 2
    assert "--only typo: choose from streams, outage, kill, reload, stop, soak" in done.stderr
