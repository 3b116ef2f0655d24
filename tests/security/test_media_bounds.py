"""No header of a picture or a sound lowers what the file can cost."""

from __future__ import annotations

import base64
import io
import math
import struct
from collections.abc import Callable
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image as Pictures

from penstock.contract.messages import Audio, Image
from penstock.tokens import pictures, sounds
from penstock.tokens.media import all_sizes, longest, most_image_tokens, patches
from penstock.tokens.steps import Steps
from tests.support.sound import wav

LARGEST = 8000


def picture(
    form: str, size: tuple[int, int] = (300, 200), frames: int = 1, **options: object
) -> bytes:
    """A real file of noise, which cannot be packed tightly."""
    dice = Random(5)
    images = [
        Pictures.frombytes("RGB", size, dice.randbytes(size[0] * size[1] * 3))
        for _ in range(frames)
    ]
    file = io.BytesIO()
    more = {"save_all": True, "append_images": images[1:]} if frames > 1 else {}
    images[0].save(file, form, **more, **options)
    return file.getvalue()


FILES: dict[str, Callable[[], bytes]] = {
    "png": lambda: picture("PNG"),
    "apng": lambda: picture("PNG", frames=3),
    "gif": lambda: picture("GIF"),
    "animated gif": lambda: picture("GIF", frames=3),
    "jpeg": lambda: picture("JPEG"),
    "progressive jpeg": lambda: picture("JPEG", progressive=True),
    "webp": lambda: picture("WEBP"),
    "lossless webp": lambda: picture("WEBP", lossless=True),
    "animated webp": lambda: picture("WEBP", frames=3),
}
MADE = {name: make() for name, make in FILES.items()}


def pixels(data: bytes) -> int:
    """The most pixels that the bound allows for."""
    image = Image(data=base64.b64encode(data).decode(), mime_type="image/png")
    return max(width * height for width, height in all_sizes(image))


def decoded(data: bytes) -> int:
    """The pixels of the largest frame that a decoder makes of it; 0 where it makes none."""
    try:
        with Pictures.open(io.BytesIO(data)) as image:
            image.load()
            return image.width * image.height
    except (OSError, SyntaxError, ValueError, IndexError, struct.error):
        return 0


@pytest.mark.parametrize("name", MADE)
def test_a_real_picture_has_its_own_size(name: str) -> None:
    assert 300 * 200 <= pixels(MADE[name]) < 70_000


@settings(max_examples=200)
@given(st.sampled_from(sorted(MADE)), st.data())
def test_no_changed_byte_of_a_head_lowers_the_bound_below_the_picture(
    name: str, data: st.DataObject
) -> None:
    changed = bytearray(MADE[name])
    for _ in range(data.draw(st.integers(1, 4))):
        changed[data.draw(st.integers(0, min(len(changed) - 1, 700)))] = data.draw(
            st.integers(0, 255)
        )
    file = bytes(changed)
    assert pixels(file) >= decoded(file)
    # A file of so many bytes has a pixel for each eight of them, whatever its header says.
    assert pixels(file) >= (int((len(file) / 8) ** 0.5)) ** 2


def test_a_jpeg_counts_by_its_largest_frame() -> None:
    small, large = picture("JPEG", (8, 8)), picture("JPEG", (1000, 700))
    assert pixels(small + large) == 700_000
    frame = small.index(b"\xff\xc0")
    lying = large[:2] + small[frame : frame + 19] + large[2:]
    assert pixels(lying) == 700_000


def test_a_gif_counts_by_screen_and_frames() -> None:
    data = bytearray(picture("GIF"))
    data[6:10] = struct.pack("<HH", 1, 1)
    assert pixels(bytes(data)) == 60_000


@pytest.mark.parametrize(
    "data",
    [
        b"GIF89a" + struct.pack("<HHBBB", 1, 1, 0, 0, 0) + (b"\x2c" + bytes(9) + b"\2\0") * 500_000,
        b"\x89PNG\r\n\x1a\n" + (bytes(4) + b"zero" + bytes(4)) * 500_000,
        b"RIFF\0\0\0\0WEBP" + (b"JUNK" + bytes(4)) * 500_000,
        b"\xff\xd8" + b"\xff\xfe\0\2" * 500_000,
        b"tiff" * 100,
        b"",
    ],
    ids=["gif", "png", "webp", "jpeg", "unknown", "empty"],
)
def test_a_file_of_a_million_parts_or_of_none_counts_as_the_largest(data: bytes) -> None:
    assert pixels(data) == LARGEST**2
    assert pictures.sizes(data) is None


def test_a_picture_behind_a_link_counts_as_the_largest() -> None:
    assert most_image_tokens(Image(url="https://example.org/a.png"), patches) == 1536


def seconds(data: bytes, mime_type: str = "audio/wav") -> int:
    return longest(Audio(data=base64.b64encode(data).decode(), mime_type=mime_type))


@settings(max_examples=60)
@given(st.integers(0, 2**32 - 1))
def test_no_byte_rate_shortens_a_wav(rate: int) -> None:
    data = bytearray(wav(3.0))
    data[28:32] = struct.pack("<I", rate)
    assert seconds(bytes(data)) >= 3


def test_a_wav_is_as_long_as_it_is() -> None:
    assert seconds(wav(3.0)) in {3, 4}
    plain = wav(3.0)
    junk = plain[:12] + b"JUNK" + struct.pack("<I", 4) + b"fmt " + plain[12:]
    assert seconds(junk) in {3, 4}
    # No format at all, and one that is compressed: the lowest rate of speech.
    assert seconds(b"RIFF\0\0\0\0WAVE" + bytes(15_000)) == 11
    packed = bytearray(plain)
    packed[20:22] = struct.pack("<H", 0x31)
    assert seconds(bytes(packed)) == 33


def mp3(kilobits: int, frames: int) -> bytes:
    """Frames of MPEG 1 layer III at 44.1 kHz, each 26 ms long."""
    rate = (0, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320).index(kilobits)
    length = 144 * kilobits * 1000 // 44_100
    return (b"\xff\xfb" + bytes([rate << 4]) + b"\xc4" + bytes(length - 4)) * frames


def test_an_mp3_counts_by_its_frames() -> None:
    assert seconds(mp3(128, 1000), "audio/mpeg") == 27
    # A changing rate, and a head that tells of ten frames only.
    xing = b"Xing" + struct.pack(">II", 1, 10)
    told = bytearray(mp3(32, 1) + mp3(320, 500) + mp3(32, 500))
    told[36 : 36 + len(xing)] = xing
    assert seconds(bytes(told), "audio/mpeg") == 27
    tag = b"ID3\4\0\0" + bytes([0, 0, 78, 32]) + bytes(78 * 128 + 32)
    assert seconds(tag + mp3(128, 1000), "audio/mpeg") == 27
    # What is no frame counts at the lowest rate of all.
    assert seconds(b"\xff\xfb" + bytes(10_000), "audio/mpeg") == 11


def page(packets: list[bytes], granule: int = 0) -> bytes:
    sizes = bytes(len(packet) for packet in packets)
    head = b"OggS\0\0" + struct.pack("<qIIIB", granule, 1, 0, 0, len(sizes))
    return head + sizes + b"".join(packets)


def test_an_ogg_counts_by_its_packets() -> None:
    head = page([b"OpusHead\1\1" + bytes(9)])
    # Code 3 with two frames of 60 ms in two bytes, and a place in time that says nothing.
    silent = page([b"\x1b\x02"] * 250)
    assert seconds(head + silent * 4, "audio/ogg") == 121
    twenty = page([b"\x08ab"] * 250)
    assert seconds(head + twenty * 4, "audio/ogg") in {20, 21}
    vorbis = b"\x01vorbis" + struct.pack("<IBIIIIBB", 0, 1, 44_100, 0, 0, 0, 0xB8, 1)
    assert seconds(page([vorbis]) + page([b"ab"] * 250) * 4, "audio/ogg") in {23, 24}
    assert seconds(page([b"Speex   "]) + page([b"ab"]), "audio/ogg") == 3


def flac(frames: int) -> bytes:
    """Frames of 4096 samples at 44.1 kHz without any sound in them."""
    told = b"fLaC\0\0\0\x22" + bytes(10) + bytes([0x0A, 0xC4, 0x42, 0xF0]) + bytes(20)
    head = b"\xff\xf8\xc9\x08\0"
    check = 0
    for byte in head:
        check ^= byte
        for _ in range(8):
            check = (check << 1 ^ 0x107) if check & 0x80 else check << 1
    return told + (head + bytes([check]) + bytes(8)) * frames


def aac(frames: int, rate: int = 4, blocks: int = 1) -> bytes:
    """Frames of ADTS at 44.1 kHz with nearly nothing in them, each 23 ms long."""
    head = bytes([0xFF, 0xF1, 0x40 | rate << 2, 0x80, 0x01, 0x1F, 0xFC | blocks - 1])
    return (head + b"\0") * frames


def test_an_aac_counts_by_its_frames() -> None:
    # Four minutes in 80 kB; at the lowest rate of speech that would be one.
    assert seconds(aac(10_000), "audio/aac") == 233
    assert seconds(aac(10_000, rate=12, blocks=4), "audio/aac") == 5573
    # Neither another name, nor a tag, nor rubbish before them hides the frames.
    assert seconds(aac(10_000), "audio/wav") == 233
    assert seconds(b"ID3\4\0\0\0\0\0\0" + aac(10_000), "audio/mpeg") == 233
    assert seconds(b"\xff\xf1" + bytes(8) + aac(10_000), "audio/aac") in {233, 234}
    assert seconds(b"\xff\xf1\xff\xff" + bytes(10_000), "audio/aac") == 11


def test_an_amr_counts_by_its_frames() -> None:
    assert seconds(b"#!AMR\n" + (b"\x3c" + bytes(31)) * 1000, "audio/amr") == 20
    assert seconds(b"#!AMR-WB\n" + (b"\x44" + bytes(60)) * 1000, "audio/amr-wb") == 20
    # A frame without data has one byte.
    assert seconds(b"#!AMR\n" + b"\x7c" * 15_000, "audio/amr") == 300
    assert seconds(b"#!AMR-WB\n" + b"\x7c" * 15_000, "audio/wav") == 300
    # Several channels, and what nobody has written: 20 ms for each byte.
    assert seconds(b"#!AMR_MC1.0\n" + bytes(988), "audio/amr") == 20


@pytest.mark.parametrize(
    ("rate", "samples", "block", "channels", "bits"),
    [
        (2**32 - 1, 2**32 - 1, 65_535, 65_535, 65_535),
        (2**32 - 1, 2**31, 65_535, 2, 16),
        (2**32 - 1, 44_100, 65_535, 65_535, 64),
        (2**32 - 1, 44_100, 65_535, 2, 65_535),
    ],
)
def test_a_wav_with_an_absurd_header_counts_by_its_size(
    rate: int, samples: int, block: int, channels: int, bits: int
) -> None:
    data = bytearray(wav(3.0))
    data[22:36] = struct.pack("<HIIHH", channels, samples, rate, block, bits)
    assert seconds(bytes(data)) == math.ceil(len(data) / 1500)


def test_a_flac_counts_by_its_frames() -> None:
    # An hour of silence in 500 kB, of which the header says nothing.
    assert seconds(flac(100), "audio/flac") == 10
    assert seconds(flac(38_760), "audio/flac") in {3600, 3601}


@pytest.mark.parametrize(
    "data",
    [
        b"OggS" * 300_000,
        page([b""] * 255) * 5_000,
        b"\xff\xfb\x10\xc4" * 300_000,
        b"fLaC" + b"\xff\xf8" * 300_000,
        b"RIFF\0\0\0\0WAVE" + (b"JUNK" + bytes(4)) * 200_000,
        b"\xff\xf1\x50\x80\x01\x1f\xfc\0" * 200_000,
        b"#!AMR\n" + b"\x7c" * 500_000,
    ],
    ids=["pages", "empty packets", "mp3 frames", "flac frames", "chunks", "aac", "amr"],
)
def test_a_hostile_sound_takes_a_bounded_number_of_steps(data: bytes) -> None:
    steps = Steps(1000)
    few, full = sounds.most_seconds(data, steps), sounds.most_seconds(data)
    assert steps.left <= 0
    assert few is not None
    assert full is not None
    # What is left over counts at the lowest rate: no walk finds much more, and most find less.
    assert few >= full * 0.99


def test_the_media_of_a_request_share_their_steps() -> None:
    steps = Steps(10_000)
    small = Image(data=base64.b64encode(MADE["png"]).decode())
    hostile = Image(data=base64.b64encode(b"\xff\xd8" + b"\xff\xfe\0\2" * 9_999).decode())
    assert max(all_sizes(small, steps)) == (300, 200)
    assert all_sizes(hostile, steps) == {(LARGEST, LARGEST)}
    assert steps.left <= 0
    # From here on nothing is walked through: the largest that there is, at no cost.
    assert all_sizes(small, steps) == {(LARGEST, LARGEST)}
    silent = base64.b64encode(aac(10)).decode()
    assert longest(Audio(data=silent, mime_type="audio/aac"), steps) >= 1


@given(
    st.sampled_from(
        [
            *(b"RIFF\0\0\0\0WAVE", b"\xff\xfb", b"fLaC", b"OggS", b"ID3"),
            *(b"\xff\xf1", b"#!AMR\n", b"#!AMR-WB\n", b"#!AMR_MC1.0\n"),
        ]
    ),
    st.binary(),
)
def test_no_bytes_break_a_measurement(start: bytes, rest: bytes) -> None:
    found = sounds.most_seconds(start + rest)
    assert found is not None
    assert found >= 0
