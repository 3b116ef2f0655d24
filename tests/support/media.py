"""The smallest real pictures and sounds, as base64."""

from __future__ import annotations

import base64

from tests.support.sound import wav

PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR4nGNgYGAAAAAEAAH2FzhVAAAAAElFTkSuQmCC"
GIF = "R0lGODdhAQABAIAAAAAAAAAAACwAAAAAAQABAAAIBAABBAQAOw=="
WEBP = "UklGRiQAAABXRUJQVlA4IBgAAAAwAQCdASoBAAEAAUAmJaQAA3AA/v02aAA="
WAV = base64.b64encode(wav(0.001)).decode()


def signed(signature: bytes, rest: bytes = b"\0" * 40) -> str:
    """Data that begins like a file of some type, as base64."""
    return base64.b64encode(signature + rest).decode()


JPEG = signed(b"\xff\xd8\xff\xe0")
