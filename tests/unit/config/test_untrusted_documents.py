"""Any TOML document that is found in a folder is read, or refused with a ConfigurationError."""

from __future__ import annotations

import contextlib
import datetime
import json
from typing import Any, cast

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from penstock.config import untrusted
from penstock.config.load import describe_needs, parse
from penstock.config.trust import Contents
from penstock.contract.errors import ConfigurationError

NAMES = sorted({name for pattern in untrusted.RULES for name in pattern if name != "*"})
SETTINGS = sorted({name for pattern in untrusted.HARMLESS for name in pattern if name != "*"})
TEXTS = (
    *(
        "",
        "x",
        "/",
        "openai/m",
        "embedded/x.gguf",
        "${HOME}",
        "${OPENAI_API_KEY}",
        "${",
        "http://[",
    ),
    *("http://127.0.0.1:9", "sqlite:///penstock.db", "127.0.0.1", "::1", "openai", "bedrock"),
)
MOMENT = datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.UTC)
SCALARS = (
    st.sampled_from(TEXTS)
    | st.text(max_size=8)
    | st.integers(-(2**64), 2**64)
    | st.floats()
    | st.booleans()
    | st.sampled_from([MOMENT, MOMENT.date(), MOMENT.time()])
)
KNOWN = (*NAMES, *SETTINGS, "m", "openai", "local", "openai/m")
KEYS = st.sampled_from(KNOWN) | st.text(max_size=4)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=12,
)
DOCUMENTS = st.dictionaries(
    st.sampled_from(sorted({pattern[0] for pattern in untrusted.RULES})) | KEYS, VALUES, max_size=4
)
OF_EACH_TYPE: tuple[Any, ...] = (
    *(5, 1.5, True, "", "x", MOMENT, MOMENT.date(), MOMENT.time()),
    *([], [5], [[]], [{}], [{"x": 5}], [{"x": {"y": 5}}]),
    *({}, {"x": 5}, {"": ""}, {"x": [5]}, {"x": {"y": {"z": 5}}}),
)


def toml(value: Any) -> str:
    """This value as TOML, in one line."""
    if isinstance(value, dict):
        table = cast(dict[str, Any], value)
        return "{" + ", ".join(f"{text(key)} = {toml(each)}" for key, each in table.items()) + "}"
    if isinstance(value, list):
        return f"[{', '.join(map(toml, cast(list[Any], value)))}]"
    if isinstance(value, str):
        return text(value)
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return repr(value)
    return value.isoformat()


def text(value: str) -> str:
    """A basic string of TOML, which is one of JSON without halves of characters."""
    clean = value.encode("utf-8", "replace").decode()
    return json.dumps(clean, ensure_ascii=False).replace("\x7f", "\\u007f")


def document(value: dict[str, Any]) -> str:
    return "".join(f"{text(key)} = {toml(each)}\n" for key, each in value.items())


def check(written: str) -> None:
    """The errors that a file may have are ConfigurationErrors."""
    for use in (
        lambda: describe_needs(Contents(written.encode()), "penstock.toml"),
        lambda: parse(written),
    ):
        with contextlib.suppress(ConfigurationError):
            use()


@given(DOCUMENTS)
@example({"models": {"m": {"prices": 5}}})
@settings(suppress_health_check=[HealthCheck.too_slow])
def test_any_document_is_read_or_refused(value: dict[str, Any]) -> None:
    check(document(value))


PATTERNS = (*untrusted.RULES, *untrusted.HARMLESS)
PLACES = sorted({each[:size] for each in PATTERNS for size in range(1, len(each) + 1)})
"""Each setting that a rule or the list of harmless ones names, and each table above it."""


@pytest.mark.parametrize("place", PLACES, ids=".".join)
@pytest.mark.parametrize("name", ["m", "openai", "embedded"])
def test_each_setting_may_have_each_type(place: tuple[str, ...], name: str) -> None:
    for value in OF_EACH_TYPE:
        whole: Any = value
        for piece in reversed(place):
            whole = {name if piece == "*" else piece: whole}
        check(document(whole))
