"""Tables that people write beside the code: they name what the code has, and nothing else."""

from __future__ import annotations

import re
from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from typing import get_args

import msgspec
import pytest

import penstock
from penstock.contract.exchange import Metadata, Usage
from penstock.engine.per_loop import EndpointOptions
from penstock.generators.content import DEFAULT_MAX_TOKENS
from penstock.generators.embeddings import EmbeddingOptions
from penstock.generators.tool_loop import LoopLimits
from penstock.generators.transcription import TranscriptionOptions
from penstock.mcp.tools import LIST_TTL_S
from scripts.generate_docs import TABLES
from tests.docs.blocks import ROOT

GENERATORS = (ROOT / "docs/generators.md").read_text(encoding="utf-8")
TOOLS = (ROOT / "docs/tools.md").read_text(encoding="utf-8")
SERVERS = (ROOT / "docs/mcp-tools.md").read_text(encoding="utf-8")
ALL_FACTS = Metadata(
    provider="p",
    model="m",
    request_id="r",
    latency_ms=1,
    first_token_ms=1,
    usage=Usage(1, 1, 1, 1, 1),
    response_id="i",
    response_status="s",
    embedding_count=1,
    embedding_dims=1,
    cost_nanos=1,
    dropped_options=("o",),
    stop_detail="d",
).as_dict()


def _rows(page: str, first_heading: str) -> list[list[str]]:
    """The cells of the table whose first column has this heading."""
    found = re.search(
        rf"^\| {re.escape(first_heading)} \|.*\n\|[-|]+\|\n((?:\|.*\n)+)", page, re.MULTILINE
    )
    assert found, f"there is no table of {first_heading!r}"
    return [
        [cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip("|"))]
        for line in found[1].splitlines()
    ]


def _names(page: str, first_heading: str) -> set[str]:
    """The words in code in the first column, without what they are called with."""
    cells = [row[0] for row in _rows(page, first_heading)]
    return {name for cell in cells for name in re.findall(r"`(\w+)[^`]*`", cell)}


@pytest.mark.parametrize(
    ("page", "heading", "expected"),
    [
        (GENERATORS, "option", set(EndpointOptions.__annotations__)),
        (GENERATORS, "key", set(ALL_FACTS)),
        (GENERATORS, "event", {kind.__name__ for kind in get_args(penstock.GeneratorEvent)}),
        (GENERATORS, "factory", {name for name in dir(penstock) if name.endswith("_generator")}),
        (SERVERS, "`MCPTool`", {field.name for field in msgspec.structs.fields(penstock.MCPTool)}),
    ],
    ids=["options", "metadata", "events", "factories", "MCPTool"],
)
def test_a_table_names_all_that_there_is(
    page: str, heading: str, expected: AbstractSet[str]
) -> None:
    assert _names(page, heading) == expected


def test_the_limits_in_the_tables_are_those_of_the_code() -> None:
    limits = LoopLimits()
    told = {row[0].strip("`"): row[1].strip("`") for row in _rows(TOOLS, "option")}
    assert told["max_tool_rounds"] == str(limits.max_rounds)
    assert told["tool_timeout"] == f"{limits.timeout_s:g}"
    assert told["max_parallel_tools"] == str(limits.concurrency)
    assert told["max_tool_result_bytes"] == str(limits.result_bytes)
    assert told["tool_errors"] == f'"{limits.errors}"'
    assert f"{DEFAULT_MAX_TOKENS}, or less" in GENERATORS
    assert f"or {LIST_TTL_S:g} s if it says nothing" in SERVERS


@pytest.mark.parametrize(
    ("heading", "options"),
    [
        ("Embeddings", EmbeddingOptions.__annotations__),
        ("Transcription", TranscriptionOptions.__optional_keys__),
    ],
)
def test_the_sections_of_other_generators_name_their_options(
    heading: str, options: Iterable[str]
) -> None:
    section = GENERATORS.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    listed = section.partition("there are ")[2].partition(".\n")[0].partition(". ")[0]
    assert set(re.findall(r"`(\w{3,})`", listed)) == set(options)


def test_the_default_models_are_those_of_the_registry() -> None:
    assert TABLES["default-models"]() in GENERATORS
