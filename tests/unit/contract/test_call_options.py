"""`_provider`, `_timeout` and `_stream` beside MCP's params."""

from typing import Any

import pytest

from penstock.contract.mcp.call_options import CallOptions, read_call_options
from penstock.contract.mcp.content import Found


def read(
    params: dict[str, Any], timeout: float | None = None, stream: bool | None = None
) -> tuple[CallOptions, list[str]]:
    found = Found("", params)
    options = read_call_options(found, timeout=timeout, stream=stream, events="read events")
    return options, [str(each) for each in found.problems]


@pytest.mark.parametrize(
    ("params", "provider", "timeout", "stream"),
    [
        ({}, None, None, None),
        ({"_provider": None, "_timeout": None, "_stream": None, "_callback": None}, *[None] * 3),
        ({"_provider": "one", "_timeout": 1500, "_stream": True}, "one", 1.5, True),
        ({"_timeout": "infinity", "_stream": False}, None, None, False),
        ({"_provider": "one", "metadata": {"_provider": "one"}}, "one", None, None),
    ],
)
def test_they_are_read(
    params: dict[str, Any], provider: str | None, timeout: float | None, stream: bool | None
) -> None:
    options, problems = read(params)
    assert not problems
    assert options[:3] == (provider, timeout, stream)


@pytest.mark.parametrize(
    ("params", "problem"),
    [
        ({"_provider": 7}, "_provider: is the number 7; give a text"),
        ({"_provider": " "}, "_provider: is blank; give the name of a provider"),
        (
            {"_provider": "one", "metadata": {"_provider": "two"}},
            "_provider: is not the same as metadata._provider; give one of them",
        ),
        ({"_timeout": 0}, "_timeout: 0 is not a positive number of milliseconds"),
        ({"_timeout": -1}, "_timeout: -1 is not a positive number of milliseconds"),
        ({"_timeout": "soon"}, "_timeout: is a text; give a number"),
        ({"_timeout": True}, "_timeout: is true; give a number"),
        ({"_stream": "yes"}, "_stream: is a text; give true or false"),
        ({"_callback": "<0.1.0>"}, "_callback: is not supported; read events"),
    ],
)
def test_what_is_wrong_is_said_by_name(params: dict[str, Any], problem: str) -> None:
    assert read(params)[1] == [problem]


def test_both_names_of_one_option_must_agree() -> None:
    assert read({"_stream": True}, stream=True)[1] == []
    assert read({"_stream": True}, stream=False)[1] == [
        "_stream: is true, and `stream` is not; give one of them"
    ]
    assert read({"_timeout": 5}, timeout=5)[1] == [
        "_timeout: is there beside `timeout`; give one of them: `_timeout` is in milliseconds, "
        "`timeout` in seconds"
    ]
