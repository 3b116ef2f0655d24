"""A line for each request, in which nothing was said and nothing can be forged."""

import contextlib
import io
import json
import logging
import re
from collections.abc import Generator

import pytest

from penstock.contract.errors import InvalidRequest, RateLimited
from penstock.telemetry.exporters.logs import LogForm, RequestLog, log_to
from penstock.testing import FakeProvider, engine_with


@pytest.fixture
def written() -> Generator[io.StringIO]:
    stream = io.StringIO()
    logger = logging.getLogger("penstock")
    before = logger.level
    handlers = list(logger.handlers)
    yield stream
    logger.handlers[:] = handlers
    logger.setLevel(before)


async def ask(form: LogForm, written: io.StringIO, *models: str) -> list[str]:
    log_to(written, form)
    engine = engine_with(FakeProvider(["a secret", RateLimited("secret reason")]))
    engine.hooks.subscribe(RequestLog())
    for number, model in enumerate(models):
        with contextlib.suppress(RateLimited, InvalidRequest):
            await engine.create_message(
                "my secret", max_tokens=9, model=model, request_id=f"r{number}"
            )
    return written.getvalue().splitlines()


async def test_json_lines_hold_the_facts(written: io.StringIO) -> None:
    answered, refused = map(json.loads, await ask("json", written, "default", "default"))
    assert answered["request_id"] == "r0"
    assert (answered["level"], answered["logger"]) == ("info", "penstock.requests")
    assert (answered["model"], answered["provider"], answered["upstream_model"]) == (
        "default",
        "fake",
        "echo",
    )
    assert (answered["outcome"], answered["attempts"], answered["cost_usd"]) == ("ok", 1, 0.0)
    assert (answered["input_tokens"], answered["output_tokens"]) == (2, 2)
    assert (refused["level"], refused["outcome"], refused["error"]) == (
        "warning",
        "failed",
        "RateLimited",
    )
    assert "secret" not in written.getvalue()


async def test_lines_for_people_say_the_same(written: io.StringIO) -> None:
    answered, refused = await ask("console", written, "default", "default")
    assert re.search(
        r"^\d\d:\d\d:\d\d chat  default -> fake/echo  ok  \d+ ms  2\+2 tokens  r0$", answered
    )
    assert re.search(r"WARNING chat  default -> fake/echo  RateLimited  \d+ ms  r1$", refused)


@pytest.mark.parametrize("form", ["console", "json"])
async def test_no_name_forges_a_line(form: LogForm, written: io.StringIO) -> None:
    lines = await ask(form, written, "fake/x\n12:00:00 request_id=r9\x1b[2J")
    assert len(lines) == 1
    assert "\x1b" not in lines[0]


async def test_other_records_of_the_package_are_lines_too(written: io.StringIO) -> None:
    log_to(written, "json")
    try:
        raise ValueError("a reason")
    except ValueError:
        logging.getLogger("penstock.somewhere").exception("it broke: %s", "here")
    (line,) = map(json.loads, written.getvalue().splitlines())
    assert (line["message"], line["level"]) == ("it broke: here", "error")
    assert "ValueError: a reason" in line["exception"]
