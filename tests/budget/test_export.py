"""The entries as files that other programs read."""

import asyncio
import csv
import importlib
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from penstock.budget.export import COLUMNS, export
from penstock.budget.reports import HistoryFilter
from penstock.budget.rules import Budget
from penstock.contract.errors import ConfigurationError
from tests.budget.support import A, Books, books, charge

NAME = 'a "quoted", name\nof two lines'


async def fill(at: Books) -> None:
    await at.ledger.set_budget(Budget(name="total", limit_nanos=10**18))
    hold = await at.ledger.reserve(NAME, [(A, 10**17 + 1)], key="ci", tags={"team": "blau, grün"})
    await at.ledger.settle(hold, [charge(10**17 + 1)])
    await at.spend(5)


async def test_csv_holds_every_entry_to_the_nano_dollar(tmp_path: Path) -> None:
    async with books(tmp_path / "x.db") as at:
        await fill(at)
        assert await export(at.ledger, tmp_path / "out.csv", "csv") == 4
    with (tmp_path / "out.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert tuple(rows[0]) == COLUMNS
    assert [row["kind"] for row in rows] == ["hold", "settle", "hold", "settle"]
    assert rows[1]["request_id"] == NAME
    assert int(rows[1]["amount_nanos"]) == 10**17 + 1
    assert json.loads(rows[1]["tags"]) == {"team": "blau, grün"}
    assert rows[3]["tags"] == ""


async def test_json_lines_hold_every_entry_with_its_postings(tmp_path: Path) -> None:
    async with books(tmp_path / "x.db") as at:
        await fill(at)
        chosen = HistoryFilter(kind="settle")
        assert await export(at.ledger, tmp_path / "out.jsonl", "jsonl", chosen) == 2
        entries = [entry for entry in await at.entries() if entry.kind == "settle"]
    lines = (tmp_path / "out.jsonl").read_text(encoding="utf-8").splitlines()
    first, _ = map(json.loads, lines)
    assert first["amount_nanos"] == 10**17 + 1
    assert first["tags"] == {"team": "blau, grün"}
    assert first["postings"] == [list(entries[0].postings[0])]


async def test_parquet_says_what_it_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    async with books(tmp_path / "x.db") as at:
        await fill(at)
        with pytest.raises(ConfigurationError, match="pip install pyarrow"):
            await export(at.ledger, tmp_path / "out.parquet", "parquet")
    assert list(tmp_path.glob("*out*")) == []


async def test_parquet_holds_every_entry_to_the_nano_dollar(tmp_path: Path) -> None:
    parquet: Any = importlib.import_module("pyarrow.parquet")
    async with books(tmp_path / "x.db") as at:
        await fill(at)
        assert await export(at.ledger, tmp_path / "out.parquet", "parquet") == 4
    rows = parquet.read_table(tmp_path / "out.parquet").to_pylist()
    assert rows[1]["amount_nanos"] == 10**17 + 1
    assert rows[1]["request_id"] == NAME
    assert rows[3]["tags"] is None


async def test_a_long_past_is_written_part_by_part(tmp_path: Path) -> None:
    number = 10_050
    async with books(tmp_path / "x.db") as at:
        await asyncio.gather(*(at.ledger.adjust(each, "") for each in range(number)))
        assert await export(at.ledger, tmp_path / "out.jsonl", "jsonl") == number
    lines = (tmp_path / "out.jsonl").read_text(encoding="utf-8").splitlines()
    assert [json.loads(line).get("amount_nanos", 0) for line in lines] == list(range(number))


async def test_an_empty_ledger_gives_an_empty_file(tmp_path: Path) -> None:
    async with books(tmp_path / "x.db") as at:
        assert await export(at.ledger, tmp_path / "out.csv", "csv") == 0
    assert (tmp_path / "out.csv").read_text(encoding="utf-8").strip() == ",".join(COLUMNS)


async def test_a_file_that_was_there_stays_until_the_new_one_is_whole(tmp_path: Path) -> None:
    (tmp_path / "out.csv").write_text("old", encoding="utf-8")
    async with books(tmp_path / "x.db") as at:
        await fill(at)
        with pytest.raises(ConfigurationError, match="'xml' is not known: give csv, jsonl"):
            await export(at.ledger, tmp_path / "out.csv", "xml")  # pyright: ignore[reportArgumentType]
        with pytest.raises(OSError, match="nowhere"):
            await export(at.ledger, tmp_path / "nowhere" / "out.csv", "csv")
        assert (tmp_path / "out.csv").read_text(encoding="utf-8") == "old"
        await export(at.ledger, tmp_path / "out.csv", "csv")
    assert (tmp_path / "out.csv").read_text(encoding="utf-8").startswith("id,kind,at,")
    assert list(tmp_path.glob(".*")) == []
