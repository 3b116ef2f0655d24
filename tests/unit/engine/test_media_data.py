"""Data of pictures and sounds must be base64 of the type that it names."""

from __future__ import annotations

import base64
import threading
from collections.abc import Callable
from typing import Any

import pytest

import penstock
from penstock import Audio, Image, InvalidRequest, ToolResult, ToolUse, user
from penstock.contract.media import data_problem
from penstock.generators.tool_results import readable
from penstock.pipeline import validate as module
from penstock.testing import FakeProvider, FakeReply, engine_with
from tests.support.media import GIF, JPEG, PNG, WAV, WEBP, signed

MP3_WITH_TAG = signed(b"ID3")

SOUND: list[Image | Audio] = [
    Image(data=PNG, mime_type="image/png"),
    Image(data=PNG, mime_type="Image/PNG; x=y"),
    Image(data=JPEG, mime_type="image/jpeg"),
    Image(data=JPEG, mime_type="image/jpg"),
    Image(data=GIF, mime_type="image/gif"),
    Image(data=WEBP, mime_type="image/webp"),
    Image(data=signed(b"II*\0"), mime_type="image/tiff"),
    Image(data=signed(b"<svg"), mime_type="image/svg+xml"),
    Audio(WAV, "audio/wav"),
    Audio(WAV, "audio/x-wav"),
    Audio(signed(b"\xff\xfa"), "audio/mpeg"),
    Audio(MP3_WITH_TAG, "audio/mp3"),
    Audio(MP3_WITH_TAG, "audio/aac"),
    Audio(MP3_WITH_TAG, "audio/flac"),
    Audio(signed(b"fLaC"), "audio/flac"),
    Audio(signed(b"OggS"), "audio/opus"),
    Audio(signed(b"\0\0\0\x20ftypM4A "), "audio/x-m4a"),
    Audio(signed(b"\x1a\x45\xdf\xa3"), "audio/webm"),
    Audio(signed(b"\1\2\3\4"), "audio/pcm"),
]
BROKEN: list[tuple[Image | Audio, str, str]] = [
    (Image(data="@@@", mime_type="image/png"), "data", "is not base64"),
    (Image(data=PNG[:-1], mime_type="image/png"), "data", "is not base64"),
    (Image(data=f"{PNG[:40]}\n{PNG[40:]}", mime_type="image/png"), "data", "is not base64"),
    (Image(data="é" * 8, mime_type="image/png"), "data", "is not base64"),
    (Image(data="aGk=", mime_type="image/png"), "data", "is not image/png"),
    (Image(data=JPEG, mime_type="image/png"), "data", "is not image/png: it is image/jpeg"),
    (Image(data=PNG, mime_type="image/heic"), "data", "is not image/heic: it is image/png"),
    (Image(data=PNG, mime_type="text/plain"), "mimeType", "'text/plain' is no type of image"),
    (Image(data=WAV, mime_type="audio/wav"), "mimeType", "is no type of image"),
    (Image(data=WAV, mime_type="image/webp"), "data", "is not image/webp"),
    (Audio("@@@", "audio/wav"), "data", "is not base64"),
    (Audio(WAV, "audio/mpeg"), "data", "is not audio/mpeg: it is audio/wav"),
    (Audio(PNG, "audio/wav"), "data", "is not audio/wav"),
    (Audio(MP3_WITH_TAG, "audio/wav"), "data", "is not audio/wav: it is audio/mpeg"),
    (Audio(PNG, "image/png"), "mimeType", "is no type of audio"),
]
PIECE = 1 << 18


@pytest.mark.parametrize("part", SOUND, ids=lambda part: part.mime_type)
def test_data_of_its_type_is_taken(part: Image | Audio) -> None:
    assert data_problem(part) is None


@pytest.mark.parametrize(("part", "field", "reason"), BROKEN)
async def test_other_data_is_refused_in_python(
    part: Image | Audio, field: str, reason: str
) -> None:
    async with engine_with(FakeProvider([])) as engine:
        calls: tuple[Callable[..., Any], ...] = (
            engine.create_message,
            engine.create_message_stream,
            engine.count_tokens,
            engine.route,
            engine.estimate,
        )
        for call in calls:
            with pytest.raises(InvalidRequest) as caught:
                await call([user("See", part)], max_tokens=9)
            (problem,) = caught.value.problems
            assert problem.path == f"messages[0].content[1].{field}"
            assert reason in problem.message


async def test_data_in_a_tool_result_is_checked_too() -> None:
    picture = Image(data="aGk=", mime_type="image/png")
    turns = [
        user("Go."),
        penstock.assistant(ToolUse("1", "look", {})),
        user(ToolResult("1", (picture,))),
    ]
    async with engine_with(FakeProvider([])) as engine:
        with pytest.raises(InvalidRequest, match=r"messages\[2\].content\[0\].content\[0\].data"):
            await engine.create_message(turns, max_tokens=9)


@pytest.mark.parametrize("at", [0, PIECE - 1, PIECE, 2 * PIECE + 3, -3])
def test_one_wrong_character_is_found_in_large_data(at: int) -> None:
    data = base64.b64encode(base64.b64decode(PNG) + b"\0" * 600_000).decode()
    assert data_problem(Image(data=data, mime_type="image/png")) is None
    at %= len(data)
    for wrong in ("!", "\n", "="):
        broken = data[:at] + wrong + data[at + 1 :]
        assert data_problem(Image(data=broken, mime_type="image/png")) is not None


async def test_large_data_is_checked_in_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[str] = []
    real = module.data_problem

    def noted(part: Image | Audio) -> tuple[str, str] | None:
        threads.append(threading.current_thread().name)
        return real(part)

    monkeypatch.setattr(module, "data_problem", noted)
    large = base64.b64encode(base64.b64decode(PNG) + b"\0" * 600_000).decode()
    async with engine_with(FakeProvider(["Yes.", "Yes."])) as engine:
        for data in (PNG, large):
            picture = Image(data=data, mime_type="image/png")
            await engine.create_message(user("See", picture), max_tokens=9)
    here = threading.current_thread().name
    assert threads[0] == here
    assert threads[1] != here


def test_a_broken_picture_of_a_tool_is_told_in_words() -> None:
    broken = Image(data="aGk=", mime_type="image/png")
    given = ToolResult("1", (broken, Image(data=PNG, mime_type="image/png")))
    first, second = readable(given, lambda part: True).content
    assert isinstance(first, penstock.Text)
    assert isinstance(second, Image)


async def test_a_run_goes_on_after_a_tool_with_a_broken_picture() -> None:
    def look() -> Image:
        return Image(data="aGk=", mime_type="image/png")

    provider = FakeProvider([FakeReply(tool_uses=(ToolUse("1", "look", {}),)), "A cat."])
    async with engine_with(provider) as engine:
        text, _ = await engine.string_generator("Look.", tools=[look]).generate()
    assert text == "A cat."
