"""The generator of pages: what it writes, what it calls stale, and what it leaves alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts.generate_docs import COMMAND, PAGES, main

REGION = "before\n\n<!-- generated: kinds -->\n{}<!-- end -->\nafter\n"


def test_a_stale_page_is_named_with_the_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([], tmp_path) == 0
    assert main(["--check"], tmp_path) == 0
    (tmp_path / "docs/errors.md").write_text("old", encoding="utf-8")
    capsys.readouterr()
    assert main(["--check"], tmp_path) == 1
    assert capsys.readouterr().out == f"docs/errors.md is stale; run: {COMMAND}\n"
    assert (tmp_path / "docs/errors.md").read_text(encoding="utf-8") == "old"


def test_a_table_is_generated_inside_a_page_that_people_write(tmp_path: Path) -> None:
    page = tmp_path / "docs/providers/index.md"
    page.parent.mkdir(parents=True)
    page.write_text(REGION.format("old\n"), encoding="utf-8")
    assert main([], tmp_path) == 0
    text = page.read_text(encoding="utf-8")
    assert text.startswith("before\n")
    assert text.endswith("<!-- end -->\nafter\n")
    assert "| `openai-chat` |" in text
    assert "old" not in text


def test_every_page_says_where_it_comes_from() -> None:
    for make in PAGES.values():
        title, _, note = make().partition("# ")[2].split("\n")[:3]
        assert title
        assert "Made by scripts/generate_docs.py from" in note
