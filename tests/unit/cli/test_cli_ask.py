"""`penstock ask`: what goes in, and what comes out."""

import base64
import json
from pathlib import Path

import pytest

from tests.unit.cli.conftest import Cli
from tests.unit.cli.harness import at_terminal, run_penstock
from tests.unit.cli.trickle import TrickleServer

PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


def test_a_piped_answer_is_the_text_and_a_newline(penstock_process: Cli) -> None:
    finished = penstock_process("ask", "Hello", "there")
    assert (finished.code, finished.out, finished.err) == (0, "Hello there\n", "")


def test_an_answer_that_ends_its_line_gets_no_second_newline(
    trickle_server: TrickleServer, penstock_here: Cli
) -> None:
    trickle_server.complete = True
    trickle_server.words = ["one\n", "two\n"]
    assert penstock_here("ask", "Go", "-c", "slow.toml").out == "one\ntwo\n"


def test_piped_text_is_the_prompt_when_there_is_none(penstock_process: Cli) -> None:
    assert penstock_process("ask", stdin="from a pipe\n").out == "from a pipe\n"


def test_piped_text_follows_the_argument(folder: Path, penstock_here: Cli) -> None:
    finished = penstock_here("ask", "Summarise this:", stdin="line 1\nline 2\n")
    assert finished.out == "Summarise this:\n\nline 1\nline 2\n"


def test_text_is_utf8_whatever_the_locale_says(folder: Path) -> None:
    env = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    finished = run_penstock("ask", "h\u00e9", cwd=folder, stdin="\u20ac", env=env)
    assert (finished.code, finished.err) == (0, "")
    document = run_penstock("ask", "h\u00e9", "--json", cwd=folder, stdin="\u20ac", env=env)
    assert json.loads(document.out)["metadata"]["input_tokens"] == 2
    assert run_penstock("chat", cwd=folder, stdin="h\u00e9", env=env).code == 0


@pytest.mark.parametrize(("given", "noted"), [(b"", True), (b"some text", False)])
def test_an_empty_input_beside_a_prompt_is_noted_at_a_terminal(
    folder: Path, given: bytes, noted: bool
) -> None:
    (folder / "input").write_bytes(given)
    with (
        (folder / "input").open("rb") as stdin,
        at_terminal("ask", "two", "words", cwd=folder, stdin=stdin) as terminal,
    ):
        assert terminal.wait() == 0
    assert ("standard input is empty, so only the prompt is sent" in terminal.screen) is noted


def test_notes_and_errors_are_folded_at_words(folder: Path) -> None:
    (folder / "input").write_bytes(b"")
    with (
        (folder / "input").open("rb") as stdin,
        at_terminal("ask", "two", cwd=folder, env={"COLUMNS": "30"}, stdin=stdin) as terminal,
    ):
        assert terminal.wait() == 0
    assert "standard input is empty, so\nonly the prompt is sent" in terminal.screen
    narrow = {"COLUMNS": "50"}
    with at_terminal("ask", "-m", "groq/x", "hi", cwd=folder, env=narrow) as terminal:
        assert terminal.wait() == 2
    assert (
        "penstock: error: provider 'groq' needs a key: set\n  GROQ_API_KEY, or" in terminal.screen
    )


def test_piped_text_that_is_not_utf8_is_refused(folder: Path, penstock_here: Cli) -> None:
    finished = penstock_here("ask", stdin=b"caf\xe9")
    assert finished.code == 2
    assert "not UTF-8" in finished.error_line


def test_the_answer_may_be_cut_by_max_tokens(folder: Path, penstock_here: Cli) -> None:
    assert penstock_here("ask", "-m", "words", "go", "--max-tokens", "2").out == "word1 word2 \n"


def test_json_is_one_document_with_text_usage_and_metadata(
    folder: Path, penstock_here: Cli
) -> None:
    finished = penstock_here("ask", "Hello there", "--json")
    document = json.loads(finished.out)
    assert finished.err == ""
    assert document["text"] == "Hello there"
    assert (document["provider"], document["model"]) == ("fake", "echo")
    assert document["stop_reason"] == "endTurn"
    assert document["usage"] == {"input_tokens": 2, "output_tokens": 2}
    assert document["metadata"]["total_tokens"] == 4
    assert document["request_id"] == document["metadata"]["request_id"]


def test_a_schema_gives_json(folder: Path, penstock_here: Cli) -> None:
    schema = {
        "type": "object",
        "properties": {"town": {"type": "string"}, "people": {"type": "integer"}},
        "required": ["town", "people"],
    }
    (folder / "town.json").write_text(json.dumps(schema))
    finished = penstock_here("ask", "A town", "--schema", "town.json")
    assert finished.out == '{"town":"text","people":0}\n'
    document = json.loads(penstock_here("ask", "A town", "--schema", "town.json", "--json").out)
    assert document["data"] == {"town": "text", "people": 0}


def test_structured_output_that_was_cut_off_is_an_error(folder: Path, penstock_here: Cli) -> None:
    (folder / "long.json").write_text('{"const": "many words that do not fit"}')
    finished = penstock_here("ask", "Go", "--schema", "long.json", "--max-tokens", "2")
    assert (finished.code, finished.out) == (1, "")
    assert "raise --max-tokens" in finished.error_line


def test_an_answer_that_is_not_json_is_an_error_when_there_is_a_schema(
    trickle_server: TrickleServer, folder: Path, penstock_here: Cli
) -> None:
    trickle_server.complete = True
    (folder / "any.json").write_text('{"type": "object"}')
    finished = penstock_here("ask", "Go", "-c", "slow.toml", "--schema", "any.json")
    assert (finished.code, finished.out) == (1, "")
    assert "the answer is not JSON: 'one two '; try again" in finished.error_line


def test_a_stream_that_breaks_off_leaves_its_text_and_an_error(
    trickle_server: TrickleServer, penstock_here: Cli
) -> None:
    trickle_server.broken = True
    finished = penstock_here("ask", "Go", "-c", "slow.toml")
    assert (finished.code, finished.out) == (1, "one two \n")
    assert finished.error_line.startswith("penstock: error: ")
    finished = penstock_here("chat", "-c", "slow.toml", stdin="Go\n")
    assert (finished.code, finished.out) == (1, "one two \n")


def test_options_reach_the_provider(trickle_server: TrickleServer, penstock_here: Cli) -> None:
    trickle_server.complete = True
    Path("pixel.png").write_bytes(PIXEL)
    finished = penstock_here(
        *("ask", "What is it?", "--config", "slow.toml", "--system", "Be brief."),
        *("--temperature", "0.5", "--max-tokens", "9", "--timeout", "30"),
        *("--image", "pixel.png", "--image", "https://example.com/cat.jpg"),
    )
    assert (finished.code, finished.out) == (0, "one two \n")
    body = trickle_server.bodies[0]
    assert body["temperature"] == 0.5
    assert 9 in (body.get("max_tokens"), body.get("max_completion_tokens"))
    assert body["messages"][0] == {"role": "system", "content": "Be brief."}
    text, picture, link = body["messages"][1]["content"]
    assert text == {"type": "text", "text": "What is it?"}
    assert picture["image_url"]["url"].startswith("data:image/png;base64,iVBOR")
    assert link["image_url"]["url"] == "https://example.com/cat.jpg"


def test_a_request_that_takes_too_long_is_given_up(
    trickle_server: TrickleServer, penstock_here: Cli
) -> None:
    trickle_server.words = []
    finished = penstock_here("ask", "Hi", "-c", "slow.toml", "--timeout", "2")
    assert finished.code == 1
    assert "limit of 2 s" in finished.error_line
    assert trickle_server.hung_up.wait(30)


def test_at_a_terminal_a_line_below_the_answer_tells_who_answered(folder: Path) -> None:
    with at_terminal("ask", "Hello there", cwd=folder) as terminal:
        assert terminal.wait() == 0
    assert "Hello there\nfake/echo · 2 tokens in · 2 out · " in terminal.screen


def test_at_a_terminal_structured_output_is_indented(folder: Path) -> None:
    (folder / "schema.json").write_text('{"const": {"a": 1}}')
    with at_terminal("ask", "Go", "--schema", "schema.json", cwd=folder) as terminal:
        assert terminal.wait() == 0
    assert '{\n  "a": 1\n}\n' in terminal.screen


def test_a_terminal_never_receives_the_models_control_characters(
    trickle_server: TrickleServer, folder: Path, penstock_here: Cli
) -> None:
    trickle_server.complete = True
    trickle_server.words = ["safe", "\x1b]0;title\x07", "\x9b2J\n\tafter"]
    with at_terminal("ask", "Go", "-c", "slow.toml", cwd=folder) as terminal:
        assert terminal.wait() == 0
    assert "safe]0;title2J" in terminal.screen
    assert "\x1b]" not in terminal.raw
    # A pipe gets the answer as it is.
    finished = penstock_here("ask", "Go", "-c", "slow.toml")
    assert finished.out == "safe\x1b]0;title\x07\x9b2J\n\tafter\n"


@pytest.mark.parametrize("arguments", [("ask", "Say hello", "--max-tokens", "8")])
def test_without_a_configuration_the_embedded_model_answers(
    bare_folder: Path, penstock_here: Cli, arguments: tuple[str, ...]
) -> None:
    finished = penstock_here(*arguments)
    assert (finished.code, finished.err) == (0, "")
    assert len(finished.out.split()) >= 1
