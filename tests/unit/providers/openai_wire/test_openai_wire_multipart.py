"""Forms: whatever is put in comes out, read by parsers that are not ours."""

import asyncio
from itertools import count

import pytest
from aiohttp import MultipartReader, StreamReader
from aiohttp.base_protocol import BaseProtocol
from hypothesis import example, given
from hypothesis import strategies as st

from penstock.contract.errors import InvalidRequest
from penstock.providers.openai_wire.multipart import FormField, write_form
from tests.support.wire.form import FormPart, read_form

ANY_TEXT = st.text(st.characters(codec="utf-8"))
AWKWARD = st.lists(
    st.sampled_from([b"--", b"\r\n", b"\n", b"\r", b"b0", b"b1", b"--b0--", b"\x00", b"\xff", b":"])
)
DATA = st.binary() | AWKWARD.map(b"".join)


def written(name: str) -> str:
    """A name as a browser sends it: percent signs for what a quoted text cannot hold."""
    return "".join(
        f"%{ord(letter):02X}" if letter == '"' or ord(letter) < 32 or ord(letter) == 127 else letter
        for letter in name
    )


def as_server(content_type: str, body: bytes) -> list[tuple[str | None, str | None, bytes]]:
    """Names, names of files and data, as aiohttp's server reads them."""

    async def read() -> list[tuple[str | None, str | None, bytes]]:
        loop = asyncio.get_running_loop()
        stream = StreamReader(BaseProtocol(loop), 2**20, loop=loop)
        stream.feed_data(body)
        stream.feed_eof()
        reader = MultipartReader({"Content-Type": content_type}, stream)
        parts: list[tuple[str | None, str | None, bytes]] = []
        while (part := await reader.next()) is not None:
            assert not isinstance(part, MultipartReader)
            parts.append((part.name, part.filename, bytes(await part.read())))
        return parts

    return asyncio.run(read())


def form(*fields: FormField) -> tuple[str, bytes]:
    body, content_type = write_form(fields)
    return content_type, body


def test_a_form_byte_for_byte() -> None:
    fields = [FormField("file", b"\x00\xff", "audio.wav", "audio/wav"), FormField("model", "m")]
    body, content_type = write_form(fields, lambda: "line")
    assert content_type == "multipart/form-data; boundary=line"
    assert body == (
        b'--line\r\nContent-Disposition: form-data; name="file"; filename="audio.wav"\r\n'
        b"Content-Type: audio/wav\r\n\r\n\x00\xff\r\n"
        b'--line\r\nContent-Disposition: form-data; name="model"\r\n\r\nm\r\n'
        b"--line--\r\n"
    )


@given(DATA, ANY_TEXT)
@example(b"", "")
@example(b"\r\n", "\r\n--")
def test_any_data_comes_out_as_it_went_in(data: bytes, text: str) -> None:
    content_type, body = form(
        FormField("file", data, "audio.wav", "audio/wav"), FormField("prompt", text)
    )
    assert read_form(content_type, body) == {
        "file": FormPart(data, "audio.wav", "audio/wav"),
        "prompt": FormPart(text.encode()),
    }
    assert as_server(content_type, body) == [
        ("file", "audio.wav", data),
        ("prompt", None, text.encode()),
    ]


@given(ANY_TEXT.filter(lambda name: not name.startswith(("/", "\\"))))
@example('a"b; filename="evil.sh')
@example("a\r\nX-Evil: 1\r\n\r\n")
@example("back\\slash\\")
@example("Zoë 录音.wav")
def test_any_name_of_a_file_stays_one_name(name: str) -> None:
    """Slashes at the front are left out, because the server's parser drops them itself."""
    content_type, body = form(FormField("file", b"data", name, "audio/wav"), FormField("a", "b"))
    (_, filename, data), last = as_server(content_type, body)
    assert (filename or "", data) == (written(name), b"data")
    assert last == ("a", None, b"b")


@given(DATA)
@example(b"b0b1b2b3")
def test_the_boundary_does_not_occur_in_the_data(data: bytes) -> None:
    numbers = count()
    fields = [FormField("file", data, "f"), FormField("text", "b1")]
    body, content_type = write_form(fields, lambda: f"b{next(numbers)}")
    line = content_type.partition("boundary=")[2].encode()
    assert line not in data
    assert line != b"b1"
    assert body.count(b"--" + line) == 3


def test_two_forms_have_boundaries_of_their_own() -> None:
    fields = [FormField("a", "b")]
    assert write_form(fields)[1] != write_form(fields)[1]


@pytest.mark.parametrize(
    "field", [FormField("prompt", "\ud800"), FormField("prompt", "", "\ud800")]
)
def test_half_a_character_is_the_callers_error(field: FormField) -> None:
    with pytest.raises(InvalidRequest) as caught:
        write_form([field])
    assert [problem.path for problem in caught.value.problems] == ["prompt"]
