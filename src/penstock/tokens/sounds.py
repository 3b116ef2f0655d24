"""How long a sound's file can play, by its frames: a length in a header may say anything.

A walk ends when the steps of its request are used up; what is left of the file then counts at the
lowest rate that its format has.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from penstock.tokens.steps import Steps

_PCM = frozenset((0x0001, 0x0003, 0x0006, 0x0007, 0xFFFE))
"""WAV formats with so many bits a sample: integers, floats, A-law, mu-law, extensible."""
_OF_OTHER_WAVS = 1_500
"""Bytes a second of speech in a WAV file that is compressed: GSM has 1625."""
_MOST_HERTZ, _MOST_CHANNELS, _MOST_BITS = 192_000, 32, 64
"""What no field of a WAV header exceeds in earnest; beyond, the header counts for nothing."""
_OF_MPEG = 1_000
"""Layer III has 8 kbit/s at least, and AAC too."""
_OF_EMPTY_AAC = 12.5
"""Frames that are nothing but heads, at the lowest rate of samples."""
_OF_FLAC = 100
"""Silence."""
_LONGEST_OPUS = 0.12
"""Seconds; a packet may have no bytes but the one for its length."""
_MPEG_FRAME = re.compile(rb"\xff[\xe2\xe3\xf2\xf3\xfa\xfb\xf0\xf1\xf8\xf9]")
"""Of layer III, and of AAC."""
_FLAC_FRAME = re.compile(rb"\xff[\xf8\xf9]")
_MP3_RATES = (
    (0, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320, 0),
    (0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160, 0),
)
"""Kilobits a second in frames of MPEG 1, and of MPEG 2 and 2.5."""
_MP3_SAMPLES_A_SECOND = {3: (44_100, 48_000, 32_000), 2: (22_050, 24_000, 16_000)}
_MP3_OLD = (11_025, 12_000, 8_000)
_AAC_SAMPLES_A_SECOND = (
    *(96_000, 88_200, 64_000, 48_000, 44_100, 32_000, 24_000, 22_050, 16_000, 12_000, 11_025),
    *(8_000, 7_350),
)
_AAC_SAMPLES = 1024
_AMR_BYTES = (12, 13, 15, 17, 19, 20, 26, 31, 5, 6, 5, 5)
_AMR_WIDE_BYTES = (17, 23, 32, 36, 40, 46, 50, 58, 60, 5)
"""What follows the first byte of a frame, by its type; nothing for all further types."""
_AMR_FRAME_S = 0.02
_FLAC_SAMPLES_A_SECOND = 8_000
_STEPS_A_FLAC_FRAME = 3
"""Its checksum is calculated."""
_OPUS_FRAME_MS = (
    *(10, 20, 40, 60) * 3,
    *(10, 20) * 2,
    *(2.5, 5, 10, 20) * 4,
)
_VORBIS_SLOWEST = 8_000
_OF_OTHER_PACKETS = 1.5
"""Seconds: FLAC has blocks as long as this."""


def _checksums() -> Iterator[int]:
    for value in range(256):
        for _ in range(8):
            value = (value << 1 ^ 0x107) if value & 0x80 else value << 1  # noqa: PLW2901
        yield value


_CRC8 = (*_checksums(),)


def most_seconds(data: bytes, steps: Steps | None = None) -> float | None:
    """The longest that this file plays; None for a format that is not measured.

    `steps` are those of the whole request.
    """
    steps = steps or Steps()
    if data[:4] == b"RIFF" and data[8:12] == b"WAVE":
        return len(data) / _wav_rate(data, steps)
    if data.startswith(b"ID3") or _MPEG_FRAME.match(data):
        return _mpeg(data, steps)
    if data.startswith(b"fLaC"):
        return _flac(data, steps)
    if data.startswith(b"OggS"):
        return _ogg(data, steps)
    if data.startswith(b"#!AMR"):
        return _amr(data, steps)
    return None


def _wav_rate(data: bytes, steps: Steps) -> float:
    """The fewest bytes a second that any field of any format chunk amounts to."""
    rates: list[int] = []
    at = 12
    for _ in steps:
        kind = data[at : at + 4]
        if len(kind) < 4:
            return min(rates, default=_OF_OTHER_WAVS)
        if kind == b"fmt ":
            rates.append(_wav_format(data[at + 8 : at + 24]))
        length = _little(data, at + 4, 4)
        at += 8 + length + length % 2
    return _OF_OTHER_WAVS


def _wav_format(chunk: bytes) -> int:
    form, channels = _little(chunk, 0, 2), _little(chunk, 2, 2)
    samples, rate = _little(chunk, 4, 4), _little(chunk, 8, 4)
    block, bits = _little(chunk, 12, 2), _little(chunk, 14, 2)
    told = (rate, samples * block, samples * channels * ((bits + 7) // 8))
    if form not in _PCM or len(chunk) < 16:
        return min(_OF_OTHER_WAVS, max(1, rate))
    if samples > _MOST_HERTZ or channels > _MOST_CHANNELS or bits > _MOST_BITS:
        return _OF_OTHER_WAVS
    return min(told) or _OF_OTHER_WAVS


def _mpeg(data: bytes, steps: Steps) -> float:
    """The sum of its frames; what lies between them counts as the longest frames would."""
    seconds, at, framed = 0.0, 0, 0
    while (found := _MPEG_FRAME.search(data, at)) is not None:
        steps.take(1)
        if steps.left < 0:
            return seconds + (len(data) - at) / _OF_EMPTY_AAC
        at = found.start()
        length, lasts = (_mp3_frame if data[at + 1] & 6 else _aac_frame)(data, at)
        if not length:
            at += 1
            continue
        seconds += lasts
        framed += length
        at += length
    # A tag of pictures and words before the sound is no sound.
    between = max(0, len(data) - framed - _id3(data))
    return seconds + between / _OF_MPEG


def _aac_frame(data: bytes, at: int) -> tuple[int, float]:
    """How many bytes a frame of ADTS has, and how many seconds."""
    head = int.from_bytes(data[at : at + 7], "big")
    rate, length, blocks = head >> 34 & 15, head >> 13 & 0x1FFF, (head & 3) + 1
    if len(data) < at + 7 or rate >= len(_AAC_SAMPLES_A_SECOND) or length < 7:
        return 0, 0.0
    return length, blocks * _AAC_SAMPLES / _AAC_SAMPLES_A_SECOND[rate]


def _amr(data: bytes, steps: Steps) -> float:
    """20 ms for each frame of one channel, and for each byte where frames cannot be told apart."""
    if data.startswith(b"#!AMR\n"):
        at, sizes = 6, _AMR_BYTES
    elif data.startswith(b"#!AMR-WB\n"):
        at, sizes = 9, _AMR_WIDE_BYTES
    else:
        return len(data) * _AMR_FRAME_S
    frames = 0
    for _ in steps:
        if at >= len(data):
            return frames * _AMR_FRAME_S
        kind = data[at] >> 3 & 15
        at += 1 + (sizes[kind] if kind < len(sizes) else 0)
        frames += 1
    return (frames + len(data) - at) * _AMR_FRAME_S


def _mp3_frame(data: bytes, at: int) -> tuple[int, float]:
    """How many bytes a frame has, and how many seconds."""
    head = int.from_bytes(data[at : at + 4], "big")
    version, layer = head >> 19 & 3, head >> 17 & 3
    rate, samples = head >> 12 & 15, head >> 10 & 3
    if len(data) < at + 4 or version == 1 or layer != 1 or samples == 3:
        return 0, 0.0
    kilobits = _MP3_RATES[version != 3][rate]
    hertz = _MP3_SAMPLES_A_SECOND.get(version, _MP3_OLD)[samples]
    if not kilobits:
        return 0, 0.0
    inside = 1152 if version == 3 else 576
    return inside // 8 * kilobits * 1000 // hertz + (head >> 9 & 1), inside / hertz


def _id3(data: bytes) -> int:
    """The length of a tag at the start; a tag that claims most of the file is not believed."""
    if not data.startswith(b"ID3"):
        return 0
    length = 0
    for byte in data[6:10]:
        length = length << 7 | byte & 0x7F
    # Sound in a claimed tag would have frames, which are counted all the same.
    return min(length + 10, len(data))


def _flac(data: bytes, steps: Steps) -> float:
    """All that looks like the head of a frame, at the lower of the rates that the file names."""
    told = _big(data, 18, 3) >> 4 or _FLAC_SAMPLES_A_SECOND
    seconds, at = 0.0, 0
    for _ in steps:
        steps.take(_STEPS_A_FLAC_FRAME)
        found = _FLAC_FRAME.search(data, at)
        if found is None:
            return seconds
        at = found.start() + 2
        samples, hertz = _flac_frame(data, found.start(), told)
        seconds += samples / hertz
    return seconds + (len(data) - at) / _OF_FLAC


def _flac_frame(data: bytes, at: int, told: int) -> tuple[int, int]:
    """Samples of a frame and samples a second; nothing where its checksum is wrong."""
    head = data[at : at + 16]
    if len(head) < 6:
        return 0, told
    size, rate = head[2] >> 4, head[2] & 15
    # A number of one to seven bytes, as UTF-8 has it.
    number = head[4]
    end = 5 + (0 if number < 0x80 else 7 - (0xFF ^ number).bit_length())
    extra = {6: 1, 7: 2}.get(size, 0)
    more = {12: 1, 13: 2, 14: 2}.get(rate, 0)
    check = end + extra + more
    if size == 0 or rate == 15 or check >= len(head) or _crc8(head[:check]) != head[check]:
        return 0, told
    if extra:
        lasts = _big(head, end, extra) + 1
    else:
        lasts = 192 if size == 1 else 576 << size - 2 if size < 6 else 256 << size - 8
    named = (0, 88_200, 176_400, 192_000, 8_000, 16_000, 22_050, 24_000, 32_000, 44_100, 48_000)
    hertz = (*named, 96_000)[rate] if rate < 12 else _big(head, end + extra, more)
    if rate == 12:
        hertz *= 1000
    elif rate == 14:
        hertz *= 10
    return lasts, min(hertz or told, told)


def _crc8(data: bytes) -> int:
    value = 0
    for byte in data:
        value = _CRC8[value ^ byte]
    return value


def _ogg(data: bytes, steps: Steps) -> float:
    """The sum of its packets, whatever its pages say of their place in time."""
    seconds, vorbis, opus = 0.0, 0.0, False
    for at, body, lacing in _pages(data):
        first = data[body : body + 8]
        opus = opus or first == b"OpusHead"
        if first[:7] == b"\x01vorbis":
            vorbis = max(vorbis, _vorbis(data[body : body + 30]))
        start, end = body, body
        for length in lacing:
            end += length
            if length < 255:
                lasts = _opus(data, start, end) if opus else 0.0
                seconds += max(lasts, vorbis) or _OF_OTHER_PACKETS
                start = end
        steps.take(1 + len(lacing))
        if steps.left <= 0:
            longest = max(vorbis, _LONGEST_OPUS if opus else 0.0) or _OF_OTHER_PACKETS
            return seconds + (len(data) - at) * longest
    return seconds


def _pages(data: bytes) -> Iterator[tuple[int, int, bytes]]:
    """Where each page begins, where its body does, and the lengths of the pieces of packets."""
    at = 0
    while (at := data.find(b"OggS", at)) >= 0:
        count = data[at + 26] if at + 26 < len(data) else 0
        lacing = data[at + 27 : at + 27 + count]
        body = at + 27 + count
        yield at, body, lacing
        # A page with a wrong length may hide others.
        at = at + 4 if body + sum(lacing) > len(data) else body + sum(lacing)


def _vorbis(head: bytes) -> float:
    """The longest that a packet of Vorbis lasts: half of the larger block."""
    hertz = _little(head, 12, 4) or _VORBIS_SLOWEST
    block = 1 << (head[28] >> 4 if len(head) > 28 else 13)
    return block / 2 / hertz


def _opus(data: bytes, start: int, end: int) -> float:
    """How long a packet of Opus lasts: its first byte says how long a frame is, and how many."""
    packet = data[start : min(end, start + 2)]
    if not packet:
        return _LONGEST_OPUS
    head = packet[0]
    frames = (1, 2, 2, packet[-1] & 63)[head & 3]
    return min(_LONGEST_OPUS, max(1, frames) * _OPUS_FRAME_MS[head >> 3] / 1000)


def _big(data: bytes, at: int, size: int) -> int:
    return int.from_bytes(data[at : at + size], "big")


def _little(data: bytes, at: int, size: int) -> int:
    return int.from_bytes(data[at : at + size], "little")
