"""Ids are made many at once, and each is given out once."""

import os
import re
from concurrent.futures import ThreadPoolExecutor

import pytest

from penstock.pipeline.registry import new_request_id


def several(count: int) -> list[str]:
    return [new_request_id() for _ in range(count)]


def test_no_two_requests_have_the_same_id_in_whatever_thread() -> None:
    with ThreadPoolExecutor(8) as threads:
        made = list(threads.map(several, [2000] * 8))
    ids = [one for some in made for one in some]
    assert len(set(ids)) == len(ids) == 16_000
    assert all(re.fullmatch(r"req_[0-9a-f]{24}", one) for one in ids)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_process_makes_other_ids_than_its_parent() -> None:
    new_request_id()
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writing, new_request_id().encode())
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(reading, 100).decode() != new_request_id()
    os.close(reading)
    os.close(writing)
