"""Pictures and sounds are known by their first bytes, not by what a file is called."""

import base64
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.contract.errors import InvalidRequest
from penstock.contract.media import audio, audio_type, image, image_type
from penstock.contract.messages import Audio, Image

PICTURES = {
    "image/png": b"\x89PNG\r\n\x1a\n....",
    "image/jpeg": b"\xff\xd8\xff\xe0....",
    "image/gif": b"GIF89a....",
    "image/webp": b"RIFF\x00\x00\x00\x00WEBPVP8 ",
}
SOUNDS = {
    "audio/wav": b"RIFF\x00\x00\x00\x00WAVEfmt ",
    "audio/mpeg": b"ID3\x04....",
    "audio/flac": b"fLaC....",
    "audio/ogg": b"OggS....",
    "audio/mp4": b"\x00\x00\x00\x20ftypM4A ",
    "audio/webm": b"\x1a\x45\xdf\xa3....",
}


@pytest.mark.parametrize(("mime_type", "data"), PICTURES.items())
def test_a_picture_is_recognised(mime_type: str, data: bytes) -> None:
    encoded = base64.b64encode(data).decode()
    assert image(data) == Image(data=encoded, mime_type=mime_type)
    assert audio_type(data) is None


@pytest.mark.parametrize(("mime_type", "data"), SOUNDS.items())
def test_a_sound_is_recognised(mime_type: str, data: bytes) -> None:
    encoded = base64.b64encode(data).decode()
    assert audio(data) == Audio(data=encoded, mime_type=mime_type)
    assert image_type(data) is None


@pytest.mark.parametrize("data", [b"GIF87a..", b"GIF89a.."])
def test_both_kinds_of_gif_are_recognised(data: bytes) -> None:
    assert image_type(data) == "image/gif"


@pytest.mark.parametrize("head", [b"ID3", b"\xff\xfb", b"\xff\xf3", b"\xff\xf2"])
def test_every_kind_of_mp3_is_recognised(head: bytes) -> None:
    assert audio_type(head + b"....") == "audio/mpeg"


def test_a_file_is_read_whatever_its_name(tmp_path: Path) -> None:
    file = tmp_path / "cat.txt"
    file.write_bytes(PICTURES["image/png"])
    assert image(file) == image(str(file)) == image(PICTURES["image/png"])
    file.write_bytes(SOUNDS["audio/ogg"])
    assert audio(file) == audio(SOUNDS["audio/ogg"])


def test_an_address_is_left_to_the_provider_to_fetch() -> None:
    assert image("https://x/cat.png") == Image(url="https://x/cat.png")
    assert image("HTTP://x/cat", mime_type="image/png") == Image(
        url="HTTP://x/cat", mime_type="image/png"
    )


def test_a_given_type_skips_the_check() -> None:
    assert image(b"<svg/>", mime_type="image/svg+xml").mime_type == "image/svg+xml"
    assert audio(b"????", mime_type="audio/x").mime_type == "audio/x"


def test_a_file_that_is_no_picture_is_refused_with_what_would_be_right(tmp_path: Path) -> None:
    file = tmp_path / "cat.png"
    file.write_text("meow")
    with pytest.raises(InvalidRequest, match=r"cat\.png is not a picture; give a PNG, JPEG"):
        image(file)
    with pytest.raises(InvalidRequest, match=r"the given 4 bytes is not a sound; give a WAV"):
        audio(b"meow")


def test_a_file_that_cannot_be_read_is_refused_with_the_reason(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match=r"cannot read .*nowhere\.png: No such file"):
        image(tmp_path / "nowhere.png")
    with pytest.raises(InvalidRequest, match="Is a directory"):
        audio(tmp_path)
    with pytest.raises(InvalidRequest, match="null byte"):
        image("cat\0.png")


def test_a_picture_given_as_text_does_not_flood_the_message() -> None:
    with pytest.raises(InvalidRequest) as caught:
        image("data:image/png;base64," + "A" * 1_000_000)
    assert len(str(caught.value)) < 400


@given(st.sampled_from([*PICTURES.items(), *SOUNDS.items()]), st.binary())
def test_only_the_first_bytes_count(known: tuple[str, bytes], rest: bytes) -> None:
    mime_type, head = known
    assert mime_type in (image_type(head + rest), audio_type(head + rest))
