"""`penstock embed`: texts to vectors."""

import json
from pathlib import Path

import pytest

from penstock.cli.actions import embed
from tests.unit.cli.conftest import Cli
from tests.unit.cli.harness import at_terminal

FAKE = ("embed", "--model", "fake/hash")


def test_piped_output_is_one_object_a_line(penstock_process: Cli) -> None:
    finished = penstock_process(*FAKE, "--dimensions", "3", "red", "a red apple")
    assert (finished.code, finished.err) == (0, "")
    lines = [json.loads(line) for line in finished.out.splitlines()]
    assert [line["text"] for line in lines] == ["red", "a red apple"]
    assert [len(line["embedding"]) for line in lines] == [3, 3]


def test_piped_lines_are_texts_and_blank_ones_are_not(folder: Path, penstock_here: Cli) -> None:
    finished = penstock_here(*FAKE, stdin="one\n\n  \ntwo\n")
    assert [json.loads(line)["text"] for line in finished.out.splitlines()] == ["one", "two"]


def test_json_is_one_document(folder: Path, penstock_here: Cli) -> None:
    document = json.loads(penstock_here(*FAKE, "one two", "three", "--json").out)
    assert (document["provider"], document["model"]) == ("fake", "hash")
    assert document["dimensions"] == 64
    assert [item["text"] for item in document["embeddings"]] == ["one two", "three"]
    assert document["usage"] == {"input_tokens": 3}
    assert document["metadata"]["embedding_count"] == 2


def test_long_input_goes_in_batches_and_is_summed_up(
    folder: Path, penstock_here: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embed, "BATCH", 10)
    texts = "".join(f"text {number}\n" for number in range(25))
    document = json.loads(penstock_here(*FAKE, "--json", stdin=texts).out)
    assert len(document["embeddings"]) == 25
    assert document["embeddings"][24]["text"] == "text 24"
    assert document["usage"] == {"input_tokens": 50}
    assert document["metadata"]["api_calls"] == 3
    lines = penstock_here(*FAKE, stdin=texts).out.splitlines()
    assert [json.loads(line)["text"] for line in lines][10] == "text 10"


def test_a_terminal_gets_a_short_table(folder: Path) -> None:
    texts = [f"text {number}" for number in range(23)]
    with at_terminal(*FAKE, *texts, "x" * 99, cwd=folder) as terminal:
        assert terminal.wait() == 0
    assert "text 0 " in terminal.screen
    assert "text 20" not in terminal.screen
    assert "and 4 more; fake/hash · pipe the output, or use --json" in terminal.screen


def test_a_terminal_gets_a_progress_bar_for_long_input(folder: Path) -> None:
    texts = [f"text {number}" for number in range(2 * embed.BATCH)]
    with at_terminal(*FAKE, *texts, cwd=folder) as terminal:
        terminal.expect(f"/{len(texts)}")
        assert terminal.wait() == 0


def test_without_a_configuration_the_embedded_model_is_used(
    bare_folder: Path, penstock_here: Cli
) -> None:
    finished = penstock_here("embed", "hello", "--dimensions", "8")
    assert len(json.loads(finished.out)["embedding"]) == 8
